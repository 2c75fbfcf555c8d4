//! Which charts a run gives, and what is in them: percentile curves, rate by message size, rate over time.
//!
//! Not for drawing (`svg`) and not for statistics: every point stands in the run document.

use hdrhistogram::Histogram;

use super::histogram;
use super::svg::{Axis, COLOURS, Series, draw};
use super::table::is_latency;
use super::words::{host_and_date, loss, shorten, wait};
use crate::run::{CaseResult, Distribution, Figures, Run, SeriesEntry};
use crate::units::{print_bit_rate, print_bytes, print_nanoseconds};

/// A finished chart; `svg` is trusted, every other text is not.
pub struct Chart {
    pub title: String,
    pub caption: String,
    /// For those who cannot see it.
    pub label: String,
    /// Titles of the axes.
    pub x: String,
    pub y: String,
    /// Names of the series, in the order of their colours; empty when one needs none.
    pub legend: Vec<String>,
    pub svg: String,
}

/// A curve has no more steps than a screen can show.
const MOST_POINTS: usize = 360;
/// From this ratio on a linear axis hides the small values.
const LOG_FROM: f64 = 8.0;
/// A time series of fewer intervals is no curve.
const LEAST_INTERVALS: usize = 4;

/// Charts of one case.
pub fn of_case(run: &Run, case: &CaseResult) -> Vec<Chart> {
    let own = [("service time", &case.figures.latency_ns), ("response time", &case.figures.response_ns)];
    let mut curves: Vec<Series> =
        own.into_iter().filter_map(|(label, times)| curve(label, &case.figures, times.as_ref()?)).collect();
    if let Some(loaded) = &case.under_load {
        curves.extend(
            loaded.latency_ns.as_ref().and_then(|times| curve("round trip under load", loaded, times)),
        );
    }
    let title = if is_latency(case) { "Round-trip time by percentile" } else { "Round-trip time under load" };
    let note = match case.figures.lost {
        0 => String::new(),
        _ if !is_latency(case) => String::new(),
        _ => format!(" · ends where the lost begin ({})", loss(&case.figures)),
    };
    let percentiles = percentiles(run, title, &format!(" of {}", case.endpoint), &note, curves);
    percentiles.into_iter().chain(over_time(run, case)).collect()
}

fn chart(
    run: &Run,
    title: &str,
    of: &str,
    note: &str,
    x: &Axis,
    y: &Axis,
    series: Vec<Series>,
) -> Option<Chart> {
    let svg = draw(x, y, &series)?;
    let plural = if series.len() == 1 { "curve" } else { "curves" };
    Some(Chart {
        title: title.to_owned(),
        caption: format!("{}{note}", host_and_date(run)),
        label: format!("{title}{of}: {} {plural}, {} against {}", series.len(), y.label, x.label),
        x: x.label.clone(),
        y: y.label.clone(),
        legend: if series.len() > 1 { series.into_iter().map(|one| one.label).collect() } else { Vec::new() },
        svg,
    })
}

/// Distance along the percentile axis: 50 % at 0.3, 90 % at 1, 99 % at 2.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// From the histogram where it can be read, with a dot at each named percentile.
fn curve(label: &str, figures: &Figures, times: &Distribution) -> Option<Series> {
    let named = times.percentiles.iter().filter_map(|(name, value)| {
        let share = name.strip_prefix('p')?.parse::<f64>().ok()? / 100.0;
        let known = (0.0..1.0).contains(&share) && nines(share).is_finite();
        Some((nines(share), (*value)? as f64)).filter(|_| known)
    });
    let mut dots: Vec<(f64, f64)> = named.collect();
    dots.sort_by(|a, b| a.0.total_cmp(&b.0));
    let is_service = figures.latency_ns.as_ref().is_some_and(|latency| std::ptr::eq(latency, times));
    let points = match histogram(figures).filter(|_| is_service) {
        Some(histogram) => stairs(&histogram, figures.sent),
        None => dots.clone(),
    };
    (!points.is_empty()).then(|| Series { label: label.to_owned(), points, dots })
}

