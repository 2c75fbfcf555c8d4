//! Records of tables as a reply to a collection holds them.

use super::Malformed;
use super::table::Table;
use super::text::{Reader, Write};
use super::value::{Instant, Value};

/// What a reply holds of one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The table's number, from 1.
    pub table: u16,
    /// Number of the first record in it.
    pub first: u32,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Records(Vec<Record>),
    /// Bytes of a record that is too long for one reply; they are counted from its time on.
    Fragment {
        offset: u32,
        bytes: Vec<u8>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Numbers follow one another, and begin again after 2^32 - 1.
    pub number: u32,
    pub time: Instant,
    pub values: Vec<Value>,
}

/// In front of an offset instead of a number of records.
const FRAGMENT: u32 = 1 << 31;

/// The blocks in a reply's body, and whether there are more records than these. `tables` are those of the logger, all
/// fields of which were asked for.
pub fn read(tables: &[Table], body: &[u8]) -> Result<(Vec<Block>, bool), Malformed> {
    let mut reader = Reader(body);
    let mut blocks = Vec::new();
    // One byte that is left says whether there is more.
    while reader.0.len() > 1 {
        let (table, first) = (reader.u16()?, reader.u32()?);
        let definition = tables.get(usize::from(table).wrapping_sub(1)).ok_or(Malformed::Unknown)?;
        let content = match reader.0.first() {
            Some(bits) if bits & 0x80 != 0 => {
                let offset = reader.u32()? & !FRAGMENT;
                let length = reader.0.len().checked_sub(1).ok_or(Malformed::Short)?;
                Content::Fragment { offset, bytes: reader.take(length)?.to_vec() }
            }
            _ => Content::Records(records(definition, first, &mut reader)?),
        };
        blocks.push(Block { table, first, content });
    }
    Ok((blocks, reader.u8()? != 0))
}

/// A record put together from fragments: its time, then its values. [`Malformed::Short`] where some are still missing.
pub fn whole(table: &Table, number: u32, bytes: &[u8]) -> Result<Record, Malformed> {
    let mut reader = Reader(bytes);
    let time = reader.instant()?;
    let values = values(table, &mut reader)?;
    if reader.is_empty() { Ok(Record { number, time, values }) } else { Err(Malformed::Unknown) }
}

fn records(table: &Table, first: u32, reader: &mut Reader) -> Result<Vec<Record>, Malformed> {
    let count = reader.u16()?;
    // Records without values would take no bytes of the reply, however many there are.
    if count > 0 && table.values() == 0 {
        return Err(Malformed::Unknown);
    }
    let mut records = Vec::new();
    let mut time = Instant::default();
    for number in 0..u32::from(count) {
        time = if number == 0 || !table.is_regular() {
            reader.instant()?
        } else {
            Instant::from_nanoseconds(time.as_nanoseconds().saturating_add(table.interval.as_nanoseconds()))
        };
        records.push(Record { number: first.wrapping_add(number), time, values: values(table, reader)? });
    }
    Ok(records)
}

fn values(table: &Table, reader: &mut Reader) -> Result<Vec<Value>, Malformed> {
    let mut values = Vec::new();
    for field in &table.fields {
        for _ in 0..field.values() {
            values.push(Value::read(field.kind, field.dimension as usize, reader)?);
        }
    }
    Ok(values)
}

/// Appends a block of whole records, each as its time and the bytes of its values.
pub fn write(into: &mut Vec<u8>, number: u16, table: &Table, first: u32, records: &[(Instant, Vec<u8>)]) {
    into.u16(number);
    into.u32(first);
    into.u16(records.len() as u16);
    for (at, (time, values)) in records.iter().enumerate() {
        if at == 0 || !table.is_regular() {
            into.instant(*time);
        }
        into.extend(values);
    }
}

