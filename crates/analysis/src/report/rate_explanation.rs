//! The explanation of a throughput, for a terminal: the answer first, then the causes in the order of their effect. `page`
//! draws the same for a browser.

use std::io;
use std::time::Duration;

use anstyle::Style;

use super::explanation::{early_end, names_with_verdict, reasons};
use super::wording::{ABSENT, brief_elapsed, direction_name, plural, printable, to_ascii, wrap};
use super::{Detail, ReportOptions};
use crate::explain::causes;
use crate::explain::live::CauseVerdict;
use crate::explain::live::rate::{RateExplanation, RateFinding};
use linkgauge_model::units::{format_bit_rate, format_duration, format_size};

mod page;

pub use page::write_rate_explanation_page;

const INDENT: &str = "  ";

/// Writes the explanation.
///
/// # Errors
///
/// Writing fails.
pub fn write_rate_explanation(
    explanation: &RateExplanation,
    options: &ReportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let bold = |text: String| {
        let style = Style::new().bold();
        if options.colour { format!("{style}{}{style:#}\n", text.trim_end()) } else { text }
    };
    let mut text = bold(options.format_answer(&printable(&headline(explanation))));
    text.push_str(&wrap(&printable(&context(explanation)), options.width, INDENT, INDENT));
    if !explanation.observations.is_empty() {
        let observed = format!("{}.", explanation.observations.join(", "));
        text.push_str(&wrap(&printable(&observed), options.width, INDENT, INDENT));
    }
    let shown = |finding: &&RateFinding| {
        let is_minor = matches!(finding.verdict, CauseVerdict::RuledOut | CauseVerdict::CannotTest);
        options.detail == Detail::Full || !is_minor
    };
    let rows: Vec<&RateFinding> = explanation.causes.iter().filter(shown).collect();
    if !rows.is_empty() {
        let names = rows.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        text.push('\n');
        text.push_str(&bold(format!("{INDENT}{:<names$}  {:>8}  verdict\n", "cause", "changed")));
        rows.iter().for_each(|finding| text.push_str(&row(finding, names, options.width)));
    }
    for sentence in notes(explanation, options) {
        text.push_str(&wrap(&printable(&sentence), options.width, INDENT, INDENT));
    }
    out.write_all(if options.unicode { text } else { to_ascii(&text) }.as_bytes())
}

/// `93.00 Mbit/s upload: limited by receive window too small (proved: rcvbuf=128 KiB at the server, 1.94 × the rate).`
fn headline(explanation: &RateExplanation) -> String {
    let rate =
        format!("{} {}", format_bit_rate(explanation.throughput_bps), direction_name(explanation.direction));
    let found = explanation.causes.iter().find(|finding| finding.verdict.is_found());
    let Some(first) = found else {
        let tested =
            explanation.causes.iter().filter(|finding| finding.verdict == CauseVerdict::RuledOut).count();
        let more = explanation.needed_ns.map_or(String::new(), |needed| {
            format!("; the other tests need --time {}", format_duration(Duration::from_nanos(needed)))
        });
        return match tested {
            0 => format!("{rate}: no limit shown{more}."),
            _ => format!("{rate}: no limit shown, {} ruled out{more}.", plural(tested, "cause")),
        };
    };
    let sure = match (first.verdict, &first.effect.change, first.effect.gain) {
        (CauseVerdict::Proved, Some(change), Some(gain)) => format!("proved: {change}, {gain:.2} × the rate"),
        (CauseVerdict::Proved, Some(change), None) => format!("proved with {change}"),
        (CauseVerdict::Proved, ..) => "proved".to_owned(),
        (verdict, ..) => format!("{}, not proved", verdict.label()),
    };
    let part = first
        .effect
        .limited_share
        .map_or(String::new(), |share| format!(" for {:.0} % of the time", 100.0 * share));
    format!("{rate}: limited{part} by: {} ({sure}).", first.name)
}

fn context(explanation: &RateExplanation) -> String {
    [
        explanation.endpoint.clone(),
        explanation.protocol.clone(),
        format_size(explanation.message_bytes.into()),
        brief_elapsed(explanation.elapsed_ns),
    ]
    .join(", ")
}

fn gain_text(finding: &RateFinding) -> String {
    finding.effect.gain.map_or_else(|| ABSENT.to_owned(), |gain| format!("{gain:.2} ×"))
}

fn row(finding: &RateFinding, names: usize, width: usize) -> String {
    let gain = gain_text(finding);
    let mut text =
        format!("{INDENT}{:<names$}  {gain:>8}  {}\n", printable(finding.name), finding.verdict.label());
    text += &reasons(finding, width);
    text
}

