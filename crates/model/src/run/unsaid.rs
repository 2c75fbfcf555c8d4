//! Fields that the file of another program does not fill: absent in documents and tables, not 0.

use serde::ser::{Error, Serialize, Serializer};
use serde_json::{Map, Value};

use super::CaseResult;

/// Fields that are 0 in memory where a file says nothing about them.
const FIELDS: [&str; 11] = [
    "message_bytes",
    "elapsed_ns",
    "corrupt_bytes",
    "lost_bytes",
    "inserted_bytes",
    "late",
    "duplicate",
    "early",
    "reordered",
    "corrupt_messages",
    "missed_sends",
];

/// Counts of messages.
const COUNTS: [&str; 3] = ["sent", "received", "lost"];

impl CaseResult {
    /// Whether a 0 of this field means that the imported file does not say it.
    pub fn is_unsaid(&self, field: &str) -> bool {
        self.is_imported()
            && (FIELDS.contains(&field) || COUNTS.contains(&field) && self.counts_no_messages())
    }

    /// Whether the file says nothing about messages, as that of a stream.
    pub fn counts_no_messages(&self) -> bool {
        let counts = &self.figures.counts;
        self.is_imported() && counts.sent == 0 && counts.received == 0
    }
}

/// Writes the cases without what an imported file does not say.
pub(super) fn write_cases<S: Serializer>(cases: &[CaseResult], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cases.iter().map(SaidFields))
}

struct SaidFields<'a>(&'a CaseResult);

impl Serialize for SaidFields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let SaidFields(case) = self;
        if !case.is_imported() {
            return case.serialize(to);
        }
        let Value::Object(mut fields) = serde_json::to_value(case).map_err(S::Error::custom)? else {
            return Err(S::Error::custom("a case is an object"));
        };
        remove_zeros(&mut fields, |name| case.is_unsaid(name));
        let series = fields.get_mut("series").and_then(Value::as_array_mut).into_iter().flatten();
        if case.counts_no_messages() {
            for entry in series.filter_map(Value::as_object_mut) {
                remove_zeros(entry, |name| ["messages", "lost"].contains(&name));
            }
        }
        fields.serialize(to)
    }
}

fn remove_zeros(fields: &mut Map<String, Value>, is_removed: impl Fn(&str) -> bool) {
    fields.retain(|name, value| value.as_u64() != Some(0) || !is_removed(name));
}
