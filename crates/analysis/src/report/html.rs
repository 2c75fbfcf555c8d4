//! The report as one HTML page: no network, light and dark, for screens and paper. It is readable without its script,
//! which only shows the values under the pointer.
//!
//! `table` and `chart` choose the contents, and `page.html` has the styles.
//!
//! The template escapes every text. Only a chart's drawing is inserted as it is: the SVG writer has escaped its texts.

use std::collections::BTreeSet;
use std::io;

use base64::Engine as _;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::Map;
use sha2::{Digest, Sha256};

use super::chart;
use super::column::ColumnKind;
use super::presentation::{self, MainFigure, case_sentence, is_latency};
use super::table::{ReportTable, TableRow, build_tables};
use super::wording::{
    self, ABSENT, FIT_NOTE, LOST_TEXT, format_date, format_deviation, format_loss, format_mean,
    format_percent, format_percentile, format_share, format_time_of, local_host, measured_text, plural,
    printable, wait_mode,
};
use super::{ReportOptions, mesh, overview, path, study};
use crate::explain::DeclaredFacts;
use crate::explain::size::{self, SizeFit};
use linkgauge_model::plan::WaitMode;
use linkgauge_model::run::{
    self, CaseResult, Distribution, Figures, PartResult, PathResult, Run, ThresholdResult, Warning,
};
use linkgauge_model::units::{format_bit_rate, format_count, format_nanoseconds};

mod figure_rows;
pub(crate) mod parts;

pub(crate) use figure_rows::count_rows;
pub(crate) use parts::{chart_contexts, fit_texts, keep_dates_together, keep_units_together};

/// Maximum number of cases with a sentence per case and unfolded details on the page.
const MAX_UNFOLDED_CASES: usize = 12;

/// The templates by name. The suffix of the name enables escaping.
const TEMPLATES: [(&str, &str); 8] = [
    ("base.html", include_str!("base.html")),
    ("macros.html", include_str!("macros.html")),
    ("page.html", include_str!("page.html")),
    ("paper.html", include_str!("paper.html")),
    ("mesh.html", include_str!("mesh.html")),
    ("overlay.html", include_str!("overlay.html")),
    ("history.html", include_str!("history.html")),
    ("explanation.html", include_str!("explanation.html")),
];
const SCRIPT: &str = include_str!("page.js");

/// Identifies the only permitted script in the page's content security policy.
fn script_hash() -> String {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SCRIPT));
    format!("sha256-{hash}")
}

pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    write_page(&render_page(run).map_err(io::Error::other)?, out)
}

/// Replaces control characters, so that the page can be shown on a terminal.
pub(crate) fn write_page(page: &str, out: &mut dyn io::Write) -> io::Result<()> {
    page.lines().try_for_each(|line| writeln!(out, "{}", printable(line)))
}

/// Renders a template with its context and the script.
pub(crate) fn render_template(template: &str, about: Value) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?,
    );
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    let script = Value::from_safe_string(SCRIPT.to_owned());
    let page = environment
        .get_template(template)?
        .render(context! { script, script_hash => script_hash(), ..about })?;
    // A slash is harmless in text and in quoted attributes, and the page has many URLs.
    Ok(page.replace("&#x2f;", "/"))
}

