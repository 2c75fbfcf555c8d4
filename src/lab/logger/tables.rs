//! The tables of a logger: they grow by themselves, and every record can be told again from its number.
//!
//! Whole numbers hold the number of their record, so that a reader can check that none is missing; other values are
//! noise made of the seed.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use crate::lab::LabError;
use crate::peer::pakbus::message::{Code, Selection, Span};
use crate::peer::pakbus::record;
use crate::peer::pakbus::table::{self, Field};
use crate::peer::pakbus::value::{Instant, Type, Value};
use crate::stats::SplitMix64;
use crate::units::{count, duration_with_unit};

/// A table as somebody asks for it: `NAME:INTERVAL:FIELD=TYPE,…[:RECORDS]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub interval: Duration,
    pub fields: Vec<Field>,
    /// Records that the logger keeps; so many are there when it starts.
    pub records: u32,
}

/// The types that a table here may have, as people write them.
const TYPES: [(&str, Type); 7] = [
    ("FP2", Type::FP2),
    ("IEEE4", Type::IEEE4),
    ("IEEE8", Type::IEEE8),
    ("Int4", Type::INT4),
    ("UInt2", Type::UINT2),
    ("UInt4", Type::UINT4),
    ("Bool", Type::BOOL),
];

/// Records kept where nothing is said.
const RECORDS: u32 = 1000;

/// Longest text of a field, in bytes: longer than any reply, so that its records come in pieces.
const LONGEST_TEXT: u32 = 4096;

/// Longest time that the records of a table may cover: from now it does not reach back beyond 1990.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A CR1000 runs no program faster.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

impl FromStr for Wanted {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Wanted, LabError> {
        let wrong = |what: &str| LabError(format!("table '{text}': {what}"));
        let parts: Vec<&str> = text.split(':').collect();
        let (name, interval, fields, records) = match parts[..] {
            [name, interval, fields] => (name, interval, fields, None),
            [name, interval, fields, records] => (name, interval, fields, Some(records)),
            _ => return Err(wrong("write NAME:INTERVAL:FIELD=TYPE,…, like Bench:1s:Seq=Int4,Temp=FP2")),
        };
        if !is_name(name) || name == STATUS {
            return Err(wrong(&format!(
                "'{name}' is no name for it: use letters, digits and '_', not {STATUS}"
            )));
        }
        let interval = duration_with_unit(interval).map_err(|error| wrong(&error.to_string()))?;
        if interval < SHORTEST_INTERVAL {
            return Err(wrong("the interval must be 10ms or longer"));
        }
        let records = records.map_or(Ok(RECORDS.into()), count).map_err(|error| wrong(&error.to_string()))?;
        let records = u32::try_from(records).ok().filter(|&records| records > 0);
        let records = records.ok_or_else(|| wrong("it keeps 1 to 2^32-1 records"))?;
        if interval.checked_mul(records).is_none_or(|covered| covered > LONGEST) {
            return Err(wrong("its records would cover more than 30 years"));
        }
        let fields = fields.split(',').map(|text| field(text).ok_or_else(|| wrong(&unknown(text))));
        Ok(Wanted { name: name.to_owned(), interval, fields: fields.collect::<Result<_, _>>()?, records })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn unknown(text: &str) -> String {
    let types = TYPES.map(|(name, _)| name).join(", ");
    format!("'{text}' is no field: write NAME=TYPE with one of {types}, ASCII(LENGTH)")
}

/// `NAME=TYPE`.
fn field(text: &str) -> Option<Field> {
    let (name, kind) = text.split_once('=').filter(|(name, _)| is_name(name))?;
    if let Some(length) = kind.strip_prefix("ASCII(").and_then(|rest| rest.strip_suffix(')')) {
        let length = length.parse().ok().filter(|length| (1..=LONGEST_TEXT).contains(length))?;
        return Some(Field::new(name, Type::ASCII, length));
    }
    let (_, kind) = TYPES.iter().find(|(known, _)| *known == kind)?;
    Some(Field { processing: "Smp".to_owned(), ..Field::new(name, *kind, 1) })
}

/// Name of the table that every logger has.
const STATUS: &str = "Status";

/// All tables of a logger.
#[derive(Debug)]
pub struct Tables {
    tables: Vec<Table>,
    definitions: Vec<u8>,
}

/// A table and where its records come from.
#[derive(Debug)]
struct Table {
    definition: table::Table,
    signature: u16,
    /// Of record 1, in nanoseconds of the logger's clock.
    first: i64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// One record that says the same for ever.
    Fixed(Vec<Value>),
    Seeded(u64),
}

/// What a reply may hold.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of records and their times, unless one record alone is longer.
    pub usual: usize,
    /// Bytes of the whole body.
    pub most: usize,
}

/// Bytes of a time stamp.
const TIME: usize = 8;

/// Bytes of a body beside the records: table, first record, number of records or offset (the longer), what is left.
const AROUND: usize = 2 + 4 + 4 + 1;

impl Tables {
    /// The tables as they are at `now` of the logger's clock, each full.
    pub fn new(wanted: &[Wanted], os: &str, address: u16, seed: u64, now: Instant) -> Tables {
        let version = Field { read_only: true, ..Field::new("OSVersion", Type::ASCII, 16) };
        let fields = vec![version, Field::new("PakBusAddress", Type::INT4, 1)];
        let values = vec![Value::Text(os.to_owned()), Value::Integer(address.into())];
        let mut tables = vec![Table::new(
            table::Table::new(STATUS, 1, Instant::default(), fields),
            now.as_nanoseconds(),
            Source::Fixed(values),
        )];
        for (wanted, number) in wanted.iter().zip(1..) {
            let interval = i64::try_from(wanted.interval.as_nanos()).unwrap_or(i64::MAX).max(1);
            let last = now.as_nanoseconds().div_euclid(interval) * interval;
            let first = last.saturating_sub(interval.saturating_mul(i64::from(wanted.records) - 1));
            let interval = Instant::from_nanoseconds(interval);
            let fields = wanted.fields.clone();
            let definition = table::Table::new(&wanted.name, wanted.records, interval, fields);
            tables.push(Table::new(definition, first, Source::Seeded(seed.wrapping_add(number))));
        }
        let definitions: Vec<_> = tables.iter().map(|table| table.definition.clone()).collect();
        Tables { tables, definitions: table::write(&definitions) }
    }

