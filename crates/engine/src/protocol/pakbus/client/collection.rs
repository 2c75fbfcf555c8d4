//! The records of a table: the requests that remain, the received records, the end of the table. `conversation.rs`
//! sends the requests; `workload::download::RecordChecker` checks the numbers of the records.
//!
//! With one request in flight, each continues after the last reply. With several, each has its own range of the size of
//! the first reply, and records missing from a reply are requested again.

use std::collections::{BTreeMap, VecDeque};

use super::MAX_NAME_CHARACTERS;
use crate::link::Fault;
use crate::protocol::pakbus::message::{RecordRange, RecordSelection};
use crate::protocol::pakbus::record::{self, BlockContent, TableRecord};
use crate::protocol::pakbus::table::TableDefinition;

/// Maximum bytes of one record: far more than a logger's memory allows.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Maximum values of one record: far more than a logger's memory allows.
const MAX_RECORD_VALUES: u64 = 1 << 16;

/// Maximum header of a file: the maximum number of values, with the longest names that loggers allow.
const MAX_HEADER_BYTES: u64 = 8 << 20;

/// Maximum bytes of replies buffered out of order. Values in memory take up to 32 times their bytes in a reply.
const MAX_HELD_BYTES: usize = 2 * MAX_RECORD_BYTES;

/// Maximum tables listed when the requested one is missing.
const MAX_NAMED_TABLES: usize = 20;

/// Maximum ranges buffered out of order: the maximum in flight.
const MAX_HELD_RANGES: usize = 255;

/// A table that is being collected.
#[derive(Debug)]
pub(crate) struct TableCollection {
    tables: Vec<TableDefinition>,
    /// Number of the table, from 1.
    table_number: u16,
    signature: u16,
    is_windowed: bool,
    /// Number of the first record that was never requested.
    next_record: Option<u32>,
    /// Number of records of one request, with several in flight.
    records_per_request: u32,
    /// Number of requested parts of the table; those before `handed_out` have been delivered.
    requested_parts: u64,
    delivered_parts: u64,
    parts: BTreeMap<u64, TablePart>,
    /// Next ranges to request, with their parts.
    pending_ranges: VecDeque<(u64, RecordRange)>,
    /// Part with the table's last record.
    last_part: Option<u64>,
}

/// The records of one request and of its follow-up requests.
#[derive(Debug, Default)]
struct TablePart {
    /// First record after this part, if known.
    end_record: Option<u32>,
    records: Vec<TableRecord>,
    /// Bytes of the replies with these records.
    bytes: usize,
    /// Received fragments of a long record.
    fragment: Vec<u8>,
    is_complete: bool,
}

impl TableCollection {
    /// Finds the table of that name among those of the logger.
    pub fn new(tables: Vec<TableDefinition>, name: &str, several: bool) -> Result<TableCollection, Fault> {
        let Some(at) = tables.iter().position(|table| table.name.eq_ignore_ascii_case(name)) else {
            let known = list_names(&tables);
            return Err(Fault::NotFound(format!("unknown table '{name}' (the logger has: {known})")));
        };
        let (values, head) = (tables[at].value_count(), tables[at].header_bytes());
        if values == 0 || values > MAX_RECORD_VALUES {
            return Err(Fault::LimitReached(format!(
                "the logger reports that a record of table '{name}' has {values} values: 1 to {MAX_RECORD_VALUES} are read"
            )));
        }
        if head > MAX_HEADER_BYTES {
            return Err(Fault::LimitReached(format!(
                "the names of the fields of table '{name}' take {head} bytes: at most {MAX_HEADER_BYTES} are written"
            )));
        }
        Ok(TableCollection {
            table_number: u16::try_from(at + 1).unwrap_or(u16::MAX),
            signature: tables[at].signature(),
            tables,
            is_windowed: several,
            next_record: None,
            records_per_request: 1,
            requested_parts: 0,
            delivered_parts: 0,
            parts: BTreeMap::new(),
            pending_ranges: VecDeque::new(),
            last_part: None,
        })
    }

    pub(crate) fn table(&self) -> &TableDefinition {
        &self.tables[usize::from(self.table_number) - 1]
    }

    pub(crate) fn is_done(&self) -> bool {
        self.last_part.is_some_and(|last| self.delivered_parts > last)
    }

    /// Whether a reply for that part is still needed.
    pub(crate) fn is_needed(&self, part: u64) -> bool {
        self.last_part.is_none_or(|last| part <= last)
    }

