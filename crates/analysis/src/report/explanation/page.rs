//! The explanation of a link as one HTML page: the answer, the bar of the median, the causes with their verdicts, and the
//! pairs and doses of each proof.

use std::io;

use jiff::Timestamp;
use minijinja::value::Value;
use minijinja::{Error, context};

use super::{Segment, headline, notes, segments};
use crate::explain::live::{CauseFinding, Explanation, Stage};
use crate::report::chart::proof::{dose_chart, pair_chart};
use crate::report::svg::COLOUR_COUNT;
use crate::report::wording::{ABSENT, brief_time, plural};
use crate::report::{Detail, ReportOptions, html};
use linkgauge_model::stats::Interval;

/// Writes the page of these explanations.
///
/// # Errors
///
/// Writing fails.
pub fn write_explanation_page(explanations: &[Explanation], out: &mut dyn io::Write) -> io::Result<()> {
    html::write_page(&render_page(explanations).map_err(io::Error::other)?, out)
}

fn render_page(explanations: &[Explanation]) -> Result<String, Error> {
    let title = match explanations {
        [only] => format!("What limits {}", only.endpoint),
        several => format!("What limits {}", plural(several.len(), "link")),
    };
    let started = explanations.first().map(|first| first.started);
    render_links(&title, started, explanations.iter().map(link_context).collect())
}

/// The page with a section for each link.
pub fn render_links(title: &str, started: Option<Timestamp>, links: Vec<Value>) -> Result<String, Error> {
    let tool = linkgauge_model::run::TOOL;
    let date = started.map(|started| started.strftime("%Y-%m-%d").to_string());
    html::render_template("explanation.html", context! { title, tool, date, links })
}

fn link_context(explanation: &Explanation) -> Value {
    let segments = segments(explanation);
    let accounting = &explanation.accounting;
    let minimum = accounting.minimum_ns.map(|minimum| {
        context! {
            time => brief_time(minimum), by => accounting.minimum_by,
            percent => format!("{:.2}", (100.0 * minimum / explanation.median_ns.max(1.0)).clamp(0.1, 100.0)),
        }
    });
    context! {
        answer => html::keep_units_together(&headline(explanation)),
        about => html::keep_units_together(&super::context(explanation)),
        median => brief_time(explanation.median_ns),
        effect => "costs",
        segments => segments.iter().enumerate().map(segment_context).collect::<Vec<Value>>(),
        minimum,
        causes => explanation.causes.iter().map(|finding| cause_context(finding, delay_effect(finding, &segments))).collect::<Vec<Value>>(),
        unexplained => brief_time(explanation.unexplained_ns),
        stages => accounting.stages.iter().map(stage_context).collect::<Vec<Value>>(),
        mean => brief_time(accounting.mean_ns),
        notes => notes(explanation, &ReportOptions { detail: Detail::Full, ..ReportOptions::default() }),
        charts => html::chart_contexts(explanation.causes.iter().flat_map(|finding| {
            [pair_chart(finding), dose_chart(finding)].into_iter().flatten()
        })),
    }
}

/// The colour of a segment; the rest is grey.
fn colour(segment: &Segment, index: usize) -> String {
    match segment.finding {
        Some(_) => format!("var(--s{})", index % COLOUR_COUNT + 1),
        None => "var(--rule)".to_owned(),
    }
}

fn segment_context((index, segment): (usize, &Segment)) -> Value {
    context! {
        name => segment.name, time => brief_time(segment.cost_ns), colour => colour(segment, index),
        percent => format!("{:.2}", 100.0 * segment.share), share => format!("{:.1} %", 100.0 * segment.share),
    }
}

/// The cost of a cause, and the colour of its segment of the bar.
fn delay_effect(finding: &CauseFinding, segments: &[Segment]) -> CauseEffect {
    let own =
        segments.iter().position(|segment| segment.finding.is_some_and(|own| std::ptr::eq(own, finding)));
    let cost = finding.effect.cost_ns.filter(|cost| finding.verdict.is_found() && *cost > 0.0);
    let interval = finding.effect.cost_interval_ns.filter(|_| cost.is_some());
    let between =
        |interval: Interval| format!("{} to {}", brief_time(interval.low), brief_time(interval.high));
    CauseEffect {
        size: cost.map_or_else(|| ABSENT.to_owned(), brief_time),
        interval: interval.map(between),
        colour: own.map(|index| colour(&segments[index], index)),
    }
}

/// The effect of a cause in words.
pub struct CauseEffect {
    pub(crate) size: String,
    pub(crate) interval: Option<String>,
    pub(crate) colour: Option<String>,
}

/// A row of the table of causes.
pub fn cause_context<E>(finding: &CauseFinding<E>, effect: CauseEffect) -> Value {
    let CauseEffect { size, interval, colour } = effect;
    context! {
        name => finding.name, verdict => finding.verdict.label(),
        class => if finding.verdict.is_found() { "worse" } else { "" },
        colour, cost => size, interval,
        evidence => finding.evidence.iter().map(|text| html::keep_units_together(text)).collect::<Vec<_>>(),
        remedy => finding.verdict.is_found().then_some(finding.remedy),
    }
}

fn stage_context(stage: &Stage) -> Value {
    let percent = |share: Option<f64>| {
        share.map_or_else(|| ABSENT.to_owned(), |share| format!("{:.1} %", 100.0 * share))
    };
    context! {
        name => stage.name, mean => brief_time(stage.mean_ns), median => percent(Some(stage.median_share)),
        spread => percent(stage.spread_share), tail => percent(stage.tail_share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::{CauseVerdict, DoseResponse};
    use crate::report::explanation::tests::{explanation, finding};

    fn page(explanations: &[Explanation]) -> String {
        let mut out = Vec::new();
        write_explanation_page(explanations, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_pair_of_a_proof_is_a_line() {
        let mut proved =
            finding("delayed ACK here with Nagle at the server", CauseVerdict::Proved, Some(43.9e6));
        proved.effect.dose = Some(DoseResponse {
            knob: "delack_max",
            points: vec![[5e6, 12e6], [12e6, 16e6], [20e6, 24e6]],
            slope: 0.8,
            slope_interval: None,
        });
        let ruled_out = finding("wake-up of a blocked thread", CauseVerdict::RuledOut, None);
        let page = page(&[explanation(vec![proved, ruled_out])]);
        let figures: Vec<&str> = page.split("<figure>").skip(1).collect();
        assert_eq!(figures.len(), 2, "one of the pairs, one of the doses");
        assert_eq!(figures[0].matches("<polyline").count(), 10);
        // One more stands in the legend.
        assert_eq!(figures[1].matches("<use href=\"#mark-1\" x=").count(), 3 + 1);
        assert!(page.contains("(99.8") && page.contains("ruled out"));
        assert!(page.contains("class=\"stack\"") && page.contains("the shortest round trip of the kernel"));
        for outside in ["http://", "https://", "src=", "@import", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn foreign_texts_are_escaped() {
        let hostile =
            Explanation { endpoint: "tcp://<script>alert(1)</script>".to_owned(), ..explanation(vec![]) };
        let page = page(&[hostile.clone(), hostile]);
        assert!(page.matches("<script").count() == 1 && page.contains("What limits 2 links"));
    }
}