/// The distribution as it is: level over the ranks that have a value, then up. Steps too narrow to see are joined.
fn stairs(histogram: &Histogram<u64>, sent: u64) -> Vec<(f64, f64)> {
    let sent = sent.max(histogram.len()) as f64;
    // Half a rank before the end: the slowest one then has a place on the axis.
    let end = nines(1.0 - 0.5 / sent);
    let (mut points, mut answered, mut from) = (Vec::new(), 0, 0.0);
    for step in histogram.iter_recorded() {
        answered += step.count_at_value();
        let to = nines(answered as f64 / sent).min(end);
        if to - from >= end / MOST_POINTS as f64 || answered == histogram.len() {
            let value = step.value_iterated_to() as f64;
            points.extend([(from, value), (to, value)]);
            from = to;
        }
    }
    points
}

fn percentiles(run: &Run, title: &str, of: &str, note: &str, series: Vec<Series>) -> Option<Chart> {
    let all = || series.iter().flat_map(|one| one.points.iter().chain(&one.dots));
    let high = all().map(|point| point.0).fold(2.0, f64::max);
    let mut ticks = vec![(nines(0.5), "50 %".to_owned())];
    if high < 3.5 {
        ticks.insert(0, (0.0, "0 %".to_owned()));
    }
    for nine in 1..=high.floor() as usize {
        let digits = "9".repeat(nine);
        let name = match digits.split_at(digits.len().min(2)) {
            ("9", _) => "90 %".to_owned(),
            (whole, "") => format!("{whole} %"),
            (whole, rest) => format!("{whole}.{rest} %"),
        };
        ticks.push((nine as f64, name));
    }
    let x = Axis { label: "share of exchanges that took no longer".to_owned(), low: 0.0, high, ticks };
    let (least, most) =
        all().fold((f64::MAX, 1.0), |(low, high), point| (point.1.min(low), point.1.max(high)));
    if most / least.max(1.0) < LOG_FROM {
        let y = linear("round-trip time", most, print_nanoseconds);
        return chart(run, title, of, note, &x, &y, series);
    }
    let (y, series) = logarithmic("round-trip time (log scale)", least, most, series);
    chart(run, title, of, note, &x, &y, series)
}

/// The percentile curves of all cases, where they are few enough to be told apart.
pub fn all_latencies(run: &Run) -> Option<Chart> {
    let cases = || run.cases.iter().enumerate().filter(|(_, case)| case.figures.latency_ns.is_some());
    if !(2..=COLOURS).contains(&cases().count()) {
        return None;
    }
    let curves = cases().filter_map(|(index, case)| {
        let spin = if wait(case) == "spin" { ", spin" } else { "" };
        let label = format!(
            "{}: {}{spin}, {}",
            index + 1,
            shorten(&case.endpoint, 48),
            print_bytes(case.message_bytes.into())
        );
        curve(&label, &case.figures, case.figures.latency_ns.as_ref()?)
    });
    percentiles(run, "Round-trip times side by side", "", "", curves.collect())
}

