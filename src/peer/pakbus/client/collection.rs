//! The records of a table in answers: which are to be asked for, what came of them, where the table ends. Not for asking
//! (`talk.rs`), nor for what the numbers of the records say (`workload::download::Checker`).
//!
//! One at a time, each request goes on behind the last answer. Several at a time, each has a range of its own, as long as
//! what the first answer held, and what an answer leaves out of its range is asked for again.

use std::collections::{BTreeMap, VecDeque};

use super::LONGEST_NAME;
use crate::peer::pakbus::message::{Selection, Span};
use crate::peer::pakbus::record::{self, Content, Record};
use crate::peer::pakbus::table::Table;

/// Most bytes of one record: far more than a logger's memory gives to one.
const LONGEST: usize = 1 << 20;

/// Most values of one record, for the same reason.
const MOST_VALUES: u64 = 1 << 16;

/// Longest head of a file: as many values as a record may have, with names as long as loggers have them.
const LONGEST_HEAD: u64 = 8 << 20;

/// Most bytes of answers held whose turn has not come. Values in memory take up to 32 times their bytes in an answer.
const MOST_HELD: usize = 2 * LONGEST;

/// Tables named where the one that is wanted is not there.
const NAMED: usize = 20;

/// Ranges held that came before their turn, at most: as many as can be on their way.
const HELD: usize = 255;

/// A table that is being collected.
#[derive(Debug)]
pub struct Collection {
    tables: Vec<Table>,
    /// From 1.
    number: u16,
    signature: u16,
    several: bool,
    /// The first record that was never asked for.
    next: Option<u32>,
    /// Records of one request, where several are on their way.
    batch: u32,
    /// Parts of the table that were asked for, in their order; up to `handed_out` they are gone.
    asked: u64,
    handed_out: u64,
    parts: BTreeMap<u64, Part>,
    /// What is to be asked again, or next, of a part.
    rest: VecDeque<(u64, Span)>,
    /// The part that holds the table's last record.
    last: Option<u64>,
}

/// What was got of one request and those that completed it.
#[derive(Debug, Default)]
struct Part {
    /// Its records end before this one, where that is known.
    before: Option<u32>,
    records: Vec<Record>,
    /// Bytes of answers that these records came in.
    bytes: usize,
    /// A record that comes in fragments, as far as it is here.
    fragment: Vec<u8>,
    whole: bool,
}

impl Collection {
    /// The table of that name, of those that the logger has.
    pub fn new(tables: Vec<Table>, name: &str, several: bool) -> Result<Collection, String> {
        let Some(at) = tables.iter().position(|table| table.name.eq_ignore_ascii_case(name)) else {
            return Err(format!("there is no table '{name}' (the logger has: {})", names(&tables)));
        };
        let (values, head) = (tables[at].values(), tables[at].head_bytes());
        if values == 0 || values > MOST_VALUES {
            return Err(format!(
                "the logger says that a record of table '{name}' has {values} values: 1 to {MOST_VALUES} are read"
            ));
        }
        if head > LONGEST_HEAD {
            return Err(format!(
                "the names of the fields of table '{name}' take {head} bytes: at most {LONGEST_HEAD} are written"
            ));
        }
        Ok(Collection {
            number: u16::try_from(at + 1).unwrap_or(u16::MAX),
            signature: tables[at].signature(),
            tables,
            several,
            next: None,
            batch: 1,
            asked: 0,
            handed_out: 0,
            parts: BTreeMap::new(),
            rest: VecDeque::new(),
            last: None,
        })
    }

    pub fn table(&self) -> &Table {
        &self.tables[usize::from(self.number) - 1]
    }

    pub fn is_done(&self) -> bool {
        self.last.is_some_and(|last| self.handed_out > last)
    }

    /// Whether an answer for that part can still be of use.
    pub fn wants(&self, part: u64) -> bool {
        self.last.is_none_or(|last| part <= last)
    }

