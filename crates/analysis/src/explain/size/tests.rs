//! Published figures, and synthetic sweeps with known costs.

use super::sweeps::SizeSweep;
use super::*;
use crate::report::{Detail, ReportOptions, sample_runs, write_findings};
use linkgauge_model::run::{CaseResult, Figures, LineFacts, Shaping};

/// Payload rate of a link with Ethernet frames of LINX: 1488 of 1538 bytes.
fn ethernet_limit(bits_per_second: f64) -> LineLimit {
    let line_limit_bps = bits_per_second * 1488.0 / 1538.0;
    LineLimit { line_limit_bps, line_by: LineSource::Line }
}

/// Published microseconds per packet, one way, for 64 bytes and then four times the size each.
fn published_fit(name: &str, microseconds: &[f64], limit: LineLimit) -> SizeFit {
    let measured = microseconds.iter().enumerate().map(|(power, us)| SizeSample {
        case: None,
        message_bytes: 64 << (2 * power),
        time_ns: us * 1e3,
    });
    let sweep = SizeSweep {
        group: "Throughput".to_owned(),
        name: name.to_owned(),
        samples: measured.collect(),
        line_limit: Some(limit),
        ..SizeSweep::default()
    };
    SizeFit::from_sweep(sweep).unwrap()
}

const GIGABIT_BPS: f64 = 1e9;
const FAST_ETHERNET_BPS: f64 = 1e8;

fn published_fits() -> Vec<SizeFit> {
    vec![
        published_fit("LINX", &[24.0, 24.0, 28.0, 58.0, 200.0, 748.0], ethernet_limit(GIGABIT_BPS)),
        published_fit("TIPC", &[30.0, 32.0, 34.0, 106.0, 318.0, 1156.0], ethernet_limit(GIGABIT_BPS)),
        published_fit("Linux–OSEck", &[30.0, 32.0, 84.0, 336.0, 1356.0], ethernet_limit(FAST_ETHERNET_BPS)),
        published_fit("OSEck–OSEck", &[24.0, 36.0, 86.0, 340.0], ethernet_limit(FAST_ETHERNET_BPS)),
    ]
}

/// Megabytes per second, rounded.
fn megabytes(rate_bps: Option<f64>, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (rate_bps.unwrap() / 8e6 * scale).round() / scale
}

#[test]
fn published_tables_between_nodes_are_explained() {
    let [linx, tipc, to_oseck, oseck] = published_fits().try_into().unwrap();
    assert_eq!((megabytes(linx.costs.rate_bps, 1), megabytes(tipc.costs.rate_bps, 1)), (91.6, 58.0));
    assert_eq!((megabytes(linx.last_rate_bps, 1), megabytes(tipc.last_rate_bps, 1)), (89.7, 58.7));
    let of_line = |fit: &SizeFit| (10.0 * fit.last_of_line_percent.unwrap()).round() / 10.0;
    assert_eq!((of_line(&linx), of_line(&tipc)), (74.2, 48.5));
    assert_eq!(
        (linx.against_line, tipc.against_line),
        (Some(LineComparison::Slower), Some(LineComparison::Slower))
    );
    assert_eq!((megabytes(to_oseck.last_rate_bps, 2), megabytes(oseck.last_rate_bps, 2)), (12.05, 12.09));
    assert_eq!(
        (to_oseck.against_line, oseck.against_line),
        (Some(LineComparison::Equal), Some(LineComparison::Equal))
    );
    assert_eq!(megabytes(to_oseck.line_limit.map(|limit| limit.line_limit_bps), 2), 12.09);
    // One of four sizes is an outlier, so the slope over all exceeds the link rate.
    assert_eq!((to_oseck.beyond_line, oseck.beyond_line), (false, true));
    assert!((linx.costs.message_ns.unwrap() - 21_206.35).abs() < 1.0, "{:?}", linx.costs);
    assert_eq!(linx.costs.half_performance_bytes.unwrap().round(), 1943.0);
    let interval = linx.costs.rate_bps_interval.unwrap();
    assert_eq!((megabytes(Some(interval.low), 1), megabytes(Some(interval.high), 1)), (89.0, 240.0));
    assert_eq!(oseck.costs.rate_bps_interval, None);
    assert!(linx.segmented.is_none() && tipc.segmented.is_none(), "six sizes are too few for two lines");
}

const FULL: ReportOptions = ReportOptions { detail: Detail::Full, ..ReportOptions::PLAIN };

