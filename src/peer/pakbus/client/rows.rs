//! Records as text: comma-separated values, or TOA5, which the tools for such loggers read. Not for where the text goes.

use std::fmt::Write;

use crate::cell::inert;
use crate::peer::pakbus::record::Record;
use crate::peer::pakbus::reply::Program;
use crate::peer::pakbus::table::{Field, Table};
use crate::peer::pakbus::value::{Instant, Type, UNIX_1990, Value};

/// How a table is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// One line of names, then a line a record (RFC 4180, lines end with a line feed).
    #[default]
    Csv,
    /// Four lines of head, quoted texts, lines end with carriage return and line feed.
    Toa5,
}

impl Format {
    pub const NAMES: [(&str, Format); 2] = [("csv", Format::Csv), ("toa5", Format::Toa5)];

    fn line_end(self) -> &'static str {
        match self {
            Format::Csv => "\n",
            Format::Toa5 => "\r\n",
        }
    }

    /// A cell. Spreadsheets open the one format, and the tools of the logger's maker the other, so that stays exact.
    fn text(self, text: &str) -> String {
        let text = if self == Format::Csv { inert(text) } else { text.into() };
        let bare = self == Format::Csv && !text.contains([',', '"', '\n', '\r']);
        if bare { text.into_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    }

    fn line<'a>(self, cells: impl Iterator<Item = &'a str>) -> String {
        let cells: Vec<String> = cells.map(|cell| self.text(cell)).collect();
        cells.join(",") + self.line_end()
    }

    /// What stands in front of the records; `station` and `program` are what the logger told of itself.
    pub fn head(self, table: &Table, station: &str, program: Option<&Program>) -> String {
        let columns: Vec<(String, &Field)> = table.fields.iter().flat_map(columns).collect();
        let names = columns.iter().map(|(name, _)| name.as_str());
        if self == Format::Csv {
            return self.line(["time", "record"].into_iter().chain(names));
        }
        let empty = String::new();
        let of_program = |get: fn(&Program) -> &String| program.map_or(&empty, get).as_str();
        let signature = program.map_or(empty.clone(), |program| program.signature.to_string());
        let os = of_program(|program| &program.os);
        let model = os.split('.').next().unwrap_or_default();
        let file = [
            "TOA5",
            station,
            model,
            of_program(|program| &program.serial_number),
            os,
            of_program(|program| &program.name),
            &signature,
            &table.name,
        ];
        let units = columns.iter().map(|(_, field)| field.units.as_str());
        let processing = columns.iter().map(|(_, field)| field.processing.as_str());
        [
            self.line(file.into_iter()),
            self.line(["TIMESTAMP", "RECORD"].into_iter().chain(names)),
            self.line(["TS", "RN"].into_iter().chain(units)),
            self.line(["", ""].into_iter().chain(processing)),
        ]
        .concat()
    }

    /// The line of one record.
    pub fn row(self, table: &Table, record: &Record) -> String {
        let mut line = match self {
            Format::Csv => format!("{},{}", time(record.time, 'T'), record.number),
            Format::Toa5 => format!("\"{}\",{}", time(record.time, ' '), record.number),
        };
        let kinds = table.fields.iter().flat_map(|field| (0..field.values()).map(|_| field.kind));
        for (value, kind) in record.values.iter().zip(kinds) {
            line.push(',');
            line += &self.value(value, kind);
        }
        line + self.line_end()
    }

    fn value(self, value: &Value, kind: Type) -> String {
        let special =
            |csv: &str, toa5: &str| if self == Format::Csv { csv.to_owned() } else { toa5.to_owned() };
        match value {
            Value::Integer(number) => number.to_string(),
            Value::Boolean(is) if self == Format::Toa5 => if *is { "-1" } else { "0" }.to_owned(),
            Value::Boolean(is) => is.to_string(),
            Value::Real(number) if number.is_nan() => special("NaN", "\"NAN\""),
            Value::Real(number) if number.is_infinite() && *number > 0.0 => special("inf", "\"INF\""),
            Value::Real(number) if number.is_infinite() => special("-inf", "\"-INF\""),
            // As short as the logger's own precision.
            Value::Real(number) if SINGLE.contains(&kind.0) => (*number as f32).to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => self.text(text),
            Value::Time(at) => self.text(&time(*at, if self == Format::Csv { 'T' } else { ' ' })),
            Value::Raw(bytes) => {
                let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
                    let _ = write!(digits, "{byte:02x}");
                    digits
                });
                self.text(&digits)
            }
        }
    }
}

/// IEEE4, either end first.
const SINGLE: [u8; 2] = [9, 24];

/// One column for each value of a field.
fn columns(field: &Field) -> impl Iterator<Item = (String, &Field)> {
    let several = field.values() > 1;
    (0..field.values()).map(move |at| match several {
        true => (format!("{}({})", field.name, field.begin.saturating_add(at)), field),
        false => (field.name.clone(), field),
    })
}