    /// The file that describes them.
    pub fn definitions(&self) -> &[u8] {
        &self.definitions
    }

    /// The body of a reply with what was selected, and whether `skip` left a record out: then the first one of each
    /// table is missing.
    pub fn collect(
        &self,
        selections: &[Selection],
        now: Instant,
        room: Room,
        skip: bool,
    ) -> Result<(Vec<u8>, bool), Code> {
        let (mut body, mut more, mut skipped) = (Vec::new(), false, false);
        for selection in selections {
            let index = usize::from(selection.table).wrapping_sub(1);
            let table = self.tables.get(index).ok_or(Code::NO_SUCH_TABLE)?;
            if selection.signature != table.signature {
                return Err(Code::OTHER_DEFINITION);
            }
            let fields = table.fields(&selection.fields)?;
            let left = room.most - body.len();
            // The next table waits for the next command.
            if left < room.most / 2 {
                more = true;
                break;
            }
            let usual = room.usual.saturating_sub(body.len()).min(left - AROUND);
            let part = Part { table, number: selection.table, fields, room: Room { usual, most: left } };
            if let Span::Rest(record, offset) = selection.span {
                more |= part.rest(record, offset, now, &mut body)?;
                continue;
            }
            let mut range = table.range(selection.span, now);
            if skip && range.end - range.start > 1 {
                (range.start, skipped) = (range.start + 1, true);
            }
            more |= part.records(range, &mut body);
        }
        body.push(more.into());
        Ok((body, skipped))
    }

