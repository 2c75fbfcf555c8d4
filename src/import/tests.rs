//! Each format by hand-made files; files of the real programs are read in `tests/it/import.rs`.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::*;

fn about() -> About {
    let late = [50, 100, 200, 300].map(Duration::from_millis).to_vec();
    About { file: "results.txt".to_owned(), modified: Some(Timestamp::UNIX_EPOCH), late, ..About::default() }
}

fn import(format: &str, text: &[u8], about: &About) -> Result<Run, String> {
    read(format_in(format).unwrap(), &mut &*text, about).map_err(|error| error.to_string())
}

/// Samples in milliseconds, 999 for a time-out.
fn milliseconds(text: &str) -> Run {
    let about = About { unit: Some(TimeUnit::Milliseconds), lost: Some(999.0), ..about() };
    import("samples", text.as_bytes(), &about).unwrap()
}

#[test]
fn a_log_of_samples_has_the_figures_of_a_live_run() {
    // 1 … 96 ms and four time-outs, in another order.
    let mut lines: Vec<String> = (0..96).map(|i| (i * 37 % 96 + 1).to_string()).collect();
    lines.splice(40..40, std::iter::repeat_n("999".to_owned(), 4));
    let run = milliseconds(&format!("# the study's log\n\n{}\r\n", lines.join("\n")));
    let figures = &run.cases[0].figures;
    assert_eq!((figures.sent, figures.received, figures.lost), (100, 96, 4));
    let latency = figures.latency_ns.as_ref().unwrap();
    // The fastest 95 of 100 sent: 1 … 95.
    assert_eq!(latency.mean_fastest_95_percent, Some(48e6));
    for (name, rank) in [("p10", 10), ("p50", 50), ("p90", 90), ("p95", 95)] {
        assert_eq!(latency.percentiles[name], Some(rank * 1_000_000), "{name}");
    }
    let later = ["50", "100", "200", "300"].map(|limit| latency.later_than_ms[limit]);
    assert_eq!(later, [0.50, 0.04, 0.04, 0.04], "the lost are late");
    assert_eq!((latency.min, latency.max), (1_000_000, 96_000_000));
    assert_eq!(
        (figures.messages_per_second, run.cases[0].series.len()),
        (None, 0),
        "no time of sending is known"
    );
    assert_eq!(run.started, Timestamp::UNIX_EPOCH);
}

#[test]
fn the_mean_of_the_fastest_needs_95_of_100() {
    let run = milliseconds(&(format!("{}{}", "1\n".repeat(94), "999\n".repeat(6))));
    let latency = run.cases[0].figures.latency_ns.as_ref().unwrap();
    assert_eq!((latency.mean_fastest_95_percent, latency.percentiles["p95"]), (None, None));
}

#[test]
fn the_same_file_is_the_same_run() {
    let id = |text: &str| milliseconds(text).id;
    assert_eq!(id("1\n2\n"), id("1\n2\n"));
    assert_ne!(id("1\n2\n"), id("1\n3\n"));
    let seconds = About { unit: Some(TimeUnit::Seconds), ..about() };
    assert_ne!(import("samples", b"1\n2\n", &seconds).unwrap().id, id("1\n2\n"));
}

