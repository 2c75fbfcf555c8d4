//! Data points of k6, made by hand.

use super::*;
use crate::import::tests::{counted, import_bytes, import_options};

#[test]
fn the_points_of_k6_make_a_case_of_each_url() {
    let point = |end: &str, value: f64, url: &str, status: &str| {
        format!(
            "{{\"type\":\"Point\",\"metric\":\"http_req_duration\",\"data\":{{\"time\":\"2026-01-02T03:04:{end}Z\",\
             \"value\":{value},\"tags\":{{\"url\":\"{url}\",\"status\":\"{status}\"}}}}}}\n"
        )
    };
    let mut text =
        "{\"type\":\"Metric\",\"metric\":\"http_req_duration\",\"data\":{\"contains\":\"time\"}}\n"
            .to_owned();
    text += "{\"type\":\"Point\",\"metric\":\"vus\",\"data\":{\"value\":3}}\n";
    text += &point("05.100", 100.0, "http://a/", "200");
    text += &point("06", 300.0, "http://a/", "500");
    text += &point("07", 0.0, "http://a/", "0");
    text += &point("05.600", 50.0, "http://b/", "200");
    let run = import_bytes("k6", text.as_bytes(), &import_options()).unwrap();
    assert_eq!(
        counted(&run),
        [("http://a/", 3, 2, 1, Some(300_000_000)), ("http://b/", 1, 1, 0, Some(50_000_000))]
    );
    assert_eq!((run.started.to_string().as_str(), run.elapsed_ns), ("2026-01-02T03:04:05Z", 2_000_000_000));
    assert!(run.cases.iter().all(|case| case.figures.times.jitter_ns.is_none()));
    let about = ImportOptions { column: Some("vus".to_owned()), ..import_options() };
    let gauge = "{\"type\":\"Metric\",\"metric\":\"vus\",\"data\":{\"contains\":\"default\"}}\n";
    let errors = [
        import_bytes("k6", gauge.as_bytes(), &about),
        import_bytes("k6", gauge.as_bytes(), &import_options()),
        import_bytes("k6", b"hello\n", &import_options()),
    ];
    let errors: Vec<String> = errors.into_iter().map(Result::unwrap_err).collect();
    insta::assert_snapshot!(errors.join("\n"), @r"
    line 1: the metric 'vus' has no times but 'default'
    the file has no metric 'http_req_duration': name another one with --column
    line 1: not a data point of k6: expected value at line 1 column 1
    ");
}
