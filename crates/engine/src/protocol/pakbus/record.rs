//! Records of tables in a reply to a collection.

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};
use super::table::TableDefinition;
use super::value::{FieldValue, LoggerTime};

/// Part of a reply that belongs to one table.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordBlock {
    /// The table's number, from 1.
    pub table: u16,
    /// Number of the first record of the block.
    pub first_record: u32,
    /// The records, or a part of one.
    pub content: BlockContent,
}

/// Content of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockContent {
    /// Complete records with consecutive numbers.
    Records(Vec<TableRecord>),
    /// A fragment of a record that is too long for one reply. Offsets count from the time of the record.
    Fragment {
        /// Position of the fragment in the record, in bytes.
        offset: u32,
        /// The fragment.
        bytes: Vec<u8>,
    },
}

/// A record of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRecord {
    /// Number of the record: consecutive, with a wrap after 2^32 - 1.
    pub number: u32,
    /// Time stamp of the record.
    pub time: LoggerTime,
    /// Values in the order of the fields; an array has several.
    pub values: Vec<FieldValue>,
}

/// Flag of a block in which an offset follows instead of a number of records.
const FRAGMENT_FLAG: u32 = 1 << 31;

/// Parses the blocks in a reply's body; returns whether there are more records. `tables` are those of the logger; the
/// request must be for all fields.
///
/// # Errors
///
/// [`PakBusParseError::TooShort`] for a truncated reply, [`PakBusParseError::Unknown`] for an unknown table or type.
pub fn read(tables: &[TableDefinition], body: &[u8]) -> Result<(Vec<RecordBlock>, bool), PakBusParseError> {
    let mut reader = MessageReader(body);
    let mut blocks = Vec::new();
    // The last byte is the flag for more records.
    while reader.0.len() > 1 {
        let (table, first) = (reader.u16()?, reader.u32()?);
        let definition = tables.get(usize::from(table).wrapping_sub(1)).ok_or(PakBusParseError::Unknown)?;
        let content = match reader.0.first() {
            Some(bits) if bits & 0x80 != 0 => {
                let offset = reader.u32()? & !FRAGMENT_FLAG;
                let length = reader.0.len().checked_sub(1).ok_or(PakBusParseError::TooShort)?;
                BlockContent::Fragment { offset, bytes: reader.take(length)?.to_vec() }
            }
            _ => BlockContent::Records(parse_records(definition, first, &mut reader)?),
        };
        blocks.push(RecordBlock { table, first_record: first, content });
    }
    Ok((blocks, reader.u8()? != 0))
}

/// Parses a record joined from fragments: its time, then its values.
///
/// # Errors
///
/// [`PakBusParseError::TooShort`] if values are missing, [`PakBusParseError::Unknown`] for an unsupported type.
pub(crate) fn parse_record(
    table: &TableDefinition,
    number: u32,
    bytes: &[u8],
) -> Result<TableRecord, PakBusParseError> {
    let mut reader = MessageReader(bytes);
    let time = reader.instant()?;
    let values = parse_values(table, &mut reader)?;
    if reader.is_empty() { Ok(TableRecord { number, time, values }) } else { Err(PakBusParseError::Unknown) }
}

fn parse_records(
    table: &TableDefinition,
    first: u32,
    reader: &mut MessageReader,
) -> Result<Vec<TableRecord>, PakBusParseError> {
    let count = reader.u16()?;
    // Records without values take no bytes, so their count could not be checked.
    if count > 0 && table.value_count() == 0 {
        return Err(PakBusParseError::Unknown);
    }
    let mut records = Vec::new();
    let mut time = LoggerTime::default();
    for number in 0..u32::from(count) {
        time = if number == 0 || !table.has_fixed_interval() {
            reader.instant()?
        } else {
            LoggerTime::from_nanoseconds(
                time.as_nanoseconds().saturating_add(table.interval.as_nanoseconds()),
            )
        };
        records.push(TableRecord {
            number: first.wrapping_add(number),
            time,
            values: parse_values(table, reader)?,
        });
    }
    Ok(records)
}

fn parse_values(
    table: &TableDefinition,
    reader: &mut MessageReader,
) -> Result<Vec<FieldValue>, PakBusParseError> {
    let mut values = Vec::new();
    for field in &table.fields {
        for _ in 0..field.value_count() {
            values.push(FieldValue::read(field.kind, field.dimension as usize, reader)?);
        }
    }
    Ok(values)
}

/// Appends a block of whole records, each as its time and the bytes of its values.
pub fn write(
    into: &mut Vec<u8>,
    number: u16,
    table: &TableDefinition,
    first: u32,
    records: &[(LoggerTime, Vec<u8>)],
) {
    into.u16(number);
    into.u32(first);
    into.u16(records.len() as u16);
    for (at, (time, values)) in records.iter().enumerate() {
        if at == 0 || !table.has_fixed_interval() {
            into.instant(*time);
        }
        into.extend(values);
    }
}