#[test]
fn slips_are_named_with_their_line() {
    let samples = |text: &[u8]| {
        let about = About { unit: Some(TimeUnit::Seconds), ..about() };
        import("samples", text, &about).unwrap_err()
    };
    let long = "1".repeat(5000);
    insta::assert_snapshot!(
        [
            samples(b""),
            samples(b"# nothing\n"),
            samples(b"1\ntwo\n"),
            samples(b"1\n-2\n"),
            samples(b"1 2\n"),
            samples(b"NaN\n"),
            samples(b"1e300\n"),
            samples(b"\xff\n"),
            samples(long.as_bytes()),
            import("samples", b"1\n", &about()).unwrap_err(),
            import("sockperf", b"hello\n", &about()).unwrap_err(),
            import("sockperf", b"packet, txTime(sec), rxTime(sec), latency(usec)\n0, 1.0, 0.5, 1\n", &about()).unwrap_err(),
            import("iperf3", b"{\"error\": \"unable to connect\"}", &about()).unwrap_err(),
            import("iperf3", b"{\"start\": {}}", &about()).unwrap_err(),
            import("iperf3", b"{\"start\": {}, \"end\": {}}", &about()).unwrap_err(),
            import("iperf3", b"hello", &about()).unwrap_err(),
            import("hdr", b"#[StartTime: 1]\n", &about()).unwrap_err(),
            import("hdr", b"0.1,1.0,2.0,HISTFAAAA\n", &about()).unwrap_err(),
            import("run", b"{\"schema\": \"linkgauge.run.v2\"}", &about()).unwrap_err(),
            import("run", b"{\"schema\": ", &about()).unwrap_err(),
        ]
        .join("\n"),
        @r"
    there is no sample in it
    there is no sample in it
    line 2: 'two' is no latency: one number a line is wanted, '#' before remarks
    line 2: '-2' is no latency: one number a line is wanted, '#' before remarks
    line 1: '1 2' is no latency: one number a line is wanted, '#' before remarks
    line 1: 'NaN' is no latency: one number a line is wanted, '#' before remarks
    line 1: '1e300' is no latency: one number a line is wanted, '#' before remarks
    line 1: not text
    line 1: longer than 4096 bytes
    the unit of the times is not in the file: say --unit ms, us, ns or s
    no full log of sockperf: there is no row below 'packet, txTime(sec), rxTime(sec), …'
    line 2: '0, 1.0, 0.5, 1' is no row of 'packet, txTime(sec), rxTime(sec), …'
    iperf3 ended with an error: unable to connect
    no result of iperf3 --json: there is no 'end'
    iperf3 did not get as far as telling what was received
    no result of iperf3 --json: expected value at line 1 column 1
    no log of HdrHistogram: there is no interval with a value in it
    line 1: '0.1,1.0,2.0,HISTFAAAA' is no interval of an HdrHistogram log (encoding V2)
    a run document of schema 'linkgauge.run.v2', this version reads 'linkgauge.run.v1': use a newer linkgauge
    not a run document: EOF while parsing a value at line 1 column 11
    ");
}

#[test]
fn a_full_log_of_sockperf_gives_round_trips() {
    let text = "test was performed using the following parameters: --mps=200 --msg-size=14 --time=1\n\
                sockperf: # dropped messages = 2; # duplicated messages = 1; # out-of-order messages = 3\n\
                ------------------------------\n\
                packet, txTime(sec), rxTime(sec), latency(usec)\n\
                0, 2.000000000, 2.000036454, 18.227\n\
                1, 2.500000000, 2.500015613, 7.806\n\
                ------------------------------\n";
    let run = import("sockperf", text.as_bytes(), &about()).unwrap();
    let case = &run.cases[0];
    let figures = &case.figures;
    let latency = figures.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max), (15_613, 36_454), "whole round trips, exactly");
    assert_eq!((figures.sent, figures.received, figures.lost), (4, 2, 2));
    assert_eq!((figures.duplicate, figures.reordered), (1, 3));
    assert_eq!((case.message_bytes, case.elapsed_ns), (14, 500_015_613));
}

#[test]
fn a_log_of_histograms_is_read_whole() {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).unwrap();
    (1..=1000u64).for_each(|value| histogram.record(value).unwrap());
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_start_time(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let mut writer = builder.begin_log_with(&mut text, &mut serializer).unwrap();
    let second = Duration::from_secs(1);
    for start in 0..3 {
        writer.write_histogram(&histogram, second * start, second, None).unwrap();
    }
    writer.write_histogram(&histogram, second, second, Tag::new("back")).unwrap();
    let about = About { unit: Some(TimeUnit::Microseconds), ..about() };
    let run = import("hdr", &text, &about).unwrap();
    assert_eq!(run.started.as_second(), 1_000_000);
    let counts: Vec<(&str, u64)> =
        run.cases.iter().map(|case| (case.endpoint.as_str(), case.figures.received)).collect();
    assert_eq!(counts, [("results.txt", 3000), ("results.txt back", 1000)]);
    let latency = run.cases[0].figures.latency_ns.as_ref().unwrap();
    assert_eq!((latency.min, latency.max, latency.percentiles["p50"]), (1_000, 1_000_000, Some(500_000)));
    assert_eq!(latency.mean, 500_500.0);
    assert_eq!((run.cases[0].elapsed_ns, run.cases[0].figures.jitter_ns), (3_000_000_000, None));
    text.truncate(text.len() - 40);
    assert!(import("hdr", &text, &about).unwrap_err().contains("is no interval of an HdrHistogram log"));
}

/// A line of a log that jHiccup wrote, which is the Java library.
#[test]
fn what_the_java_library_wrote_is_read() {
    let line = "0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZk\
                KmcCAEf2CsI=\n";
    let run = import("hdr", line.as_bytes(), &about()).unwrap();
    let latency = run.cases[0].figures.latency_ns.as_ref().unwrap();
    assert_eq!(latency.count, 741);
    // The log says 2.769 ms, the upper end of that bucket of two digits.
    assert_eq!(latency.max, 2_760_704);
}

#[test]
fn names_are_unique() {
    for (index, format) in FORMATS_IN.iter().enumerate() {
        assert!(std::ptr::eq(format_in(format.name).unwrap(), &FORMATS_IN[index]));
    }
}