fn notes(explanation: &RateExplanation, options: &ReportOptions) -> Vec<String> {
    let mut notes = Vec::new();
    if options.detail != Detail::Full {
        let minor = [CauseVerdict::RuledOut, CauseVerdict::CannotTest];
        notes
            .extend(minor.into_iter().filter_map(|verdict| names_with_verdict(&explanation.causes, verdict)));
    }
    if let Some(changed) = &explanation.changed {
        let next = changed.next_cause.and_then(|id| causes::all().find(|(_, cause)| cause.id == id));
        let next = next.map(|(_, cause)| format!(", then limited by: {} (counted)", cause.name));
        notes.push(format!(
            "With all proved settings: {}{}.",
            format_bit_rate(changed.throughput_bps),
            next.unwrap_or_default()
        ));
    }
    let early_end = early_end(explanation.lost_link.as_deref(), explanation.interrupted);
    if (1..explanation.planned_pairs).contains(&explanation.pairs) && early_end.is_none() {
        notes.push(format!(
            "{} of {} pairs of each test fitted into the time: the intervals are wider. Try a longer --time.",
            explanation.pairs, explanation.planned_pairs
        ));
    }
    if let Some(needed) = explanation.needed_ns.filter(|_| early_end.is_none()) {
        notes.push(format!(
            "Not all tests fitted into the time. They need --time {}.",
            format_duration(Duration::from_nanos(needed))
        ));
    }
    notes.extend(early_end);
    notes
}

#[cfg(test)]
pub(in crate::report) mod tests {
    use super::*;
    use crate::explain::live::rate::{ChangedRate, RATE_SCHEMA, RateEffect};
    use linkgauge_model::plan::Direction;
    use linkgauge_model::stats::Interval;

    pub(crate) fn finding(name: &'static str, verdict: CauseVerdict, gain: Option<f64>) -> RateFinding {
        RateFinding {
            id: "receive_window",
            family: "window",
            place: crate::explain::causes::CausePlace::Path,
            name,
            verdict,
            effect: RateEffect {
                change: gain.map(|_| "rcvbuf=128.0 KiB at the server".to_owned()),
                factor: gain.map(|_| 2.0),
                gain,
                gain_interval: gain.map(|gain| Interval { low: 0.98 * gain, high: 1.02 * gain }),
                limited_share: None,
                p: gain.map(|_| 0.004),
                pairs_bps: Vec::new(),
            },
            evidence: vec!["the receiver's window was full for 99 % of the busy time".to_owned()],
            remedy: "raise the receive buffer of the server",
        }
    }

    pub(crate) fn explanation(causes: Vec<RateFinding>) -> RateExplanation {
        RateExplanation {
            schema: RATE_SCHEMA,
            tool: "linkgauge 0.1.0",
            started: jiff::Timestamp::UNIX_EPOCH,
            elapsed_ns: 58_000_000_000,
            interrupted: false,
            lost_link: None,
            endpoint: "tcp://192.0.2.7".to_owned(),
            protocol: "linkgauge".to_owned(),
            direction: Direction::Send,
            message_bytes: 262_144,
            budget_ns: 60_000_000_000,
            throughput_bps: 93e6,
            pairs: 10,
            planned_pairs: 10,
            needed_ns: None,
            causes,
            changed: None,
            evidence: None,
            observations: vec!["round trip 21.3 ms (shortest 20.5 ms)".to_owned()],
        }
    }

    fn text(explanation: &RateExplanation) -> String {
        let mut out = Vec::new();
        write_rate_explanation(explanation, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_limit_comes_first() {
        let mut limited = explanation(vec![
            finding("receive window too small", CauseVerdict::Proved, Some(1.94)),
            finding("cost of each message (calls, headers)", CauseVerdict::RuledOut, Some(1.0)),
        ]);
        limited.changed = Some(ChangedRate { throughput_bps: 178e6, next_cause: Some("link_rate_reached") });
        let text = text(&limited);
        let first = text.lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
        assert_eq!(
            first,
            "93.00 Mbit/s upload: limited by: receive window too small (proved: rcvbuf=128.0 KiB at the server, 1.94 × the rate)."
        );
        assert!(text.contains("  ruled out: cost of each message (calls, headers)\n"), "{text}");
        assert!(
            text.contains("With all proved settings: 178.0 Mbit/s, then limited by: rate of the link"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn without_a_limit_it_says_so() {
        let mut none =
            explanation(vec![finding("receive window too small", CauseVerdict::RuledOut, Some(1.0))]);
        none.pairs = 7;
        let text = text(&none);
        assert!(text.starts_with("93.00 Mbit/s upload: no limit shown, 1 cause ruled out.\n"), "{text}");
        assert!(text.contains("7 of 10 pairs"), "{text}");
    }

    #[test]
    fn a_limit_for_a_part_of_the_time_has_its_share() {
        let mut window = finding("receive window too small", CauseVerdict::Counted, None);
        window.effect.limited_share = Some(0.46);
        let text = text(&explanation(vec![window])).replace("\n  ", " ");
        assert!(
            text.starts_with(
                "93.00 Mbit/s upload: limited for 46 % of the time by: receive window too small (counted,"
            ),
            "{text}"
        );
    }

    #[test]
    fn tests_without_time_say_what_they_need() {
        let mut late = explanation(Vec::new());
        (late.pairs, late.needed_ns) = (0, Some(95_000_000_000));
        let text = text(&late);
        assert!(
            text.starts_with("93.00 Mbit/s upload: no limit shown; the other tests need --time 95s."),
            "{text}"
        );
    }
}
