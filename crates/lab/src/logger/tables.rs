//! The tables of a logger. They grow with time, and every record can be generated again from its number.
//!
//! Integer fields hold the number of their record, so that a reader can detect missing ones. Other values are noise
//! from the seed.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use crate::LabError;
use linkgauge_engine::protocol::pakbus::message::{RecordRange, RecordSelection, ReplyCode};
use linkgauge_engine::protocol::pakbus::record;
use linkgauge_engine::protocol::pakbus::table::{self, FieldDefinition};
use linkgauge_engine::protocol::pakbus::value::{FieldType, FieldValue, LoggerTime};
use linkgauge_model::stats::SplitMix64;
use linkgauge_model::units::{parse_count, parse_duration_with_unit};

/// A table as a user writes it: `NAME:INTERVAL:FIELD=TYPE,…[:RECORDS]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// The name of the table.
    pub name: String,
    /// Time between two records.
    pub interval: Duration,
    /// The fields of a record, in order.
    pub fields: Vec<FieldDefinition>,
    /// Capacity in records. A table is full at the start.
    pub records: u32,
}

/// The supported field types and their names.
const FIELD_TYPES: [(&str, FieldType); 7] = [
    ("FP2", FieldType::FP2),
    ("IEEE4", FieldType::IEEE4),
    ("IEEE8", FieldType::IEEE8),
    ("Int4", FieldType::INT4),
    ("UInt2", FieldType::UINT2),
    ("UInt4", FieldType::UINT4),
    ("Bool", FieldType::BOOL),
];

/// Default capacity in records.
const DEFAULT_RECORDS: u32 = 1000;

/// Maximum length of a text field in bytes: longer than any reply, so that its records are sent in fragments.
const MAX_TEXT_BYTES: u32 = 4096;

/// Maximum time that the records of a table cover. From now it ends after 1990.
const MAX_COVERED_TIME: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A CR1000 does not support shorter program intervals.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

impl FromStr for TableSpec {
    type Err = LabError;

    fn from_str(text: &str) -> Result<TableSpec, LabError> {
        let wrong = |what: &str| LabError::Invalid(format!("table '{text}': {what}"));
        let parts: Vec<&str> = text.split(':').collect();
        let (name, interval, fields, records) = match parts[..] {
            [name, interval, fields] => (name, interval, fields, None),
            [name, interval, fields, records] => (name, interval, fields, Some(records)),
            _ => return Err(wrong("write NAME:INTERVAL:FIELD=TYPE,…, like Bench:1s:Seq=Int4,Temp=FP2")),
        };
        if !is_identifier(name) || name == STATUS_TABLE {
            return Err(wrong(&format!(
                "'{name}' is not a valid name. Use letters, digits and '_', not {STATUS_TABLE}"
            )));
        }
        let interval = parse_duration_with_unit(interval).map_err(|error| wrong(&error.to_string()))?;
        if interval < MIN_INTERVAL {
            return Err(wrong("the interval must be 10ms or longer"));
        }
        let records = records
            .map_or(Ok(DEFAULT_RECORDS.into()), parse_count)
            .map_err(|error| wrong(&error.to_string()))?;
        let records = u32::try_from(records).ok().filter(|&records| records > 0);
        let records = records.ok_or_else(|| wrong("it keeps 1 to 2^32-1 records"))?;
        if interval.checked_mul(records).is_none_or(|covered| covered > MAX_COVERED_TIME) {
            return Err(wrong("its records would cover more than 30 years"));
        }
        let fields =
            fields.split(',').map(|text| parse_field(text).ok_or_else(|| wrong(&unknown_field_text(text))));
        Ok(TableSpec { name: name.to_owned(), interval, fields: fields.collect::<Result<_, _>>()?, records })
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn unknown_field_text(text: &str) -> String {
    let types = FIELD_TYPES.map(|(name, _)| name).join(", ");
    format!("'{text}' is not a field. Write NAME=TYPE with one of {types}, ASCII(LENGTH)")
}

/// `NAME=TYPE`.
fn parse_field(text: &str) -> Option<FieldDefinition> {
    let (name, kind) = text.split_once('=').filter(|(name, _)| is_identifier(name))?;
    if let Some(length) = kind.strip_prefix("ASCII(").and_then(|rest| rest.strip_suffix(')')) {
        let length = length.parse().ok().filter(|length| (1..=MAX_TEXT_BYTES).contains(length))?;
        return Some(FieldDefinition::new(name, FieldType::ASCII, length));
    }
    let (_, kind) = FIELD_TYPES.iter().find(|(known, _)| *known == kind)?;
    Some(FieldDefinition { processing: "Smp".to_owned(), ..FieldDefinition::new(name, *kind, 1) })
}

/// Name of the table that every logger has.
const STATUS_TABLE: &str = "Status";

/// All tables of a logger.
#[derive(Debug)]
pub struct Tables {
    tables: Vec<DataTable>,
    definitions: Vec<u8>,
}

/// A table and the source of its records.
#[derive(Debug)]
struct DataTable {
    definition: table::TableDefinition,
    signature: u16,
    /// Time of record 1, in nanoseconds of the logger's clock.
    first_record_ns: i64,
    source: RecordSource,
}

#[derive(Debug)]
enum RecordSource {
    /// One constant record.
    Fixed(Vec<FieldValue>),
    Seeded(u64),
}

/// Whether a reply begins with the first record of each selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstRecord {
    Included,
    /// Omitted, as some loggers do while they are busy.
    Omitted,
}

/// Maximum sizes of a reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyLimits {
    /// Bytes of records and their time stamps, unless a single record is longer.
    pub(crate) records_bytes: usize,
    /// Bytes of the whole body.
    pub(crate) body_bytes: usize,
}