fn render_page(run: &Run) -> Result<String, minijinja::Error> {
    let shown = run.mesh.as_ref().map(|mesh| mesh::page_cases(run, mesh));
    let cases = run.cases.iter().zip(1..);
    let cases = cases.filter(|(_, number)| shown.as_ref().is_none_or(|shown| shown.contains(number)));
    let cases: Vec<Value> = cases.map(|(result, number)| case_context(run, result, number)).collect();
    let planned = match (run.interrupted, run.is_complete()) {
        (true, _) => "Interrupted: the figures cover the time until then.",
        (false, false) => "Incomplete: part of the plan was not measured.",
        (false, true) => "",
    };
    let title = presentation::run_title(run);
    let (overview, key_figures) = first_tables(run);
    let answer = match (&run.study, &run.mesh) {
        (Some(paper), _) => study::answer(paper),
        (None, Some(mesh)) => mesh::answer(run, mesh),
        (None, None) if overview.is_some() => overview::answer(run),
        (None, None) => presentation::run_answer(run),
    };
    let fits = size::fit_run(run, &DeclaredFacts::default());
    render_template(
        "page.html",
        context! {
            many => run.cases.len() > MAX_UNFOLDED_CASES,
            title => title.clone(), heading => keep_dates_together(&title),
            answer => keep_units_together(&answer),
            sections => section_contexts(run, overview.as_ref()),
            overview => overview, key_figures => key_figures.into_iter().collect::<Vec<_>>(),
            tool => run.tool.clone(),
            id => run.id.clone(),
            schema => run.schema.clone(),
            host => local_host(run).filter(|host| !title.ends_with(&format!(" on {host}"))).unwrap_or_default(),
            date => format_date(run),
            started => run.started.to_string(),
            elapsed => format_nanoseconds(run.elapsed_ns as f64),
            count => plural(run.cases.len(), "case"),
            planned => planned,
            judged => threshold_summary(run),
            warnings => warning_contexts(&run.warnings),
            cases => cases,
            mesh => run.mesh.as_ref().map(|mesh| mesh::page_context(run, mesh)),
            paper => run.study.as_ref().map(|study| study::page_context(run, study, &fits)),
            tables => table_contexts(run, &fits),
            fit_note => FIT_NOTE,
            machines => machine_contexts(&run.environment),
        },
    )
}

fn case_context(run: &Run, case: &CaseResult, number: usize) -> Value {
    let figures = &case.figures;
    let settings: BTreeSet<&String> = case.requested.keys().chain(case.effective.keys()).collect();
    let settings: Vec<Value> = settings
        .into_iter()
        .map(|name| context! { name => display_name(name), requested => format_fact(name, case.requested.get(name)), effective => format_fact(name, case.effective.get(name)) })
        .collect();
    let groups = [
        ("Line", serde_json::to_value(case.line)),
        ("Shaped link", serde_json::to_value(case.shaped)),
        ("Placement", serde_json::to_value(&case.placement)),
    ];
    let groups: Vec<Value> = groups
        .into_iter()
        .filter_map(|(title, facts)| Some((title, fact_contexts(facts.ok()?.as_object()?))))
        .filter(|(_, facts)| !facts.is_empty())
        .map(|(title, facts)| context! { title, facts })
        .collect();
    let parts = [("Repetitions", &case.repeats), ("Ports", &case.per_port)];
    let parts: Vec<Value> = parts
        .into_iter()
        .filter(|(_, parts)| !parts.is_empty())
        .map(|(title, parts)| part_table_context(title, parts))
        .collect();
    let times = [
        ("Service time", figures.times.latency_ns.as_ref()),
        ("Response time", figures.times.response_ns.as_ref()),
        ("Time to connect", figures.times.connect_ns.as_ref()),
        ("Under load", case.under_load.as_ref().and_then(|figures| figures.times.latency_ns.as_ref())),
    ];
    let names: Vec<&str> = times.iter().filter(|(_, times)| times.is_some()).map(|(name, _)| *name).collect();
    let distributions: Vec<Option<&Distribution>> =
        times.iter().map(|(_, times)| *times).filter(Option::is_some).collect();
    context! {
        number => number,
        endpoint => case.endpoint.clone(),
        busy_polls => wait_mode(case) == WaitMode::BusyPoll,
        workload => case.workload.clone(),
        sentence => keep_units_together(&case_sentence(case)),
        complete => case.complete,
        warnings => warning_contexts(&case.warnings),
        thresholds => threshold_contexts(case),
        missed => case.thresholds.iter().filter(|judged| !judged.passed).count(),
        charts => chart_contexts(chart::case_charts(run, case)),
        counts => count_rows(case).into_iter().map(|(name, value)| context! { name, value }).collect::<Vec<Value>>(),
        times => context! { names => names, rows => time_rows(&distributions) },
        settings => settings,
        groups => groups,
        parts => parts,
        path => case.path.as_ref().map(|path| path_context(case, path)),
        method => case.method.clone(),
    }
}

