//! Reports of the samples of paths.

use crate::report::{ReportOptions, sample_runs};
use linkgauge_model::run::Run;

fn text(run: &Run, width: usize) -> String {
    let options = ReportOptions { width, ..ReportOptions::PLAIN };
    let mut out = Vec::new();
    crate::report::text::write(run, &options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    text
}

#[test]
fn a_path_in_80_columns() {
    insta::assert_snapshot!(text(&sample_runs::path(), 80), @r#"
    5 hops to www.example.org over 2 flows, 18.2 ms; loss begins at hop 4
      (203.0.113.77, 6.00 %); 6.00 % of the probes to the host are lost; packets
      above 1492 bytes vanish between hop 1 (198.51.100.1) and hop 3 (203.0.113.9)
      without a report (a black hole). 200 probes of each hop, 200 s
      hop  host                               answers       min       p50       p99
        1  gatew…ample (198.51.100.1)             all  410.0 µs  520.0 µs  2.900 ms
        2  *                                     none         –         –         –
        3  edge-…e�[2J (203.0.113.9), flow 1     51 %  8.100 ms  8.400 ms  21.00 ms
           203.0.113.13, flow 2
        4  core.…ample (203.0.113.77)            94 %  12.10 ms  12.40 ms  15.80 ms
        5  www.e…e.org (192.0.2.80)              94 %  17.90 ms  18.20 ms  21.90 ms
      note      hop 2 does not answer, hop 3 answers 51 %. That is no loss: later
                hops answer more, and routers limit their replies
    "#);
}

#[test]
fn a_path_in_160_columns() {
    insta::assert_snapshot!(text(&sample_runs::path(), 160), @r#"
    5 hops to www.example.org over 2 flows, 18.2 ms; loss begins at hop 4 (203.0.113.77, 6.00 %); 6.00 % of the probes to the host are lost; packets above 1492
      bytes vanish between hop 1 (198.51.100.1) and hop 3 (203.0.113.9) without a report (a black hole). 200 probes of each hop, 200 s
      hop  host                                          answers       min       p50       p99    jitter
        1  gateway.home.example (198.51.100.1)               all  410.0 µs  520.0 µs  2.900 ms  90.00 µs
        2  *                                                none         –         –         –         –
        3  edge-1.isp.example�[2J (203.0.113.9), flow 1     51 %  8.100 ms  8.400 ms  21.00 ms  700.0 µs
           203.0.113.13, flow 2
        4  core.isp.example (203.0.113.77)                  94 %  12.10 ms  12.40 ms  15.80 ms  230.0 µs
        5  www.example.org (192.0.2.80)                     94 %  17.90 ms  18.20 ms  21.90 ms  210.0 µs
      note      hop 2 does not answer, hop 3 answers 51 %. That is no loss: later hops answer more, and routers limit their replies
    "#);
}

#[test]
fn a_load_with_its_path_in_80_columns() {
    insta::assert_snapshot!(text(&sample_runs::path_under_load(), 80), @r#"
    TCP upload to 10.77.4.2: 9.55 Mbit/s; adds 64.5 ms of latency (RTT 183 µs →
      64.7 ms, p50). 262 kB messages, 17.9 s
                        rate  transferred  RTT idle → loaded (p50)
      upload    9.551 Mbit/s     11.95 MB         183 µs → 64.7 ms
    Your upload queues between hop 1 (10.77.1.2) and hop 2 (10.77.2.2): 64.1 ms;
      beyond it nothing grows.
      hop  host       answers  idle p50  loaded p50  loaded max     added   lasting
        1  10.77.1.2      all  53.00 µs    42.00 µs    51.00 µs      0 ns      0 ns
        2  10.77.2.2      all  61.00 µs    64.30 ms    66.10 ms  64.24 ms  64.10 ms
        3  10.77.3.2      all  69.00 µs    64.17 ms    65.90 ms  64.10 ms  64.10 ms
        4  10.77.4.2      all  80.00 µs    64.48 ms    66.00 ms  64.40 ms  64.40 ms
    "#);
}

#[test]
fn a_path_that_a_router_ends() {
    insta::assert_snapshot!(text(&sample_runs::path_refused(), 80), @r#"
    192.0.2.99 is not reached: 198.51.100.1 behind 1 hop does not forward the
      probes. 10 probes of each hop, 10.2 s
      hop  host          answers       min       p50       max    jitter
        1  198.51.100.1      all  410.0 µs  520.0 µs  900.0 µs  90.00 µs

    incomplete: part of the plan was not measured
    "#);
}

#[test]
fn lost_probes_without_a_place_say_why() {
    let mut run = sample_runs::path();
    let case = &mut run.cases[0];
    let path = case.path.as_mut().unwrap();
    (path.loss, path.mtu) = (None, None);
    let first = |run: &Run| text(run, 160).lines().next().unwrap().to_owned();
    assert!(
        first(&run).contains("; 12 of 200 probes to the host lost, too few to say where."),
        "{}",
        first(&run)
    );
    run.cases[0].requested.insert("interval_ns".to_owned(), 100_000_000.into());
    let hedged = "12 of 200 probes to the host had no reply: loss, or limits of replies. Try --probe icmp.";
    assert!(first(&run).contains(hedged), "{}", first(&run));
}
