//! Several runs on one page: each case has one chart and one table for all runs, and the verdicts of a comparison.
//!
//! `verdict` matches the cases, and `chart::overlay` makes the charts.
//!
//! A group is one run, or a set of runs that share a colour.

use std::collections::BTreeMap;
use std::io;

use minijinja::context;
use minijinja::value::Value;

use super::chart::overlay::{ChartLayer, case_charts, sweep_charts};
use super::svg::COLOUR_COUNT;
use super::wording::{ABSENT, format_date, host_names, local_host, plural, shorten};
use super::{comparison, html};
use linkgauge_model::metric::Metric;
use linkgauge_model::run::{CaseResult, Run};
use linkgauge_model::verdict::{MatchedCase, RunComparison, SideCase, Verdict, match_cases};

/// Maximum number of groups; further groups would have no distinct colours and dashes.
pub const MAX_RUN_GROUPS: usize = COLOUR_COUNT;
/// Maximum number of runs drawn per group. More curves of one colour add nothing.
const MAX_RUNS_PER_GROUP: usize = 8;
/// Maximum number of cases that are not folded.
const MAX_UNFOLDED_CASES: usize = 12;
/// Maximum width of the name of a set, which may be a list of files.
const MAX_SET_COLUMNS: usize = 32;
/// Maximum width of an endpoint in a heading: longer than any that people type.
const MAX_ENDPOINT_COLUMNS: usize = 120;

/// One run, or several that form a set.
#[derive(Debug, Clone, Copy)]
pub struct RunGroup<'a> {
    /// Name given by the user.
    pub name: &'a str,
    /// Runs of the group, at least one.
    pub runs: &'a [Run],
}

/// Writes the page, with at most [`MAX_RUN_GROUPS`] groups. A comparison of the first two groups adds its verdicts to
/// the charts.
///
/// # Errors
///
/// Writing fails.
pub fn write_overlay(
    sides: &[RunGroup],
    comparison: Option<&RunComparison>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    html::write_page(&render_page(sides, comparison).map_err(io::Error::other)?, out)
}

/// A run with its label.
struct LabelledRun<'a> {
    run: &'a Run,
    /// Short label: `1`, or `A`; `A.2` in a set.
    short: String,
    /// Label that is the same for each run of a group, for the legends: with host and date.
    label: String,
    colour: usize,
}

fn label_runs<'a>(sides: &[RunGroup<'a>], comparison: Option<&RunComparison>) -> Vec<Vec<LabelledRun<'a>>> {
    let letter = |index: usize| match comparison {
        Some(_) => char::from(b'A' + index as u8).to_string(),
        None => (index + 1).to_string(),
    };
    let side = |(index, side): (usize, &RunGroup<'a>)| {
        let letter = letter(index);
        let label = match side.runs {
            [run] => [Some(letter.clone()), host_names(run), Some(format_date(run))]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>(),
            runs => vec![letter.clone(), shorten(side.name, MAX_SET_COLUMNS), plural(runs.len(), "run")],
        };
        let label = label.join(" · ");
        let one = |(number, run): (usize, &'a Run)| {
            let short = if side.runs.len() > 1 { format!("{letter}.{}", number + 1) } else { letter.clone() };
            LabelledRun { run, short, label: label.clone(), colour: index % COLOUR_COUNT }
        };
        side.runs.iter().take(MAX_RUNS_PER_GROUP).enumerate().map(one).collect()
    };
    sides.iter().enumerate().map(side).collect()
}