/// One curve for each endpoint, peer, direction and number of ports that was measured with several sizes.
pub fn by_size(run: &Run) -> Option<Chart> {
    let mut series: Vec<Series> = Vec::new();
    let mut add = |label: String, bytes: u32, rate: Option<f64>| {
        let Some(rate) = rate.filter(|rate| rate.is_finite() && *rate >= 0.0 && bytes > 0) else { return };
        let point = (f64::from(bytes).log10(), rate);
        match series.iter_mut().find(|one| one.label == label) {
            Some(one) => one.points.push(point),
            None => series.push(Series { label, points: vec![point], dots: vec![] }),
        }
    };
    for case in run.cases.iter().filter(|case| !is_latency(case)) {
        let ports = if case.ports > 1 { format!(", {} ports", case.ports) } else { String::new() };
        let spin = if wait(case) == "spin" { ", spin" } else { "" };
        let parallel = if case.parallel > 1 { format!(" × {}", case.parallel) } else { String::new() };
        let label = format!(
            "{}{spin}{ports}{parallel}, {}, {}",
            shorten(&case.endpoint, 48),
            case.peer,
            case.direction.name()
        );
        add(label.clone(), case.message_bytes, case.figures.throughput_bps);
        add(format!("{label}, other way"), case.message_bytes, case.figures.throughput_back_bps);
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        one.points.dedup_by(|a, b| a.0 == b.0);
        one.dots = one.points.clone();
    }
    series.retain(|one| one.points.len() > 1);
    let sizes = || series.iter().flat_map(|one| &one.points).map(|point| point.0);
    let (low, high) = sizes().fold((f64::MAX, f64::MIN), |(low, high), size| (size.min(low), size.max(high)));
    if low >= high {
        return None;
    }
    let mut at: Vec<f64> = sizes().collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    // Two names need about an eighth of the width between them.
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for size in at {
        if ticks.last().is_none_or(|(last, _)| size - last >= (high - low) / 8.0) {
            ticks.push((size, tidy(&print_bytes(10f64.powf(size).round() as u64))));
        }
    }
    let margin = (high - low) * 0.03;
    let x =
        Axis { label: "message size (log scale)".to_owned(), low: low - margin, high: high + margin, ticks };
    let most = series.iter().flat_map(|one| &one.points).map(|point| point.1).fold(1.0, f64::max);
    let y = linear("delivered payload", most, print_bit_rate);
    chart(run, "Rate by message size", "", "", &x, &y, series)
}

fn over_time(run: &Run, case: &CaseResult) -> Option<Chart> {
    if is_latency(case) || case.series.len() < LEAST_INTERVALS {
        return None;
    }
    let together = case.series.len().div_ceil(MOST_POINTS);
    let point = |entries: &[SeriesEntry]| {
        let sum =
            |value: fn(&SeriesEntry) -> u64| entries.iter().map(|entry| value(entry) as f64).sum::<f64>();
        let length = sum(|entry| entry.length_ns);
        let rate = sum(|entry| entry.bytes) * 8e9 / length;
        let middle = entries[0].start_ns as f64 + length / 2.0;
        (length > 0.0 && rate.is_finite()).then_some((middle / 1e9, rate))
    };
    let points: Vec<(f64, f64)> = case.series.chunks(together).filter_map(point).collect();
    let most = points.iter().map(|point| point.1).fold(1.0, f64::max);
    let end = case.series.last().map_or(0.0, |last| (last.start_ns as f64 + last.length_ns as f64) / 1e9);
    let x = linear("time since the start (s)", end, |seconds| format!("{seconds} s"));
    let y = linear("delivered payload", most, print_bit_rate);
    let of = format!(" of {}", case.endpoint);
    let series = vec![Series { label: String::new(), points, dots: vec![] }];
    chart(run, "Rate over time", &of, "", &Axis { high: end, ..x }, &y, series)
}

/// From 0 to a little above `most`, with four to six steps of 1, 2 or 5.
fn linear(label: &str, most: f64, print: fn(f64) -> String) -> Axis {
    let rough = most.max(f64::MIN_POSITIVE) / 4.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * decade).rfind(|step| *step <= rough).unwrap_or(decade);
    let high = most * 1.04;
    let ticks = (0..20).map(|n| f64::from(n) * step).take_while(|at| *at <= high);
    let ticks = ticks.map(|at| (at, if at == 0.0 { "0".to_owned() } else { tidy(&print(at)) })).collect();
    Axis { label: label.to_owned(), low: 0.0, high, ticks }
}

