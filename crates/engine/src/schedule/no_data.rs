//! Reason why a case lacks its figures, in one line.

use std::time::Duration;

use crate::link::{CHECK_LINE_HINT, Caps, Fault, LinkError, SILENT_REMEDY};
use crate::protocol::ReadyCase;
use crate::workload::{FlowResult, FlowRole, Load};
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{Failure, FailureKind, Figures};
use linkgauge_model::units::{format_duration, format_plural};

/// Returns a reason if nothing arrived, or too little for a rate: the case then has no measurement. `silence` says why the host does
/// not reply, where that is known.
pub(super) fn find_failure(case: &ReadyCase, figures: &Figures, silence: Option<Fault>) -> Option<Failure> {
    reason(case, figures, silence).map(|reason| Failure::new(FailureKind::NoData, reason))
}

/// Message size in bytes that any path over IPv6 carries, and almost any over IPv4: its lowest MTU without the headers.
const CARRIED_BYTES: u32 = 1280 - 48;

/// The likely reason why a server that has answered smaller messages replies to none of this size. The flows keep no timeout of
/// their own then.
pub(super) fn fault_of_size(load: &Load, flows: &mut [FlowResult]) -> Option<Fault> {
    let bytes = load.message_bytes;
    let is_silent = |flow: &FlowResult| {
        let is_late = flow.fault.as_ref().is_none_or(|fault| fault.kind == FailureKind::TimedOut);
        flow.role == FlowRole::RoundTrip && flow.recorder.counts.received == 0 && is_late
    };
    if bytes <= CARRIED_BYTES || !flows.iter().all(is_silent) {
        return None;
    }
    flows.iter_mut().for_each(|flow| flow.fault = None);
    Some(Fault::NoReply(format!(
        "no reply to messages of {bytes} B, though the server has answered smaller ones: a part of the path may carry smaller \
         packets only, while a firewall drops the reports of its size (ICMP): try -s {CARRIED_BYTES}"
    )))
}

fn reason(case: &ReadyCase, figures: &Figures, silence: Option<Fault>) -> Option<String> {
    let delivered =
        figures.counts.received > 0 || figures.delivery.delivered_bytes.is_some_and(|bytes| bytes > 0);
    if delivered {
        return match lacks_rate(case, figures) {
            true => Some(describe_missing_rate(case)),
            false => describe_empty_direction(case, figures),
        };
    }
    let (endpoint, sent) = (&case.endpoints[0], figures.counts.sent);
    if sent == 0 && figures.byte_errors.lost_bytes == 0 {
        let within = case.load.stop.time_ns.map(|time| format_duration(Duration::from_nanos(time)));
        let within = within.map_or(String::new(), |time| format!(" within the measured {time}"));
        return Some(format!("{endpoint}: nothing was sent or received{within}: use a longer --time"));
    }
    let (strange, strange_bytes) =
        (figures.counts.corrupt_messages + figures.counts.early, figures.byte_errors.corrupt_bytes);
    if strange + strange_bytes > 0 {
        let strange = if strange > 0 { strange.to_string() } else { format_plural(strange_bytes, "byte") };
        let protocol = case.protocol.name;
        let (none, other) = match case.receives() {
            true => ("arrived", "do not belong to them"),
            false => ("got a reply", "are not replies"),
        };
        let key = if case.options.is_empty() { "" } else { ", with the same options and key" };
        return Some(format!(
            "{endpoint}: none of {} {none}, but {strange} arrived that {other}: check that the server uses {protocol}{key}",
            format_plural(sent, "message")
        ));
    }
    if figures.counts.late > 0 {
        let timeout = case.load.timeout;
        return Some(format!(
            "{endpoint}: none of {} got a reply within {}, but {} arrived later: use a longer timeout, like --timeout {}",
            format_plural(sent, "message"),
            format_duration(timeout),
            match figures.counts.late {
                1 => "1 reply".to_owned(),
                late => format!("{late} replies"),
            },
            format_duration(timeout.saturating_mul(10)),
        ));
    }
    let remedy = match case.caps.iter().any(Caps::is_serial_device) {
        true => CHECK_LINE_HINT,
        // A closed port is reported as an error earlier.
        false => match silence {
            None => ": the server does not reply. Check that it runs, firewalls, and --timeout",
            Some(fault) if fault.is_silence() => SILENT_REMEDY,
            Some(fault) => return Some(LinkError::new(endpoint, fault).to_string()),
        },
    };
    Some(format!(
        "{endpoint}: none of {} arrived{remedy}",
        describe_sent(sent, figures.byte_errors.lost_bytes)
    ))
}

/// Whether a load that only time ends has no rate, because less than two messages arrived.
fn lacks_rate(case: &ReadyCase, figures: &Figures) -> bool {
    let stop = case.load.stop;
    let only_time_ends_it = stop.time_ns.is_some() && stop.count.is_none() && stop.volume_bytes.is_none();
    !case.workload.is_round_trip() && only_time_ends_it && figures.delivery.throughput_bps.is_none()
}

/// Describes the direction in which nothing arrived, for a load in both directions.
fn describe_empty_direction(case: &ReadyCase, figures: &Figures) -> Option<String> {
    if case.direction != Direction::Both {
        return None;
    }
    let delivery = &figures.delivery;
    let is_empty = |bytes: Option<u64>| bytes.unwrap_or(0) == 0;
    let name = match (is_empty(delivery.delivered_bytes), is_empty(delivery.delivered_reverse_bytes)) {
        (true, _) => "upload",
        (false, true) => "download",
        (false, false) => return None,
    };
    let endpoint = &case.endpoints[0];
    Some(format!("{endpoint}: no data of the {name} arrived: measure it alone, with -d {name}, to see why"))
}

fn describe_missing_rate(case: &ReadyCase) -> String {
    let (endpoint, load) = (&case.endpoints[0], &case.load);
    let gap =
        load.pacing.per_second().map(|rate| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX));
    let gap = gap.map_or(String::new(), |gap| format!(", one every {}", format_duration(gap)));
    format!(
        "{endpoint}: too few messages of {}{gap}: a rate needs at least two: use a longer --time, a smaller --size or a higher \
         rate",
        format_plural(load.message_bytes.into(), "byte")
    )
}

/// The amount sent: messages, or bytes if no message was complete.
fn describe_sent(messages: u64, bytes: u64) -> String {
    if messages > 0 { format_plural(messages, "message") } else { format_plural(bytes, "byte") }
}
