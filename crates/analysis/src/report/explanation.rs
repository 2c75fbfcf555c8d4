//! The explanation of a link, for a terminal: the answer first, then the causes in the order of their cost. `page` draws the
//! same for a browser.

use std::io;

use anstyle::Style;

use super::wording::{brief_elapsed, brief_time, plural, printable, to_ascii, wrap};
use super::{Detail, ReportOptions};
use crate::explain::causes;
use crate::explain::causes::CausePlace;
use crate::explain::live::{Accounting, CauseFinding, CauseVerdict, Explanation, Spread, Stage};
use linkgauge_model::units::format_size;

mod page;

pub use page::{CauseEffect, cause_context, render_links, write_explanation_page};

const INDENT: &str = "  ";
const DETAIL_INDENT: &str = "      ";

/// Glyphs of the segments of the bar, in turn, and that of the rest. Each has its own replacement in ASCII.
const GLYPHS: [char; 4] = ['█', '▆', '▄', '▂'];
const REST_GLYPH: char = '·';
/// Columns of the time before the bar.
const BAR_LABEL_COLUMNS: usize = 10;
/// A longer bar shows nothing more.
const MAX_BAR_COLUMNS: usize = 60;

/// A part of the median. All parts of an explanation add up to the whole bar.
struct Segment<'a> {
    /// The cause; `None`: what remains.
    finding: Option<&'a CauseFinding>,
    name: &'a str,
    cost_ns: f64,
    /// Share of the bar, 0 to 1.
    share: f64,
}

/// The causes that take time, what they cost only together, and the rest.
fn segments(explanation: &Explanation) -> Vec<Segment<'_>> {
    let found = explanation.causes.iter().filter(|finding| finding.verdict.is_found());
    let costs = found.filter_map(|finding| Some((Some(finding), finding.name, finding.effect.cost_ns?)));
    let together = explanation.combined.as_ref().map_or(0.0, |combined| combined.interaction_ns);
    let others = [(None, "only together", together), (None, "unexplained", explanation.unexplained_ns)];
    let parts: Vec<_> = costs.chain(others).filter(|(_, _, cost)| *cost > 0.0).collect();
    let whole: f64 = parts.iter().map(|(_, _, cost)| cost).sum();
    let segment = |(finding, name, cost_ns)| Segment { finding, name, cost_ns, share: cost_ns / whole };
    parts.into_iter().map(segment).collect()
}

/// The median as one bar of its causes, and what no setting can remove on the same scale.
fn bars(explanation: &Explanation, width: usize) -> String {
    let room = width.saturating_sub(INDENT.len() + BAR_LABEL_COLUMNS + 1).min(MAX_BAR_COLUMNS);
    let columns = |share: f64| (share * room as f64).round() as usize;
    let (mut bar, mut drawn, mut sum) = (String::new(), 0, 0.0);
    for (index, segment) in segments(explanation).iter().enumerate() {
        sum += segment.share;
        let glyph = if segment.finding.is_some() { GLYPHS[index % GLYPHS.len()] } else { REST_GLYPH };
        bar.extend(std::iter::repeat_n(glyph, columns(sum).saturating_sub(drawn)));
        drawn = columns(sum);
    }
    let line = |ns: f64, bar: &str| format!("{INDENT}{:>BAR_LABEL_COLUMNS$} {bar}\n", brief_time(ns));
    let mut text = line(explanation.median_ns, &bar);
    let accounting = &explanation.accounting;
    if let (Some(minimum), Some(by)) = (accounting.minimum_ns, accounting.minimum_by) {
        let length = columns(minimum / explanation.median_ns.max(1.0)).clamp(1, room);
        let bar: String = std::iter::repeat_n(GLYPHS[0], length).collect();
        let label = format!("{bar} {by}");
        let label = if label.chars().count() <= room { label } else { bar };
        text += &line(minimum, &label);
    }
    text
}

/// The parts of a round trip with their shares.
fn stage_table(stages: &[Stage]) -> String {
    let names = stages.iter().map(|stage| stage.name.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "\n{INDENT}{:<names$}  {:>8}  of median  of spread  of tail\n",
        "part of a round trip", "mean"
    );
    let percent =
        |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    for stage in stages {
        text += &format!(
            "{INDENT}{:<names$}  {:>8}  {:>9}  {:>9}  {:>7}\n",
            stage.name,
            brief_time(stage.mean_ns),
            percent(Some(stage.median_share)),
            percent(stage.spread_share),
            percent(stage.tail_share)
        );
    }
    text
}