/// An axis of times in ns, and the series moved onto it.
fn logarithmic(label: &str, least: f64, most: f64, mut series: Vec<Series>) -> (Axis, Vec<Series>) {
    let log = |value: f64| value.max(1.0).log10();
    for one in &mut series {
        one.points.iter_mut().chain(&mut one.dots).for_each(|point| point.1 = log(point.1));
    }
    let (low, high) = (log(least) - 0.08, log(most) + 0.08);
    let decades = (high - low).ceil() as i32;
    let steps: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    // Twelve decades still have room, and 64 bits of ns have no more than twenty.
    let every = if decades > 8 { 3 } else { 1 };
    let exponents = (low.floor() as i32..=high.ceil() as i32).filter(|exponent| exponent % every == 0);
    let ticks = exponents
        .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
        .map(|value| (value.log10(), tidy(&print_nanoseconds(value))))
        .filter(|(at, _)| (low..=high).contains(at));
    (Axis { label: label.to_owned(), low, high, ticks: ticks.collect() }, series)
}

/// `10.00 µs` as `10 µs`: a tick is a round number.
fn tidy(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::sample_run;

    #[test]
    fn the_curve_ends_where_the_lost_begin() {
        let run = sample_run::full();
        let (whole, lossy) = (&run.cases[0].figures, &run.cases[2].figures);
        let end = |figures: &Figures| {
            let curve = curve("", figures, figures.latency_ns.as_ref().unwrap()).unwrap();
            let last = curve.points.last().copied().unwrap();
            assert!(curve.points.len() <= 2 * MOST_POINTS + 2 && curve.points.is_sorted());
            1.0 - 10f64.powf(-last.0)
        };
        assert!((end(whole) - 0.99995).abs() < 1e-9);
        assert!((end(lossy) - 0.94).abs() < 1e-9);
        let captions: Vec<String> =
            of_case(&run, &run.cases[2]).into_iter().map(|chart| chart.caption).collect();
        assert_eq!(captions, ["gauge-1 · 2026-11-20 10:00 UTC · ends where the lost begin (6.00 %)"]);
    }

    #[test]
    fn ticks_are_round() {
        let names = |axis: Axis| axis.ticks.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        insta::assert_snapshot!(names(linear("", 41.3e9, print_bit_rate)), @"0, 10 Gbit/s, 20 Gbit/s, 30 Gbit/s, 40 Gbit/s");
        insta::assert_snapshot!(names(linear("", 9.0, |seconds| format!("{seconds} s"))), @"0, 2 s, 4 s, 6 s, 8 s");
        insta::assert_snapshot!(names(logarithmic("", 13e3, 310e3, vec![]).0), @"20 µs, 50 µs, 100 µs, 200 µs");
        insta::assert_snapshot!(names(logarithmic("", 0.0, 1.8e19, vec![]).0), @"1 ns, 1 µs, 1 ms, 1 s, 1000 s, 1000000 s, 1000000000 s");
    }

    proptest! {
        // A whole report a case: fewer than usual.
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn nothing_panics(
            times in prop::collection::vec((0.0f64..101.0, any::<u64>()), 0..6),
            series in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..9),
            rates in prop::collection::vec((any::<u32>(), any::<f64>()), 4),
        ) {
            let mut run = sample_run::full();
            for case in &mut run.cases {
                case.figures.histogram_hdr_v2 = None;
                for figures in case.under_load.iter_mut().chain([&mut case.figures]) {
                    let Some(latency) = &mut figures.latency_ns else { continue };
                    latency.percentiles = times.iter().map(|(p, value)| (format!("p{p}"), Some(*value))).collect();
                }
            }
            for (case, (bytes, rate)) in run.cases[3..].iter_mut().zip(rates) {
                (case.message_bytes, case.figures.throughput_bps) = (bytes, Some(rate));
                let entry = case.series[0].clone();
                case.series = series
                    .iter()
                    .map(|&(start_ns, length_ns, bytes)| SeriesEntry { start_ns, length_ns, bytes, ..entry.clone() })
                    .collect();
            }
            let charts = run.cases.iter().flat_map(|case| of_case(&run, case)).chain(all_latencies(&run)).chain(by_size(&run));
            for chart in charts {
                prop_assert!(!chart.svg.contains("NaN") && chart.svg.len() < 1 << 20);
            }
        }
    }
}
