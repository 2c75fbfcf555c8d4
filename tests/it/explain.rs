//! `linkgauge explain` from the command line: a published table, what cannot be explained, JSON.

use serde_json::Value;

use crate::program::run;

#[test]
fn a_published_table_is_explained() {
    let ended = run(&["explain", "loggernet"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("645 (637–654)"), "{}", ended.stdout);
    assert!(ended.stdout.contains("least squares (+87 %) and Theil–Sen (+79 %)"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
}

#[test]
fn the_findings_are_json_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("found.json");
    let on_stdout = run(&["explain", "loggernet", "--json", "-"]);
    let in_file = run(&["explain", "loggernet", "--json", path.to_str().unwrap()]);
    assert_eq!((on_stdout.status, in_file.status), (Some(0), Some(0)));
    assert!(in_file.stdout.starts_with("The window"));
    let found: Value = serde_json::from_str(&on_stdout.stdout).unwrap();
    let again: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(found, again);
    let window = &found["findings"]["window"];
    assert_eq!((&window["limit"], &window["chunk_bytes"]), (&"window".into(), &1000.into()));
    assert_eq!(window["rows"].as_array().unwrap().len(), 9);
    let bytes = window["fits"][2]["window_bytes"].as_f64().unwrap();
    assert!((bytes - 709.03).abs() < 0.01, "{bytes}");
}

#[test]
fn what_cannot_be_explained_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let nonsense = file("nonsense.json", "{");
    let newer = file("newer.json", r#"{"schema": "linkgauge.run.v9"}"#);
    for (of, words) in [
        ("sena", &["sena", "3 different round trips"][..]),
        ("loggernut", &["loggernut", "cannot be read", "sena, loggernet"]),
        (nonsense.as_str(), &["nonsense.json", "not a run document"]),
        (newer.as_str(), &["newer.json", "linkgauge.run.v9", "newer linkgauge"]),
    ] {
        let ended = run(&["explain", of]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{of}");
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{of}: {}", ended.stderr);
    }
    let ended = run(&["explain", "loggernet", "--json", "/nowhere/found.json"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("/nowhere/found.json"), "{}", ended.stderr);
}
