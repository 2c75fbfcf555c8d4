//! The explanation of a throughput as one HTML page: the answer, the causes with their effect on the rate, the pairs of each
//! proof, and the connection over time.

use std::io;

use minijinja::value::Value;
use minijinja::{Error, context};

use super::{gain_text, headline, notes};
use crate::explain::live::rate::{RateExplanation, RateFinding};
use crate::report::chart::Chart;
use crate::report::chart::connection::connection_chart;
use crate::report::chart::proof::rate_pair_chart;
use crate::report::explanation::{CauseEffect, cause_context, render_links};
use crate::report::wording::{direction_name, plural};
use crate::report::{Detail, ReportOptions, html};
use linkgauge_model::plan::Direction;

/// Writes the page of these explanations.
///
/// # Errors
///
/// Writing fails.
pub fn write_rate_explanation_page(
    explanations: &[RateExplanation],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    html::write_page(&render_page(explanations).map_err(io::Error::other)?, out)
}

fn render_page(explanations: &[RateExplanation]) -> Result<String, Error> {
    let title = match explanations {
        [only] => format!("What limits the {} of {}", direction_name(only.direction), only.endpoint),
        several => format!("What limits the throughput of {}", plural(several.len(), "link")),
    };
    let started = explanations.first().map(|first| first.started);
    render_links(&title, started, explanations.iter().map(link_context).collect())
}

/// The template is that of round trips: a rate has no parts that add up, so these are absent.
fn link_context(explanation: &RateExplanation) -> Value {
    let options = ReportOptions { detail: Detail::Full, ..ReportOptions::default() };
    let observed = explanation.observations.join(", ");
    let observed = (!observed.is_empty()).then(|| format!("{observed}."));
    context! {
        answer => html::keep_units_together(&headline(explanation)),
        about => html::keep_units_together(&super::context(explanation)),
        effect => "rate changes by",
        causes => explanation.causes.iter().map(|finding| cause_context(finding, rate_effect(finding))).collect::<Vec<Value>>(),
        notes => observed.into_iter().chain(notes(explanation, &options)).collect::<Vec<String>>(),
        charts => html::chart_contexts(
            explanation.causes.iter().filter_map(rate_pair_chart).chain(transfer_chart(explanation)),
        ),
        median => Value::from(()), segments => Value::from(()), minimum => Value::from(()),
        unexplained => Value::from(()), stages => Value::from(()), mean => Value::from(()),
    }
}

/// The first transfer over time. Only the sender knows its congestion window, and only this host has readings over time.
fn transfer_chart(explanation: &RateExplanation) -> Option<Chart> {
    let client = &explanation.evidence.as_ref()?.client;
    let is_sender = explanation.direction == Direction::Send;
    let caption = "first transfer, without changes".to_owned();
    is_sender.then(|| connection_chart(&client.connections.series, caption))?
}

fn rate_effect(finding: &RateFinding) -> CauseEffect {
    let interval = finding.effect.gain_interval;
    let interval = interval.map(|interval| format!("{:.2} to {:.2} ×", interval.low, interval.high));
    CauseEffect { size: gain_text(finding), interval, colour: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::CauseVerdict;
    use crate::report::rate_explanation::tests::{explanation, finding};

    fn page(explanations: &[RateExplanation]) -> String {
        let mut out = Vec::new();
        write_rate_explanation_page(explanations, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn proved_causes_have_their_pairs() {
        let mut proved = finding("receive window too small", CauseVerdict::Proved, Some(1.94));
        proved.effect.pairs_bps = vec![[93e6, 180e6], [92e6, 178e6], [94e6, 183e6]];
        let mut ruled_out = finding("cost of each message", CauseVerdict::RuledOut, Some(1.0));
        ruled_out.effect.pairs_bps = vec![[93e6, 93e6]; 3];
        let page = page(&[explanation(vec![proved, ruled_out])]);
        let figures: Vec<&str> = page.split("<figure>").skip(1).collect();
        assert_eq!(figures.len(), 1, "a cause that was ruled out needs no picture");
        assert_eq!(figures[0].matches("<polyline").count(), 3);
        for text in ["What limits the upload of tcp://192.0.2.7", "1.94 ×", "1.90 to 1.98 ×", "ruled out"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("Parts of a round trip") && !page.contains("class=\"stack\""));
        for outside in ["http://", "https://", "src=", "@import", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn an_explanation_without_tests_is_a_page_too() {
        let page = page(&[explanation(vec![]), explanation(vec![])]);
        assert!(page.contains("What limits the throughput of 2 links") && page.contains("no limit shown."));
        assert!(!page.contains("aria-label=\"Causes\""));
    }
}
