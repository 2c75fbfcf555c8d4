//! Data files of Flent, made by hand: pings and transfers.

use super::*;
use crate::import::tests::{counted, import_bytes, import_options};
use linkgauge_model::run::Run;

/// A data file of Flent with these facts of series, plotted values and raw values.
fn flent(facts: &str, results: &str, raw: &str) -> Result<Run, String> {
    let text = format!(
        "{{\"version\":4,\"x_values\":[0],\"metadata\":{{\"NAME\":\"rrul\",\"HOST\":\"h\",\"T0\":\"2026-01-02T03:04:05.5\",\
         \"TOTAL_LENGTH\":70,\"SERIES_META\":{{{facts}}}}},\"results\":{{{results}}},\"raw_values\":{{{raw}}}}}"
    );
    import_bytes("flent", text.as_bytes(), &import_options())
}

#[test]
fn pings_of_flent_have_losses_where_requests_have_numbers() {
    let facts = "\"ICMP\":{\"UNITS\":\"ms\"},\"HTTP\":{\"UNITS\":\"ms\"},\"irtt\":{\"UNITS\":\"ms\",\"PACKETS_SENT\":4,\
                 \"PACKETS_RECEIVED\":2},\"UDP\":{\"UNITS\":\"ms\"},\"avg\":{\"UNITS\":\"ms\"}";
    let results = "\"ICMP\":[10,30],\"HTTP\":[4,null,6],\"irtt\":[20],\"UDP\":[1],\"avg\":[7]";
    let raw = "\"ICMP\":[{\"t\":1,\"seq\":1,\"val\":10},{\"t\":3,\"seq\":4,\"val\":30}],\
               \"HTTP\":[{\"t\":1,\"val\":0.004},{\"t\":2,\"val\":0.006}],\
               \"irtt\":[{\"seq\":0,\"val\":20},{\"seq\":1},{\"seq\":2,\"val\":22},{\"seq\":3}],\
               \"UDP\":[{\"t\":1,\"dur\":0.2,\"val\":95}]";
    let run = flent(facts, results, raw).unwrap();
    assert_eq!(
        counted(&run),
        [
            ("h, HTTP", 0, 2, 0, Some(4_000_000)),
            ("h, ICMP", 4, 2, 2, Some(30_000_000)),
            ("h, irtt", 4, 2, 2, Some(22_000_000)),
        ]
    );
    assert_eq!(run.cases[1].figures.times.latency_ns.as_ref().map(|times| times.max), Some(30_000_000));
    assert_eq!(
        (run.started.to_string().as_str(), run.elapsed_ns),
        ("2026-01-02T03:04:05.5Z", 70_000_000_000)
    );
    assert!(run.warnings.iter().any(|warning| warning.text.contains("'UDP'")), "{:?}", run.warnings);
}

#[test]
fn transfers_of_flent_have_the_rate_of_what_arrived() {
    let facts = "\"TCP download\":{\"UNITS\":\"Mbits/s\",\"MEAN_VALUE\":9.9,\"ELAPSED_TIME\":10,\"BYTES_RECVD\":12500000},\
                 \"TCP upload\":{\"UNITS\":\"Mbits/s\",\"MEAN_VALUE\":5.5},\"TCP totals\":{\"UNITS\":\"Mbits/s\"}";
    let series = "[{\"t\":0.2,\"dur\":0.2,\"val\":5},{\"t\":0.4,\"dur\":0.2,\"val\":7}]";
    let raw = format!("\"TCP download\":{series},\"TCP upload\":{series}");
    let run = flent(facts, "\"TCP download\":[1],\"TCP upload\":[1],\"TCP totals\":[2]", &raw).unwrap();
    let rates = run.cases.iter().map(|case| (case.direction, case.figures.delivery.throughput_bps.unwrap()));
    assert_eq!(rates.collect::<Vec<_>>(), [(Direction::Receive, 10e6), (Direction::Send, 5.5e6)]);
    assert_eq!(run.cases[1].series.iter().map(|entry| entry.bytes).collect::<Vec<_>>(), [125_000, 175_000]);
    let errors = [
        flent("", "\"x\":[1]", ""),
        import_bytes("flent", b"{\"metadata\":{}", &import_options()),
        import_bytes("flent", b"[]", &import_options()),
    ];
    let errors: Vec<String> = errors.into_iter().map(Result::unwrap_err).collect();
    insta::assert_snapshot!(errors.join("\n"), @r"
    the file has neither pings nor transfers with their raw values
    the file is empty or cut off: import the whole file of Flent
    not a data file of Flent: invalid length 0, expected an object with metadata, results and raw values at line 1 column 2
    ");
}