fn render(fits: Vec<SizeFit>) -> String {
    let mut out = Vec::new();
    let sizes = SizeModel { form: FORMULA, published: true, fits };
    write_findings(&[sizes.to_finding()], &FULL, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// Renders the fits without line breaks.
fn render_unwrapped(fits: Vec<SizeFit>) -> String {
    render(fits).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn study_gives_the_same_fits() {
    let study = linkgauge_studies::study::Study::by_name("linx").unwrap();
    let all = SizeModel::fit(&ModelInput::Study(&study), &UNDECLARED).unwrap().fits;
    let in_study = |table: &str, name: &str| {
        all.iter().find(|fit| fit.group.starts_with(&format!("Table {table}: ")) && fit.name == name).unwrap()
    };
    for (by_hand, (table, name)) in
        published_fits().iter().zip([("2", "LINX"), ("2", "TIPC"), ("6", "LINX"), ("8", "LINX")])
    {
        let fit = in_study(table, name);
        assert_eq!((&fit.rows, &fit.costs), (&by_hand.rows, &by_hand.costs), "{table} {name}");
        assert_eq!(
            (fit.line_limit, fit.against_line),
            (by_hand.line_limit, by_hand.against_line),
            "{table} {name}"
        );
    }
    // Four times two protocols, and two pairs with OSEck twice.
    assert_eq!(all.len(), 12);
    let latency = in_study("1", "LINX");
    assert_eq!((latency.line_limit, megabytes(latency.costs.rate_bps, 1)), (None, 33.9));
    // A round trip does not compare with a declared line either.
    let declared = DeclaredFacts { line_bps: Some(1e6) };
    let all = SizeModel::fit(&ModelInput::Study(&study), &declared).unwrap().fits;
    let compared = |fit: &SizeFit| (fit.line_limit.is_some(), fit.group.ends_with("throughput"));
    assert!(all.iter().map(compared).all(|(has_limit, is_load)| has_limit == is_load), "{all:?}");
}

#[test]
fn findings_fit_80_columns() {
    insta::assert_snapshot!(render(published_fits()), @r"
    The size: per-message overhead and per-byte cost
      time of a message = overhead + size ÷ rate, published figures by Theil–Sen;
        the interval of the rate is Sen's (95 %, from five sizes on)
      Throughput

                  sizes overhead       rate        95 %  half at   last two   off
      LINX            6 21.21 µs 91.64 MB/s 89.05–240.0 1.943 kB 89.69 MB/s +16 %
      TIPC            6        –          –           –        – 58.65 MB/s +35 %
      Linux–OSEck     5        –          –           –        – 12.05 MB/s −45 %
      OSEck–OSEck     4 18.52 µs 13.94 MB/s           –    258 B 12.09 MB/s  −8 %

      LINX: last two 74.2 % of the line (120.9 MB/s): not the line.
      TIPC: the model does not fit (off by +35 %): no costs shown.
      TIPC: last two 48.5 % of the line (120.9 MB/s): not the line.
      Linux–OSEck: the model does not fit (off by −45 %): no costs shown.
      Linux–OSEck: last two 99.6 % of the line (12.09 MB/s): it is the line.
      OSEck–OSEck: last two 100.0 % of the line (12.09 MB/s): it is the line.
      OSEck–OSEck: the rate of all sizes is beyond the line: no byte costs so
        little.
      half at: the size that gets half of the rate (n½). last two: the slope between
        the two largest sizes. off: the most that the line is above (+) or below (−)
        a time.
    ");
    let lines: Vec<String> = published_fits().iter().map(SizeFit::summary_line).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    21.21 µs + size ÷ 91.64 MB/s, half 1.943 kB; last 89.69 MB/s = 74 %
    the model does not fit (off by +35 %); last 58.65 MB/s = 48 %
    the model does not fit (off by −45 %); last 12.05 MB/s = 100 %
    18.52 µs + size ÷ 13.94 MB/s (beyond the line), half 258 B; last 12.09 MB/s = 100 %
    ");
}

/// An unpaced one-way load with this time per message.
fn load_case(message_bytes: u32, nanoseconds: f64) -> CaseResult {
    let mut case = sample_runs::minimal().cases[0].clone();
    (case.workload, case.direction, case.message_bytes) =
        ("throughput".to_owned(), linkgauge_model::plan::Direction::Send, message_bytes);
    case.figures = Figures::default();
    case.figures.delivery.throughput_bps = Some(8e9 * f64::from(message_bytes) / nanoseconds);
    case
}

fn run_of(cases: Vec<CaseResult>) -> Run {
    Run { cases, ..sample_runs::minimal() }
}

fn doubling_sizes() -> impl Iterator<Item = u32> {
    (0..11).map(|power| 64 << power)
}

fn fit_cases(cases: Vec<CaseResult>, declared: &DeclaredFacts) -> Vec<SizeFit> {
    fit_run(&run_of(cases), declared)
}

const UNDECLARED: DeclaredFacts = DeclaredFacts { line_bps: None };

#[test]
fn fit_recovers_known_costs() {
    // 5 µs and 2 ns per byte: 500 MB/s.
    let cases = doubling_sizes().map(|size| load_case(size, 5e3 + 2.0 * f64::from(size))).collect();
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    assert!((fit.costs.message_ns.unwrap() - 5e3).abs() < 1e-3, "{fit:?}");
    assert_eq!((megabytes(fit.costs.rate_bps, 3), megabytes(fit.last_rate_bps, 3)), (500.0, 500.0));
    assert_eq!(fit.costs.half_performance_bytes.unwrap().round(), 2500.0);
    assert_eq!(
        (&fit.segmented, fit.against_line, fit.case_numbers().as_deref()),
        (&None, None, Some("1–11"))
    );
}

#[test]
fn breakpoint_names_the_sizes_between() {
    let time =
        |size: u32| if size <= 1500 { 5e3 + 2.0 * f64::from(size) } else { 2e4 + 4.0 * f64::from(size) };
    let mut cases: Vec<CaseResult> = doubling_sizes().map(|size| load_case(size, time(size))).collect();
    let interface = serde_json::json!({ "mtu_bytes": 1500, "tx_bytes": 1600 });
    cases[0].effective.insert("interface".to_owned(), interface);
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    let broken = fit.segmented.as_ref().unwrap();
    assert_eq!((broken.last_below_bytes, broken.first_above_bytes), (1024, 2048));
    assert_eq!(broken.between, ["mtu_bytes 1500"]);
    assert_eq!((megabytes(broken.below.rate_bps, 1), megabytes(broken.above.rate_bps, 1)), (500.0, 250.0));
    let text = render_unwrapped(vec![fit.clone()]);
    assert!(text.contains("break at 1024–2048 B (mtu_bytes 1500 lies there)"), "{text}");
    assert!(fit.summary_line().ends_with("; break at 1024–2048 B"), "{}", fit.summary_line());
}

#[test]
fn line_limit_comes_from_flag_link_or_interface() {
    let cases = |interface: serde_json::Value, line: Option<LineFacts>| {
        let mut cases: Vec<CaseResult> =
            doubling_sizes().map(|size| load_case(size, 8.0 * f64::from(size))).collect();
        for case in &mut cases {
            case.effective.insert("interface".to_owned(), interface.clone());
            case.line = line;
        }
        cases
    };
    let limit = |cases, declared: &DeclaredFacts| fit_cases(cases, declared)[0].line_limit;
    let card =
        serde_json::json!({ "kind": "ethernet", "driver": "e1000e", "speed_mbit": 1000, "mtu_bytes": 1500 });
    let mut pair = card.clone();
    pair["stacked"] = true.into();
    let (none, baud) = (None, Some(LineFacts { max_payload_bps: Some(7680.0), ..LineFacts::default() }));
    let declared = DeclaredFacts { line_bps: Some(1e9) };
    let of = |limit: Option<LineLimit>| limit.map(|limit| (limit.line_by, limit.line_limit_bps.round()));
    assert_eq!(
        of(limit(cases(card.clone(), none), &UNDECLARED)),
        Some((LineSource::Interface, 975_292_588.0))
    );
    assert_eq!(of(limit(cases(pair, none), &UNDECLARED)), None);
    assert_eq!(of(limit(cases(card.clone(), baud), &UNDECLARED)), Some((LineSource::Line, 7680.0)));
    assert_eq!(of(limit(cases(card, none), &declared)), Some((LineSource::Declared, 1e9)));
}

#[test]
fn a_slope_above_the_line_is_flagged() {
    let cases = || doubling_sizes().map(|size| load_case(size, 5e3 + 2.0 * f64::from(size))).collect();
    let [fit] = fit_cases(cases(), &DeclaredFacts { line_bps: Some(1e9) }).try_into().unwrap();
    assert_eq!((fit.against_line, fit.beyond_line), (Some(LineComparison::Faster), true));
    assert!(fit.summary_line().ends_with("= 400 %, beyond the line"), "{}", fit.summary_line());
    assert!(
        render_unwrapped(vec![fit])
            .contains("of the line as declared (125.0 MB/s): faster than the line can be")
    );
}

#[test]
fn noise_at_small_sizes_keeps_the_byte_cost() {
    // Two of the three smallest take less time than a smaller one, so Sen's interval contains zero.
    let microseconds = [9.942, 8.369, 9.585, 18.36, 50.71, 183.5];
    let sizes = (0..6).map(|power| 64 << (2 * power));
    let cases = sizes.zip(microseconds).map(|(size, us)| load_case(size, us * 1e3)).collect();
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    assert!(fit.costs.byte_ns_interval.unwrap().low < 0.0 && fit.costs.rate_bps_interval.is_none());
    assert!((350.0..450.0).contains(&megabytes(fit.costs.rate_bps, 1)), "{fit:?}");
}

#[test]
fn cases_that_differ_in_more_than_size_are_separate_sweeps() {
    let mut cases: Vec<CaseResult> =
        doubling_sizes().map(|size| load_case(size, 5e3 + 2.0 * f64::from(size))).collect();
    let others: Vec<CaseResult> = cases
        .iter()
        .map(|case| CaseResult { direction: linkgauge_model::plan::Direction::Receive, ..case.clone() })
        .collect();
    // Two sizes, paced cases and incomplete cases do not make a sweep.
    let mut paced = others.clone();
    for case in &mut paced {
        case.protocol = "paced".to_owned();
        case.requested.insert("pacing".to_owned(), serde_json::json!({ "kind": "fixed" }));
    }
    let mut broken_off = others.clone();
    broken_off.iter_mut().for_each(|case| (case.protocol, case.complete) = ("broken".to_owned(), false));
    let two = others[..2].iter().map(|case| CaseResult { protocol: "two".to_owned(), ..case.clone() });
    cases.extend(two.chain(others.clone()).chain(paced).chain(broken_off));
    let fits = fit_cases(cases, &UNDECLARED);
    assert_eq!(fits.len(), 2);
    assert_eq!(fits[1].group, "Throughput, protocol linkgauge, direction receive");
}

#[test]
fn different_line_rates_are_separate_sweeps() {
    // A study of rates: a faster line has larger messages.
    let over = |set: &dyn Fn(&mut LineFacts, &mut Shaping, u32)| {
        let faster = doubling_sizes().map(|size| {
            let mut case = load_case(size, 5e3);
            let (mut line, mut shaping) = (LineFacts::default(), Shaping::default());
            set(&mut line, &mut shaping, size);
            (case.line, case.shaped) = (Some(line), Some(shaping));
            case
        });
        fit_cases(faster.collect(), &UNDECLARED)
    };
    assert_eq!(over(&|line, _, size| line.bits_per_second = size.into()), []);
    assert_eq!(over(&|line, _, size| line.bits_per_byte = size.into()), []);
    assert_eq!(over(&|_, shaping, size| shaping.rate_to_bps = size.into()), []);
    assert_eq!(over(&|_, shaping, size| shaping.delay_ns = size.into()), []);
    // The time of a message on the line depends on its size.
    assert_eq!(over(&|line, _, size| line.transmission_ns = Some(size.into())).len(), 1);
}

#[test]
fn meaningless_costs_are_omitted() {
    // A per-byte cost of zero, or below.
    let flat = [5e3, 5.1e3, 4.9e3, 5e3, 5.05e3, 4.95e3];
    let cases = doubling_sizes().zip(flat).map(|(size, time)| load_case(size, time)).collect();
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    assert_eq!((fit.costs.rate_bps, fit.costs.half_performance_bytes), (None, None));
    assert!(fit.summary_line().starts_with("no cost per byte shown"), "{}", fit.summary_line());
    assert!(render(vec![fit]).contains("no cost per byte shown: it may be nothing."));
    // Three scattered sizes prove nothing.
    let cases = doubling_sizes().zip([5e3, 4.9e3, 5.1e3]).map(|(size, time)| load_case(size, time)).collect();
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    assert_eq!(fit.costs.rate_bps, None);
    // A message overhead below zero.
    let cases = doubling_sizes().take(3).map(|size| load_case(size, 2.0 * f64::from(size) - 100.0)).collect();
    let [fit] = fit_cases(cases, &UNDECLARED).try_into().unwrap();
    assert_eq!((fit.costs.message_ns, fit.costs.half_performance_bytes), (None, None));
    assert_eq!(fit.summary_line(), "size ÷ 500.0 MB/s; last 500.0 MB/s");
    for cases in [
        vec![],
        doubling_sizes().take(2).map(|size| load_case(size, 1e3)).collect(),
        vec![load_case(64, 1e3); 9],
        doubling_sizes().map(|size| load_case(size, f64::NAN)).collect(),
        doubling_sizes().map(|size| load_case(size, f64::INFINITY)).collect(),
        doubling_sizes().map(|size| load_case(size, 0.0)).collect(),
        doubling_sizes().map(|_| load_case(0, 1e3)).collect(),
    ] {
        assert_eq!(fit_cases(cases, &UNDECLARED), []);
    }
    let nothing = SizeModel::fit(&ModelInput::Run(&run_of(vec![])), &UNDECLARED).unwrap_err().to_string();
    assert!(nothing.contains("3 message sizes"), "{nothing}");
}