    /// The newest value of a field, as a value of type `kind`.
    pub fn value(&self, table: &str, field: &str, kind: u8, now: Instant) -> Result<Vec<u8>, Code> {
        let named = |table_: &&Table| table_.definition.name.eq_ignore_ascii_case(table);
        let table = self.tables.iter().find(named).ok_or(Code::NO_SUCH_TABLE)?;
        // A scalar is its own first element.
        let name = field.strip_suffix("(1)").unwrap_or(field);
        let mut fields = table.definition.fields.iter();
        let at = fields.position(|field| field.name.eq_ignore_ascii_case(name)).ok_or(Code::NO_SUCH_TABLE)?;
        let definition = &table.definition.fields[at];
        let value = converted(table.value(table.newest(now), at), Type(kind));
        let mut bytes = Vec::new();
        value.write(Type(kind), definition.dimension as usize, &mut bytes);
        if bytes.is_empty() { Err(Code::NO_CONVERSION) } else { Ok(bytes) }
    }
}

/// A number as a value that fields of this type have; anything else as it is.
fn converted(value: Value, kind: Type) -> Value {
    match (&value, kind) {
        (Value::Integer(number), Type::FP2 | Type::IEEE4 | Type::IEEE8) => Value::Real(*number as f64),
        (Value::Real(number), Type::INT4 | Type::UINT2 | Type::UINT4) => Value::Integer(*number as i64),
        _ => value,
    }
}

impl Table {
    fn new(definition: table::Table, first: i64, source: Source) -> Table {
        Table { signature: definition.signature(), definition, first, source }
    }

    /// The number of the newest record.
    fn newest(&self, now: Instant) -> u32 {
        match self.definition.interval.as_nanoseconds() {
            0 => 1,
            interval => {
                let since = now.as_nanoseconds().saturating_sub(self.first);
                u32::try_from(since / interval + 1).unwrap_or(u32::MAX)
            }
        }
    }

    fn time(&self, record: u32) -> Instant {
        let since = self.definition.interval.as_nanoseconds().saturating_mul(i64::from(record) - 1);
        Instant::from_nanoseconds(self.first.saturating_add(since))
    }

    /// The first record at or after a time.
    fn at(&self, time: Instant) -> u32 {
        let interval = self.definition.interval.as_nanoseconds().max(1);
        let since = time.as_nanoseconds().saturating_sub(self.first).max(0);
        u32::try_from(since.saturating_add(interval - 1) / interval + 1).unwrap_or(u32::MAX)
    }

    /// What a span selects of the records that are there.
    fn range(&self, span: Span, now: Instant) -> Range<u32> {
        let next = self.newest(now).saturating_add(1);
        let oldest = next.saturating_sub(self.definition.size).max(1);
        let (from, before) = match span {
            Span::From(number) if (oldest..=next).contains(&number) => (number, next),
            // A number that is not there and will not be the next one either begins anew.
            Span::All | Span::From(_) | Span::Rest(..) => (oldest, next),
            Span::Newest(count) => (next.saturating_sub(count), next),
            Span::Numbers(from, before) => (from, before),
            Span::Times(from, before) => (self.at(from), self.at(before)),
        };
        let from = from.clamp(oldest, next);
        from..before.clamp(from, next)
    }

    /// The places of fields by their numbers; all of them for none.
    fn fields(&self, numbers: &[u16]) -> Result<Vec<usize>, Code> {
        let count = self.definition.fields.len();
        if numbers.is_empty() {
            return Ok((0..count).collect());
        }
        let places = numbers.iter().map(|&number| usize::from(number).wrapping_sub(1));
        places.map(|place| if place < count { Ok(place) } else { Err(Code::NO_SUCH_TABLE) }).collect()
    }

    /// One value of one record.
    fn value(&self, record: u32, place: usize) -> Value {
        let seed = match &self.source {
            Source::Fixed(values) => return values[place].clone(),
            Source::Seeded(seed) => seed,
        };
        let kind = self.definition.fields[place].kind;
        let mut random = SplitMix64::new(seed ^ u64::from(record) << 16 ^ (place as u64) << 48);
        match kind {
            Type::FP2 | Type::IEEE4 | Type::IEEE8 => {
                Value::Real((random.uniform() * 10_000.0).round() / 100.0)
            }
            Type::BOOL => Value::Boolean(random.uniform() < 0.5),
            Type::ASCII => Value::Text(format!("record {record}")),
            _ => Value::Integer(record.into()),
        }
    }
}

/// What goes into a reply of one table.
struct Part<'a> {
    table: &'a Table,
    number: u16,
    fields: Vec<usize>,
    room: Room,
}