/// Bytes of a time stamp.
const TIMESTAMP_BYTES: usize = 8;

/// Body bytes besides the records: table, first record, number of records or offset (the longer), remaining flag.
const BODY_OVERHEAD_BYTES: usize = 2 + 4 + 4 + 1;

impl Tables {
    /// The tables at time `now` of the logger's clock. All are full.
    pub fn new(wanted: &[TableSpec], os: &str, address: u16, seed: u64, now: LoggerTime) -> Tables {
        let version =
            FieldDefinition { is_read_only: true, ..FieldDefinition::new("OSVersion", FieldType::ASCII, 16) };
        let fields = vec![version, FieldDefinition::new("PakBusAddress", FieldType::INT4, 1)];
        let values = vec![FieldValue::Text(os.to_owned()), FieldValue::Integer(address.into())];
        let mut tables = vec![DataTable::new(
            table::TableDefinition::new(STATUS_TABLE, 1, LoggerTime::default(), fields),
            now.as_nanoseconds(),
            RecordSource::Fixed(values),
        )];
        for (wanted, number) in wanted.iter().zip(1..) {
            let interval = i64::try_from(wanted.interval.as_nanos()).unwrap_or(i64::MAX).max(1);
            let last = now.as_nanoseconds().div_euclid(interval) * interval;
            let first = last.saturating_sub(interval.saturating_mul(i64::from(wanted.records) - 1));
            let interval = LoggerTime::from_nanoseconds(interval);
            let fields = wanted.fields.clone();
            let definition = table::TableDefinition::new(&wanted.name, wanted.records, interval, fields);
            tables.push(DataTable::new(definition, first, RecordSource::Seeded(seed.wrapping_add(number))));
        }
        let definitions: Vec<_> = tables.iter().map(|table| table.definition.clone()).collect();
        Tables { tables, definitions: table::write(&definitions) }
    }

    /// The file with the table definitions.
    pub(crate) fn definitions(&self) -> &[u8] {
        &self.definitions
    }