/// Writes the explanation.
///
/// # Errors
///
/// Writing fails.
pub fn write_explanation(
    explanation: &Explanation,
    options: &ReportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let bold = |text: String| {
        let style = Style::new().bold();
        if options.colour { format!("{style}{}{style:#}\n", text.trim_end()) } else { text }
    };
    let mut text = bold(options.format_answer(&printable(&headline(explanation))));
    for line in [context(explanation), spreads(explanation)] {
        text.push_str(&wrap(&printable(&line), options.width, INDENT, INDENT));
    }
    text.push('\n');
    text.push_str(&bars(explanation, options.width));
    let shown =
        |finding: &&CauseFinding| options.detail == Detail::Full || finding.verdict != CauseVerdict::RuledOut;
    let rows: Vec<&CauseFinding> = explanation.causes.iter().filter(shown).collect();
    if !rows.is_empty() {
        text.push('\n');
        let names = rows.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        let names = names.max("unexplained".len());
        text.push_str(&bold(format!("{INDENT}  {:<names$}  {:>8}  verdict\n", "cause", "costs")));
        let segments = segments(explanation);
        for finding in &rows {
            let is_own = |segment: &Segment| segment.finding.is_some_and(|own| std::ptr::eq(own, *finding));
            let glyph = segments.iter().position(is_own).map_or(' ', |index| GLYPHS[index % GLYPHS.len()]);
            text.push_str(&row(finding, glyph, names, options.width));
        }
        let rest = brief_time(explanation.unexplained_ns);
        text.push_str(&format!("{INDENT}{REST_GLYPH} {:<names$}  {rest:>8}\n", "unexplained"));
    }
    if options.detail == Detail::Full {
        text.push_str(&stage_table(&explanation.accounting.stages));
    }
    for sentence in notes(explanation, options) {
        text.push_str(&wrap(&printable(&sentence), options.width, INDENT, INDENT));
    }
    out.write_all(if options.unicode { text } else { to_ascii(&text) }.as_bytes())
}

/// A mean that is this multiple of the median stands beside it: some requests are much slower.
const MIN_MEAN_RATIO: f64 = 1.5;

/// Round trips of microseconds are the work of both hosts.
const HOST_NS: f64 = 200e3;
/// A cause of some requests that adds less than this share of the first cause is no part of the answer.
const MIN_OTHER_SHARE: f64 = 0.05;
/// Minimum share of the mean for which threads wait for a CPU at which this wait is named beside the work of both hosts.
const MIN_WAIT_SHARE: f64 = 0.5;

/// Certainty of a finding, such as `proved, 10 pairs`.
fn sure(finding: &CauseFinding) -> String {
    match finding.verdict {
        CauseVerdict::Proved => format!("proved, {}", plural(finding.effect.pairs_ns.len(), "pair")),
        verdict => format!("{}, not proved", verdict.label()),
    }
}

/// Effect of a cause of some requests on them, in words.
fn slower(finding: &CauseFinding) -> String {
    if finding.id == causes::LARGE {
        return finding.evidence.first().map_or(finding.name, String::as_str).to_owned();
    }
    let which = match finding.id {
        causes::ACCEPT | causes::NAME => "the first requests of connections",
        _ => "some requests",
    };
    let mean = finding.effect.mean_ns.map(|ns| format!("{} on average, ", brief_time(ns)));
    format!("{which} are slower by {} ({}{})", finding.name, mean.unwrap_or_default(), sure(finding))
}