impl Part<'_> {
    /// The fields of a record as bytes.
    fn values(&self, record: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &place in &self.fields {
            let length = self.table.definition.fields[place].dimension as usize;
            self.table.value(record, place).write(
                self.table.definition.fields[place].kind,
                length,
                &mut bytes,
            );
        }
        bytes
    }

    /// Writes what fits of these records; whether there are more.
    fn records(&self, range: Range<u32>, body: &mut Vec<u8>) -> bool {
        let definition = &self.table.definition;
        let (mut records, mut length) = (Vec::new(), 0);
        for record in range.clone() {
            let values = self.values(record);
            let timed = records.is_empty() || !definition.is_regular();
            let longer = length + values.len() + if timed { TIME } else { 0 };
            let room = if records.is_empty() { self.room.most - AROUND } else { self.room.usual };
            if longer > room {
                break;
            }
            length = longer;
            records.push((self.table.time(record), values));
        }
        if records.is_empty() && !range.is_empty() {
            self.fragment(range.start, 0, body);
            return true;
        }
        record::write(body, self.number, definition, range.start, &records);
        records.len() < range.len()
    }

    /// Writes the rest of a record from a byte on; whether there is more of it.
    fn rest(&self, record: u32, offset: u32, now: Instant, body: &mut Vec<u8>) -> Result<bool, Code> {
        match self.table.range(Span::All, now).contains(&record) {
            true => Ok(self.fragment(record, offset, body)),
            false => Err(Code::OUT_OF_BOUNDS),
        }
    }

    /// Writes a piece of a record; whether there is more of it.
    fn fragment(&self, record: u32, offset: u32, body: &mut Vec<u8>) -> bool {
        let time = self.table.time(record);
        let mut bytes = [time.seconds.to_be_bytes(), time.nanoseconds.to_be_bytes()].concat();
        bytes.extend(self.values(record));
        let begin = (offset as usize).min(bytes.len());
        let end = (begin + self.room.most - AROUND).min(bytes.len());
        record::write_fragment(body, self.number, record, begin as u32, &bytes[begin..end]);
        end < bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pakbus::record::{Content, read};

    const ROOM: Room = Room { usual: 512, most: 995 };

    fn instant(seconds: i32) -> Instant {
        Instant { seconds, nanoseconds: 0 }
    }

    fn tables(wanted: &[&str]) -> (Tables, Vec<table::Table>) {
        let wanted: Vec<Wanted> = wanted.iter().map(|text| text.parse().unwrap()).collect();
        let tables = Tables::new(&wanted, "CR1000.Std.24", 1, 7, instant(1005));
        let definitions = table::read(tables.definitions()).unwrap();
        (tables, definitions)
    }

    /// Numbers and seconds of what a span selects of table 2, and whether there is more.
    fn collect(now: i32, span: Span) -> (Vec<u32>, Vec<i32>, bool) {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4,Temp=FP2:90"]);
        let signature = definitions[1].signature();
        let selection = Selection { table: 2, signature, span, fields: Vec::new() };
        let (body, _) = tables.collect(&[selection], instant(now), ROOM, false).unwrap();
        let (blocks, more) = read(&definitions, &body).unwrap();
        let Content::Records(records) = &blocks[0].content else { panic!() };
        for record in records {
            assert_eq!(record.values[0], Value::Integer(record.number.into()));
        }
        let numbers = records.iter().map(|record| record.number).collect();
        (numbers, records.iter().map(|record| record.time.seconds).collect(), more)
    }

    #[test]
    fn a_table_is_full_at_the_start_and_grows() {
        let (numbers, times, more) = collect(1005, Span::Newest(3));
        assert_eq!((numbers, times, more), (vec![88, 89, 90], vec![980, 990, 1000], false));
        let (numbers, times, _) = collect(1029, Span::Newest(1));
        assert_eq!((numbers, times), (vec![92], vec![1020]));
    }

    #[test]
    fn every_mode_selects_what_the_manual_says() {
        let numbers = |now, span| collect(now, span).0;
        let (all, _, more) = collect(1005, Span::All);
        // 8 bytes of time and 84 records of 6 bytes make 512.
        assert_eq!((all.len(), all[0], more), (84, 1, true));
        assert_eq!(numbers(1025, Span::All)[0], 3, "the two oldest are gone");
        assert_eq!(numbers(1005, Span::From(89)), [89, 90]);
        assert!(numbers(1005, Span::From(91)).is_empty(), "the next one");
        assert_eq!(numbers(1005, Span::From(92))[0], 1, "neither there nor the next");
        assert_eq!(numbers(1025, Span::From(1))[0], 3);
        assert_eq!(numbers(1005, Span::Numbers(5, 7)), [5, 6]);
        assert_eq!(numbers(1005, Span::Numbers(90, 700)), [90]);
        assert!(numbers(1005, Span::Numbers(7, 5)).is_empty());
        assert_eq!(numbers(1005, Span::Numbers(0, u32::MAX)).len(), 84);
        assert_eq!(numbers(1005, Span::Times(instant(980), instant(1000))), [88, 89]);
        assert_eq!(numbers(1005, Span::Times(instant(981), instant(1001))), [89, 90]);
        assert_eq!(numbers(1005, Span::Times(instant(i32::MIN), instant(i32::MAX))).len(), 84);
        assert!(numbers(1005, Span::Newest(0)).is_empty());
    }

    #[test]
    fn a_record_that_is_too_long_comes_in_pieces() {
        let (tables, definitions) = tables(&["Long:1s:Name=ASCII(2000),Seq=UInt4:5"]);
        let signature = definitions[1].signature();
        let collect = |span| {
            let selection = Selection { table: 2, signature, span, fields: Vec::new() };
            let (body, _) = tables.collect(&[selection], instant(1005), ROOM, false).unwrap();
            assert!(body.len() <= ROOM.most);
            let (mut blocks, more) = read(&definitions, &body).unwrap();
            (blocks.remove(0), more)
        };
        let (mut block, mut more) = collect(Span::From(4));
        let mut whole = Vec::new();
        while let Content::Fragment { offset, bytes } = &block.content {
            assert_eq!((*offset as usize, block.first), (whole.len(), 4));
            whole.extend(bytes);
            if !more {
                break;
            }
            (block, more) = collect(Span::Rest(4, whole.len() as u32));
        }
        assert_eq!(whole.len(), 8 + 2000 + 4);
        assert!(whole[8..].starts_with(b"record 4\0"));
        assert!(whole.ends_with(&[0, 0, 0, 4]));
    }

    #[test]
    fn fields_can_be_chosen_and_what_is_not_there_is_refused() {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4,Temp=FP2,Name=ASCII(9):5"]);
        let signature = definitions[1].signature();
        let collect = |table, signature, fields: &[u16], span| {
            let selection = Selection { table, signature, span, fields: fields.to_vec() };
            tables.collect(&[selection], instant(1005), ROOM, false).map(|(body, _)| body)
        };
        let body = collect(2, signature, &[3], Span::Newest(1)).unwrap();
        assert!(body.ends_with(b"record 5\0\0"), "{body:?}");
        assert_eq!(collect(2, signature, &[4], Span::All), Err(Code::NO_SUCH_TABLE));
        assert_eq!(collect(2, 0, &[], Span::All), Err(Code::OTHER_DEFINITION));
        assert_eq!(collect(3, 0, &[], Span::All), Err(Code::NO_SUCH_TABLE));
        assert_eq!(collect(0, 0, &[], Span::All), Err(Code::NO_SUCH_TABLE));
        assert_eq!(collect(2, signature, &[], Span::Rest(9, 0)), Err(Code::OUT_OF_BOUNDS));
        assert_eq!(collect(1, definitions[0].signature(), &[], Span::All).unwrap().len(), 6 + 2 + 8 + 20 + 1);
    }

    #[test]
    fn records_are_skipped_on_request() {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4:5"]);
        let signature = definitions[1].signature();
        let selection = |span| [Selection { table: 2, signature, span, fields: Vec::new() }];
        let (body, skipped) = tables.collect(&selection(Span::All), instant(1005), ROOM, true).unwrap();
        let (blocks, _) = read(&definitions, &body).unwrap();
        assert_eq!((blocks[0].first, skipped), (2, true));
        let (_, skipped) = tables.collect(&selection(Span::Newest(1)), instant(1005), ROOM, true).unwrap();
        assert!(!skipped, "one record stays");
    }

    #[test]
    fn no_reply_is_longer_than_a_packet() {
        let (tables, definitions) = tables(&["A:10s:Seq=Int4:900", "B:10s:Name=ASCII(250):9"]);
        let selection = |table: u16, span| {
            let signature = definitions[usize::from(table) - 1].signature();
            Selection { table, signature, span, fields: Vec::new() }
        };
        for most in [195, 400, 995] {
            let room = Room { usual: 512, most };
            let selections =
                [selection(2, Span::Newest(40)), selection(3, Span::All), selection(2, Span::All)];
            let (body, _) = tables.collect(&selections, instant(1005), room, false).unwrap();
            assert!(body.len() <= most, "{} of {most}", body.len());
            let (blocks, more) = read(&definitions, &body).unwrap();
            assert!(more && !blocks.is_empty());
        }
    }

    #[test]
    fn values_are_those_of_the_newest_record() {
        let (tables, _) = tables(&["Bench:10s:Seq=Int4,Temp=IEEE4:90"]);
        let value = |table, field, kind: Type| tables.value(table, field, kind.0, instant(1005));
        assert_eq!(value("Bench", "Seq", Type::INT4), Ok(vec![0, 0, 0, 90]));
        assert_eq!(value("bench", "seq(1)", Type::IEEE4), Ok(90f32.to_be_bytes().to_vec()));
        assert_eq!(value("Status", "PakBusAddress", Type::UINT2), Ok(vec![0, 1]));
        assert_eq!(value("Bench", "Seq", Type(99)), Err(Code::NO_CONVERSION));
        assert_eq!(value("Bench", "Nothing", Type::INT4), Err(Code::NO_SUCH_TABLE));
        assert_eq!(value("Nothing", "Seq", Type::INT4), Err(Code::NO_SUCH_TABLE));
    }

    #[test]
    fn one_clear_line_for_each_slip() {
        let error = |text: &str| text.parse::<Wanted>().unwrap_err().to_string();
        let slips = [
            "Bench",
            "Status:1s:A=FP2",
            "B b:1s:A=FP2",
            "B:1:A=FP2",
            "B:1ms:A=FP2",
            "B:1s:A=FP9",
            "B:1s:A=ASCII(0)",
            "B:1s:A",
            "B:1s:A=FP2:0",
            "B:1d:A=FP2:100k",
        ];
        insta::assert_snapshot!(slips.map(error).join("\n"), @"
        table 'Bench': write NAME:INTERVAL:FIELD=TYPE,…, like Bench:1s:Seq=Int4,Temp=FP2
        table 'Status:1s:A=FP2': 'Status' is no name for it: use letters, digits and '_', not Status
        table 'B b:1s:A=FP2': 'B b' is no name for it: use letters, digits and '_', not Status
        table 'B:1:A=FP2': '1' is not a duration with its unit (like 250ms, 10s, 2min)
        table 'B:1ms:A=FP2': the interval must be 10ms or longer
        table 'B:1s:A=FP9': 'A=FP9' is no field: write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A=ASCII(0)': 'A=ASCII(0)' is no field: write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A': 'A' is no field: write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A=FP2:0': it keeps 1 to 2^32-1 records
        table 'B:1d:A=FP2:100k': its records would cover more than 30 years
        ");
    }
}