fn render_page(sides: &[RunGroup], comparison: Option<&RunComparison>) -> Result<String, minijinja::Error> {
    let labelled = label_runs(sides, comparison);
    let all = match_cases(&sides.iter().map(|side| side.runs).collect::<Vec<_>>());
    let several = |case: &&MatchedCase| case.sides.iter().flatten().count() > 1;
    let (shared, alone): (Vec<&MatchedCase>, Vec<&MatchedCase>) = all.iter().partition(several);
    let runs: Vec<&LabelledRun> = labelled.iter().flatten().collect();
    let title = match (comparison, shared.as_slice()) {
        (Some(_), [case]) => format!("{}: A and B compared", case_name(case.first())),
        (Some(_), cases) => format!("A and B compared in {}", plural(cases.len(), "case")),
        (None, _) => format!("{} side by side", plural(runs.len(), "run")),
    };
    let left_out: usize = sides.iter().map(|side| side.runs.len().saturating_sub(MAX_RUNS_PER_GROUP)).sum();
    let mut layers: Vec<ChartLayer> =
        shared.iter().flat_map(|case| layers_of_case(case, &labelled)).collect();
    layers.sort_by_key(|layer| layer.run_index);
    let cases: Vec<Value> = shared
        .iter()
        .zip(1..)
        .map(|(matched, number)| case_context(matched, number, &labelled, comparison))
        .collect();
    let only: Vec<Value> = alone
        .iter()
        .map(|case| {
            let side = case.sides.iter().position(Option::is_some).unwrap_or_default();
            context! { name => case_name(case.first()), side => group_letter(&labelled[side]) }
        })
        .collect();
    html::render_template(
        "overlay.html",
        context! {
            title,
            tool => concat!("linkgauge ", env!("CARGO_PKG_VERSION")),
            date => runs.iter().map(|labelled| labelled.run.started).max().map(|last| last.strftime("%Y-%m-%d").to_string()),
            many => cases.len() > MAX_UNFOLDED_CASES,
            runs => runs.iter().map(|labelled| run_context(labelled)).collect::<Vec<Value>>(),
            most => MAX_RUNS_PER_GROUP,
            left_out => if left_out > 0 { plural(left_out, "run") } else { String::new() },
            answer => comparison.map(|comparison| html::keep_units_together(&comparison::headline(comparison))),
            legend => comparison.map(comparison::verdict_legend).unwrap_or_default(),
            warnings => comparison.map(|comparison| html::warning_contexts(&comparison.warnings)).unwrap_or_default(),
            sweeps => html::chart_contexts(sweep_charts(&layers)),
            cases, only,
            differ => machine_differences(&runs),
        },
    )
}

/// The name of a group, without the number of the run.
fn group_letter(side: &[LabelledRun]) -> String {
    side.first().map(|run| run.short.split('.').next().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn case_name(found: &SideCase) -> String {
    comparison::case_name(&found.name, MAX_ENDPOINT_COLUMNS)
}

/// CSS class of a verdict.
fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        _ => "",
    }
}

fn run_context(labelled: &LabelledRun) -> Value {
    let run = labelled.run;
    let fact = |name: &str| {
        let value = run.environment.client.get(name).and_then(|value| value.as_str());
        value.unwrap_or(ABSENT).to_owned()
    };
    context! {
        short => labelled.short.clone(), key => context! { class => format!("s{}", labelled.colour + 1), line => true, mark => labelled.colour + 1, drawn => "fill" },
        title => run.title.clone().unwrap_or_else(|| "linkgauge".to_owned()),
        id => run.id.clone(),
        host => local_host(run).unwrap_or_else(|| ABSENT.to_owned()),
        date => format_date(run), started => run.started.to_string(),
        cpu => fact("cpu_model"), kernel => fact("kernel_release"),
        warnings => html::warning_contexts(&run.warnings),
        planned => if run.interrupted { "interrupted" } else if run.is_complete() { "" } else { "incomplete" },
    }
}

/// The drawn measurements of a case, group by group.
fn measurements_of_case<'a>(
    matched: &MatchedCase<'a>,
    labelled: &'a [Vec<LabelledRun>],
) -> Vec<(&'a LabelledRun<'a>, &'a CaseResult)> {
    let sides = matched.sides.iter().zip(labelled);
    let measured = sides.filter_map(|(measured, labelled)| Some((measured.as_ref()?, labelled)));
    let drawn = |(measured, labelled): (&SideCase<'a>, &'a Vec<LabelledRun<'a>>)| {
        measured.cases.iter().filter_map(|(run, case)| Some((labelled.get(*run)?, *case))).collect::<Vec<_>>()
    };
    measured.flat_map(drawn).collect()
}

fn layers_of_case<'a>(matched: &'a MatchedCase<'a>, labelled: &'a [Vec<LabelledRun>]) -> Vec<ChartLayer<'a>> {
    let numbers: Vec<*const Run> =
        labelled.iter().flatten().map(|labelled| std::ptr::from_ref(labelled.run)).collect();
    measurements_of_case(matched, labelled)
        .into_iter()
        .map(|(labelled, case)| ChartLayer {
            run_index: numbers.iter().position(|run| std::ptr::eq(*run, labelled.run)).unwrap_or_default(),
            colour: labelled.colour,
            label: &labelled.label,
            endpoint: &matched.first().name.endpoint,
            case,
        })
        .collect()
}

