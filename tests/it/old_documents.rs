//! Documents that were written once are read for ever: every file of `tests/data`, as it was then.

use std::path::{Path, PathBuf};

use linkgauge::report::{FORMATS, RUN_SCHEMA, ReportOptions};
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

/// Names of earlier versions and of this one.
const RENAMED: [(&str, &str); 32] = [
    ("asked", "requested"),
    ("back_p50_ns", "reverse_p50_ns"),
    ("back_variation_ns", "reverse_variation_ns"),
    ("delivered_back_bytes", "delivered_reverse_bytes"),
    ("far", "server"),
    ("far_clock_error_seconds", "server_clock_error_seconds"),
    ("far_clock_synchronised", "server_clock_synchronised"),
    ("far_cpu", "server_cpu"),
    ("far_seconds", "server_seconds"),
    ("far_time_stamps", "server_time_stamps"),
    ("far_tool", "server_tool"),
    ("floor_ns", "transmission_ns"),
    ("got", "effective"),
    ("kept", "passed"),
    ("latency_spread", "port_latency_ratio"),
    ("limit", "theoretical_limit"),
    ("limit_bps", "max_payload_bps"),
    ("lost_back", "reverse_lost"),
    ("lost_in_socket", "receiver_socket_drops"),
    ("lost_on_path", "network_lost"),
    ("lost_there", "forward_lost"),
    ("near", "client"),
    ("near_cpu", "client_cpu"),
    ("near_seconds", "client_seconds"),
    ("near_waiting_seconds", "client_busy_poll_seconds"),
    ("peer", "protocol"),
    ("peer_options", "protocol_options"),
    ("there_p50_ns", "forward_p50_ns"),
    ("there_variation_ns", "forward_variation_ns"),
    ("throughput_back_bps", "throughput_reverse_bps"),
    ("ttl_at_far_end", "ttl_at_server"),
    ("ways", "one_way"),
];

/// The document with the names of this version.
fn with_new_names(old: Value) -> Value {
    match old {
        Value::Object(map) => {
            let renamed = map.into_iter().map(|(name, value)| {
                let new = RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| (*new).to_owned());
                let value = if name == "wait" && value == "spin" { "busy_poll".into() } else { value };
                (new.unwrap_or(name), with_new_names(value))
            });
            renamed.collect()
        }
        Value::Array(list) => list.into_iter().map(with_new_names).collect(),
        other => other,
    }
}

/// Everything that stands in `old` stands in `new`, with the same value.
fn holds(new: &Value, old: &Value, at: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (name, value) in old {
                // Intervals within a run have a name of their own since.
                let moved = || new.get("within_run_intervals").filter(|_| name == "intervals");
                let found = new.get(name).or_else(moved).unwrap_or_else(|| panic!("{at}/{name} was lost"));
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
        holds(&new, &with_new_names(old), &name.to_string());
        for format in FORMATS {
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
            assert!(error.starts_with("not a run document: "), "{}: {error}", path.display());
        }
    }
}