/// The hops of a path, and what it says.
fn path_context(case: &CaseResult, path: &PathResult) -> Value {
    /// A page is wide enough for whole names.
    const NAME_COLUMNS: usize = 60;
    let columns = path::hop_columns(path, NAME_COLUMNS);
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let count = columns.first().map_or(0, |column| column.cells.len());
    let cells = |row: usize| columns.iter().map(|column| column.cells[row].clone()).collect();
    let rows: Vec<Vec<String>> = (0..count).map(cells).collect();
    let sentences =
        path::queue_sentence(case).into_iter().chain(path::limited_note(path).map(|note| note + "."));
    context! { titles, rows, sentences => sentences.collect::<Vec<String>>() }
}

/// The number of thresholds that failed. Empty without thresholds.
fn threshold_summary(run: &Run) -> String {
    match wording::threshold_results(run) {
        (failed, 0) if failed.is_empty() => String::new(),
        (failed, passed) if failed.is_empty() => format!("PASS: {}.", plural(passed, "threshold")),
        (failed, passed) => {
            format!("FAIL: {} of {}.", failed.len(), plural(failed.len() + passed, "threshold"))
        }
    }
}

fn threshold_contexts(case: &CaseResult) -> Vec<Value> {
    let value = |judged: &ThresholdResult| {
        context! { text => judged.threshold.clone(), met => measured_text(judged), kept => judged.passed }
    };
    case.thresholds.iter().map(value).collect()
}

pub(crate) fn warning_contexts(warnings: &[Warning]) -> Vec<Value> {
    let value = |warning: &Warning| {
        context! { code => warning.code.name(), text => warning.text.clone(), remedy => warning.remedy.clone() }
    };
    warnings.iter().map(value).collect()
}

/// Width of the bars of a table, from the left edge, in drawing units.
const BAR_WIDTH: f64 = 120.0;

/// Start and end of each row's bar on logarithmic axes: p50 to p99, or the position of the rate.
fn bar_spans(run: &Run, table: &ReportTable) -> Vec<Option<(f64, f64)>> {
    let span = |row: &TableRow| {
        let (case, main) = (&run.cases[row.case - 1], row.secondary.is_none());
        let figures = &case.figures;
        if is_latency(case) {
            let times = if main { &figures.times.latency_ns } else { &figures.times.response_ns }.as_ref()?;
            let low = (times.percentile("p50")? as f64).max(1.0).log10();
            let high = times.percentile("p99").map_or(low, |p99| (p99 as f64).max(1.0).log10());
            return Some((low, high));
        }
        let rate =
            if main { figures.delivery.throughput_bps } else { figures.delivery.throughput_reverse_bps };
        let rate = rate.filter(|rate| rate.is_finite() && *rate >= 0.0)?.max(1.0).log10();
        Some((rate, rate))
    };
    let spans: Vec<Option<(f64, f64)>> = table.rows.iter().map(span).collect();
    let all = || spans.iter().flatten();
    let low = all().map(|span| span.0).fold(f64::MAX, f64::min);
    let high = all().map(|span| span.1).fold(f64::MIN, f64::max);
    let least_bars = 2;
    if all().count() < least_bars || low >= high {
        return vec![None; spans.len()];
    }
    let place = |value: f64| 4.0 + (value - low) / (high - low) * (BAR_WIDTH - 8.0);
    spans.into_iter().map(|span| span.map(|(low, high)| (place(low), place(high)))).collect()
}

/// All tables. The first table of a workload carries its charts. A single case has its key figures instead.
fn table_contexts(run: &Run, fits: &[SizeFit]) -> Vec<Value> {
    if run.cases.len() == 1 && run.study.is_none() || run.mesh.is_some() {
        return Vec::new();
    }
    let mut charted: Vec<String> = Vec::new();
    let one = |one: ReportTable| {
        let first = !charted.contains(&one.workload);
        charted.push(one.workload.clone());
        let charts =
            if first { chart_contexts(chart::workload_charts(run, &one.workload)) } else { Vec::new() };
        table_context(run, one, charts, fits)
    };
    build_tables(run).into_iter().map(one).collect()
}