    /// The next part to ask for, and what of it.
    pub fn ask(&mut self) -> Option<(u64, Selection)> {
        let (part, span) = match self.rest.pop_front() {
            Some(rest) => rest,
            None => self.next_part()?,
        };
        let selection = Selection { table: self.number, signature: self.signature, span, fields: Vec::new() };
        Some((part, selection))
    }

    fn next_part(&mut self) -> Option<(u64, Span)> {
        if self.last.is_some() || self.parts.len() >= HELD {
            return None;
        }
        let (span, before) = match self.next {
            None if self.asked == 0 => (Span::All, None),
            Some(next) if self.several => {
                let before = next.wrapping_add(self.batch);
                self.next = Some(before);
                (Span::Numbers(next, before), Some(before))
            }
            Some(next) if self.parts.is_empty() => (Span::From(next), None),
            _ => return None,
        };
        self.parts.insert(self.asked, Part { before, ..Part::default() });
        self.asked += 1;
        Some((self.asked - 1, span))
    }

    /// What came for a part. Fails on what no logger may say.
    pub fn came(&mut self, part: u64, body: &[u8]) -> Result<(), String> {
        let held: usize = self.parts.values().map(|part| part.bytes).sum();
        if held + body.len() > MOST_HELD {
            return Err(format!(
                "more than {MOST_HELD} bytes wait for a record that the logger does not send: use a smaller --window"
            ));
        }
        if let Some(part) = self.parts.get_mut(&part) {
            part.bytes += body.len();
        }
        let (blocks, more) =
            record::read(&self.tables, body).map_err(|error| format!("an answer cannot be read: {error}"))?;
        let [block] = <[record::Block; 1]>::try_from(blocks)
            .map_err(|blocks| format!("an answer holds {} tables instead of one", blocks.len()))?;
        if block.table != self.number {
            return Err(format!("an answer holds table {} instead of {}", block.table, self.number));
        }
        match block.content {
            Content::Records(records) => self.records(part, records, more),
            Content::Fragment { offset, bytes } => self.fragment(part, block.first, offset, &bytes, more),
        }
    }

    fn records(&mut self, number: u64, records: Vec<Record>, more: bool) -> Result<(), String> {
        let Some(part) = self.parts.get_mut(&number) else { return Ok(()) };
        let next = records.last().map(|record| record.number.wrapping_add(1));
        if more && next.is_none() {
            return Err("the logger says that there are more records, but sends none".to_owned());
        }
        let count = records.len() as u32;
        part.records.extend(records);
        match part.before {
            None => {
                part.whole = true;
                self.next = next.or(self.next);
                self.batch = count.max(1);
                if !more {
                    self.last = Some(number);
                }
            }
            Some(before) => match next.filter(|next| before.wrapping_sub(*next) as i32 > 0) {
                Some(next) if more => {
                    self.batch = count.max(1);
                    self.rest.push_front((number, Span::Numbers(next, before)));
                }
                // All of the range came, or a record behind it.
                None if count > 0 => part.whole = true,
                _ => {
                    part.whole = true;
                    self.last = Some(self.last.unwrap_or(number).min(number));
                }
            },
        }
        Ok(())
    }

    fn fragment(
        &mut self,
        number: u64,
        record: u32,
        offset: u32,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), String> {
        let table = &self.tables[usize::from(self.number) - 1];
        let Some(part) = self.parts.get_mut(&number) else { return Ok(()) };
        let have = part.fragment.len();
        if offset as usize != have {
            return Err(format!("a fragment of record {record} begins at byte {offset} instead of {have}"));
        }
        if have + bytes.len() > LONGEST {
            return Err(format!("record {record} does not end"));
        }
        part.fragment.extend(bytes);
        match record::whole(table, record, &part.fragment) {
            Ok(whole) => {
                part.fragment.clear();
                part.records.push(whole);
                let next = record.wrapping_add(1);
                match part.before.filter(|before| before.wrapping_sub(next) as i32 > 0) {
                    Some(before) => self.rest.push_front((number, Span::Numbers(next, before))),
                    None => {
                        part.whole = true;
                        if part.before.is_none() {
                            (self.next, self.batch) = (Some(next), 1);
                        }
                    }
                }
            }
            Err(_) if more && !bytes.is_empty() => {
                let have = part.fragment.len() as u32;
                self.rest.push_front((number, Span::Rest(record, have)));
            }
            Err(_) => return Err(format!("record {record} ends too soon, or too late")),
        }
        Ok(())
    }

