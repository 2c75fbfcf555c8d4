//! Replies to hop-limited probes: any host can send ICMP errors, with any quote and any address.

use std::net::IpAddr;
use std::time::Duration;

use linkgauge::clock::Time;
use linkgauge::path::hops::{HopCount, hop_count, hops_of, locate_loss, samples_on_path};
use linkgauge::path::mtu::{MtuAction, MtuSearch};
use linkgauge::path::prober::{ProbeAction, ProbeReply, ProbeReplyKind, Prober, Schedule};
use linkgauge::path::queue::{HopPhases, locate_queue};
use linkgauge::path::{QuotedNumber, kind_of_error, number_in_payload};
use linkgauge::system::IpFamily;

use super::draw::Draw;

/// More steps than any schedule of this target has.
const MOST_STEPS: u32 = 20_000;

/// Quotes of any bytes, and whole measurements whose replies the input chooses.
pub fn path(data: &[u8]) {
    let nonce = [7; 8];
    match number_in_payload(data, nonce) {
        QuotedNumber::Number(number) => assert!(data.starts_with(&number.to_be_bytes())),
        QuotedNumber::TooShort => assert!(data.len() < 4),
        QuotedNumber::Foreign => assert!(data.len() > 4),
    }
    let mut draw = Draw(data);
    let type_code = (draw.byte(), draw.byte());
    for family in [IpFamily::V4, IpFamily::V6] {
        let _ = kind_of_error(family, type_code);
    }
    probe(&mut draw);
    search(&mut draw);
}

fn address(draw: &mut Draw) -> IpAddr {
    IpAddr::from([192, 0, 2, draw.byte()])
}

/// A measurement of hops.
fn probe(draw: &mut Draw) {
    let schedule = Schedule {
        flows: 1 + u32::from(draw.byte() % 4),
        max_hops: 1 + draw.byte() % 64,
        rounds: Some(u32::from(draw.byte() % 8)),
        interval: Duration::from_millis(1 + u64::from(draw.byte())),
        timeout: Duration::from_millis(1 + u64::from(draw.byte())),
        under_way: if draw.byte().is_multiple_of(2) { 1 } else { usize::MAX },
        seed: draw.word(),
    };
    let (mut prober, mut now) = (Prober::new(schedule), Time(0));
    for step in 0.. {
        assert!(step < MOST_STEPS, "endless");
        match prober.next(now) {
            ProbeAction::Send(probe) => assert!((1..=64).contains(&probe.hop) && probe.flow < schedule.flows),
            ProbeAction::Wait(until) => {
                assert!(until > now);
                now = until;
            }
            ProbeAction::Done => break,
        }
        for _ in 0..draw.byte() % 3 {
            let number = (!draw.byte().is_multiple_of(8)).then(|| draw.number() as u32 % 2000);
            let kind = draw.one_of(&[
                ProbeReplyKind::Expired,
                ProbeReplyKind::Reached,
                ProbeReplyKind::Refused,
                ProbeReplyKind::TooBig(draw_size(number)),
            ]);
            let flow = u32::from(draw.byte()) % schedule.flows;
            let from = address(draw);
            let at = Time(now.0.saturating_add(draw.number()));
            prober.on_reply(&ProbeReply { number, flow, from, kind, at });
        }
    }
    let (samples, ends) = prober.finish();
    let samples = samples_on_path(&samples, &ends);
    let count = hop_count(&samples, &ends);
    let hops = hops_of(&samples, count);
    assert_eq!(hops.len(), usize::from(count));
    for hop in &hops {
        assert!(hop.answered <= hop.sent && hop.hosts.len() <= 16, "{hop:?}");
        assert!(hop.latency_ns.is_none_or(|times| times.min <= times.p50 && times.p50 <= times.max));
    }
    let counts: Vec<HopCount> =
        hops.iter().map(|hop| HopCount { sent: hop.sent, answered: hop.answered }).collect();
    assert!(locate_loss(&counts).is_none_or(|loss| loss.share > 0.0 && loss.lost <= loss.sent));
    if draw.byte().is_multiple_of(16) {
        judge(draw, count);
    }
}

fn draw_size(number: Option<u32>) -> u32 {
    number.unwrap_or(u32::MAX)
}

/// The place of a queue from any times.
fn judge(draw: &mut Draw, count: u8) {
    let mut times = || (0..draw.byte() % 6).map(|_| draw.number() as f64).collect::<Vec<f64>>();
    let phases: Vec<HopPhases> =
        (1..=count.min(8)).map(|hop| HopPhases { hop, idle: times(), loaded: times() }).collect();
    let queue = locate_queue(&phases, None).queue;
    assert!((0.0..=1.0).contains(&queue.agreement) && queue.total_ns >= 0.0, "{queue:?}");
    assert!(queue.after_hop.zip(queue.before_hop).is_none_or(|(after, before)| after < before));
}

/// A search of the largest packet.
fn search(draw: &mut Draw) {
    let (limit, distance) = (draw.number() as u32, draw.byte() % 64);
    let mut search = MtuSearch::new(limit, 1200, distance, Duration::from_millis(1));
    let mut now = Time(0);
    for step in 0.. {
        assert!(step < MOST_STEPS, "endless");
        match search.next(now) {
            MtuAction::Send(probe) => assert!(probe.bytes <= limit),
            MtuAction::Wait(until) => now = until,
            MtuAction::Done => break,
        }
        match draw.byte() % 8 {
            0 => search.on_passed(draw.number() as u32 % 100),
            1 => search.on_expired(draw.number() as u32),
            2 => search.on_too_big(draw.number() as u32, address(draw)),
            _ => {}
        }
    }
    let found = search.result();
    assert!(
        found.is_none_or(|found| found.bytes <= limit && found.last_hop.is_none_or(|hop| hop <= distance))
    );
}
