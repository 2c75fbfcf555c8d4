//! Rules that the figures of every document satisfy, measured or imported: statistics are ordered, intervals and shares lie in
//! their possible range, and counts, bytes and times add up.
//!
//! Pure, and the only place of these rules. `schedule` asks when a run ends: a contradiction there is a defect of linkgauge, and
//! the case says so. `import` asks after a file was read: figures that contradict each other are left out.

mod counts;
mod intervals;
mod rates;
mod times;

use crate::run::{CaseResult, Figures, Run, Warning, WarningCode};
use times::TimesName;

/// Figures that contradict each other.
#[derive(Debug, Clone, PartialEq)]
struct Contradiction {
    suspect: LeftOut,
    /// Description of the contradiction, with the numbers.
    text: String,
}

/// The figures that are left out.
#[derive(Debug, Clone, PartialEq)]
enum LeftOut {
    /// A distribution.
    Times(TimesName),
    /// The deviation of a distribution.
    Deviation(TimesName),
    /// Counts of sent and lost messages.
    Losses,
    /// Counts of the places where messages were lost.
    LossPlaces,
    Interval(String),
    IntervalWithinRun(String),
    Rate,
    ReverseRate,
    MessageRate,
    LineRate,
    Flows,
    Efficiency,
    MissedFrames,
    Connections,
}

/// A place of a case with figures: the case itself, a repetition, a port, or a probe.
struct FigurePlace<'a> {
    /// Name, like `repetition 3`; empty for the case itself.
    name: String,
    figures: &'a Figures,
    /// Time that these figures cover; `None` if it is not known, or if several times are added.
    elapsed_ns: Option<u64>,
}

/// Facts that the figures of a case are checked with.
struct CheckedFigures<'a> {
    case: &'a CaseResult,
    /// Whether another program measured the case: bytes and rate are those of the same time.
    is_imported: bool,
}

/// Warns of figures that contradict each other. They stay, because a defect of this program is to be found, not hidden.
pub fn measured_warning(case: &CaseResult) -> Option<Warning> {
    let found = contradictions(&CheckedFigures { case, is_imported: false });
    let (first, others) = found.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    Some(Warning::new(
        WarningCode::Contradiction,
        format!("figures contradict each other: {}{others}", first.1.text),
        "this is a defect of linkgauge: please report it with the run document (--json)",
    ))
}

/// Limits all intervals of a case to what is possible.
pub fn limit_intervals(case: &mut CaseResult) {
    let limited: Vec<_> = places(case).iter().map(|place| intervals::limited(place.figures, case)).collect();
    for (index, [over_repetitions, within_run]) in limited.into_iter().enumerate() {
        let figures = place_of_case(case, index);
        (figures.intervals, figures.within_run_intervals) = (over_repetitions, within_run);
    }
}

/// Leaves out figures that contradict each other, with a warning for each. `false` if nothing remains.
pub fn drop_contradictions(run: &mut Run) -> bool {
    let had_measurements = run.cases.iter().any(|case| case.figures.has_measurements());
    for case in &mut run.cases {
        let is_imported = case.is_imported();
        let found = contradictions(&CheckedFigures { case, is_imported });
        for (place, contradiction) in found {
            let figures = place_of_case(case, place);
            contradiction.suspect.clear(figures);
            case.warnings.push(Warning::new(
                WarningCode::Contradiction,
                format!("figures of the file contradict each other and are left out: {}", contradiction.text),
                "check the file, or measure again",
            ));
        }
    }
    !had_measurements || run.cases.iter().any(|case| case.figures.has_measurements())
}

/// All contradictions of a case, with the index of their place.
fn contradictions(expected: &CheckedFigures) -> Vec<(usize, Contradiction)> {
    let mut found = Vec::new();
    for (index, place) in places(expected.case).iter().enumerate() {
        let mut of_place = times::check(place.figures, expected.is_imported);
        of_place.extend(counts::check(place, expected));
        of_place.extend(rates::check(place, expected));
        of_place.extend(intervals::check(place.figures, expected.case));
        found.extend(of_place.into_iter().map(|mut contradiction| {
            if !place.name.is_empty() {
                contradiction.text = format!("{}: {}", place.name, contradiction.text);
            }
            (index, contradiction)
        }));
    }
    found
}

/// The places of a case, in the order of [`place_of_case`].
fn places(case: &CaseResult) -> Vec<FigurePlace<'_>> {
    let place = |name: String, figures, elapsed_ns| FigurePlace { name, figures, elapsed_ns };
    let is_single = case.repeats.is_empty();
    let mut all = vec![place(
        String::new(),
        &case.figures,
        Some(case.elapsed_ns).filter(|time| is_single && *time > 0),
    )];
    for (name, parts) in [("repetition", &case.repeats), ("port", &case.per_port)] {
        all.extend(parts.iter().zip(1..).map(|(part, number): (_, u32)| {
            place(format!("{name} {number}"), &part.figures, Some(part.elapsed_ns).filter(|time| *time > 0))
        }));
    }
    let probes = [("probe under load", &case.under_load), ("probe of the idle link", &case.idle)];
    all.extend(
        probes.into_iter().filter_map(|(name, probe)| Some(place(name.to_owned(), probe.as_ref()?, None))),
    );
    all
}

fn place_of_case(case: &mut CaseResult, index: usize) -> &mut Figures {
    let CaseResult { figures, repeats, per_port, under_load, idle, .. } = case;
    let parts = repeats.iter_mut().chain(per_port).map(|part| &mut part.figures);
    let all = [figures].into_iter().chain(parts).chain(under_load).chain(idle);
    all.into_iter().nth(index).expect("the places of the same case")
}

impl LeftOut {
    fn clear(&self, figures: &mut Figures) {
        match self {
            LeftOut::Times(name) => name.clear(figures),
            LeftOut::Deviation(name) => name.clear_deviation(figures),
            LeftOut::Losses => figures.counts.forget_losses(),
            LeftOut::LossPlaces => {
                (figures.counts.receiver_socket_drops, figures.counts.network_lost) = (None, None);
                if let Some(ways) = &mut figures.one_way {
                    (ways.forward_lost, ways.reverse_lost) = (None, None);
                }
            }
            LeftOut::Interval(name) => drop(figures.intervals.remove(name)),
            LeftOut::IntervalWithinRun(name) => drop(figures.within_run_intervals.remove(name)),
            LeftOut::Rate => {
                figures.delivery.throughput_bps = None;
                (figures.delivery.messages_per_second, figures.delivery.line_rate_percent) = (None, None);
                figures.intervals.remove("throughput_bps");
            }
            LeftOut::ReverseRate => {
                figures.delivery.throughput_reverse_bps = None;
                figures.intervals.remove("throughput_reverse_bps");
            }
            LeftOut::MessageRate => figures.delivery.messages_per_second = None,
            LeftOut::LineRate => figures.delivery.line_rate_percent = None,
            LeftOut::Flows => figures.flows = None,
            LeftOut::Efficiency => figures.tcp = None,
            LeftOut::MissedFrames => figures.times.missed_frames = None,
            LeftOut::Connections => figures.connections = None,
        }
    }
}

#[cfg(test)]
mod tests;