/// Rows of cells, header first.
type SmallTable = Vec<Vec<String>>;

/// The small tables above the notes: an overview of many links, or the figures of a single case.
fn first_tables(run: &Run) -> (Option<SmallTable>, Option<SmallTable>) {
    match run.cases.as_slice() {
        _ if run.study.is_some() || run.mesh.is_some() => (None, None),
        cases if cases.len() == 1 || presentation::differ_in_direction(cases) => {
            (None, Some(presentation::filled_figure_table(cases)).filter(|table| table[0].len() > 1))
        }
        _ => (overview::page_table(run), None),
    }
}

/// Links to the parts of the page, in their order.
fn section_contexts(run: &Run, overview: Option<&SmallTable>) -> Vec<Value> {
    let mut sections: Vec<(String, String)> = Vec::new();
    let mut add = |is_there: bool, id: &str, name: &str| {
        sections.extend(is_there.then(|| (id.to_owned(), name.to_owned())));
    };
    add(overview.is_some(), "overview", "Overview");
    add(run.mesh.is_some(), "mesh", "Pairs");
    add(run.study.is_some(), "study", "Published beside measured");
    if run.mesh.is_none() && (run.cases.len() > 1 || run.study.is_some()) {
        build_tables(run).iter().for_each(|table| add(true, &table_id(table), &table.title()));
    }
    add(run.cases.len() > 1, "cases", &format!("Cases ({})", run.cases.len()));
    add(!run.environment.client.is_empty(), "environment", "Environment");
    sections.into_iter().map(|(id, name)| context! { id, name }).collect()
}

fn table_id(table: &ReportTable) -> String {
    table.title().to_lowercase().replace(' ', "-")
}

fn table_context(run: &Run, mut table: ReportTable, charts: Vec<Value>, fits: &[SizeFit]) -> Value {
    let latency = presentation::presentation(&table.workload).main_figure == MainFigure::RoundTrip;
    let bars = bar_spans(run, &table);
    let barred = bars.iter().any(Option::is_some);
    let (title, id, common) = (table.title(), table_id(&table), table.take_common_values().join(", "));
    let numbers: Vec<usize> = table.rows.iter().map(|row| row.case).collect();
    let fits = fit_texts(fits, &numbers);
    let columns: Vec<Value> = table
        .columns
        .iter()
        .map(|column| context! { title => column.title, name => matches!(column.kind, ColumnKind::Case { .. }) })
        .collect();
    let rows: Vec<Value> = table
        .rows
        .into_iter()
        .zip(bars)
        .map(|(row, bar)| {
            let warnings = if row.secondary.is_none() { run.cases[row.case - 1].warnings.len() } else { 0 };
            let bar = bar.map(|(low, high)| [low, high].map(|at| format!("{at:.1}")));
            let cells: Vec<Value> = row
                .cells
                .into_iter()
                .zip(&table.columns)
                .map(|(text, column)| context! { text => text, name => matches!(column.kind, ColumnKind::Case { .. }) })
                .collect();
            context! {
                case => row.case, endpoint => row.endpoint, also => row.secondary, cells => cells, bar => bar,
                warnings => warnings,
            }
        })
        .collect();
    context! {
        title => title, id => id, common => common, columns => columns, rows => rows, charts => charts, fits => fits,
        barred => barred, bar => if latency { "p50 – p99, log" } else { "rate, log" },
    }
}