/// Appends a block with a fragment of one record.
pub fn write_fragment(into: &mut Vec<u8>, number: u16, record: u32, offset: u32, bytes: &[u8]) {
    into.u16(number);
    into.u32(record);
    into.u32(FRAGMENT_FLAG | offset);
    into.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::super::table::example_tables;
    use super::*;
    use crate::protocol::pakbus::parse_hex;
    use proptest::prelude::*;

    fn block(body: &str) -> (RecordBlock, bool) {
        let (mut blocks, more) = read(&example_tables(), &parse_hex(body)).unwrap();
        assert_eq!(blocks.len(), 1);
        (blocks.remove(0), more)
    }

    fn record(number: u32, seconds: i32, nanoseconds: i32, values: &[FieldValue]) -> TableRecord {
        TableRecord { number, time: LoggerTime { seconds, nanoseconds }, values: values.to_vec() }
    }

    #[test]
    fn records_at_intervals_have_one_time() {
        let body = "0002 00000063 0002 43B7327800000000 00000063 414FD70A 444B 00000064 41500000 444C";
        let (found, more) = block(&format!("{body} 00"));
        let values = |n, volts: f32, temp| {
            [FieldValue::Integer(n), FieldValue::Real(volts.into()), FieldValue::Real(temp)]
        };
        let records = [
            record(99, 0x43B7_3278, 0, &values(99, 12.99, 10.99)),
            record(100, 0x43B7_3278 + 60, 0, &values(100, 13.0, 11.0)),
        ];
        assert_eq!(
            found,
            RecordBlock { table: 2, first_record: 99, content: BlockContent::Records(records.to_vec()) }
        );
        assert!(!more);
        let bytes = |record: &TableRecord| {
            let mut bytes = Vec::new();
            for (value, field) in record.values.iter().zip(&example_tables()[1].fields) {
                value.write(field.kind, 1, &mut bytes);
            }
            (record.time, bytes)
        };
        let mut written = Vec::new();
        write(&mut written, 2, &example_tables()[1], 99, &records.each_ref().map(bytes));
        assert_eq!(written, parse_hex(body));
    }

    #[test]
    fn records_of_events_have_each_its_time() {
        let body = "0003 00000008 0002 43B71B8500000000 3FC00000 43B71B891DCD6500 40200000";
        let (found, more) = block(&format!("{body} 01"));
        let records = [
            record(8, 0x43B7_1B85, 0, &[FieldValue::Real(1.5)]),
            record(9, 0x43B7_1B89, 500_000_000, &[FieldValue::Real(2.5)]),
        ];
        assert_eq!(found.content, BlockContent::Records(records.to_vec()));
        assert!(more);
        let mut written = Vec::new();
        let bytes = records.map(|record| {
            let mut bytes = Vec::new();
            record.values[0].write(example_tables()[2].fields[0].kind, 1, &mut bytes);
            (record.time, bytes)
        });
        write(&mut written, 3, &example_tables()[2], 8, &bytes);
        assert_eq!(written, parse_hex(body));
    }

    #[test]
    fn a_reply_holds_no_more_values_than_bytes() {
        use crate::protocol::pakbus::table::FieldDefinition;
        use crate::protocol::pakbus::value::FieldType;
        let minute = LoggerTime { seconds: 60, nanoseconds: 0 };
        let empty: Vec<FieldDefinition> =
            (0..50_000).map(|_| FieldDefinition::new("e", FieldType::ASCII, 0)).collect();
        let mut tables = example_tables();
        tables.push(TableDefinition::new("Empty", 10, minute, empty));
        let reply = parse_hex("0005 00000001 7FFF 43B71B8500000000 00 00");
        assert_eq!(read(&tables, &reply), Err(PakBusParseError::Unknown));
    }

    #[test]
    fn nothing_and_fragments() {
        let (nothing, more) = block("0002 00000065 0000 00");
        assert_eq!(
            nothing,
            RecordBlock { table: 2, first_record: 101, content: BlockContent::Records(Vec::new()) }
        );
        assert!(!more);
        let body = "0004 00000021 80000000 43B71B8000000000 41424344";
        let (fragment, more) = block(&format!("{body} 01"));
        let bytes = parse_hex("43B71B8000000000 41424344");
        assert_eq!(fragment.content, BlockContent::Fragment { offset: 0, bytes: bytes.clone() });
        assert_eq!((fragment.table, fragment.first_record, more), (4, 33, true));
        let mut written = Vec::new();
        write_fragment(&mut written, 4, 33, 0, &bytes);
        assert_eq!(written, parse_hex(body));
        let (whole, _) = block("0004 00000021 0001 43B71B8000000000 41424344 00");
        assert_eq!(
            whole.content,
            BlockContent::Records(vec![record(33, 0x43B7_1B80, 0, &[FieldValue::Text("ABCD".into())])])
        );
    }

    #[test]
    fn what_does_not_fit_the_definitions_is_refused() {
        for wrong in ["", "0009 00000001 0000 00", "0000 00000001 0000 00", "0002 00000001 0002 00"] {
            assert!(read(&example_tables(), &parse_hex(wrong)).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(number in 0u16..6, body: Vec<u8>, counted: bool) {
            let mut bytes = number.to_be_bytes().to_vec();
            if counted {
                bytes.extend([0, 0, 0, 1, 0x7F, 0xFF]);
            }
            let _ = read(&example_tables(), &[bytes, body].concat());
        }
    }
}