/// `43.99 ms per request: 43.9 ms (99.8 %) by delayed ACK here with Nagle at the server (proved, 10 pairs).`
fn headline(explanation: &Explanation) -> String {
    let mean_ns = explanation.accounting.mean_ns;
    let mean = (mean_ns > MIN_MEAN_RATIO * explanation.median_ns)
        .then(|| format!(" (median; mean {})", brief_time(mean_ns)));
    let time = format!("{} per request{}", brief_time(explanation.median_ns), mean.unwrap_or_default());
    let takes_time = |finding: &&CauseFinding| finding.verdict.is_found() && !causes::is_tick(finding.id);
    let found: Vec<&CauseFinding> = explanation.causes.iter().filter(takes_time).collect();
    if let Some(answer) = as_fast_as_possible(explanation, &found) {
        return format!("{time}: {answer}.");
    }
    let Some(first) = found.iter().copied().find(|finding| finding.has_effect()).or(found.first().copied())
    else {
        let tested =
            explanation.causes.iter().filter(|finding| finding.verdict == CauseVerdict::RuledOut).count();
        let tested =
            if tested > 0 { format!(", {} ruled out", plural(tested, "cause")) } else { String::new() };
        return format!("{time}, {}: no cause shown{tested}.", explanation.accounting.shape);
    };
    // The rest of the mean weighs more than the part of the median.
    let is_rare = |finding: &CauseFinding| finding.rank_ns() > 2.0 * finding.share_ns().unwrap_or(0.0);
    let is_large = |finding: &&CauseFinding| finding.id == causes::LARGE && finding.verdict.is_found();
    let large = explanation.causes.iter().find(is_large);
    let Some(cost) = first.share_ns().filter(|_| !is_rare(first)) else {
        let large = large.filter(|large| large.id != first.id).map(|large| format!("; {}", slower(large)));
        return format!("{time}; {}{}.", slower(first), large.unwrap_or_default());
    };
    let share = 100.0 * (cost / explanation.median_ns.max(1.0)).min(1.0);
    let is_other = |finding: &&CauseFinding| {
        let matters = finding.effect.mean_ns.is_none_or(|mean| mean > MIN_OTHER_SHARE * cost);
        let is_rare = finding.share_ns().is_none() && causes::slows_some_requests(finding.id);
        finding.verdict.is_found() && is_rare && matters
    };
    let other = large.or(explanation.causes.iter().find(is_other));
    let other = other.map_or(String::new(), |other| format!("; {}", slower(other)));
    let shape = if first.is_rest() { format!(", {}", explanation.accounting.shape) } else { String::new() };
    format!("{time}: {} ({share:.1} %) by {} ({}){shape}{other}.", brief_time(cost), first.name, sure(first))
}

/// The answer where nothing but the work of both hosts takes time worth a name.
fn as_fast_as_possible(explanation: &Explanation, found: &[&CauseFinding]) -> Option<String> {
    let is_fast = explanation.median_ns < HOST_NS;
    let least_ns = MIN_WAIT_SHARE * explanation.accounting.mean_ns.max(explanation.median_ns);
    let waits = |finding: &&&CauseFinding| {
        let is_large =
            finding.place != CausePlace::Host || finding.id == "run_queue" && finding.rank_ns() > least_ns;
        is_large && finding.has_effect()
    };
    if !is_fast || found.iter().find(waits).is_some() {
        return None;
    }
    let part = found.iter().find(|finding| finding.share_ns().is_some());
    let part = part.map(|part| {
        let cost = part.share_ns().unwrap_or(0.0).min(explanation.median_ns);
        format!(", of which {} {} ({})", part.name, brief_time(cost), sure(part))
    });
    Some(format!("as fast as this host allows{}", part.unwrap_or_default()))
}

fn context(explanation: &Explanation) -> String {
    let mut parts = vec![
        explanation.endpoint.clone(),
        explanation.protocol.clone(),
        format_size(explanation.message_bytes.into()),
        plural(explanation.requests as usize, "request"),
    ];
    if explanation.lost > 0 {
        parts.push(format!("{} lost", explanation.lost));
    }
    parts.push(brief_elapsed(explanation.elapsed_ns));
    parts.join(", ")
}

/// Text such as `without a pause: mean 5.16 ms, p50 5.15 ms, …; after pauses of 55 ms: mean …`.
fn spreads(explanation: &Explanation) -> String {
    let spread = |name: &str, Spread { mean_ns, p50_ns, p90_ns, p99_ns }: Spread| {
        let [mean, p50, p90, p99] = [mean_ns, p50_ns, p90_ns, p99_ns].map(brief_time);
        format!("{name}: mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}")
    };
    let pause = format!("after pauses of {} on average", brief_time(explanation.mean_pause_ns as f64));
    let Accounting { unpaused, paused, .. } = &explanation.accounting;
    format!("{}; {}", spread("without a pause", *unpaused), spread(&pause, *paused))
}

