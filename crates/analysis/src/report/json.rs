//! The run document as indented JSON with a final line break. `schema/run.v1.json` describes it.

use std::io;

use super::{ReportOptions, is_unprintable};
use linkgauge_model::run::Run;

/// Writes the document. Terminals show files, too.
pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(EscapingWriter(&mut *out), run)?;
    out.write_all(b"\n")
}

/// Equivalent JSON with escapes for unprintable characters.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            c if is_unprintable(c) => {
                out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON on its way to a writer. serde writes whole characters.
struct EscapingWriter<'a>(&'a mut dyn io::Write);

impl io::Write for EscapingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match str::from_utf8(bytes) {
            Ok(text) if text.chars().any(|c| c != '\n' && is_unprintable(c)) => {
                self.0.write_all(escape_json(text).as_bytes())?;
            }
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::report::{RUN_SCHEMA, sample_runs};

    fn write_json(run: &Run) -> String {
        let mut out = Vec::new();
        write(run, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn schema() -> Value {
        serde_json::from_str(RUN_SCHEMA).unwrap()
    }

    fn schema_violations(document: &Value) -> Vec<String> {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        validator.iter_errors(document).map(|slip| format!("{}: {slip}", slip.instance_path())).collect()
    }

    /// Every kind of unprintable character.
    const HOSTILE: &str =
        "a\u{1b}]0;title\u{7}b\u{9b}31mc\rd\u{202e}e\u{2028}f\u{85}g\u{7f}\u{feff}h\u{e0041}k";

    #[test]
    fn escaped_json_parses_to_the_same_value() {
        let value = serde_json::json!({"k\u{9b}": [HOSTILE, "\u{e0041}", "a\nb"]});
        let shown = escape_json(&format!("{value:#}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert!(!shown.contains(|c| c != '\n' && is_unprintable(c)), "{shown}");
    }

    #[test]
    fn hostile_texts_are_escaped_and_read_back() {
        let mut run = sample_runs::full();
        run.title = Some(HOSTILE.to_owned());
        let text = write_json(&run);
        assert!(!text.contains(|c| c != '\n' && is_unprintable(c)), "{text}");
        assert_eq!(Run::from_json(&text).unwrap(), run);
    }

    #[test]
    fn document_reads_back() {
        for run in sample_runs::all_samples() {
            let text = write_json(&run);
            assert!(text.ends_with("}\n"));
            assert_eq!(Run::from_json(&text).unwrap(), run);
        }
    }

    /// The schema allows no unknown fields, so this also proves that every written field is described.
    #[test]
    fn samples_follow_the_schema() {
        jsonschema::meta::validate(&schema()).unwrap();
        for run in sample_runs::all_samples() {
            assert_eq!(schema_violations(&serde_json::to_value(&run).unwrap()), Vec::<String>::new());
        }
    }

    #[test]
    fn schema_violations_are_found() {
        let good = serde_json::to_value(sample_runs::full()).unwrap();
        for (pointer, bad) in [
            ("/schema", json!("linkgauge.run.v9")),
            ("/cases/0/sent", json!(-1)),
            ("/cases/0/direction", json!("sideways")),
            ("/cases/0/latency_ns/p50", json!("13 µs")),
            ("/cases/0/latency_ns", json!({"median": 1})),
            ("/cases/0/intervals/latency_ns.p50", json!([1, 2])),
            ("/warnings/0", json!("hot")),
        ] {
            let mut document = good.clone();
            *document.pointer_mut(pointer).expect(pointer) = bad;
            assert!(!schema_violations(&document).is_empty(), "{pointer}");
        }
        let mut document = good;
        document["cases"][0]["banana"] = json!(1);
        assert!(!schema_violations(&document).is_empty());
    }

    /// Collects the names in `properties` at any depth. Fails on names without a description.
    fn properties(schema: &Value, names: &mut BTreeSet<String>) {
        if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
            for (name, field) in fields {
                let text = field.get("description").and_then(Value::as_str).unwrap_or_default();
                assert!(text.len() > 8, "{name} has no description");
                names.insert(name.clone());
            }
        }
        match schema {
            Value::Object(map) => map.values().for_each(|value| properties(value, names)),
            Value::Array(list) => list.iter().for_each(|value| properties(value, names)),
            _ => {}
        }
    }

    fn fields(document: &Value, names: &mut BTreeSet<String>) {
        match document {
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                names.insert(name.clone());
                fields(value, names);
            }),
            Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
            _ => {}
        }
    }

    #[test]
    fn every_described_field_is_written_somewhere() {
        let (mut described, mut written) = (BTreeSet::new(), BTreeSet::new());
        properties(&schema(), &mut described);
        let runs = [
            sample_runs::full(),
            sample_runs::serial_line(),
            sample_runs::download(),
            sample_runs::study_with_prediction(),
            sample_runs::one_way_delays(),
            sample_runs::further_connections(),
            sample_runs::responsiveness(),
            sample_runs::mesh(),
            sample_runs::imported(),
            sample_runs::path(),
            sample_runs::path_refused(),
            sample_runs::path_under_load(),
        ];
        for run in runs {
            fields(&serde_json::to_value(run).unwrap(), &mut written);
        }
        assert_eq!(described.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