/// Rows of a table with one column per distribution. Missing values are empty.
pub(crate) fn time_rows(distributions: &[Option<&Distribution>]) -> Vec<Value> {
    let row = |name: String, value: &dyn Fn(&Distribution) -> String| {
        let cells: Vec<String> =
            distributions.iter().map(|times| times.map(value).unwrap_or_default()).collect();
        context! { name, cells }
    };
    let there = || distributions.iter().flatten();
    let mut percentiles: Vec<&String> = there().flat_map(|times| times.percentiles.keys()).collect();
    let rank = |name: &str| name.trim_start_matches('p').parse::<f64>().unwrap_or(f64::MAX);
    percentiles.sort_by(|a, b| rank(a).total_cmp(&rank(b)).then(a.cmp(b)));
    percentiles.dedup();
    let mut later: Vec<&String> = there().flat_map(|times| times.later_than_ms.keys()).collect();
    later.sort_by(|a, b| rank(a).total_cmp(&rank(b)).then(a.cmp(b)));
    later.dedup();

    let mut rows = vec![row("min".to_owned(), &|times| format_time_of(times, times.min, format_nanoseconds))];
    for name in percentiles {
        rows.push(row(name.clone(), &|times| match times.percentiles.get(name) {
            Some(Some(value)) => format_time_of(times, *value, format_nanoseconds),
            Some(None) => LOST_TEXT.to_owned(),
            None => ABSENT.to_owned(),
        }));
    }
    rows.push(row("max".to_owned(), &|times| format_time_of(times, times.max, format_nanoseconds)));
    rows.push(row("mean".to_owned(), &|times| format_mean(times, times.mean, format_nanoseconds)));
    rows.push(row("standard deviation".to_owned(), &format_deviation));
    rows.push(row("mean of the fastest 95 %".to_owned(), &|times| {
        times
            .mean_fastest_95_percent
            .map_or(LOST_TEXT.to_owned(), |mean| format_mean(times, mean, format_nanoseconds))
    }));
    for limit in later {
        rows.push(row(format!("later than {limit} ms, or lost"), &|times| {
            times.later_than_ms.get(limit).map_or(ABSENT.to_owned(), |part| format_share(*part))
        }));
    }
    rows
}

/// Table of the parts, only with columns that at least one part fills.
fn part_table_context(title: &str, parts: &[PartResult]) -> Value {
    let p = |figures: &Figures, name| format_percentile(figures.times.latency_ns.as_ref(), name);
    type Cell<'a> = &'a dyn Fn(&Figures) -> String;
    let share = |share: Option<f64>| share.map_or(ABSENT.to_owned(), format_percent);
    let bytes = |bytes: u64| if bytes > 0 { format_count(bytes) } else { ABSENT.to_owned() };
    let columns: [(&str, Cell); 9] = [
        ("p50", &|figures| p(figures, "p50")),
        ("p90", &|figures| p(figures, "p90")),
        ("p99", &|figures| p(figures, "p99")),
        ("rate", &|figures| figures.delivery.throughput_bps.map_or(ABSENT.to_owned(), format_bit_rate)),
        ("of line", &|figures| share(figures.delivery.line_rate_percent)),
        ("loss", &format_loss),
        ("lost bytes", &|figures| bytes(figures.byte_errors.lost_bytes)),
        ("inserted", &|figures| bytes(figures.byte_errors.inserted_bytes)),
        ("corrupt", &|figures| bytes(figures.byte_errors.corrupt_bytes)),
    ];
    let filled = columns.iter().filter(|(_, cell)| parts.iter().any(|part| cell(&part.figures) != ABSENT));
    let filled: Vec<&(&str, Cell)> = filled.collect();
    let row = |(part, number): (&PartResult, i32)| {
        let cells: Vec<String> = filled.iter().map(|(_, cell)| cell(&part.figures)).collect();
        context! { number => number, endpoint => part.endpoint.clone(), cells => cells }
    };
    let rows: Vec<Value> = parts.iter().zip(1..).map(row).collect();
    let columns: Vec<&str> = filled.iter().map(|(title, _)| *title).collect();
    context! { title => title, columns => columns, rows => rows }
}

/// The facts of a map; those of a map inside it have rows of their own.
fn fact_contexts(map: &Map<String, serde_json::Value>) -> Vec<Value> {
    let row = |name: &str, value: &serde_json::Value| {
        context! { name => display_name(name), value => format_fact(name, Some(value)) }
    };
    let rows = |(name, value): (&String, &serde_json::Value)| match value {
        serde_json::Value::Object(inner) => inner.iter().map(|(name, value)| row(name, value)).collect(),
        _ => vec![row(name, value)],
    };
    map.iter().flat_map(rows).collect()
}