fn row(finding: &CauseFinding, glyph: char, names: usize, width: usize) -> String {
    let cost = match finding.effect.cost_ns.filter(|_| finding.verdict.is_found()) {
        Some(cost) if cost > 0.0 => brief_time(cost),
        _ => "–".to_owned(),
    };
    let mut text = format!(
        "{INDENT}{glyph} {:<names$}  {cost:>8}  {}\n",
        printable(finding.name),
        finding.verdict.label()
    );
    text += &reasons(finding, width);
    text
}

/// The evidence, and what to do about a cause that was found.
pub(crate) fn reasons<E>(finding: &CauseFinding<E>, width: usize) -> String {
    let fix = finding.verdict.is_found().then(|| format!("Fix: {}.", finding.remedy));
    let sentences = finding.evidence.iter().map(|sentence| printable(sentence)).chain(fix);
    sentences.map(|sentence| wrap(&sentence, width, DETAIL_INDENT, DETAIL_INDENT)).collect()
}

/// The names of the causes with this verdict in one line. Each has its evidence in the document.
pub(crate) fn names_with_verdict<E>(causes: &[CauseFinding<E>], verdict: CauseVerdict) -> Option<String> {
    let causes = causes.iter().filter(|finding| finding.verdict == verdict);
    let names: Vec<&str> = causes.map(|finding| finding.name).collect();
    (!names.is_empty()).then(|| format!("{}: {}", verdict.label(), names.join("; ")))
}

fn notes(explanation: &Explanation, options: &ReportOptions) -> Vec<String> {
    let mut notes = Vec::new();
    if options.detail != Detail::Full {
        notes.extend(names_with_verdict(&explanation.causes, CauseVerdict::RuledOut));
    }
    if let Some(combined) = &explanation.combined {
        notes.push(format!(
            "All proved causes together cost {}; their sum differs by {}.",
            brief_time(combined.cost_ns),
            brief_time(combined.interaction_ns.abs())
        ));
    }
    if (1..explanation.planned_pairs).contains(&explanation.pairs)
        && !explanation.interrupted
        && explanation.lost_link.is_none()
    {
        let why = match explanation.lost {
            0 => "this host or the server was slower than expected",
            _ => "lost requests took the time",
        };
        notes.push(format!(
            "{} of {} pairs of each test fitted into the time, because {why}: the intervals are wider. Try a longer --time.",
            explanation.pairs, explanation.planned_pairs
        ));
    }
    notes.extend(early_end(explanation.lost_link.as_deref(), explanation.interrupted));
    notes
}

