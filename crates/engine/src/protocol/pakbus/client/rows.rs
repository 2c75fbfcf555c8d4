//! Formats records as text: comma-separated values, or TOA5, the format of the logger tools.

use std::fmt::Write;

use crate::protocol::pakbus::record::TableRecord;
use crate::protocol::pakbus::reply::LoggerProgram;
use crate::protocol::pakbus::table::{FieldDefinition, TableDefinition};
use crate::protocol::pakbus::value::{FieldType, FieldValue, LOGGER_EPOCH_UNIX_SECONDS, LoggerTime};
use linkgauge_model::spreadsheet::escape_formula;

/// Format of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TableFormat {
    /// One line of names, then a line for each record (RFC 4180, lines end with a line feed).
    #[default]
    Csv,
    /// Four header lines and quoted texts; lines end with carriage return and line feed.
    Toa5,
}

impl TableFormat {
    pub(crate) const NAMES: [(&str, TableFormat); 2] =
        [("csv", TableFormat::Csv), ("toa5", TableFormat::Toa5)];

    fn line_end(self) -> &'static str {
        match self {
            TableFormat::Csv => "\n",
            TableFormat::Toa5 => "\r\n",
        }
    }

    /// Formats a cell. CSV is opened by spreadsheets and needs protection; TOA5 is read by the manufacturer's tools and
    /// stays exact.
    fn format_cell(self, text: &str) -> String {
        // Terminals show what a logger sends.
        let text = text.replace(|c: char| c.is_control() && !"\t\r\n".contains(c), "\u{fffd}");
        let text = if self == TableFormat::Csv { escape_formula(&text) } else { text.as_str().into() };
        let bare = self == TableFormat::Csv && !text.contains([',', '"', '\n', '\r']);
        if bare { text.into_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    }

    fn format_line<'a>(self, cells: impl Iterator<Item = &'a str>) -> String {
        let cells: Vec<String> = cells.map(|cell| self.format_cell(cell)).collect();
        cells.join(",") + self.line_end()
    }

    /// Formats the lines before the records; `station` and `program` are as reported by the logger.
    pub(crate) fn format_header(
        self,
        table: &TableDefinition,
        station: &str,
        program: Option<&LoggerProgram>,
    ) -> String {
        let columns: Vec<(String, &FieldDefinition)> = table.fields.iter().flat_map(column_names).collect();
        let names = columns.iter().map(|(name, _)| name.as_str());
        if self == TableFormat::Csv {
            return self.format_line(["time", "record"].into_iter().chain(names));
        }
        let empty = String::new();
        let of_program = |get: fn(&LoggerProgram) -> &String| program.map_or(&empty, get).as_str();
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
            self.format_line(file.into_iter()),
            self.format_line(["TIMESTAMP", "RECORD"].into_iter().chain(names)),
            self.format_line(["TS", "RN"].into_iter().chain(units)),
            self.format_line(["", ""].into_iter().chain(processing)),
        ]
        .concat()
    }

    /// Formats the line of one record.
    pub(crate) fn format_row(self, table: &TableDefinition, record: &TableRecord) -> String {
        let mut line = match self {
            TableFormat::Csv => format!("{},{}", format_time(record.time, 'T'), record.number),
            TableFormat::Toa5 => format!("\"{}\",{}", format_time(record.time, ' '), record.number),
        };
        let kinds = table.fields.iter().flat_map(|field| (0..field.value_count()).map(|_| field.kind));
        for (value, kind) in record.values.iter().zip(kinds) {
            line.push(',');
            line += &self.format_value(value, kind);
        }
        line + self.line_end()
    }

    fn format_value(self, value: &FieldValue, kind: FieldType) -> String {
        let special =
            |csv: &str, toa5: &str| if self == TableFormat::Csv { csv.to_owned() } else { toa5.to_owned() };
        match value {
            FieldValue::Integer(number) => number.to_string(),
            FieldValue::Boolean(is) if self == TableFormat::Toa5 => if *is { "-1" } else { "0" }.to_owned(),
            FieldValue::Boolean(is) => is.to_string(),
            FieldValue::Real(number) if number.is_nan() => special("NaN", "\"NAN\""),
            FieldValue::Real(number) if number.is_infinite() && *number > 0.0 => special("inf", "\"INF\""),
            FieldValue::Real(number) if number.is_infinite() => special("-inf", "\"-INF\""),
            // As short as the logger's own precision.
            FieldValue::Real(number) if SINGLE_PRECISION_TYPES.contains(&kind.0) => {
                (*number as f32).to_string()
            }
            FieldValue::Real(number) => number.to_string(),
            FieldValue::Text(text) => self.format_cell(text),
            FieldValue::Time(at) => {
                self.format_cell(&format_time(*at, if self == TableFormat::Csv { 'T' } else { ' ' }))
            }
            FieldValue::Raw(bytes) => {
                let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
                    let _ = write!(digits, "{byte:02x}");
                    digits
                });
                self.format_cell(&digits)
            }
        }
    }
}