    /// The next records of the table.
    pub fn take(&mut self) -> Option<Vec<Record>> {
        let first =
            self.parts.first_entry().filter(|first| *first.key() == self.handed_out && first.get().whole)?;
        self.handed_out += 1;
        Some(first.remove().records)
    }
}

/// The first tables by their names, each cut to a length that loggers have.
fn names(tables: &[Table]) -> String {
    let name = |table: &Table| table.name.chars().take(LONGEST_NAME).collect::<String>();
    let mut names: Vec<String> = tables.iter().take(NAMED).map(name).collect();
    if tables.len() > NAMED {
        names.push(format!("{} more", tables.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pakbus::record::whole;
    use crate::peer::pakbus::table::Field;
    use crate::peer::pakbus::value::{Instant, Type};

    fn table(name: &str, fields: Vec<Field>) -> Table {
        Table::new(name, 10, Instant { seconds: 60, nanoseconds: 0 }, fields)
    }

    fn refusal(tables: Vec<Table>) -> String {
        Collection::new(tables, "T", false).unwrap_err()
    }

    #[test]
    fn a_head_that_would_fill_the_memory_is_refused() {
        // 900 kB in the list of tables, 58 GB as the head of a file.
        let field = Field::new(&"x".repeat(900_000), Type::BOOL, 65_000);
        assert_eq!(
            refusal(vec![table("T", vec![field])]),
            "the names of the fields of table 'T' take 58503120000 bytes: at most 8388608 are written"
        );
        let most = Field::new(&"x".repeat(39), Type::BOOL, 65_536);
        assert!(Collection::new(vec![table("T", vec![most])], "T", false).is_ok(), "what a logger may have");
        let said = refusal((0..50_000).map(|_| table(&"n".repeat(100), Vec::new())).collect());
        assert!(said.len() < 2000 && said.ends_with("49980 more)"), "{said}");
    }

    #[test]
    fn texts_without_bytes_are_no_values() {
        let fields: Vec<Field> = (0..50_000).map(|_| Field::new("e", Type::ASCII, 0)).collect();
        assert!(refusal(vec![table("T", fields.clone())]).contains("has 0 values"));
        let with_one = [fields, vec![Field::new("b", Type::BOOL, 1)]].concat();
        let table = table("T", with_one);
        let record = whole(&table, 1, &[0; 9]).unwrap();
        assert_eq!(record.values.len(), 1);
    }

    #[test]
    fn what_waits_for_a_record_that_does_not_come_is_bounded() {
        let tables = vec![table("T", vec![Field::new("b", Type::BOOL, 1)])];
        let mut collection = Collection::new(tables, "T", true).unwrap();
        let records = |first: u32, count: u16| {
            let mut body = Vec::new();
            let records = vec![(Instant::default(), vec![1]); count.into()];
            let table = table("T", vec![Field::new("b", Type::BOOL, 1)]);
            record::write(&mut body, 1, &table, first, &records);
            body.push(1);
            body
        };
        let (part, _) = collection.ask().unwrap();
        collection.came(part, &records(1000, 900)).unwrap();
        let (part, _) = collection.ask().unwrap();
        // Always the same records, which never reach the end of their range.
        let refused = (0..10_000).find_map(|_| collection.came(part, &records(5, 900)).err());
        assert!(refused.unwrap().starts_with("more than 2097152 bytes wait"));
    }
}