/// The machines of a run: one entry if client and server ran on the same.
fn machine_contexts(environment: &run::Environment) -> Vec<Value> {
    let (client, server) = (&environment.client, &environment.server);
    let machines = match client == server {
        true => vec![("Client and server", client)],
        false => vec![("Client", client), ("Server", server)],
    };
    let machines = machines.into_iter().filter(|(_, facts)| !facts.is_empty());
    let name = |facts: &Map<String, serde_json::Value>| {
        let known = ["hostname", "cpu_model", "kernel_release"]
            .into_iter()
            .filter_map(|name| facts.get(name)?.as_str());
        known.collect::<Vec<_>>().join(", ")
    };
    machines
        .map(|(role, facts)| context! { role, name => name(facts), facts => fact_contexts(facts) })
        .collect()
}

/// A name in words. Times are printed with their unit, so it is not in their names. Names of the kernel stay as they are.
pub(crate) fn display_name(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => name.strip_suffix("_ns").unwrap_or(name).replace('_', " "),
    }
}

pub(crate) fn format_fact(name: &str, value: Option<&serde_json::Value>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(serde_json::Value::Null) => "unknown".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Bool(true)) => "yes".to_owned(),
        Some(serde_json::Value::Bool(false)) => "no".to_owned(),
        Some(serde_json::Value::Number(number)) => {
            match (name.ends_with("_ns"), number.as_f64(), number.as_u64()) {
                (true, Some(nanoseconds), _) => format_nanoseconds(nanoseconds),
                (_, _, Some(count)) => format_count(count),
                _ => number.to_string(),
            }
        }
        Some(serde_json::Value::Array(items)) => {
            join_list(items.iter().map(|item| parenthesize(item, format_fact("", Some(item)))))
        }
        Some(serde_json::Value::Object(map)) => join_list(map.iter().map(|(name, value)| {
            format!("{} {}", display_name(name), parenthesize(value, format_fact(name, Some(value))))
        })),
    }
}

fn join_list(words: impl Iterator<Item = String>) -> String {
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "none".to_owned() } else { words }
}