    /// Next part to request, and its range.
    pub(crate) fn next_request(&mut self) -> Option<(u64, RecordSelection)> {
        let (part, span) = match self.pending_ranges.pop_front() {
            Some(rest) => rest,
            None => self.next_part()?,
        };
        let selection =
            RecordSelection { table: self.table_number, signature: self.signature, span, fields: Vec::new() };
        Some((part, selection))
    }

    fn next_part(&mut self) -> Option<(u64, RecordRange)> {
        if self.last_part.is_some() || self.parts.len() >= MAX_HELD_RANGES {
            return None;
        }
        let (span, before) = match self.next_record {
            None if self.requested_parts == 0 => (RecordRange::All, None),
            Some(next) if self.is_windowed => {
                let before = next.wrapping_add(self.records_per_request);
                self.next_record = Some(before);
                (RecordRange::Numbers(next, before), Some(before))
            }
            Some(next) if self.parts.is_empty() => (RecordRange::From(next), None),
            _ => return None,
        };
        self.parts.insert(self.requested_parts, TablePart { end_record: before, ..TablePart::default() });
        self.requested_parts += 1;
        Some((self.requested_parts - 1, span))
    }

    /// Adds a reply for a part. Fails if the reply violates the protocol.
    pub(crate) fn add_reply(&mut self, part: u64, body: &[u8]) -> Result<(), Fault> {
        let held: usize = self.parts.values().map(|part| part.bytes).sum();
        if held + body.len() > MAX_HELD_BYTES {
            return Err(Fault::LimitReached(format!(
                "more than {MAX_HELD_BYTES} bytes follow a record that the logger does not send: use a smaller --window"
            )));
        }
        if let Some(part) = self.parts.get_mut(&part) {
            part.bytes += body.len();
        }
        let (blocks, more) = record::read(&self.tables, body)
            .map_err(|error| Fault::UnexpectedData(format!("a reply cannot be read: {error}")))?;
        let [block] = <[record::RecordBlock; 1]>::try_from(blocks).map_err(|blocks| {
            Fault::UnexpectedData(format!("a reply holds {} tables instead of one", blocks.len()))
        })?;
        if block.table != self.table_number {
            let what = format!("a reply holds table {} instead of {}", block.table, self.table_number);
            return Err(Fault::UnexpectedData(what));
        }
        match block.content {
            BlockContent::Records(records) => self.add_records(part, records, more),
            BlockContent::Fragment { offset, bytes } => {
                self.add_fragment(part, block.first_record, offset, &bytes, more)
            }
        }
    }

    fn add_records(&mut self, number: u64, records: Vec<TableRecord>, more: bool) -> Result<(), Fault> {
        let Some(part) = self.parts.get_mut(&number) else { return Ok(()) };
        let next = records.last().map(|record| record.number.wrapping_add(1));
        if more && next.is_none() {
            return Err(Fault::UnexpectedData("the logger reports more records, but sends none".to_owned()));
        }
        let count = records.len() as u32;
        part.records.extend(records);
        match part.end_record {
            None => {
                part.is_complete = true;
                self.next_record = next.or(self.next_record);
                self.records_per_request = count.max(1);
                if !more {
                    self.last_part = Some(number);
                }
            }
            Some(before) => match next.filter(|next| before.wrapping_sub(*next) as i32 > 0) {
                Some(next) if more => {
                    self.records_per_request = count.max(1);
                    self.pending_ranges.push_front((number, RecordRange::Numbers(next, before)));
                }
                // The whole range arrived, or a record after it.
                None if count > 0 => part.is_complete = true,
                _ => {
                    part.is_complete = true;
                    self.last_part = Some(self.last_part.unwrap_or(number).min(number));
                }
            },
        }
        Ok(())
    }

    fn add_fragment(
        &mut self,
        number: u64,
        record: u32,
        offset: u32,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), Fault> {
        let table = &self.tables[usize::from(self.table_number) - 1];
        let Some(part) = self.parts.get_mut(&number) else { return Ok(()) };
        let have = part.fragment.len();
        if offset as usize != have {
            let what = format!("a fragment of record {record} begins at byte {offset} instead of {have}");
            return Err(Fault::UnexpectedData(what));
        }
        if have + bytes.len() > MAX_RECORD_BYTES {
            return Err(Fault::UnexpectedData(format!("record {record} does not end")));
        }
        part.fragment.extend(bytes);
        match record::parse_record(table, record, &part.fragment) {
            Ok(whole) => {
                part.fragment.clear();
                part.records.push(whole);
                let next = record.wrapping_add(1);
                match part.end_record.filter(|before| before.wrapping_sub(next) as i32 > 0) {
                    Some(before) => {
                        self.pending_ranges.push_front((number, RecordRange::Numbers(next, before)))
                    }
                    None => {
                        part.is_complete = true;
                        if part.end_record.is_none() {
                            (self.next_record, self.records_per_request) = (Some(next), 1);
                        }
                    }
                }
            }
            Err(_) if more && !bytes.is_empty() => {
                let have = part.fragment.len() as u32;
                self.pending_ranges.push_front((number, RecordRange::Rest(record, have)));
            }
            Err(_) => {
                return Err(Fault::UnexpectedData(format!("record {record} has the wrong length")));
            }
        }
        Ok(())
    }

