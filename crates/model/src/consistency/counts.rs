//! Counts of messages: what was sent was received, lost, or is still on its way, and nothing else arrived but duplicates.

use super::{CheckedFigures, Contradiction, FigurePlace, LeftOut};
use crate::run::MessageCounts;

pub(super) fn check(place: &FigurePlace, expected: &CheckedFigures) -> Vec<Contradiction> {
    let figures = place.figures;
    let counts = &figures.counts;
    let mut found = Vec::new();
    let mut add = |suspect, text: Option<String>| {
        found.extend(text.map(|text| Contradiction { suspect, text }));
    };
    if !counts.losses_unknown {
        add(LeftOut::Losses, imbalance(counts));
        add(LeftOut::Losses, excess_bytes(place, expected));
        add(LeftOut::LossPlaces, wrong_places(place));
    }
    let latency = figures.times.latency_ns.as_ref().map(|latency| latency.count);
    if let Some(count) = latency.filter(|count| *count != counts.received) {
        add(
            LeftOut::Times(super::TimesName::Latency),
            Some(format!("{count} latencies of {} replies", counts.received)),
        );
    }
    let late =
        figures.times.missed_frames.iter().flat_map(|missed| missed.count_later_than_ms.values().copied());
    if let Some(missed) = late.max().filter(|missed| *missed > counts.reference()) {
        add(
            LeftOut::MissedFrames,
            Some(format!("{missed} missed frames of {} requests", counts.reference())),
        );
    }
    let connect = figures.times.connect_ns.as_ref().map(|times| times.count).zip(figures.connections);
    if let Some((times, connections)) = connect.filter(|(times, of)| *times > of.connections) {
        add(LeftOut::Connections, Some(format!("{times} times of {} connections", connections.connections)));
    }
    found
}

fn imbalance(counts: &MessageCounts) -> Option<String> {
    let MessageCounts { sent, received, lost, duplicate, late, early, .. } = *counts;
    let arrived = sent.saturating_add(duplicate).saturating_add(early);
    if received > arrived {
        return Some(format!("{received} messages received of {sent} sent and {duplicate} duplicates"));
    }
    if received.saturating_add(lost) > arrived {
        return Some(format!(
            "{received} messages received and {lost} lost of {sent} sent and {duplicate} duplicates"
        ));
    }
    if lost > sent {
        return Some(format!("{lost} messages lost of {sent} sent"));
    }
    (late > lost).then(|| format!("{late} late replies, which count as lost, and {lost} lost"))
}

/// Description of payload beyond what the sent messages held, if there is more.
fn excess_bytes(place: &FigurePlace, expected: &CheckedFigures) -> Option<String> {
    let (counts, delivery) = (&place.figures.counts, &place.figures.delivery);
    let case = expected.case;
    let size = u64::from(case.message_bytes);
    let delivered = delivery.delivered_bytes?.saturating_add(delivery.delivered_reverse_bytes.unwrap_or(0));
    let messages = counts.sent.saturating_add(counts.duplicate);
    let is_counted = crate::warnings::sends_messages(case) && size > 0 && counts.sent > 0;
    let is_excess =
        is_counted && delivered > messages.saturating_mul(size) && place.figures.requests.is_none();
    is_excess.then(|| format!("{delivered} bytes delivered of {messages} messages of {size} bytes"))
}

fn wrong_places(place: &FigurePlace) -> Option<String> {
    let counts = &place.figures.counts;
    if let (Some(drops), Some(network)) = (counts.receiver_socket_drops, counts.network_lost)
        && drops.saturating_add(network) != counts.lost
    {
        let lost = counts.lost;
        return Some(format!("{drops} socket drops and {network} lost in the network are not {lost} lost"));
    }
    let ways = place.figures.one_way.as_ref()?;
    let (forward, reverse) = ways.forward_lost.zip(ways.reverse_lost)?;
    (forward.saturating_add(reverse) > counts.lost)
        .then(|| format!("{forward} forward and {reverse} reverse losses are more than {} lost", counts.lost))
}