/// Reason why not all causes were tested, where an explanation ended early.
pub(super) fn early_end(lost_link: Option<&str>, is_interrupted: bool) -> Option<String> {
    match lost_link {
        Some(reason) => Some(format!("Stopped early, not all causes were tested: {reason}")),
        None => is_interrupted.then(|| "Interrupted: not all causes were tested.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::DelayEffect;
    use linkgauge_model::stats::Interval;

    pub(super) fn finding(name: &'static str, verdict: CauseVerdict, cost_ns: Option<f64>) -> CauseFinding {
        CauseFinding {
            id: "id",
            family: "timer",
            place: CausePlace::Unknown,
            name,
            verdict,
            effect: DelayEffect {
                cost_ns,
                cost_interval_ns: cost_ns.map(|cost| Interval { low: 0.9 * cost, high: 1.1 * cost }),
                pairs_ns: vec![[44e6, 3e4]; 10],
                ..DelayEffect::default()
            },
            evidence: vec!["quickack=1: −43.96 ms [−44.00 ms, −43.90 ms], 10 pairs".to_owned()],
            remedy: "set TCP_NODELAY in the server, or send each reply with one write",
        }
    }

    #[test]
    fn a_tick_takes_no_time_so_it_is_not_the_answer() {
        let tick = CauseFinding { id: "kernel_tick", ..finding("tick", CauseVerdict::Seen, Some(0.0)) };
        let pause = finding("pause", CauseVerdict::Seen, Some(0.0));
        assert_eq!(
            headline(&explanation(vec![tick.clone()])),
            "44.0 ms per request, constant: no cause shown."
        );
        let answer = headline(&explanation(vec![tick, pause]));
        assert_eq!(answer, "44.0 ms per request; some requests are slower by pause (seen, not proved).");
    }

    #[test]
    fn what_slows_some_requests_is_part_of_the_answer() {
        let wake_up = finding("wake-up", CauseVerdict::Proved, Some(11e6));
        let queue = CauseFinding { id: "run_queue", ..finding("run queue", CauseVerdict::Counted, None) };
        let cold = CauseFinding { id: "cpu_sleep_states", ..finding("sleep", CauseVerdict::Seen, Some(0.0)) };
        assert_eq!(
            headline(&explanation(vec![cold.clone(), queue.clone()])),
            "44.0 ms per request; some requests are slower by run queue (counted, not proved)."
        );
        assert_eq!(
            headline(&explanation(vec![wake_up, cold, queue])),
            "44.0 ms per request: 11.0 ms (25.0 %) by wake-up (proved, 10 pairs); some requests are slower by run queue \
             (counted, not proved)."
        );
    }

    /// A cause that adds this much to the mean.
    fn rare(id: &'static str, place: CausePlace, mean_ns: f64) -> CauseFinding {
        let effect = DelayEffect { mean_ns: Some(mean_ns), ..DelayEffect::default() };
        CauseFinding { id, place, effect, ..finding("cause", CauseVerdict::Counted, None) }
    }

    #[test]
    fn a_fast_link_without_a_cause_is_as_fast_as_its_host_allows() {
        let headline_of = |causes| {
            let mut fast = explanation(causes);
            (fast.median_ns, fast.accounting.mean_ns) = (13e3, 14e3);
            headline(&fast)
        };
        let wake_up =
            CauseFinding { place: CausePlace::Host, ..finding("wake-up", CauseVerdict::Proved, Some(9e3)) };
        let answer =
            "13.0 µs per request: as fast as this host allows, of which wake-up 9.00 µs (proved, 10 pairs).";
        assert_eq!(headline_of(vec![wake_up.clone()]), answer);
        assert_eq!(headline_of(vec![wake_up.clone(), rare("run_queue", CausePlace::Host, 1e3)]), answer);
        assert_eq!(headline_of(vec![]), "13.0 µs per request: as fast as this host allows.");
        for (id, place) in [("run_queue", CausePlace::Host), ("random_pause", CausePlace::Server)] {
            assert_eq!(
                headline_of(vec![rare(id, place, 4e4), wake_up.clone()]),
                "13.0 µs per request; some requests are slower by cause (40.0 µs on average, counted, not proved)."
            );
        }
        assert_eq!(
            headline_of(vec![rare("server_accept", CausePlace::Server, 4e8)]),
            "13.0 µs per request; the first requests of connections are slower by cause (400 ms on average, counted, \
             not proved)."
        );
    }

    #[test]
    fn the_server_has_the_form_of_its_time() {
        let server = CauseFinding { id: "server", ..finding("server", CauseVerdict::Counted, Some(43.9e6)) };
        let answer =
            |others: Vec<CauseFinding>| headline(&explanation([vec![server.clone()], others].concat()));
        let expected = "44.0 ms per request: 43.9 ms (99.8 %) by server (counted, not proved), constant";
        assert_eq!(answer(vec![]), format!("{expected}."));
        assert_eq!(
            answer(vec![rare("run_queue", CausePlace::Host, 5e4)]),
            format!("{expected}."),
            "microseconds"
        );
        let evidence = vec!["messages of 1473 bytes have no reply".to_owned()];
        let large =
            CauseFinding { id: causes::LARGE, evidence, ..finding("large", CauseVerdict::Seen, None) };
        let lost = answer(vec![rare("run_queue", CausePlace::Host, 5e6), large]);
        assert_eq!(lost, format!("{expected}; messages of 1473 bytes have no reply."));
        let queue = answer(vec![rare("run_queue", CausePlace::Host, 5e6)]);
        let other = "; some requests are slower by cause (5.00 ms on average, counted, not proved).";
        assert_eq!(queue, format!("{expected}{other}"));
    }

    #[test]
    fn only_a_cause_with_a_share_or_of_slow_requests_has_an_effect() {
        let of = |id, verdict, cost| CauseFinding { id, ..finding("any", verdict, cost) }.has_effect();
        assert!(!of("cpu_sleep_states", CauseVerdict::Seen, Some(0.0)));
        assert!(of("cpu_sleep_states", CauseVerdict::Seen, Some(1.0)));
        assert!(!of("cpu_sleep_states", CauseVerdict::RuledOut, Some(1.0)));
        assert!(of("run_queue", CauseVerdict::Counted, None), "it slows some requests");
        assert!(!of("kernel_tick", CauseVerdict::Seen, Some(0.0)));
        assert_eq!(finding("any", CauseVerdict::Seen, Some(0.0)).share_ns(), None);
    }

    pub(super) fn explanation(causes: Vec<CauseFinding>) -> Explanation {
        Explanation {
            schema: crate::explain::live::SCHEMA,
            tool: "linkgauge 0.1.0",
            started: jiff::Timestamp::UNIX_EPOCH,
            elapsed_ns: 58_200_000_000,
            interrupted: false,
            lost_link: None,
            endpoint: "tcp://192.0.2.7:7333".to_owned(),
            protocol: "echo".to_owned(),
            message_bytes: 64,
            budget_ns: 60_000_000_000,
            median_ns: 43_990_000.0,
            fastest_ns: 30_000.0,
            requests: 350,
            lost: 0,
            mean_pause_ns: 50_000_000,
            pairs: 10,
            planned_pairs: 10,
            causes,
            combined: None,
            unexplained_ns: 90_000.0,
            accounting: Accounting {
                shape: "constant".to_owned(),
                unpaused: Spread { mean_ns: 44e6, p50_ns: 44e6, p90_ns: 44.1e6, p99_ns: 45e6 },
                paused: Spread { mean_ns: 43e6, p50_ns: 44e6, p90_ns: 44.1e6, p99_ns: 45e6 },
                mean_ns: 44e6,
                minimum_ns: Some(3e4),
                minimum_by: Some("the shortest round trip of the kernel"),
                stages: vec![Stage {
                    id: "fixed",
                    name: "the rest of the fastest round trip",
                    mean_ns: 44e6,
                    median_share: 1.0,
                    spread_share: None,
                    tail_share: None,
                }],
            },
        }
    }

    fn text(explanation: &Explanation) -> String {
        let mut out = Vec::new();
        write_explanation(explanation, &ReportOptions::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_answer_comes_first() {
        let causes = vec![
            finding("delayed ACK here with Nagle at the server", CauseVerdict::Proved, Some(43.9e6)),
            finding("server or device that acts on a clock", CauseVerdict::CannotTest, None),
            finding("wake-up of a blocked thread", CauseVerdict::RuledOut, None),
        ];
        let text = text(&explanation(causes));
        assert!(
            text.starts_with("44.0 ms per request: 43.9 ms (99.8 %) by delayed ACK here with Nagle at the\n  server (proved, 10 pairs).\n"),
            "{text}"
        );
        assert!(text.contains("  ruled out: wake-up of a blocked thread\n"), "{text}");
        assert!(text.contains("Fix: set TCP_NODELAY in the server"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn pairs_that_are_missing_are_reported() {
        let short = Explanation { pairs: 7, ..explanation(Vec::new()) };
        assert!(
            text(&short).contains("  7 of 10 pairs of each test fitted into the time"),
            "{}",
            text(&short)
        );
        assert!(!text(&explanation(Vec::new())).contains("of 10 pairs"));
    }

    #[test]
    fn the_bar_holds_the_whole_median_beside_the_minimum() {
        let causes = vec![
            finding("one", CauseVerdict::Proved, Some(30e6)),
            finding("two", CauseVerdict::Seen, Some(9e6)),
        ];
        let mut explanation = Explanation { unexplained_ns: 5e6, ..explanation(causes) };
        explanation.accounting.minimum_ns = Some(11e6);
        let text = text(&explanation);
        let bars: Vec<&str> = text.lines().filter(|line| line.contains('█')).collect();
        let count = |line: &str, glyph| line.chars().filter(|c| *c == glyph).count();
        assert_eq!((count(bars[0], '█'), count(bars[0], '▆'), count(bars[0], '·')), (41, 12, 7), "{text}");
        assert!(bars[1].starts_with("     11.0 ms ███████████████ the shortest"), "{text}");
        assert!(
            bars[2].starts_with("  █ one") && text.contains("  ▆ two") && text.contains("  · unexplained"),
            "{text}"
        );
    }

    #[test]
    fn without_a_cause_it_says_so() {
        let causes = vec![finding("wake-up of a blocked thread", CauseVerdict::RuledOut, None)];
        let text = text(&explanation(causes));
        assert!(
            text.starts_with("44.0 ms per request, constant: no cause shown, 1 cause ruled out.\n"),
            "{text}"
        );
    }
}
