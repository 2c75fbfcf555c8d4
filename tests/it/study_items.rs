//! What a study contains and what its twins have: `reproduce --items`, `--parameters`, and statements beside figures.

use linkgauge::study::STUDIES;

use crate::program::{Ended, run};

fn reproduce(study: &str, flags: &[&str]) -> Ended {
    let ended = run(&[&["reproduce", study], flags].concat());
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(ended.stdout.lines().skip(1).all(fits), "{}", ended.stdout);
    ended
}

#[test]
fn every_item_of_a_study_is_listed_with_its_counterpart() {
    for study in STUDIES {
        let ended = reproduce(study.name, &["--items"]);
        assert!(ended.stdout.starts_with(&format!("{}: ", study.name)), "{}", ended.stdout);
        assert!(
            ended.stdout.lines().next().unwrap().contains(" have a twin, a cell of the lab"),
            "{}",
            ended.stdout
        );
    }
    let linx = reproduce("linx", &["--items"]).stdout;
    assert!(
        linx.lines().any(|line| line.starts_with("Footnote ") && line.contains("9     9    9  yes")),
        "{linx}"
    );
    assert!(
        linx.contains("holds: 9.536 times (8 to 12, fitted)") && linx.contains("does not hold: 5.592 times")
    );
    let wireless = reproduce("wireless", &["--items"]).stdout;
    let words = wireless.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("over TCP takes about 300 ms: holds: 307.9 ms (270 to 330)"), "{words}");
    assert!(words.contains("ad hoc is faster over TCP, by its mean: does not hold"), "{words}");
}

#[test]
fn every_value_of_a_twin_is_listed_with_its_interval() {
    insta::assert_snapshot!(reproduce("netio", &["--parameters"]).stdout, @"");
    let linx = reproduce("linx", &["--parameters", "--all"]).stdout;
    let hops = linx.lines().find(|line| line.trim_start().starts_with("hops ")).unwrap();
    assert_eq!(hops.split_whitespace().collect::<Vec<_>>(), ["hops", "4", "4", "fitted"]);
    assert!(linx.contains("  fit: latency = 2 × "), "{linx}");
}

#[test]
fn tables_of_statements_only_have_twins() {
    let ended = reproduce("loggernet", &["--twin", "--table", "2,3"]);
    assert!(ended.stdout.starts_with("loggernet: 4 of 4 statements of the study hold"), "{}", ended.stdout);
    assert!(ended.stdout.contains("a busy logger skips records: holds: 18 records"), "{}", ended.stdout);
}

#[test]
fn lists_measure_nothing() {
    for flags in [["--items", "--parameters"], ["--items", "--twin"], ["--parameters", "--quick"]] {
        let ended = run(&[&["reproduce", "netio"][..], &flags].concat());
        assert_eq!(ended.status, Some(2));
        assert!(ended.stderr.contains("cannot be used with"), "{}", ended.stderr);
    }
}
