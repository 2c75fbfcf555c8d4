//! The published table, and synthetic downloads with known causes.

use super::*;
use crate::explain::FindingBlock;
use crate::report::{Detail, ReportOptions, sample_runs, write_findings};
use linkgauge_model::run::{CaseResult, Figures, RequestCounts, Run, Shaping};
use linkgauge_studies::study::Study;

fn published_window() -> WindowModel {
    WindowModel::fit(&ModelInput::Study(&Study::by_name("loggernet").unwrap())).unwrap()
}

const FULL: ReportOptions = ReportOptions { detail: Detail::Full, ..ReportOptions::PLAIN };

fn render(window: &WindowModel) -> String {
    let mut out = Vec::new();
    write_findings(&[window.to_finding()], &FULL, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn published_table_gives_645_659_and_709_bytes() {
    let window = published_window();
    let bytes: Vec<f64> = window.fits.iter().map(|fit| fit.window_bytes.unwrap().round()).collect();
    assert_eq!(bytes, [645.0, 659.0, 709.0]);
    let interval = window.relative_fit().window_bytes_interval.unwrap();
    assert_eq!((interval.low.round(), interval.high.round()), (627.0, 816.0));
    assert_eq!((window.rows.len(), window.left_out.len(), window.limit), (9, 1, Bottleneck::Window));
    let at_0_ms: Vec<f64> = window.fits.iter().map(|fit| fit.residuals_percent[8].round()).collect();
    assert_eq!(at_0_ms, [87.0, 79.0, 23.0]);
}

#[test]
fn findings_fit_80_columns() {
    insta::assert_snapshot!(render(&published_window()), @r"
    The window: bytes per round trip
      1/rate = 1/capacity + RTT/W, where W is the file's bytes per round trip
      Rows: 9, published. RTT: both configured delays. Left out: no shaper (its
        round trip is not known).

      fit            weights                 W (95 %), B    capacity (95 %), B/s
      least squares  rows alike in 1/rate  645 (637–654)  15 542 (10 362–31 078)
      Theil–Sen      median of all pairs   659 (648–705)                  14 875
      relative       rate²: shares alike   709 (627–816)   10 242 (8 383–13 160)

      row                    RTT    B/s  least    T–S   rel.   limit  fills  4 give
      2050 ms, 10/1000   4.100 s    155   +1 %   +3 %  +10 %  window     59     680
      1000 ms, 10/1000   2.000 s    321   −2 %    0 %   +7 %  window     30   1 371
      500 ms, 10/1000    1.000 s    631   −2 %    0 %   +5 %  window     16   2 653
      200 ms, 10/1000   400.0 ms  1 493   −2 %   −1 %   +1 %  window      7   6 044
      100 ms, 10/1000   200.0 ms  2 720   −2 %   −1 %   −3 %  window      4  10 000
      50 ms, 10/1000    100.0 ms  4 600   −1 %   −1 %   −9 %  window      3  10 000
      50 ms, 1000/1000  100.0 ms  4 600   −1 %   −1 %   −9 %  window      5  16 759
      20 ms, 1000/1000  40.00 ms  7 100  +11 %  +10 %   −9 %    rate      4  20 483
      0 ms, 10/1000          0 s  8 300  +87 %  +79 %  +23 %    rate      1  10 242

      least, T–S, rel.: rate by that fit, above (+) or below (−) the row's. limit,
        fills, give: by the relative fit. fills: concurrent requests that fill the
        link, but at most twice the capacity: the work of the server and the link
        can only overlap.
      0 ms, 10/1000 is missed by least squares (+87 %) and Theil–Sen (+79 %):
        unweighted, the slow rows decide.
      A chunk of 1000 bytes costs 1.41–1.55 round trips.
      Capacity 10 242 B/s; the link from the server is set to 10 000 and
        1 000 000 B/s.
      Bottleneck: the window, in 7 of 9 rows: most of the time is spent waiting for
        replies.
    ");
}

/// A download of 1000-byte chunks at its own URL. Each chunk takes the round trip and 1000 B ÷ `capacity`.
fn download_case(number: usize, round_trip: f64, capacity: f64) -> CaseResult {
    let mut case = sample_runs::minimal().cases[0].clone();
    case.endpoint = format!("tcp://192.0.2.1:{number}");
    case.protocol = "pakbus".to_owned();
    case.workload = "download".to_owned();
    case.message_bytes = 1000;
    let rate = 1000.0 / (round_trip + 1000.0 / capacity);
    case.figures = Figures::default();
    case.figures.delivery.throughput_bps = Some(8.0 * rate);
    case
}

fn shaped(delay: std::time::Duration, rate_to_bps: f64, rate_from_bps: f64) -> Option<Shaping> {
    Some(Shaping { delay_ns: delay.as_nanos() as u64, rate_to_bps, rate_from_bps })
}

/// Identical round trips at the URL of a download.
fn latency_case(number: usize, round_trip: f64) -> CaseResult {
    let mut case = download_case(number, round_trip, 1.0);
    case.workload = "latency".to_owned();
    let mut latency = sample_runs::full().cases[1].figures.times.latency_ns.clone().unwrap();
    latency.percentiles = [("p50".to_owned(), Some((round_trip * 1e9) as u64))].into();
    case.figures = Figures::default();
    case.figures.times.latency_ns = Some(latency);
    case
}

fn run_of(cases: Vec<CaseResult>) -> Run {
    Run { cases, ..sample_runs::minimal() }
}

const ROUND_TRIPS: [f64; 5] = [0.05, 0.1, 0.4, 1.0, 2.0];

#[test]
fn fit_recovers_known_window() {
    let both =
        |(number, rtt): (usize, &f64)| [latency_case(number, *rtt), download_case(number, *rtt, 20_500.0)];
    let run = run_of(ROUND_TRIPS.iter().enumerate().flat_map(both).collect());
    let window = WindowModel::fit(&ModelInput::Run(&run)).unwrap();
    for fit in &window.fits {
        assert!((fit.window_bytes.unwrap() - 1000.0).abs() < 0.1, "{fit:?}");
        assert!((fit.capacity_bps.unwrap() - 164_000.0).abs() < 100.0, "{fit:?}");
    }
    assert_eq!((window.limit, window.chunk_bytes), (Bottleneck::Window, Some(1000)));
    assert!(window.rows.iter().all(|judged| judged.row.round_trip_measured));
    // A chunk takes 1.0488 s: 21.5 of them fill 20.5 kB/s, and a window of four has four times the rate of one.
    assert_eq!(window.rows[3].filling_window, Some(22));
    assert!((window.rows[3].careful_window_bps.unwrap() - 8.0 * 4000.0 / 1.048_78).abs() < 10.0);
    assert_eq!(window.filling_window(1.0, 80_000.0), Some(11));
    let text = render(&window);
    assert!(text.contains("A chunk of 1000 bytes costs 1.00 round trips."), "{text}");
    assert!(text.contains("case 2") && text.contains("measured by requests"), "{text}");
}

#[test]
fn configured_delay_replaces_measured_round_trips() {
    let shaped = |(number, rtt): (usize, &f64)| {
        let mut case = download_case(number, *rtt, 10_000.0);
        let delay = std::time::Duration::from_secs_f64(rtt / 2.0);
        case.shaped = shaped(delay, 8e6, 80_000.0);
        case.effective.insert("emulated".to_owned(), true.into());
        case
    };
    let run = run_of(ROUND_TRIPS.iter().enumerate().map(shaped).collect());
    let window = WindowModel::fit(&ModelInput::Run(&run)).unwrap();
    assert!((window.relative_fit().window_bytes.unwrap() - 1000.0).abs() < 1e-3);
    assert!(window.rows.iter().all(|judged| !judged.row.round_trip_measured));
    let text = render(&window);
    assert!(text.contains("measured on an emulated logger, no hardware"), "{text}");
    assert!(text.contains("Capacity 10 000 B/s; the link from the server is set to 10 000 B/s."), "{text}");
}

#[test]
fn rows_of_other_rates_are_excluded_when_the_rate_matters() {
    let mut cases: Vec<CaseResult> = Vec::new();
    for (number, (rtt, capacity)) in
        [(0.1, 10e3), (0.4, 10e3), (1.0, 10e3), (2.0, 10e3), (0.1, 1e6), (0.04, 1e6)].into_iter().enumerate()
    {
        let mut case = download_case(number, rtt, capacity);
        case.shaped = shaped(std::time::Duration::from_secs_f64(rtt / 2.0), 8e6, 8.0 * capacity);
        cases.push(case);
    }
    let window = WindowModel::fit(&ModelInput::Run(&run_of(cases.clone()))).unwrap();
    assert_eq!((window.rows.len(), window.left_out.len()), (4, 2));
    assert!((window.relative_fit().window_bytes.unwrap() - 1000.0).abs() < 1e-3);
    // Equal rates at the same round trip, as in the published table: they stay.
    cases[4].figures = cases[0].figures.clone();
    let window = WindowModel::fit(&ModelInput::Run(&run_of(cases))).unwrap();
    assert_eq!((window.rows.len(), window.left_out.len()), (6, 0));
}

/// The bottleneck and text for downloads with these round trips (s) and rates (B/s).
fn explain_rows(rows: &[(f64, f64)]) -> (Bottleneck, String) {
    let case = |(number, (rtt, rate)): (usize, &(f64, f64))| {
        let mut case = download_case(number, *rtt, 1e9);
        case.figures.delivery.throughput_bps = Some(8.0 * rate);
        [latency_case(number, *rtt), case]
    };
    let run = run_of(rows.iter().enumerate().flat_map(case).collect());
    let window = WindowModel::fit(&ModelInput::Run(&run)).unwrap();
    (window.limit, render(&window))
}

#[test]
fn rate_limits_when_round_trips_have_no_effect() {
    let (limit, text) =
        explain_rows(&[(0.001, 10_000.0), (0.002, 10_010.0), (0.004, 9990.0), (0.008, 10_005.0)]);
    assert_eq!(limit, Bottleneck::Rate);
    assert!(text.contains("Bottleneck: the rate, in 4 of 4 rows"), "{text}");
    // The round trip has an effect, but most of the time is per byte.
    let flat = [0.001, 0.005, 0.01, 0.02].map(|rtt| (rtt, 1000.0 / (rtt + 0.1)));
    assert_eq!(explain_rows(&flat).0, Bottleneck::Rate);
}

#[test]
fn poor_fit_is_reported() {
    let (limit, text) =
        explain_rows(&[(0.1, 1000.0), (0.2, 9000.0), (0.4, 700.0), (0.8, 6000.0), (1.6, 900.0)]);
    assert_eq!(limit, Bottleneck::ThisModelDoesNotFit);
    assert!(text.contains("this model does not fit"), "{text}");
    assert!(!text.contains("A chunk of") && !text.contains("Capacity "), "{text}");
}

#[test]
fn missing_data_is_reported() {
    let why =
        |cases: Vec<CaseResult>| WindowModel::fit(&ModelInput::Run(&run_of(cases))).unwrap_err().to_string();
    let mut windowed = download_case(2, 0.1, 1e4);
    windowed.figures.requests = Some(RequestCounts { window: 4, ..RequestCounts::default() });
    let mut failed = download_case(3, 0.1, 1e4);
    failed.figures.delivery.throughput_bps = None;
    insta::assert_snapshot!([
        why(Vec::new()),
        why(vec![download_case(1, 0.1, 1e4), windowed, failed]),
        why(vec![latency_case(1, 0.1), download_case(1, 0.1, 1e4), latency_case(2, 0.1), download_case(2, 0.1, 1e4)]),
    ].join("\n"), @r"
    downloads at 3 different round trips are needed, there are none; a latency case with the same URL and protocol in the run measures the round trip
    downloads at 3 different round trips are needed, there are none (left out: case 1: its round trip is not known; case 2: it had several concurrent requests; case 3: its rate is impossible); a latency case with the same URL and protocol in the run measures the round trip
    downloads at 3 different round trips are needed, there are 2 at 1; a latency case with the same URL and protocol in the run measures the round trip
    ");
    let study = Study::by_name("sena").unwrap();
    assert!(WindowModel::fit(&ModelInput::Study(&study)).is_err());
}

#[test]
fn implausible_figures_do_not_panic() {
    let mut cases: Vec<CaseResult> = ROUND_TRIPS.iter().map(|rtt| download_case(1, *rtt, 1e4)).collect();
    for (case, (delay, rate)) in
        cases.iter_mut().zip([(0.0, 1e-300), (1e300, 1e300), (-5.0, 8.0), (1e12, f64::MAX), (3e9, 1.0)])
    {
        case.shaped = Some(Shaping { delay_ns: delay as u64, rate_to_bps: rate, rate_from_bps: rate });
        case.figures.delivery.throughput_bps = Some(rate);
    }
    if let Ok(window) = WindowModel::fit(&ModelInput::Run(&run_of(cases))) {
        assert!(window.to_finding().blocks.iter().any(|block| matches!(block, FindingBlock::Text(_))));
        render(&window);
        serde_json::to_string(&window.to_finding().figures).unwrap();
    }
}