    /// The body of a reply with the selected records, and whether a first record was omitted.
    pub fn collect(
        &self,
        selections: &[RecordSelection],
        now: LoggerTime,
        limits: ReplyLimits,
        first: FirstRecord,
    ) -> Result<(Vec<u8>, bool), ReplyCode> {
        let (mut body, mut more, mut skipped) = (Vec::new(), false, false);
        for selection in selections {
            let index = usize::from(selection.table).wrapping_sub(1);
            let table = self.tables.get(index).ok_or(ReplyCode::NO_SUCH_TABLE)?;
            if selection.signature != table.signature {
                return Err(ReplyCode::OTHER_DEFINITION);
            }
            let fields = table.field_indices(&selection.fields)?;
            let left = limits.body_bytes - body.len();
            // The next table has to wait for the next command.
            if left < limits.body_bytes / 2 {
                more = true;
                break;
            }
            let usual = limits.records_bytes.saturating_sub(body.len()).min(left - BODY_OVERHEAD_BYTES);
            let part = TableReply {
                table,
                number: selection.table,
                fields,
                limits: ReplyLimits { records_bytes: usual, body_bytes: left },
            };
            if let RecordRange::Rest(record, offset) = selection.span {
                more |= part.write_rest(record, offset, now, &mut body)?;
                continue;
            }
            let mut range = table.record_range(selection.span, now);
            if first == FirstRecord::Omitted && range.end - range.start > 1 {
                (range.start, skipped) = (range.start + 1, true);
            }
            more |= part.write_records(range, &mut body);
        }
        body.push(more.into());
        Ok((body, skipped))
    }

    /// The newest value of a field, converted to type `kind`.
    pub(crate) fn newest_value(
        &self,
        table: &str,
        field: &str,
        kind: u8,
        now: LoggerTime,
    ) -> Result<Vec<u8>, ReplyCode> {
        let named = |table_: &&DataTable| table_.definition.name.eq_ignore_ascii_case(table);
        let table = self.tables.iter().find(named).ok_or(ReplyCode::NO_SUCH_TABLE)?;
        // A scalar is equivalent to its own first element.
        let name = field.strip_suffix("(1)").unwrap_or(field);
        let mut fields = table.definition.fields.iter();
        let at =
            fields.position(|field| field.name.eq_ignore_ascii_case(name)).ok_or(ReplyCode::NO_SUCH_TABLE)?;
        let definition = &table.definition.fields[at];
        let value = convert(table.field_value(table.newest_record(now), at), FieldType(kind));
        let mut bytes = Vec::new();
        value.write(FieldType(kind), definition.dimension as usize, &mut bytes);
        if bytes.is_empty() { Err(ReplyCode::NO_CONVERSION) } else { Ok(bytes) }
    }
}

/// Converts a number to a field type. Other values are unchanged.
fn convert(value: FieldValue, kind: FieldType) -> FieldValue {
    match (&value, kind) {
        (FieldValue::Integer(number), FieldType::FP2 | FieldType::IEEE4 | FieldType::IEEE8) => {
            FieldValue::Real(*number as f64)
        }
        (FieldValue::Real(number), FieldType::INT4 | FieldType::UINT2 | FieldType::UINT4) => {
            FieldValue::Integer(*number as i64)
        }
        _ => value,
    }
}

impl DataTable {
    pub fn new(definition: table::TableDefinition, first: i64, source: RecordSource) -> DataTable {
        DataTable { signature: definition.signature(), definition, first_record_ns: first, source }
    }

    /// The number of the newest record.
    fn newest_record(&self, now: LoggerTime) -> u32 {
        match self.definition.interval.as_nanoseconds() {
            0 => 1,
            interval => {
                let since = now.as_nanoseconds().saturating_sub(self.first_record_ns);
                u32::try_from(since / interval + 1).unwrap_or(u32::MAX)
            }
        }
    }