/// Parentheses around several values that are nested in others.
fn parenthesize(value: &serde_json::Value, words: String) -> String {
    if value.is_array() || value.is_object() { format!("({words})") } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn facts_become_words() {
        let value = serde_json::json!({"kind": "fixed", "rate": [1500, null], "took_ns": 2e6, "more": {}});
        let words = "kind fixed, more (none), rate (1 500, unknown), took 2.000 ms";
        assert_eq!(format_fact("pacing", Some(&value)), words);
    }

    #[test]
    fn foreign_texts_are_escaped() {
        let page = render_page(&sample_runs::hostile()).unwrap();
        assert!(page.matches("<script").count() == 1 && !page.contains(sample_runs::HOSTILE_SCRIPT));
        let line = page.lines().find(|line| line.starts_with("<h1>")).unwrap();
        insta::assert_snapshot!(line.replace('\u{1b}', "ESC"), @"<h1>&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;ESC[2J&quot;&#x27;&amp;</h1>");
        let label = page.lines().find(|line| line.contains("over time of &lt;")).unwrap();
        let label = label.split(" viewBox").next().unwrap().replace('\u{1b}', "ESC");
        insta::assert_snapshot!(label, @r#"<svg class="chart" role="img" aria-label="Rate and round-trip time over time of &lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;ESC[2J&quot;&#x27;&amp;: 1 curve, delivered payload against time since the start (s)""#);
    }

    #[test]
    fn page_is_self_contained() {
        let page = render_page(&sample_runs::full()).unwrap();
        for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
            // A clip path is part of the page.
            assert!(!page.replace("url(#", "").contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn charts_appear_only_with_data() {
        let titles = |run: &Run| {
            let page = render_page(run).unwrap();
            let titles = page.split("<figcaption><strong>").skip(1);
            titles.map(|rest| rest.split("</strong>").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        insta::assert_snapshot!(titles(&sample_runs::full()).join("\n"), @r"
        Round-trip times side by side
        Rate and round-trip time over time
        Rate by message size
        Round-trip time by percentile
        Distribution of round-trip times
        Repetition by repetition
        Round-trip time by percentile
        Port by port
        Distribution of round-trip times
        Round-trip time by percentile
        Distribution of round-trip times
        Rate and round-trip time over time
        Round-trip time under load by percentile
        Distribution of round-trip times under load
        Rate and round-trip time over time
        Round-trip time under load by percentile
        Distribution of round-trip times under load
        Rate and round-trip time over time
        Round-trip time under load by percentile
        Distribution of round-trip times under load
        Rate and round-trip time over time
        Round-trip time under load by percentile
        Distribution of round-trip times under load
        ");
        assert!(titles(&sample_runs::minimal()).is_empty());
    }

    #[test]
    fn a_sweep_has_its_fit_beside_the_chart() {
        let one = render_page(&sample_runs::message_sizes()).unwrap();
        assert!(one.contains("fit 1–5: 20.00\u{a0}µs + size ÷ 100.0\u{a0}MB"));
        assert!(one.contains("half: the size"));
        assert!(!render_page(&sample_runs::serial_line()).unwrap().contains("half: the size"));
    }

    #[test]
    fn many_cases_are_folded() {
        let mut run = sample_runs::full();
        assert!(render_page(&run).unwrap().contains("class=\"glance\""));
        let more: Vec<CaseResult> = run.cases.iter().cycle().take(MAX_UNFOLDED_CASES + 1).cloned().collect();
        run.cases = more;
        let page = render_page(&run).unwrap();
        assert!(!page.contains("class=\"glance\"") && !page.contains("<section"));
        assert_eq!(page.matches("<details class=\"case\">").count(), MAX_UNFOLDED_CASES + 1);
    }

    #[test]
    fn bars_are_drawn_to_one_scale() {
        let run = sample_runs::full();
        let bars_of = |table: &ReportTable| bar_spans(&run, table).into_iter().flatten().collect::<Vec<_>>();
        let barred: Vec<_> = build_tables(&run).iter().map(bars_of).filter(|bars| !bars.is_empty()).collect();
        assert_eq!(barred.len(), 2);
        for bars in barred {
            assert_eq!(bars.iter().map(|bar| bar.0).fold(f64::MAX, f64::min), 4.0);
            assert_eq!(bars.iter().map(|bar| bar.1).fold(0.0, f64::max), BAR_WIDTH - 4.0);
        }
        assert!(
            build_tables(&sample_runs::minimal())
                .iter()
                .all(|one| bar_spans(&sample_runs::minimal(), one) == [None])
        );
    }

    #[test]
    fn warnings_stand_beside_their_case() {
        let page = render_page(&sample_runs::full()).unwrap();
        let cases: Vec<&str> = page.split("<section").collect();
        assert!(cases[3].contains("socket-drops") && !cases[1].contains("socket-drops"));
        assert!(cases[0].contains("busy-machine"));
        // In the table, next to the name, because the right end of a wide table may be hidden.
        let row = cases[0].lines().find(|line| line.contains("⚠ 1</a></th>")).unwrap();
        assert!(row.contains("class=\"endpoint\""), "{row}");
    }

    #[test]
    fn failed_thresholds_are_visible_without_unfolding() {
        let mut run = sample_runs::serial_line();
        assert!(render_page(&run).unwrap().contains("<p class=\"planned\">FAIL: 1 of 2 thresholds.</p>"));
        run.cases = run.cases.iter().cycle().take(MAX_UNFOLDED_CASES + 1).cloned().collect();
        let many = render_page(&run).unwrap();
        let marked = many.lines().filter(|line| line.starts_with("<summary>") && line.contains("✗ 1 failed"));
        assert_eq!(marked.count(), MAX_UNFOLDED_CASES.div_ceil(2));
        run.cases.iter_mut().for_each(|case| case.thresholds.retain(|judged| judged.passed));
        assert!(render_page(&run).unwrap().contains("<p>PASS: "));
        assert!(!render_page(&sample_runs::full()).unwrap().contains("<p>PASS: "));
    }
}
