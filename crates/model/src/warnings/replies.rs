//! Replies that are not valid, and replies with contradictory times.

use crate::run::{CaseResult, EXCEPTIONS_FACT, Warning, WarningCode};
use crate::units::{format_count, format_nanoseconds};

/// Formats a count: `1 message`, `2 messages`.
fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

pub(crate) fn duplicate_replies(case: &CaseResult) -> Option<Warning> {
    let count = case.figures.counts.duplicate;
    (count > 0).then(|| {
        Warning::new(
            WarningCode::Duplicate,
            format!("{} arrived more than once; each counts once", plural(count, "message")),
            "look for two paths to one address, a bridge without spanning tree, or two servers with one name",
        )
    })
}

pub(crate) fn early_replies(case: &CaseResult) -> Option<Warning> {
    let count = case.figures.counts.early;
    (count > 0).then(|| {
        Warning::new(
            WarningCode::Early,
            format!("{count} of the replies arrived before their requests were sent: the remote does not reply to the requests"),
            "do not trust the latencies of this case; check which program replies there",
        )
    })
}

/// Exceptions of Modbus with their name (Modbus application protocol, 7).
pub(crate) fn exceptions(case: &CaseResult) -> Option<Warning> {
    let counts = case.effective.get(EXCEPTIONS_FACT)?.as_object()?;
    let described = counts.iter().map(|(code, count)| {
        let name = match code.as_str() {
            "1" => " (illegal function)",
            "2" => " (illegal data address)",
            "3" => " (illegal data value)",
            "4" => " (device failure)",
            "5" => " (acknowledge)",
            "6" => " (device busy)",
            "8" => " (memory parity error)",
            "10" => " (gateway path unavailable)",
            "11" => " (gateway target device failed to respond)",
            _ => "",
        };
        format!("{} with code {code}{name}", format_count(count.as_u64().unwrap_or(0)))
    });
    Some(Warning::new(
        WarningCode::Exceptions,
        format!(
            "the device replied with exceptions: {}, those of the warm-up included; they count as replies",
            described.collect::<Vec<_>>().join(", ")
        ),
        "choose a register, a function and a unit that the device has",
    ))
}

pub(crate) fn remote_clock_set(case: &CaseResult) -> Option<Warning> {
    let steps = case.figures.one_way.as_ref()?.clock_steps;
    (steps > 0).then(|| {
        Warning::new(
            WarningCode::RemoteClockSet,
            format!(
                "the clock of the remote was set {} during the measurement: one-way figures exclude these moments, its \
                 turnaround may be wrong by a step, and round trips are right",
                plural(steps, "time")
            ),
            "measure again when its clock has settled: chronyc tracking, or timedatectl, at the remote",
        )
    })
}

pub(crate) fn remote_clock_unsuitable(case: &CaseResult) -> Option<Warning> {
    let of_probe = || case.under_load.as_ref()?.remote_clock;
    let clock = case.figures.remote_clock.or_else(of_probe)?;
    let what = match (clock.excessive_drift_ppm, clock.tick_ns) {
        (Some(ppm), _) => format!("gains {ppm:.0} ppm on that of this host, more than a clock does"),
        (None, tick_ns) => format!("steps by {}", format_nanoseconds(tick_ns?)),
    };
    let has_delays = case.figures.one_way.is_some()
        || case.under_load.as_ref().is_some_and(|figures| figures.one_way.is_some());
    let so =
        if has_delays { "one-way delays may be wrong by such a step" } else { "one-way delays are left out" };
    Some(Warning::new(
        WarningCode::RemoteClockUnsuitable,
        format!("the clock of the remote {what}: {so}, and round trips are right"),
        "use a server with a finer and steadier clock, like linkgauge serve",
    ))
}

pub(crate) fn clocks_disagree(case: &CaseResult) -> Option<Warning> {
    let of_probe = || case.under_load.as_ref()?.one_way.as_ref();
    let ns = case.figures.one_way.as_ref().or_else(of_probe)?.clock_disagreement_ns?;
    Some(Warning::new(
        WarningCode::ClocksDisagree,
        format!(
            "the clocks of the hosts differ by {} more than the hosts say: the error of one-way delays comes from the \
             round trips alone",
            format_nanoseconds(ns)
        ),
        "look at the clocks of both hosts: chronyc tracking, or pmc 'GET TIME_STATUS_NP'",
    ))
}
