//! The JSON objects in a file: several, with text around them, with `nan` in place of numbers, or cut off.
//!
//! iperf3 3.7 to 3.10 writes each sum of `--bidir` twice under one name: first the upload, then the download. The second one gets
//! the name that later versions use.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::import::line_reader::quote;

/// Content of a file.
#[derive(Debug, Default)]
pub(super) struct FoundDocuments {
    /// The objects, in order.
    pub(super) values: Vec<Value>,
    /// Lines that belong to no object, and the first of them.
    pub(super) text_lines: u64,
    pub(super) first_text: String,
    /// Number of objects that are cut off or invalid, and the fault of the first.
    pub(super) broken: u64,
    pub(super) first_fault: String,
    /// Whether some text is the output of iperf3 without `--json`.
    pub(super) has_text_output: bool,
}

/// Finds the objects of a file.
pub(super) fn find_documents(bytes: &[u8]) -> FoundDocuments {
    let mut found = FoundDocuments::default();
    let mut at = 0;
    while let Some(start) = next_object(bytes, at) {
        found.add_text(&bytes[at..start]);
        let line = 1 + bytes[..start].iter().filter(|byte| **byte == b'\n').count();
        let (end, is_whole) = object_end(bytes, start);
        let parsed = match is_whole {
            true => parse_object(&bytes[start..end]).map_err(|error| error.to_string()),
            false => Err("it ends before its last brace: the file is cut off".to_owned()),
        };
        match parsed {
            Ok(value) => found.values.push(value),
            Err(fault) => found.add_fault(line, &fault),
        }
        at = end;
    }
    found.add_text(&bytes[at..]);
    found
}

impl FoundDocuments {
    fn add_text(&mut self, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines() {
            // Brackets and commas may join the objects to a list.
            let line = line.trim();
            if line.chars().all(|c| "[],".contains(c)) {
                continue;
            }
            self.text_lines += 1;
            self.has_text_output |= line.contains("bits/sec") || line.contains("[ ID]");
            if self.first_text.is_empty() {
                self.first_text = quote(line);
            }
        }
    }

    fn add_fault(&mut self, line: usize, fault: &str) {
        self.broken += 1;
        if self.first_fault.is_empty() {
            self.first_fault = format!("the object of line {line}: {fault}");
        }
    }
}

/// Position at which an object begins: a brace before a name or another brace.
fn next_object(bytes: &[u8], from: usize) -> Option<usize> {
    let begins = |at: &usize| {
        let inner = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
        bytes[*at] == b'{' && matches!(inner, None | Some(b'"' | b'}'))
    };
    (from..bytes.len()).find(begins)
}

/// The end of the object that begins at `start`, and whether it is whole. The next object at the start of a line ends one that is cut
/// off, and so does the file.
fn object_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut depth, mut in_text, mut is_escaped) = (0u32, false, false);
    for at in start..bytes.len() {
        match bytes[at] {
            // No text of JSON holds a line break.
            b'\n' => (in_text, is_escaped) = (false, false),
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' if at > start && bytes[at - 1] == b'\n' => return (at, false),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return (at + 1, true);
                }
            }
            _ => {}
        }
    }
    (bytes.len(), false)
}

fn parse_object(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(&without_invalid_numbers(bytes)).map(|RenamedValue(value)| value)
}

/// The text with `null` in place of `nan`, `-inf`, `1.#IND` and numbers that are too large.
fn without_invalid_numbers(bytes: &[u8]) -> Vec<u8> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.#()".contains(byte);
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = match rest[0] {
            b'"' => text_length(rest),
            _ => rest.iter().take_while(|byte| is_part(byte)).count().max(1),
        };
        let token = &rest[..length];
        let word = str::from_utf8(token).unwrap_or_default();
        let is_invalid = word.contains('#')
            || word
                .strip_suffix("(ind)")
                .unwrap_or(word)
                .parse::<f64>()
                .is_ok_and(|value| !value.is_finite());
        out.extend_from_slice(if is_invalid && rest[0] != b'"' { b"null" } else { token });
        at += length;
    }
    out
}

/// The length of a text with its quotes.
fn text_length(bytes: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = bytes[1..].iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(bytes.len(), |end| end + 2)
}

/// A value in which the second of two equal names of an object has the name of the reverse direction.
struct RenamedValue(Value);

impl<'de> Deserialize<'de> for RenamedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RenamedValue, D::Error> {
        deserializer.deserialize_any(RenamingVisitor).map(RenamedValue)
    }
}

struct RenamingVisitor;

impl<'de> Visitor<'de> for RenamingVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(RenamedValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, RenamedValue(value))) = entries.next_entry::<String, RenamedValue>()? {
            let name = if map.contains_key(&name) { format!("{name}_bidir_reverse") } else { name };
            map.entry(name).or_insert(value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_between_other_text() {
        let found = find_documents(
            b"warning {at start}: x\n[{\"a\": 1},\n{\"a\": -nan, \"b\": \"in{f\", \"c\": [inf, 1e999, -1.#IND, 5]}]\n\ndone\n",
        );
        let values: Vec<String> = found.values.iter().map(Value::to_string).collect();
        assert_eq!(values, [r#"{"a":1}"#, r#"{"a":null,"b":"in{f","c":[null,null,null,5]}"#]);
        assert_eq!((found.text_lines, found.first_text.as_str()), (2, "'warning {at start}: x'"));
        assert_eq!(found.broken, 0);
    }

    #[test]
    fn a_repeated_name_is_that_of_the_reverse_direction() {
        let found = find_documents(br#"{"end": {"sum": 1, "sum": 2, "sum": 3}}"#);
        assert_eq!(found.values[0].to_string(), r#"{"end":{"sum":1,"sum_bidir_reverse":2}}"#);
    }

    #[test]
    fn an_object_that_is_cut_off_does_not_hide_the_next() {
        let found =
            find_documents(b"{\n\t\"a\": {\n\t\t\"b\": \"tex\n{\n\t\"a\": 2\n}\n{\"c\": [1,}\n{\"d\": ");
        assert_eq!(found.values.iter().map(Value::to_string).collect::<Vec<_>>(), [r#"{"a":2}"#]);
        assert_eq!(found.broken, 3);
        assert_eq!(
            found.first_fault,
            "the object of line 1: it ends before its last brace: the file is cut off"
        );
    }
}
