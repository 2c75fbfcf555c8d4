//! Cases as data: every file of `tests/cases` describes a link, the cases on it, and the expected results.
//!
//! `[plan]` is a plan file as users write it, `far` the protocol of the server at `mem://far…`. There is one
//! `[[expect]]` per case of the plan. It holds values by their position in the run document (`"latency_ns/p50" =
//! 2_000_000`); `null` and `absent` list values that are not reached or were not measured.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::virtual_net::VirtualNet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For the reader.
    #[serde(rename = "about")]
    _about: String,
    server: String,
    plan: toml::Table,
    expect: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    #[serde(default)]
    null: Vec<String>,
    #[serde(default)]
    absent: Vec<String>,
    #[serde(flatten)]
    values: Map<String, Value>,
}

/// Differences from the expectations of a file, one line each.
fn differences(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let run = VirtualNet::serving(&file.server).run(&toml::to_string(&file.plan).unwrap());
    let run = serde_json::to_value(run).unwrap();
    let cases = run["cases"].as_array().unwrap();
    let mut differences = Vec::new();
    if cases.len() != file.expect.len() {
        differences.push(format!("{} cases, {} expected", cases.len(), file.expect.len()));
    }
    for (index, (case, expected)) in cases.iter().zip(&file.expect).enumerate() {
        let mut check = |place: &str, wanted: Option<&Value>| {
            let got = case.pointer(&format!("/{place}"));
            if !same(got, wanted) {
                let show = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
                differences.push(format!("case {index}: {place} is {}, not {}", show(got), show(wanted)));
            }
        };
        expected.values.iter().for_each(|(place, wanted)| check(place, Some(wanted)));
        expected.null.iter().for_each(|place| check(place, Some(&Value::Null)));
        expected.absent.iter().for_each(|place| check(place, None));
    }
    differences
}

/// Whole numbers are exact; those with a fraction to nine digits.
fn same(got: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (got.and_then(Value::as_f64), wanted.and_then(Value::as_f64)) {
        (Some(got), Some(wanted)) => (got - wanted).abs() <= 1e-9 * wanted.abs(),
        _ => got == wanted,
    }
}

#[test]
fn every_case_has_the_result_of_its_file() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.ends_with(".toml"), "{name} is no case");
        wrong.extend(differences(&path).into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