/// The logger's own clock, which knows no zone; fractions of a second only where there are any.
fn time(at: Instant, between: char) -> String {
    const SECOND: i64 = 1_000_000_000;
    let nanoseconds = at.as_nanoseconds();
    let seconds = nanoseconds.div_euclid(SECOND);
    let fraction = nanoseconds.rem_euclid(SECOND);
    let date = jiff::Timestamp::from_second(seconds.saturating_add(UNIX_1990)).unwrap_or_default();
    let mut text = date.strftime("%Y-%m-%d").to_string();
    text.push(between);
    text += &date.strftime("%H:%M:%S").to_string();
    if fraction > 0 {
        text += format!(".{fraction:09}").trim_end_matches('0');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let field = |name: &str, kind, units: &str| Field {
            units: units.to_owned(),
            processing: "Avg".to_owned(),
            ..Field::new(name, kind, 1)
        };
        let pair = Field { dimension: 2, ..field("Pair", Type::FP2, "m/s") };
        let fields = vec![
            field("Volts", Type::IEEE4, "V"),
            pair,
            field("On", Type::BOOL, ""),
            Field::new("Say", Type::ASCII, 20),
        ];
        Table::new("Bench", 10, Instant { seconds: 60, nanoseconds: 0 }, fields)
    }

    fn records() -> [Record; 2] {
        let record = |number, nanoseconds, values| Record {
            number,
            time: Instant { seconds: 0x43B7_3278, nanoseconds },
            values,
        };
        let text = |text: &str| Value::Text(text.to_owned());
        [
            record(
                99,
                0,
                vec![
                    Value::Real(f64::from(12.99f32)),
                    Value::Real(10.01),
                    Value::Real(f64::NAN),
                    Value::Boolean(true),
                    text("a, \"b\""),
                ],
            ),
            record(
                100,
                500_000_000,
                vec![
                    Value::Real(f64::INFINITY),
                    Value::Real(-0.5),
                    Value::Real(7.0),
                    Value::Boolean(false),
                    text(""),
                ],
            ),
        ]
    }

    fn written(format: Format, program: Option<&Program>) -> String {
        let table = table();
        let rows = records().map(|record| format.row(&table, &record));
        format.head(&table, "Hill", program) + &rows.concat()
    }

    #[test]
    fn csv_is_what_every_program_reads() {
        insta::assert_snapshot!(written(Format::Csv, None), @r#"
        time,record,Volts,Pair(1),Pair(2),On,Say
        2026-01-01T01:38:00,99,12.99,10.01,NaN,true,"a, ""b"""
        2026-01-01T01:38:00.5,100,inf,-0.5,7,false,
        "#);
    }

    #[test]
    fn a_logger_puts_no_formula_into_a_spreadsheet() {
        let fields = vec![Field::new("=A1", Type::ASCII, 20), Field::new("n", Type::IEEE4, 1)];
        let table = Table::new("T", 10, Instant::default(), fields);
        let values = vec![Value::Text("=cmd|'/C calc'!A0".to_owned()), Value::Real(-1.5)];
        let record = Record { number: 1, time: Instant::default(), values };
        let text = Format::Csv.head(&table, "", None) + &Format::Csv.row(&table, &record);
        assert_eq!(text, "time,record,'=A1,n\n1990-01-01T00:00:00,1,'=cmd|'/C calc'!A0,-1.5\n");
        assert!(Format::Toa5.row(&table, &record).ends_with(",\"=cmd|'/C calc'!A0\",-1.5\r\n"));
    }

    #[test]
    fn toa5_has_its_four_lines() {
        let program = Program {
            os: "CR1000.Std.24".to_owned(),
            os_signature: 0,
            serial_number: "12345".to_owned(),
            on_power_up: String::new(),
            state: 1,
            name: "CPU:bench.CR1".to_owned(),
            signature: 0xBEEF,
            compiled: Instant::default(),
            result: String::new(),
        };
        let text = written(Format::Toa5, Some(&program));
        assert_eq!(text.matches("\r\n").count(), 6);
        insta::assert_snapshot!(text.replace('\r', ""), @r#"
        "TOA5","Hill","CR1000","12345","CR1000.Std.24","CPU:bench.CR1","48879","Bench"
        "TIMESTAMP","RECORD","Volts","Pair(1)","Pair(2)","On","Say"
        "TS","RN","V","m/s","m/s","",""
        "","","Avg","Avg","Avg","Avg",""
        "2026-01-01 01:38:00",99,12.99,10.01,"NAN",-1,"a, ""b"""
        "2026-01-01 01:38:00.5",100,"INF",-0.5,7,0,""
        "#);
    }
}