fn case_context(
    matched: &MatchedCase,
    number: usize,
    labelled: &[Vec<LabelledRun>],
    comparison: Option<&RunComparison>,
) -> Value {
    let first = matched.first();
    let each = measurements_of_case(matched, labelled);
    let metric = Metric::headline(first.cases[0].1);
    let value = |case: &CaseResult| {
        metric.value_of_case(case).map_or_else(|| ABSENT.to_owned(), |value| metric.unit().format(value))
    };
    let glance: Vec<String> = labelled
        .iter()
        .flatten()
        .map(|labelled| {
            let own = each.iter().filter(|(other, _)| std::ptr::eq(*other, labelled));
            own.map(|(_, case)| value(case)).collect::<Vec<_>>().join(", ")
        })
        .collect();
    let compared = comparison.map(|comparison| &comparison.cases).into_iter().flatten();
    let verdicts: Vec<Value> = compared
        .filter(|compared| compared.case == first.name)
        .map(|compared| {
            let (a, b) = comparison::format_medians(compared);
            context! {
                metric => compared.metric.clone(), a, b, verdict => compared.verdict.label(), class => verdict_class(compared.verdict),
                shift => comparison::format_shift(compared), interval => comparison::format_interval(compared),
                p => comparison::format_p_value(compared),
            }
        })
        .collect();
    let warnings = each
        .iter()
        .flat_map(|(labelled, case)| case.warnings.iter().map(|warning| (labelled.short.clone(), warning)));
    let elsewhere = matched.sides.iter().flatten().skip(1).find(|found| found.name != first.name);
    context! {
        number, name => case_name(first), metric => metric.name(), glance, verdicts,
        elsewhere => elsewhere.map(|found| case_name(found)),
        warnings => warnings.map(|(short, warning)| context! { short, code => warning.code.name(), text => warning.text.clone() }).collect::<Vec<Value>>(),
        charts => html::chart_contexts(case_charts(&layers_of_case(matched, labelled))),
        heads => each.iter().map(|(labelled, _)| labelled.short.clone()).collect::<Vec<_>>(),
        rows => figure_rows(&each),
    }
}