    fn record_time(&self, record: u32) -> LoggerTime {
        let since = self.definition.interval.as_nanoseconds().saturating_mul(i64::from(record) - 1);
        LoggerTime::from_nanoseconds(self.first_record_ns.saturating_add(since))
    }

    /// The first record at or after a time.
    fn record_at(&self, time: LoggerTime) -> u32 {
        let interval = self.definition.interval.as_nanoseconds().max(1);
        let since = time.as_nanoseconds().saturating_sub(self.first_record_ns).max(0);
        u32::try_from(since.saturating_add(interval - 1) / interval + 1).unwrap_or(u32::MAX)
    }

    /// The available records in a range.
    fn record_range(&self, span: RecordRange, now: LoggerTime) -> Range<u32> {
        let next = self.newest_record(now).saturating_add(1);
        let oldest = next.saturating_sub(self.definition.capacity).max(1);
        let (from, before) = match span {
            RecordRange::From(number) if (oldest..=next).contains(&number) => (number, next),
            // A number that neither exists nor comes next restarts at the oldest record.
            RecordRange::All | RecordRange::From(_) | RecordRange::Rest(..) => (oldest, next),
            RecordRange::Newest(count) => (next.saturating_sub(count), next),
            RecordRange::Numbers(from, before) => (from, before),
            RecordRange::Times(from, before) => (self.record_at(from), self.record_at(before)),
        };
        let from = from.clamp(oldest, next);
        from..before.clamp(from, next)
    }

    /// Indices of fields by number. An empty list selects all fields.
    fn field_indices(&self, numbers: &[u16]) -> Result<Vec<usize>, ReplyCode> {
        let count = self.definition.fields.len();
        if numbers.is_empty() {
            return Ok((0..count).collect());
        }
        let places = numbers.iter().map(|&number| usize::from(number).wrapping_sub(1));
        places.map(|place| if place < count { Ok(place) } else { Err(ReplyCode::NO_SUCH_TABLE) }).collect()
    }

    /// One value of one record.
    fn field_value(&self, record: u32, place: usize) -> FieldValue {
        let seed = match &self.source {
            RecordSource::Fixed(values) => return values[place].clone(),
            RecordSource::Seeded(seed) => seed,
        };
        let kind = self.definition.fields[place].kind;
        let mut random = SplitMix64::new(seed ^ u64::from(record) << 16 ^ (place as u64) << 48);
        match kind {
            FieldType::FP2 | FieldType::IEEE4 | FieldType::IEEE8 => {
                FieldValue::Real((random.uniform() * 10_000.0).round() / 100.0)
            }
            FieldType::BOOL => FieldValue::Boolean(random.uniform() < 0.5),
            FieldType::ASCII => FieldValue::Text(format!("record {record}")),
            _ => FieldValue::Integer(record.into()),
        }
    }
}

/// The part of a reply for one table.
struct TableReply<'a> {
    table: &'a DataTable,
    number: u16,
    fields: Vec<usize>,
    limits: ReplyLimits,
}