    /// Returns the next records of the table.
    pub(crate) fn take_records(&mut self) -> Option<Vec<TableRecord>> {
        let first = self
            .parts
            .first_entry()
            .filter(|first| *first.key() == self.delivered_parts && first.get().is_complete)?;
        self.delivered_parts += 1;
        Some(first.remove().records)
    }
}

/// Names of the first tables, each cut to the maximum length on loggers.
fn list_names(tables: &[TableDefinition]) -> String {
    let name = |table: &TableDefinition| table.name.chars().take(MAX_NAME_CHARACTERS).collect::<String>();
    let mut names: Vec<String> = tables.iter().take(MAX_NAMED_TABLES).map(name).collect();
    if tables.len() > MAX_NAMED_TABLES {
        names.push(format!("{} more", tables.len() - MAX_NAMED_TABLES));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pakbus::record::parse_record;
    use crate::protocol::pakbus::table::FieldDefinition;
    use crate::protocol::pakbus::value::{FieldType, LoggerTime};

    fn table(name: &str, fields: Vec<FieldDefinition>) -> TableDefinition {
        TableDefinition::new(name, 10, LoggerTime { seconds: 60, nanoseconds: 0 }, fields)
    }

    fn creation_error(tables: Vec<TableDefinition>) -> String {
        TableCollection::new(tables, "T", false).unwrap_err().to_string()
    }

    #[test]
    fn an_oversized_header_is_refused() {
        // 900 kB in the list of tables, 58 GB in the header of a file.
        let field = FieldDefinition::new(&"x".repeat(900_000), FieldType::BOOL, 65_000);
        assert_eq!(
            creation_error(vec![table("T", vec![field])]),
            "the names of the fields of table 'T' take 58503120000 bytes: at most 8388608 are written"
        );
        let most = FieldDefinition::new(&"x".repeat(39), FieldType::BOOL, 65_536);
        assert!(
            TableCollection::new(vec![table("T", vec![most])], "T", false).is_ok(),
            "what a logger may have"
        );
        let message = creation_error((0..50_000).map(|_| table(&"n".repeat(100), Vec::new())).collect());
        assert!(message.len() < 2000 && message.ends_with("49980 more)"), "{message}");
    }

    #[test]
    fn zero_length_texts_have_no_value() {
        let fields: Vec<FieldDefinition> =
            (0..50_000).map(|_| FieldDefinition::new("e", FieldType::ASCII, 0)).collect();
        assert!(creation_error(vec![table("T", fields.clone())]).contains("has 0 values"));
        let with_one = [fields, vec![FieldDefinition::new("b", FieldType::BOOL, 1)]].concat();
        let table = table("T", with_one);
        let record = parse_record(&table, 1, &[0; 9]).unwrap();
        assert_eq!(record.values.len(), 1);
    }

    #[test]
    fn replies_held_for_a_missing_record_are_bounded() {
        let tables = vec![table("T", vec![FieldDefinition::new("b", FieldType::BOOL, 1)])];
        let mut collection = TableCollection::new(tables, "T", true).unwrap();
        let records = |first: u32, count: u16| {
            let mut body = Vec::new();
            let records = vec![(LoggerTime::default(), vec![1]); count.into()];
            let table = table("T", vec![FieldDefinition::new("b", FieldType::BOOL, 1)]);
            record::write(&mut body, 1, &table, first, &records);
            body.push(1);
            body
        };
        let (part, _) = collection.next_request().unwrap();
        collection.add_reply(part, &records(1000, 900)).unwrap();
        let (part, _) = collection.next_request().unwrap();
        // Always the same records, which never reach the end of their range.
        let refused = (0..10_000).find_map(|_| collection.add_reply(part, &records(5, 900)).err());
        assert!(refused.unwrap().to_string().starts_with("more than 2097152 bytes follow"));
    }
}