/// The figures of a case, one column per measurement.
fn figure_rows(each: &[(&LabelledRun, &CaseResult)]) -> Vec<Value> {
    let times: Vec<_> = each.iter().map(|(_, case)| case.figures.times.latency_ns.as_ref()).collect();
    let mut rows = if times.iter().any(Option::is_some) { html::time_rows(&times) } else { Vec::new() };
    let counts: Vec<BTreeMap<&str, String>> =
        each.iter().map(|(_, case)| html::count_rows(case).into_iter().collect()).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in each.iter().flat_map(|(_, case)| html::count_rows(case)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    rows.extend(names.into_iter().map(|name| {
        let cells = counts.iter().map(|counts| counts.get(name).cloned().unwrap_or_default());
        context! { name, cells => cells.collect::<Vec<String>>() }
    }));
    rows
}

/// Machine facts that differ between the runs, with the value of each run. The load always does.
fn machine_differences<'a>(runs: &[&LabelledRun<'a>]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (prefix, is_remote) in [("", false), ("server ", true)] {
        let machine =
            |run: &'a Run| if is_remote { &run.environment.server } else { &run.environment.client };
        let mut names: Vec<&String> = runs.iter().flat_map(|labelled| machine(labelled.run).keys()).collect();
        names.retain(|name| !name.starts_with("load_"));
        names.sort();
        names.dedup();
        for name in names {
            let cells: Vec<String> = runs
                .iter()
                .map(|labelled| html::format_fact(name, machine(labelled.run).get(name)))
                .collect();
            if cells.iter().any(|cell| *cell != cells[0]) {
                rows.push(context! { name => format!("{prefix}{}", html::display_name(name)), cells });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;
    use linkgauge_model::verdict::{CompareOptions, compare};

    fn write_page(sides: &[RunGroup], comparison: Option<&RunComparison>) -> String {
        let mut out = Vec::new();
        write_overlay(sides, comparison, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn titles(page: &str) -> Vec<&str> {
        let titles = page.split("<figcaption><strong>").skip(1);
        titles.map(|rest| rest.split("</strong>").next().unwrap()).collect()
    }

    #[test]
    fn matching_cases_share_one_chart() {
        let runs = [sample_runs::full(), sample_runs::full(), sample_runs::full()];
        let sides: Vec<RunGroup> = runs.chunks(1).map(|runs| RunGroup { name: "run", runs }).collect();
        let page = write_page(&sides, None);
        insta::assert_snapshot!(titles(&page).join("\n"), @r"
        Rate by message size
        Rate by message size
        Distribution of round-trip times
        Round-trip time by percentile
        Distribution of round-trip times
        Round-trip time by percentile
        Port by port
        Distribution of round-trip times
        Round-trip time by percentile
        Rate and round-trip time over time
        Distribution of round-trip times under load
        Round-trip time under load by percentile
        Rate and round-trip time over time
        Distribution of round-trip times under load
        Round-trip time under load by percentile
        Rate and round-trip time over time
        Distribution of round-trip times under load
        Round-trip time under load by percentile
        Rate and round-trip time over time
        Distribution of round-trip times under load
        Round-trip time under load by percentile
        ");
        let first = page.split("<figure>").find(|figure| figure.contains("time by percentile")).unwrap();
        let first = first.split_inclusive("</figure>\n").next().unwrap();
        let legend: Vec<&str> =
            first.split("<li>").skip(1).map(|entry| entry.split("</svg>").nth(1).unwrap().trim()).collect();
        insta::assert_snapshot!(legend.join("\n"), @r"
        1 · gauge-1 · 2026-11-20 10:00 UTC</li>
        2 · gauge-1 · 2026-11-20 10:00 UTC</li>
        3 · gauge-1 · 2026-11-20 10:00 UTC</li>
        </ul>
        </figure>
        ");
        assert_eq!(first.matches("<polyline").count(), 3, "three curves");
        for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
            assert!(!page.replace("url(#", "").contains(outside), "{outside}");
        }
    }

    #[test]
    fn group_has_one_colour() {
        let (set, one) = (vec![sample_runs::full(); 10], [sample_runs::full()]);
        let page = write_page(
            &[RunGroup { name: "tag:x", runs: &set }, RunGroup { name: "last", runs: &one }],
            None,
        );
        let first = page.split("<figure>").find(|figure| figure.contains("time by percentile")).unwrap();
        let first = first.split_inclusive("</figure>\n").next().unwrap();
        assert_eq!(first.matches("<polyline class=\"s1-line\"").count(), MAX_RUNS_PER_GROUP);
        assert_eq!(first.matches("<polyline class=\"s2-line\"").count(), 1);
        assert!(first.contains("1 · tag:x · 10 runs") && page.contains("left out: 2 runs"));
    }

    #[test]
    fn verdicts_stand_beside_the_charts() {
        let (a, mut b) = ([sample_runs::full()], [sample_runs::full()]);
        b[0].cases.remove(1);
        let compared = compare(&a, &b, &CompareOptions::default()).unwrap();
        let page = write_page(
            &[RunGroup { name: "a", runs: &a }, RunGroup { name: "b", runs: &b }],
            Some(&compared),
        );
        let (_, cases) = page.split_once("Case by case").unwrap();
        assert_eq!(cases.matches("<section").count(), a[0].cases.len() - 1);
        assert_eq!(cases.matches("<strong class=").count(), compared.cases.len());
        assert!(page.contains("Cases of one side only (1)"));
    }

    #[test]
    fn foreign_texts_are_escaped() {
        let runs = [sample_runs::hostile(), sample_runs::hostile()];
        let compared = compare(&runs[..1], &runs[1..], &CompareOptions::default()).unwrap();
        let sides: Vec<RunGroup> =
            runs.chunks(1).map(|runs| RunGroup { name: sample_runs::HOSTILE_SCRIPT, runs }).collect();
        for comparison in [None, Some(&compared)] {
            let page = write_page(&sides, comparison);
            assert!(page.matches("<script").count() == 1 && !page.contains(sample_runs::HOSTILE_SCRIPT));
            assert!(!page.contains('\u{1b}'));
        }
    }
}
