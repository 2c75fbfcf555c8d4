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
    insta::assert_snapshot!(reproduce("netio", &["--parameters"]).stdout, @"
    netio: 3 fitted parameters of 3 twins and 2 constants; the figures do not limit 1 of them on both sides, 0 of those fitted.

    The interval: the mean deviation of all figures of the twin stays within 10 % of
      the best, with its other parameters fitted again. *: the value is outside; the
      fitted figures determined it, or another twin, and the others would move it.

    DNP9200-sends: mean deviation 0.9 % of 6 figures by formula
                        value  figures allow         origin
      line       94.15 Mbit/s  70.85 Mbit/s or more  Ethernet of 100 Mbit/s: 1448
                                                     bytes of payload in the 1538
                                                     bytes of a full frame, TCP with
                                                     time stamps; the study names no
                                                     rate
      send_byte      111.6 ns  111.7 ns to 112.9 ns  fitted

    DNP9200-receives: mean deviation 0.4 % of 6 figures by formula
                           value  figures allow                   origin
      line          94.15 Mbit/s  93.56 Mbit/s to 93.69 Mbit/s *  Ethernet of
                                                                  100 Mbit/s: 1448
                                                                  bytes of payload
                                                                  in the 1538 bytes
                                                                  of a full frame,
                                                                  TCP with time
                                                                  stamps; the study
                                                                  names no rate
      receive_call      100.1 µs  99.83 µs to 100.2 µs            fitted

    DNP9200-localhost: mean deviation 6.3 % of 6 figures by formula
                   value  figures allow         origin
      send_byte  57.7 ns  53.15 ns to 58.27 ns  fitted

    How each twin was fitted: linkgauge reproduce netio --parameters --all
    ");
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