impl TableReply<'_> {
    /// The encoded fields of a record.
    fn record_bytes(&self, record: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &place in &self.fields {
            let length = self.table.definition.fields[place].dimension as usize;
            self.table.field_value(record, place).write(
                self.table.definition.fields[place].kind,
                length,
                &mut bytes,
            );
        }
        bytes
    }

    /// Writes as many of these records as fit. Returns true if some remain.
    fn write_records(&self, range: Range<u32>, body: &mut Vec<u8>) -> bool {
        let definition = &self.table.definition;
        let (mut records, mut length) = (Vec::new(), 0);
        for record in range.clone() {
            let values = self.record_bytes(record);
            let timed = records.is_empty() || !definition.has_fixed_interval();
            let longer = length + values.len() + if timed { TIMESTAMP_BYTES } else { 0 };
            let room = if records.is_empty() {
                self.limits.body_bytes - BODY_OVERHEAD_BYTES
            } else {
                self.limits.records_bytes
            };
            if longer > room {
                break;
            }
            length = longer;
            records.push((self.table.record_time(record), values));
        }
        if records.is_empty() && !range.is_empty() {
            self.write_fragment(range.start, 0, body);
            return true;
        }
        record::write(body, self.number, definition, range.start, &records);
        records.len() < range.len()
    }

    /// Writes a record from a byte offset on. Returns true if bytes remain.
    fn write_rest(
        &self,
        record: u32,
        offset: u32,
        now: LoggerTime,
        body: &mut Vec<u8>,
    ) -> Result<bool, ReplyCode> {
        match self.table.record_range(RecordRange::All, now).contains(&record) {
            true => Ok(self.write_fragment(record, offset, body)),
            false => Err(ReplyCode::OUT_OF_BOUNDS),
        }
    }

    /// Writes a fragment of a record. Returns true if bytes remain.
    fn write_fragment(&self, record: u32, offset: u32, body: &mut Vec<u8>) -> bool {
        let time = self.table.record_time(record);
        let mut bytes = [time.seconds.to_be_bytes(), time.nanoseconds.to_be_bytes()].concat();
        bytes.extend(self.record_bytes(record));
        let begin = (offset as usize).min(bytes.len());
        let end = (begin + self.limits.body_bytes - BODY_OVERHEAD_BYTES).min(bytes.len());
        record::write_fragment(body, self.number, record, begin as u32, &bytes[begin..end]);
        end < bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_engine::protocol::pakbus::record::{BlockContent, read};

    const REPLY_LIMITS: ReplyLimits = ReplyLimits { records_bytes: 512, body_bytes: 995 };

    fn instant(seconds: i32) -> LoggerTime {
        LoggerTime { seconds, nanoseconds: 0 }
    }

    fn tables(wanted: &[&str]) -> (Tables, Vec<table::TableDefinition>) {
        let wanted: Vec<TableSpec> = wanted.iter().map(|text| text.parse().unwrap()).collect();
        let tables = Tables::new(&wanted, "CR1000.Std.24", 1, 7, instant(1005));
        let definitions = table::read(tables.definitions()).unwrap();
        (tables, definitions)
    }

    /// Numbers and seconds of the selected records of table 2, and whether more remain.
    fn collect(now: i32, span: RecordRange) -> (Vec<u32>, Vec<i32>, bool) {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4,Temp=FP2:90"]);
        let signature = definitions[1].signature();
        let selection = RecordSelection { table: 2, signature, span, fields: Vec::new() };
        let (body, _) =
            tables.collect(&[selection], instant(now), REPLY_LIMITS, FirstRecord::Included).unwrap();
        let (blocks, more) = read(&definitions, &body).unwrap();
        let BlockContent::Records(records) = &blocks[0].content else { panic!() };
        for record in records {
            assert_eq!(record.values[0], FieldValue::Integer(record.number.into()));
        }
        let numbers = records.iter().map(|record| record.number).collect();
        (numbers, records.iter().map(|record| record.time.seconds).collect(), more)
    }

    #[test]
    fn table_starts_full_and_grows() {
        let (numbers, times, more) = collect(1005, RecordRange::Newest(3));
        assert_eq!((numbers, times, more), (vec![88, 89, 90], vec![980, 990, 1000], false));
        let (numbers, times, _) = collect(1029, RecordRange::Newest(1));
        assert_eq!((numbers, times), (vec![92], vec![1020]));
    }

    #[test]
    fn every_mode_selects_as_documented() {
        let numbers = |now, span| collect(now, span).0;
        let (all, _, more) = collect(1005, RecordRange::All);
        // 8 bytes of time stamp and 84 records of 6 bytes make 512.
        assert_eq!((all.len(), all[0], more), (84, 1, true));
        assert_eq!(numbers(1025, RecordRange::All)[0], 3, "the two oldest are gone");
        assert_eq!(numbers(1005, RecordRange::From(89)), [89, 90]);
        assert!(numbers(1005, RecordRange::From(91)).is_empty(), "the next one");
        assert_eq!(numbers(1005, RecordRange::From(92))[0], 1, "neither there nor the next");
        assert_eq!(numbers(1025, RecordRange::From(1))[0], 3);
        assert_eq!(numbers(1005, RecordRange::Numbers(5, 7)), [5, 6]);
        assert_eq!(numbers(1005, RecordRange::Numbers(90, 700)), [90]);
        assert!(numbers(1005, RecordRange::Numbers(7, 5)).is_empty());
        assert_eq!(numbers(1005, RecordRange::Numbers(0, u32::MAX)).len(), 84);
        assert_eq!(numbers(1005, RecordRange::Times(instant(980), instant(1000))), [88, 89]);
        assert_eq!(numbers(1005, RecordRange::Times(instant(981), instant(1001))), [89, 90]);
        assert_eq!(numbers(1005, RecordRange::Times(instant(i32::MIN), instant(i32::MAX))).len(), 84);
        assert!(numbers(1005, RecordRange::Newest(0)).is_empty());
    }

    #[test]
    fn long_records_are_fragmented() {
        let (tables, definitions) = tables(&["Long:1s:Name=ASCII(2000),Seq=UInt4:5"]);
        let signature = definitions[1].signature();
        let collect = |span| {
            let selection = RecordSelection { table: 2, signature, span, fields: Vec::new() };
            let (body, _) =
                tables.collect(&[selection], instant(1005), REPLY_LIMITS, FirstRecord::Included).unwrap();
            assert!(body.len() <= REPLY_LIMITS.body_bytes);
            let (mut blocks, more) = read(&definitions, &body).unwrap();
            (blocks.remove(0), more)
        };
        let (mut block, mut more) = collect(RecordRange::From(4));
        let mut whole = Vec::new();
        while let BlockContent::Fragment { offset, bytes } = &block.content {
            assert_eq!((*offset as usize, block.first_record), (whole.len(), 4));
            whole.extend(bytes);
            if !more {
                break;
            }
            (block, more) = collect(RecordRange::Rest(4, whole.len() as u32));
        }
        assert_eq!(whole.len(), 8 + 2000 + 4);
        assert!(whole[8..].starts_with(b"record 4\0"));
        assert!(whole.ends_with(&[0, 0, 0, 4]));
    }

    #[test]
    fn fields_are_selected_and_unknown_ones_refused() {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4,Temp=FP2,Name=ASCII(9):5"]);
        let signature = definitions[1].signature();
        let collect = |table, signature, fields: &[u16], span| {
            let selection = RecordSelection { table, signature, span, fields: fields.to_vec() };
            tables
                .collect(&[selection], instant(1005), REPLY_LIMITS, FirstRecord::Included)
                .map(|(body, _)| body)
        };
        let body = collect(2, signature, &[3], RecordRange::Newest(1)).unwrap();
        assert!(body.ends_with(b"record 5\0\0"), "{body:?}");
        assert_eq!(collect(2, signature, &[4], RecordRange::All), Err(ReplyCode::NO_SUCH_TABLE));
        assert_eq!(collect(2, 0, &[], RecordRange::All), Err(ReplyCode::OTHER_DEFINITION));
        assert_eq!(collect(3, 0, &[], RecordRange::All), Err(ReplyCode::NO_SUCH_TABLE));
        assert_eq!(collect(0, 0, &[], RecordRange::All), Err(ReplyCode::NO_SUCH_TABLE));
        assert_eq!(collect(2, signature, &[], RecordRange::Rest(9, 0)), Err(ReplyCode::OUT_OF_BOUNDS));
        assert_eq!(
            collect(1, definitions[0].signature(), &[], RecordRange::All).unwrap().len(),
            6 + 2 + 8 + 20 + 1
        );
    }

    #[test]
    fn records_are_skipped_on_request() {
        let (tables, definitions) = tables(&["Bench:10s:Seq=Int4:5"]);
        let signature = definitions[1].signature();
        let selection = |span| [RecordSelection { table: 2, signature, span, fields: Vec::new() }];
        let (body, skipped) = tables
            .collect(&selection(RecordRange::All), instant(1005), REPLY_LIMITS, FirstRecord::Omitted)
            .unwrap();
        let (blocks, _) = read(&definitions, &body).unwrap();
        assert_eq!((blocks[0].first_record, skipped), (2, true));
        let (_, skipped) = tables
            .collect(&selection(RecordRange::Newest(1)), instant(1005), REPLY_LIMITS, FirstRecord::Omitted)
            .unwrap();
        assert!(!skipped, "one record stays");
    }

    #[test]
    fn no_reply_is_longer_than_a_packet() {
        let (tables, definitions) = tables(&["A:10s:Seq=Int4:900", "B:10s:Name=ASCII(250):9"]);
        let selection = |table: u16, span| {
            let signature = definitions[usize::from(table) - 1].signature();
            RecordSelection { table, signature, span, fields: Vec::new() }
        };
        for most in [195, 400, 995] {
            let room = ReplyLimits { records_bytes: 512, body_bytes: most };
            let selections = [
                selection(2, RecordRange::Newest(40)),
                selection(3, RecordRange::All),
                selection(2, RecordRange::All),
            ];
            let (body, _) = tables.collect(&selections, instant(1005), room, FirstRecord::Included).unwrap();
            assert!(body.len() <= most, "{} of {most}", body.len());
            let (blocks, more) = read(&definitions, &body).unwrap();
            assert!(more && !blocks.is_empty());
        }
    }

    #[test]
    fn values_are_those_of_the_newest_record() {
        let (tables, _) = tables(&["Bench:10s:Seq=Int4,Temp=IEEE4:90"]);
        let value = |table, field, kind: FieldType| tables.newest_value(table, field, kind.0, instant(1005));
        assert_eq!(value("Bench", "Seq", FieldType::INT4), Ok(vec![0, 0, 0, 90]));
        assert_eq!(value("bench", "seq(1)", FieldType::IEEE4), Ok(90f32.to_be_bytes().to_vec()));
        assert_eq!(value("Status", "PakBusAddress", FieldType::UINT2), Ok(vec![0, 1]));
        assert_eq!(value("Bench", "Seq", FieldType(99)), Err(ReplyCode::NO_CONVERSION));
        assert_eq!(value("Bench", "Nothing", FieldType::INT4), Err(ReplyCode::NO_SUCH_TABLE));
        assert_eq!(value("Nothing", "Seq", FieldType::INT4), Err(ReplyCode::NO_SUCH_TABLE));
    }

    #[test]
    fn each_mistake_has_a_clear_message() {
        let error = |text: &str| text.parse::<TableSpec>().unwrap_err().to_string();
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
        table 'Status:1s:A=FP2': 'Status' is not a valid name. Use letters, digits and '_', not Status
        table 'B b:1s:A=FP2': 'B b' is not a valid name. Use letters, digits and '_', not Status
        table 'B:1:A=FP2': '1' is not a duration with its unit (like 250ms, 10s, 2min)
        table 'B:1ms:A=FP2': the interval must be 10ms or longer
        table 'B:1s:A=FP9': 'A=FP9' is not a field. Write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A=ASCII(0)': 'A=ASCII(0)' is not a field. Write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A': 'A' is not a field. Write NAME=TYPE with one of FP2, IEEE4, IEEE8, Int4, UInt2, UInt4, Bool, ASCII(LENGTH)
        table 'B:1s:A=FP2:0': it keeps 1 to 2^32-1 records
        table 'B:1d:A=FP2:100k': its records would cover more than 30 years
        ");
    }
}