/// Appends a block with a piece of one record.
pub fn write_fragment(into: &mut Vec<u8>, number: u16, record: u32, offset: u32, bytes: &[u8]) {
    into.u16(number);
    into.u32(record);
    into.u32(FRAGMENT | offset);
    into.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::super::table::examples;
    use super::*;
    use crate::peer::pakbus::hex;
    use proptest::prelude::*;

    fn block(body: &str) -> (Block, bool) {
        let (mut blocks, more) = read(&examples(), &hex(body)).unwrap();
        assert_eq!(blocks.len(), 1);
        (blocks.remove(0), more)
    }

    fn record(number: u32, seconds: i32, nanoseconds: i32, values: &[Value]) -> Record {
        Record { number, time: Instant { seconds, nanoseconds }, values: values.to_vec() }
    }

    #[test]
    fn records_at_intervals_have_one_time() {
        let body = "0002 00000063 0002 43B7327800000000 00000063 414FD70A 444B 00000064 41500000 444C";
        let (found, more) = block(&format!("{body} 00"));
        let values = |n, volts: f32, temp| [Value::Integer(n), Value::Real(volts.into()), Value::Real(temp)];
        let records = [
            record(99, 0x43B7_3278, 0, &values(99, 12.99, 10.99)),
            record(100, 0x43B7_3278 + 60, 0, &values(100, 13.0, 11.0)),
        ];
        assert_eq!(found, Block { table: 2, first: 99, content: Content::Records(records.to_vec()) });
        assert!(!more);
        let bytes = |record: &Record| {
            let mut bytes = Vec::new();
            for (value, field) in record.values.iter().zip(&examples()[1].fields) {
                value.write(field.kind, 1, &mut bytes);
            }
            (record.time, bytes)
        };
        let mut written = Vec::new();
        write(&mut written, 2, &examples()[1], 99, &records.each_ref().map(bytes));
        assert_eq!(written, hex(body));
    }

    #[test]
    fn records_of_events_have_each_its_time() {
        let body = "0003 00000008 0002 43B71B8500000000 3FC00000 43B71B891DCD6500 40200000";
        let (found, more) = block(&format!("{body} 01"));
        let records = [
            record(8, 0x43B7_1B85, 0, &[Value::Real(1.5)]),
            record(9, 0x43B7_1B89, 500_000_000, &[Value::Real(2.5)]),
        ];
        assert_eq!(found.content, Content::Records(records.to_vec()));
        assert!(more);
        let mut written = Vec::new();
        let bytes = records.map(|record| {
            let mut bytes = Vec::new();
            record.values[0].write(examples()[2].fields[0].kind, 1, &mut bytes);
            (record.time, bytes)
        });
        write(&mut written, 3, &examples()[2], 8, &bytes);
        assert_eq!(written, hex(body));
    }

    #[test]
    fn a_reply_holds_no_more_values_than_bytes() {
        use crate::peer::pakbus::table::Field;
        use crate::peer::pakbus::value::Type;
        let minute = Instant { seconds: 60, nanoseconds: 0 };
        let empty: Vec<Field> = (0..50_000).map(|_| Field::new("e", Type::ASCII, 0)).collect();
        let mut tables = examples();
        tables.push(Table::new("Empty", 10, minute, empty));
        let reply = hex("0005 00000001 7FFF 43B71B8500000000 00 00");
        assert_eq!(read(&tables, &reply), Err(Malformed::Unknown));
    }

    #[test]
    fn nothing_and_fragments() {
        let (nothing, more) = block("0002 00000065 0000 00");
        assert_eq!(nothing, Block { table: 2, first: 101, content: Content::Records(Vec::new()) });
        assert!(!more);
        let body = "0004 00000021 80000000 43B71B8000000000 41424344";
        let (fragment, more) = block(&format!("{body} 01"));
        let bytes = hex("43B71B8000000000 41424344");
        assert_eq!(fragment.content, Content::Fragment { offset: 0, bytes: bytes.clone() });
        assert_eq!((fragment.table, fragment.first, more), (4, 33, true));
        let mut written = Vec::new();
        write_fragment(&mut written, 4, 33, 0, &bytes);
        assert_eq!(written, hex(body));
        let (whole, _) = block("0004 00000021 0001 43B71B8000000000 41424344 00");
        assert_eq!(
            whole.content,
            Content::Records(vec![record(33, 0x43B7_1B80, 0, &[Value::Text("ABCD".into())])])
        );
    }

    #[test]
    fn what_does_not_fit_the_definitions_is_refused() {
        for wrong in ["", "0009 00000001 0000 00", "0000 00000001 0000 00", "0002 00000001 0002 00"] {
            assert!(read(&examples(), &hex(wrong)).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(number in 0u16..6, body: Vec<u8>, counted: bool) {
            let mut bytes = number.to_be_bytes().to_vec();
            if counted {
                bytes.extend([0, 0, 0, 1, 0x7F, 0xFF]);
            }
            let _ = read(&examples(), &[bytes, body].concat());
        }
    }
}