/// Type codes of IEEE4 in either byte order.
const SINGLE_PRECISION_TYPES: [u8; 2] = [9, 24];

/// Names of the columns, one for each value of a field.
fn column_names(field: &FieldDefinition) -> impl Iterator<Item = (String, &FieldDefinition)> {
    let several = field.value_count() > 1;
    (0..field.value_count()).map(move |at| match several {
        true => (format!("{}({})", field.name, field.first_index.saturating_add(at)), field),
        false => (field.name.clone(), field),
    })
}

/// Formats the logger's clock, which has no time zone; with fractions of a second only if they are not zero.
fn format_time(at: LoggerTime, between: char) -> String {
    const SECOND: i64 = 1_000_000_000;
    let nanoseconds = at.as_nanoseconds();
    let seconds = nanoseconds.div_euclid(SECOND);
    let fraction = nanoseconds.rem_euclid(SECOND);
    let date =
        jiff::Timestamp::from_second(seconds.saturating_add(LOGGER_EPOCH_UNIX_SECONDS)).unwrap_or_default();
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

    fn table() -> TableDefinition {
        let field = |name: &str, kind, units: &str| FieldDefinition {
            units: units.to_owned(),
            processing: "Avg".to_owned(),
            ..FieldDefinition::new(name, kind, 1)
        };
        let pair = FieldDefinition { dimension: 2, ..field("Pair", FieldType::FP2, "m/s") };
        let fields = vec![
            field("Volts", FieldType::IEEE4, "V"),
            pair,
            field("On", FieldType::BOOL, ""),
            FieldDefinition::new("Say", FieldType::ASCII, 20),
        ];
        TableDefinition::new("Bench", 10, LoggerTime { seconds: 60, nanoseconds: 0 }, fields)
    }

    fn records() -> [TableRecord; 2] {
        let record = |number, nanoseconds, values| TableRecord {
            number,
            time: LoggerTime { seconds: 0x43B7_3278, nanoseconds },
            values,
        };
        let text = |text: &str| FieldValue::Text(text.to_owned());
        [
            record(
                99,
                0,
                vec![
                    FieldValue::Real(f64::from(12.99f32)),
                    FieldValue::Real(10.01),
                    FieldValue::Real(f64::NAN),
                    FieldValue::Boolean(true),
                    text("a, \"b\""),
                ],
            ),
            record(
                100,
                500_000_000,
                vec![
                    FieldValue::Real(f64::INFINITY),
                    FieldValue::Real(-0.5),
                    FieldValue::Real(7.0),
                    FieldValue::Boolean(false),
                    text(""),
                ],
            ),
        ]
    }

    fn format_table(format: TableFormat, program: Option<&LoggerProgram>) -> String {
        let table = table();
        let rows = records().map(|record| format.format_row(&table, &record));
        format.format_header(&table, "Hill", program) + &rows.concat()
    }

    #[test]
    fn csv_matches_rfc_4180() {
        insta::assert_snapshot!(format_table(TableFormat::Csv, None), @r#"
        time,record,Volts,Pair(1),Pair(2),On,Say
        2026-01-01T01:38:00,99,12.99,10.01,NaN,true,"a, ""b"""
        2026-01-01T01:38:00.5,100,inf,-0.5,7,false,
        "#);
    }

    #[test]
    fn a_logger_puts_no_formula_into_a_spreadsheet() {
        let fields = vec![
            FieldDefinition::new("=A1", FieldType::ASCII, 20),
            FieldDefinition::new("n", FieldType::IEEE4, 1),
        ];
        let table = TableDefinition::new("T", 10, LoggerTime::default(), fields);
        let values = vec![FieldValue::Text("=cmd|'/C calc'!A0".to_owned()), FieldValue::Real(-1.5)];
        let record = TableRecord { number: 1, time: LoggerTime::default(), values };
        let text =
            TableFormat::Csv.format_header(&table, "", None) + &TableFormat::Csv.format_row(&table, &record);
        assert_eq!(text, "time,record,'=A1,n\n1990-01-01T00:00:00,1,'=cmd|'/C calc'!A0,-1.5\n");
        assert!(TableFormat::Toa5.format_row(&table, &record).ends_with(",\"=cmd|'/C calc'!A0\",-1.5\r\n"));
    }

    #[test]
    fn toa5_has_its_four_lines() {
        let program = LoggerProgram {
            os: "CR1000.Std.24".to_owned(),
            os_signature: 0,
            serial_number: "12345".to_owned(),
            on_power_up: String::new(),
            state: 1,
            name: "CPU:bench.CR1".to_owned(),
            signature: 0xBEEF,
            compiled: LoggerTime::default(),
            result: String::new(),
        };
        let text = format_table(TableFormat::Toa5, Some(&program));
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
