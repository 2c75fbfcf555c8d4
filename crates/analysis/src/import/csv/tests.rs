//! Tables with a header line, made by hand.

use super::*;
use crate::import::samples::TimeUnit;
use crate::import::tests::{counted, import_bytes, import_options};

fn in_milliseconds(column: Option<&str>, by: Option<&str>, lost: Option<&str>) -> ImportOptions {
    ImportOptions {
        unit: Some(TimeUnit::Milliseconds),
        column: column.map(str::to_owned),
        by: by.map(str::to_owned),
        lost_marker: lost.map(str::to_owned),
        ..import_options()
    }
}

#[test]
fn a_column_of_a_table_has_the_latencies_of_each_target() {
    let text = "time,target,rtt_ms\n1,\"a, b\",1.5\n1,c,20\n2,\"a, b\",2.5\n2,c,\n3,\"a, b\",3.5\n";
    let run =
        import_bytes("csv", text.as_bytes(), &in_milliseconds(Some("rtt_ms"), Some("target"), Some("")))
            .unwrap();
    assert_eq!(counted(&run), [("a, b", 3, 3, 0, Some(2_500_000)), ("c", 2, 1, 1, Some(20_000_000))]);
    // A decimal comma, and one column.
    let german = "name;ms\nx;1,25\nx;2,25\n";
    let run = import_bytes("csv", german.as_bytes(), &in_milliseconds(Some("ms"), None, None)).unwrap();
    assert_eq!(counted(&run), [("results.txt", 0, 2, 0, Some(1_250_000))]);
    let plain = import_bytes("csv", b"rtt\n1\n2\n9\n", &in_milliseconds(None, None, Some("9"))).unwrap();
    assert_eq!(counted(&plain), [("results.txt", 3, 2, 1, Some(2_000_000))]);
}

#[test]
fn wrong_tables_say_what_to_type() {
    let error = |text: &str, column| {
        import_bytes("csv", text.as_bytes(), &in_milliseconds(column, None, None)).unwrap_err()
    };
    insta::assert_snapshot!([
        error("", None),
        error("time,rtt\n", Some("rtt")),
        error("time,rtt\n1,2\n", None),
        error("time,rtt\n1,2\n", Some("ms")),
        error("time,rtt\n1\n", Some("rtt")),
        error("time,rtt\n1,timeout\n", Some("rtt")),
        error("rtt\n1", None),
    ].join("\n"), @r"
    the file is empty
    no row follows the header
    name the column of the latencies with --column. The columns are 'time', 'rtt'
    no column is named 'ms' (--column). The columns are 'time', 'rtt'
    line 2: the row has 1 cells, fewer than the header names
    line 2: 'timeout' is not a latency. If it marks a lost request: --lost='timeout'
    its only line has no line end, so it may be cut off: import the whole output
    ");
}
