//! Documents that were written once are read for ever: every file of `tests/data`, as it was then.

use std::path::{Path, PathBuf};

use linkgauge::lists::REPORT_FORMATS;
use linkgauge::report::{RUN_SCHEMA, ReportOptions};
use linkgauge::run::Run;
use serde_json::Value;

fn documents() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let paths = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    assert!(paths.len() >= 3, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Everything that stands in `old` stands in `new`, with the same value.
fn holds(new: &Value, old: &Value, at: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (name, value) in old {
                let found = new.get(name).unwrap_or_else(|| panic!("{at}/{name} was lost"));
                holds(found, value, &format!("{at}/{name}"));
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            assert_eq!(new.len(), old.len(), "{at}");
            new.iter().zip(old).for_each(|(new, old)| holds(new, old, at));
        }
        _ => assert_eq!(new, old, "{at}"),
    }
}

#[test]
fn old_documents_are_read_completely_and_reported() {
    let schema: Value = serde_json::from_str(RUN_SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (path, text) in documents() {
        let name = path.display();
        let old: Value = serde_json::from_str(&text).unwrap();
        let run = Run::from_json(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let new = serde_json::to_value(&run).unwrap();
        let errors: Vec<String> = validator.iter_errors(&new).map(|defect| defect.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        holds(&new, &old, &name.to_string());
        for format in REPORT_FORMATS {
            let mut out = Vec::new();
            (format.write)(&run, &ReportOptions::default(), &mut out).unwrap();
            assert!(!out.is_empty(), "{name}: {}", format.name);
        }
    }
}

/// A document truncated at any position is refused without side effects.
#[test]
fn a_document_cut_short_is_refused() {
    for (path, text) in documents() {
        let text = text.trim_end();
        for length in
            (0..text.len()).step_by(text.len() / 97 + 1).filter(|length| text.is_char_boundary(*length))
        {
            let error = Run::from_json(&text[..length]).unwrap_err().to_string();
            let what = if length == 0 { "the file is empty" } else { "the document is cut off after line " };
            assert!(error.starts_with(what), "{}: {error}", path.display());
        }
    }
}
