//! The overview of a run over many links: one row per kind of link.

use super::presentation::is_latency;
use super::wording::{ABSENT, brief_rate, brief_time, format_elapsed, plural, printable, wait_mode};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{CaseResult, Run, WarningCode};

/// Minimum number of kinds of links; with fewer, the tables of the cases are overview enough.
const MIN_KINDS: usize = 3;

/// The tables of more cases do not fit a screen.
const MAX_CASES_ON_SCREEN: usize = 15;

/// The best results of a kind of link.
struct LinkKind {
    name: String,
    p50: Option<u64>,
    p99: Option<u64>,
    busy_poll_p50: Option<u64>,
    rate_bps: Option<f64>,
}

/// The overview of a page, header first. `None` for few kinds of links.
pub(crate) fn page_table(run: &Run) -> Option<Vec<Vec<String>>> {
    let rows = table_rows(run);
    (rows.len() > MIN_KINDS).then(|| rows.into_iter().map(|row| row.to_vec()).collect())
}

/// Whether the tables of a run would fill several screens, and its overview fits one.
pub(crate) fn replaces_tables(run: &Run) -> bool {
    run.study.is_none()
        && run.mesh.is_none()
        && run.cases.len() > MAX_CASES_ON_SCREEN
        && link_kinds(run).len() >= MIN_KINDS
}

/// The kinds of links that the host lacks: their warnings begin with the name.
pub(crate) fn skipped_kinds(run: &Run) -> Vec<String> {
    let missing = run.warnings.iter().filter(|warning| warning.code == WarningCode::Unavailable);
    let name = |text: &str| text.strip_prefix("skipped: ")?.split(':').next().map(printable);
    let mut names: Vec<String> = missing.filter_map(|warning| name(&warning.text)).collect();
    names.dedup();
    names
}

/// The rows of the overview, header first.
pub(crate) fn table_rows(run: &Run) -> Vec<[String; 5]> {
    let time = |time: Option<u64>| time.map_or(ABSENT.to_owned(), |time| brief_time(time as f64));
    let header = ["link", "RTT p50", "RTT p99", "busy-poll p50", "rate"].map(str::to_owned);
    let row = |kind: LinkKind| {
        let rate = kind.rate_bps.map_or(ABSENT.to_owned(), brief_rate);
        [kind.name, time(kind.p50), time(kind.p99), time(kind.busy_poll_p50), rate]
    };
    [header].into_iter().chain(link_kinds(run).into_iter().map(row)).collect()
}

/// The number of links, and the figures of the first one.
pub(crate) fn answer(run: &Run) -> String {
    let kinds = link_kinds(run);
    let measured = format!("{} measured in {}", plural(kinds.len(), "link"), format_elapsed(run));
    let Some(first) = kinds.first() else { return format!("{measured}.") };
    let time =
        first.p50.or(first.busy_poll_p50).map(|time| format!("{} round trip", brief_time(time as f64)));
    let figures: Vec<String> = time.into_iter().chain(first.rate_bps.map(brief_rate)).collect();
    format!("{measured}; {}: {}.", first.name, figures.join(", "))
}

/// Kinds of links in the order of their first case. Links without results are omitted.
fn link_kinds(run: &Run) -> Vec<LinkKind> {
    let mut kinds: Vec<LinkKind> = Vec::new();
    for case in run.cases.iter().filter(|case| case.figures.has_measurements()) {
        let name = kind_name(case);
        let index = kinds.iter().position(|kind| kind.name == name).unwrap_or_else(|| {
            kinds.push(LinkKind { name, p50: None, p99: None, busy_poll_p50: None, rate_bps: None });
            kinds.len() - 1
        });
        add_case(&mut kinds[index], case);
    }
    kinds
}

/// The first latency, and the highest rate.
fn add_case(kind: &mut LinkKind, case: &CaseResult) {
    let times = case.figures.times.latency_ns.as_ref();
    let percentile = |name| times.and_then(|times| times.percentile(name));
    match (is_latency(case), wait_mode(case)) {
        (true, WaitMode::Block) if kind.p50.is_none() => {
            (kind.p50, kind.p99) = (percentile("p50"), percentile("p99"))
        }
        (true, WaitMode::Block) => {}
        (true, _) => kind.busy_poll_p50 = kind.busy_poll_p50.or(percentile("p50")),
        (false, _) => {
            let rate = case.figures.delivery.throughput_bps;
            kind.rate_bps = kind.rate_bps.into_iter().chain(rate).reduce(f64::max);
        }
    }
}

/// Name of the kind of link: `tcp`, `unix dgram`, `serial 9600 bit/s`.
fn kind_name(case: &CaseResult) -> String {
    let Ok(endpoint) = case.endpoint.parse::<Endpoint>() else { return printable(&case.endpoint) };
    let mut name = endpoint.scheme().to_owned();
    if let Some(kind) = endpoint.option("type") {
        name += &format!(" {}", printable(kind));
    }
    if let Some(rate) = endpoint.option("baud") {
        name += &format!(" {} bit/s", printable(rate));
    }
    if case.protocol != "linkgauge" && case.figures.requests.is_some() {
        name += &format!(" {}", printable(&case.protocol));
    }
    name
}
