//! Tests of one-way delays between clocks that differ, drift, are set, or follow common time.

use std::sync::Arc;

use super::*;
use crate::sample::{RecordedTimes, Recorder};
use crate::stats::SplitMix64;

const MS: u64 = 1_000_000;

fn sample(sequence: u64, sent: u64, received: u64) -> Sample {
    Sample { sequence, intended: Time(sent), sent: Time(sent), received: Time(received) }
}

/// Round trips every 10 ms over these delays. The server's clock is ahead by `offset` and gains `drift`.
fn one_way_figures(
    delays: &[(u64, u64, u64)],
    offset: i64,
    drift: f64,
) -> (OneWayDelays, run::OneWayFigures) {
    figures_with_common_time(delays, (offset, drift), None)
}

/// Figures of round trips every 10 ms where the hosts state what they know about their clocks.
fn figures_with_common_time(
    delays: &[(u64, u64, u64)],
    (offset, drift): (i64, f64),
    common_time: Option<CommonTime>,
) -> (OneWayDelays, run::OneWayFigures) {
    let mut measured = OneWayDelays::new();
    if let Some(common_time) = common_time {
        measured.use_common_time(common_time);
    }
    for (number, &(forward, at, reverse)) in delays.iter().enumerate() {
        let sent = 1_000 * MS + number as u64 * 10 * MS;
        let server_time =
            |time: u64| time as i64 + offset + (drift * (time - 1_000 * MS) as f64).round() as i64;
        let stages = ServerTimestamps {
            received_ns: server_time(sent + forward),
            sent_ns: server_time(sent + forward + at),
            reply_number: number as u32,
        };
        assert!(measured.record_reply(sample(number as u64, sent, sent + forward + at + reverse), stages));
    }
    measured.finish();
    let counts = Counts { received: delays.len() as u64, ..Counts::default() };
    let figures = measured.figures(&counts).unwrap();
    (measured, figures)
}

#[test]
fn stamps_that_mostly_contradict_themselves_show_no_delay() {
    for (wrong, is_shown) in [(4, true), (6, false)] {
        let mut recorder = Recorder::new(RecordedTimes::Service, 100 * MS, Arc::default(), None);
        recorder.expect_server_timestamps();
        for number in 0..10 {
            let sample = sample(number, 1000 * MS + number * 10 * MS, 1003 * MS + number * 10 * MS);
            recorder.record_reply(sample, 0);
            // Left before it arrived.
            let (received_ns, sent_ns) = if number < wrong { (500, 1) } else { (500, 501) };
            recorder.record_server_timestamps(
                sample,
                ServerTimestamps { received_ns, sent_ns, reply_number: number as u32 },
            );
        }
        recorder.finish();
        assert_eq!(recorder.counts.corrupt_messages, wrong);
        assert_eq!(recorder.latency_figures(&[]).one_way.is_some(), is_shown);
    }
}

/// Delays: forward 3 ms plus 0 to 9 ms; 2 ms at the server; reverse 1 ms plus an occasional 5 ms.
fn uneven_delays() -> Vec<(u64, u64, u64)> {
    (0..500).map(|n| ((3 + n * 7 % 10) * MS, 2 * MS, (1 + if n % 50 == 7 { 5 } else { 0 }) * MS)).collect()
}

#[test]
fn forward_and_reverse_delay_are_separated_at_any_clock_offset() {
    for offset in [0, 1, -7_000_000_000_123, 2_000_000_000_000_000_000] {
        let (_, delays) = one_way_figures(&uneven_delays(), offset, 0.0);
        assert_eq!((delays.turnaround_ns.min, delays.turnaround_ns.max), (2 * MS, 2 * MS));
        assert_eq!((delays.path_ns.min, delays.path_ns.max), (4 * MS, 18 * MS));
        let p = |distribution: &run::Distribution, name| distribution.percentile(name).unwrap();
        assert_eq!(
            (p(&delays.forward_variation_ns, "p50"), delays.forward_variation_ns.max),
            (4 * MS, 9 * MS)
        );
        assert_eq!((p(&delays.reverse_variation_ns, "p90"), delays.reverse_variation_ns.max), (0, 5 * MS));
        // The true minima, 3 ms and 1 ms, lie within the reported error bound.
        // A drift could add the time since the last fast request.
        assert!((2e6..2.05e6).contains(&delays.one_way_error_bound_ns), "{delays:?}");
        assert!(
            (delays.forward_p50_ns - 7e6).abs() <= 2e6 && (delays.reverse_p50_ns - 1e6).abs() <= 2e6,
            "{delays:?}"
        );
        assert!((delays.clock_offset_ns - offset as f64).abs() <= 2e6 + 300.0, "{delays:?}");
    }
}

#[test]
fn clock_drift_is_corrected() {
    for drift in [40e-6, -40e-6] {
        let (_, delays) = one_way_figures(&uneven_delays(), 5, drift);
        assert!((delays.clock_drift_ppm - drift * 1e6).abs() < 0.5, "{}", delays.clock_drift_ppm);
        assert!(
            delays.forward_variation_ns.max.abs_diff(9 * MS) < 5_000,
            "{:?}",
            delays.forward_variation_ns
        );
        assert!(
            delays.reverse_variation_ns.percentile("p90").unwrap() < 5_000,
            "{:?}",
            delays.reverse_variation_ns
        );
    }
    // A growing forward queue is no clock drift. At most half of the slope could be taken for drift, and
    // that is too much here.
    let growing: Vec<_> = (0..500).map(|n| (MS + n * MS, MS, MS)).collect();
    let (_, delays) = one_way_figures(&growing, 5, 0.0);
    assert_eq!((delays.clock_drift_ppm, delays.forward_variation_ns.max), (0.0, 499 * MS));
}

#[test]
fn true_delays_lie_within_the_bound_in_every_run() {
    let median = |mut delays: Vec<u64>| {
        delays.sort_unstable();
        delays[delays.len() / 2 - 1] as f64
    };
    for seed in 0..100 {
        let mut random = SplitMix64::new(seed);
        let mut queue = || (-(1.0 - random.uniform()).ln() * 1e6) as u64;
        let delays: Vec<_> = (0..400).map(|_| (10 * MS + queue(), MS, 30 * MS + queue())).collect();
        let (_, figures) = one_way_figures(&delays, 5_000_000_000, 50e-6);
        let of = |get: fn(&(u64, u64, u64)) -> u64| delays.iter().map(get).collect::<Vec<u64>>();
        for (times, p50, variation) in [
            (of(|delays| delays.0), figures.forward_p50_ns, &figures.forward_variation_ns),
            (of(|delays| delays.2), figures.reverse_p50_ns, &figures.reverse_variation_ns),
        ] {
            let error = (p50 - median(times.clone())).abs();
            assert!(error <= figures.one_way_error_bound_ns, "{seed}: {error} {figures:?}");
            let shortest = times.iter().min().unwrap();
            let queue = median(times.clone()) - *shortest as f64;
            let seen = variation.percentile("p50").unwrap() as f64;
            assert!((seen - queue).abs() < 1e5, "{seed}: queueing delay {seen} instead of {queue}");
        }
        // The fastest request and the fastest reply need not belong together.
        let shortest_path = figures.path_ns.min as f64;
        // What the drift of 4 s can add is less than 1 %.
        assert!(figures.one_way_error_bound_ns <= 1.01 * shortest_path / 2.0, "{seed}: {figures:?}");
    }
}

const SECOND: i64 = 1_000_000_000;

/// A path that takes 10 ms to the server, 30 ms back, in the first quarter of a second.
fn uneven_path() -> Vec<(u64, u64, u64)> {
    (0..25).map(|n| ((10 + n % 3) * MS, MS, (30 + n % 4) * MS)).collect()
}

/// The hosts state this offset 20 ms before the first request.
fn stated(offset_ns: i64, error_ns: u64) -> Option<CommonTime> {
    Some(CommonTime { offset_ns, error_ns, stated_at: Time(980 * MS) })
}

#[test]
fn common_time_shows_the_asymmetry() {
    let clocks = (5 * SECOND, 50e-6);
    let (_, alone) = figures_with_common_time(&uneven_path(), clocks, None);
    assert_eq!(alone.bound_source, BoundSource::RoundTrips);
    let (_, both) = figures_with_common_time(&uneven_path(), clocks, stated(5 * SECOND + 200_000, 300_000));
    assert_eq!((both.bound_source, both.clock_disagreement_ns), (BoundSource::CommonTime, None));
    // The stated error, and what two clocks can gain on common time in 260 ms.
    assert!((3e5..5.7e5).contains(&both.one_way_error_bound_ns), "{both:?}");
    for (delay, expected) in [(both.forward_p50_ns, 11e6), (both.reverse_p50_ns, 31e6)] {
        assert!((delay - expected).abs() <= both.one_way_error_bound_ns, "{both:?}");
    }
    // Over ten seconds the stated error grows, but it is still the smaller one.
    let old = CommonTime { offset_ns: 5 * SECOND, error_ns: 300_000, stated_at: Time(0) };
    let late: Vec<_> = std::iter::repeat_n((10 * MS, MS, 30 * MS), 1_000).collect();
    let (_, late) = figures_with_common_time(&late, (5 * SECOND, 0.0), Some(old));
    assert_eq!(late.bound_source, BoundSource::CommonTime);
    assert!((1e6..12e6).contains(&late.one_way_error_bound_ns), "{late:?}");
    // A stated error that is larger than that of the round trips changes nothing.
    let (_, vague) = figures_with_common_time(&uneven_path(), clocks, stated(5 * SECOND, 100_000_000));
    assert_eq!(vague, alone);
}

#[test]
fn true_delays_lie_within_the_bound_of_common_time_in_every_run() {
    for seed in 0..100 {
        let mut random = SplitMix64::new(seed);
        let mut queue = || (-(1.0 - random.uniform()).ln() * 1e6) as u64;
        let delays: Vec<_> = (0..100).map(|_| (10 * MS + queue(), MS, 30 * MS + queue())).collect();
        // The clocks may be wrong by all that the hosts state, and were read up to a second before.
        let error_ns = 1_000 + (random.uniform() * 2e6) as u64;
        let wrong_ns = ((2.0 * random.uniform() - 1.0) * error_ns as f64) as i64;
        let before_ns = (random.uniform() * 1e9) as u64;
        let drift = (2.0 * random.uniform() - 1.0) * 50e-6;
        let offset_then = 5 * SECOND - (drift * before_ns as f64) as i64;
        let stated_at = Time(1_000 * MS - before_ns);
        let common = CommonTime { offset_ns: offset_then + wrong_ns, error_ns, stated_at };
        let (_, figures) = figures_with_common_time(&delays, (5 * SECOND, drift), Some(common));
        assert_eq!(figures.bound_source, BoundSource::CommonTime, "{seed}");
        assert!(figures.one_way_error_bound_ns < 5.1e6, "{seed}: {figures:?}");
        for (seen, mut times) in [
            (figures.forward_p50_ns, delays.iter().map(|delays| delays.0).collect::<Vec<u64>>()),
            (figures.reverse_p50_ns, delays.iter().map(|delays| delays.2).collect()),
        ] {
            times.sort_unstable();
            let error = (seen - times[49] as f64).abs();
            assert!(error <= figures.one_way_error_bound_ns, "{seed}: {error} {figures:?}");
        }
    }
}

#[test]
fn clocks_that_the_round_trips_contradict_are_not_used() {
    let clocks = (5 * SECOND, 0.0);
    let (_, alone) = figures_with_common_time(&uneven_path(), clocks, None);
    let (_, wrong) =
        figures_with_common_time(&uneven_path(), clocks, stated(5 * SECOND + 50_000_000, 1_000_000));
    // The offset is at most 10 ms above the true one, and they state at least 49 ms.
    let disagreement_ns = wrong.clock_disagreement_ns.unwrap();
    assert!((38e6..39.5e6).contains(&disagreement_ns), "{disagreement_ns}");
    assert_eq!(run::OneWayFigures { clock_disagreement_ns: None, ..wrong }, alone);
}

/// The server's clock steps from one offset to another after 250 of 500 round trips, 10 ms apart.
fn figures_with_clock_step(before: i64, after: i64, drift: f64) -> run::OneWayFigures {
    let mut measured = OneWayDelays::new();
    for (number, (forward, at, reverse)) in (0u64..).zip(uneven_delays()) {
        let sent = 1_000 * MS + number * 10 * MS;
        let offset = if number < 250 { before } else { after };
        let server_time =
            |time: u64| time as i64 + offset + (drift * (time - 1_000 * MS) as f64).round() as i64;
        let stages = ServerTimestamps {
            received_ns: server_time(sent + forward),
            sent_ns: server_time(sent + forward + at),
            reply_number: number as u32,
        };
        assert!(measured.record_reply(sample(number, sent, sent + forward + at + reverse), stages));
    }
    measured.finish();
    measured.figures(&Counts { received: 500, ..Counts::default() }).unwrap()
}

#[test]
fn a_clock_step_is_detected_and_corrected() {
    let (ms, second) = (MS as i64, SECOND);
    for (before, after) in [(0, 20 * ms), (0, -20 * ms), (-3 * second, 3_600 * second), (5 << 60, 0)] {
        for drift in [0.0, 40e-6] {
            let delays = figures_with_clock_step(before, after, drift);
            assert_eq!(delays.clock_steps, 1, "{before} to {after}");
            assert!(
                delays.forward_variation_ns.max.abs_diff(9 * MS) < 10_000,
                "{:?}",
                delays.forward_variation_ns
            );
            assert!(
                delays.reverse_variation_ns.max.abs_diff(5 * MS) < 10_000,
                "{:?}",
                delays.reverse_variation_ns
            );
            assert!(delays.one_way_error_bound_ns < 2.1e6, "{delays:?}");
        }
    }
    // Network delay or drift is not a step.
    for (offset, drift) in [(0, 0.0), (0, 400e-6), (7 * second, -400e-6)] {
        assert_eq!(figures_with_clock_step(offset, offset, drift).clock_steps, 0);
    }
}

#[test]
fn a_turnaround_beyond_the_round_trip_is_rejected() {
    let mut delays = OneWayDelays::new();
    let mut replied = |turnaround: i64| {
        let stages = ServerTimestamps { received_ns: 0, sent_ns: turnaround, reply_number: 0 };
        delays.record_reply(sample(0, 0, MS), stages)
    };
    assert!(replied(0) && replied(MS as i64) && replied(MS as i64 + 1_500));
    assert!(!replied(MS as i64 + 3_000) && !replied(-1) && !replied(i64::MAX));
    assert_eq!(delays.turnaround.count(), 3);
}

#[test]
fn a_server_that_counts_shows_the_direction_of_loss() {
    let flow = |replies: &[(u64, u32)]| {
        let mut delays = OneWayDelays::new();
        for &(sequence, number) in replies {
            let sent = sequence * 10 * MS;
            let at = sent as i64 + 1;
            let stages = ServerTimestamps { received_ns: at, sent_ns: at, reply_number: number };
            delays.record_reply(sample(sequence, sent, sent + MS), stages);
        }
        delays.finish();
        delays
    };
    let directions = |delays: &OneWayDelays, lost: u64| {
        let figures = delays.figures(&Counts { lost, ..Counts::default() }).unwrap();
        figures.forward_lost.zip(figures.reverse_lost)
    };
    let lost = |replies: &[(u64, u32)], lost: u64| directions(&flow(replies), lost);
    assert_eq!(lost(&[(0, 0), (1, 1)], 0), Some((0, 0)));
    // Requests 2 and 3 never arrived; the reply to 5 was lost.
    assert_eq!(lost(&[(1, 1), (4, 2), (6, 4)], 3), Some((2, 1)));
    assert_eq!(lost(&[(1, 1), (4, 4), (6, 6)], 3), None, "copied numbers show nothing");
    assert_eq!(
        lost(&[(1, 9), (4, 2_000_000)], 3),
        Some((0, 3)),
        "and absurd ones nothing more than there is"
    );
    // Each flow has numbers of its own.
    let mut both = flow(&[(1, 1), (4, 2), (6, 4)]);
    both.merge(&flow(&[(0, 0), (3, 1)]));
    assert_eq!(directions(&both, 5), Some((4, 1)));
}

#[test]
fn flows_are_finished_before_they_are_merged() {
    let (mut one, _) = one_way_figures(&uneven_delays(), 1_000_000, 0.0);
    let (other, _) = one_way_figures(&uneven_delays(), -9_000_000_000, 0.0);
    one.merge(&other);
    let delays = one.figures(&Counts::default()).unwrap();
    assert_eq!((delays.forward_variation_ns.count, delays.forward_variation_ns.max), (1_000, 9 * MS));
    let mut blank = OneWayDelays::new();
    blank.merge(&one);
    assert_eq!(blank.figures(&Counts::default()).unwrap(), delays);
}

#[test]
fn the_idle_link_shows_the_clocks_alone() {
    let mut delays = OneWayDelays::new();
    let stages = |at: u64, reply_number| ServerTimestamps {
        received_ns: at as i64 + 7_000_000_000,
        sent_ns: at as i64 + 7_000_000_000,
        reply_number,
    };
    // 1 ms each way on the idle link; the load delays requests by 100 ms.
    assert!(delays.record_idle_reply(sample(0, 0, 2 * MS), stages(MS, 0)));
    for number in 1..=10 {
        let sent = number * 200 * MS;
        assert!(
            delays
                .record_reply(sample(number, sent, sent + 102 * MS), stages(sent + 101 * MS, number as u32))
        );
    }
    delays.finish();
    let figures = delays.figures(&Counts { received: 10, ..Counts::default() }).unwrap();
    assert_eq!((figures.forward_variation_ns.count, figures.forward_variation_ns.min), (10, 100 * MS));
    assert_eq!((figures.reverse_variation_ns.min, figures.reverse_variation_ns.max), (0, 0));
    // A drift of 500 ppm could add 1 ms in the 2 s since the last fast request: the middle is closest to all of it.
    assert_eq!((figures.forward_p50_ns, figures.reverse_p50_ns), (100.5e6, 1.5e6));
    assert!((figures.one_way_error_bound_ns - 1.5e6).abs() < 1.0, "{}", figures.one_way_error_bound_ns);
    assert!((figures.clock_offset_ns - 7e9).abs() <= figures.one_way_error_bound_ns);
}

/// Round trips of about 200 µs, and a server clock with this step and this drift.
fn with_clock(tick_ns: i64, drift: f64) -> OneWayDelays {
    let (mut random, mut delays) = (SplitMix64::new(7), OneWayDelays::new());
    for number in 0..2000u64 {
        let mut some = |most: f64| (random.uniform() * most) as u64;
        let sent = 1_000 * MS + number * 10 * MS + some(8e6);
        let (forward, at, reverse) =
            (120_000 + some(40_000.0), 3_000 + some(3_000.0), 80_000 + some(40_000.0));
        let server_time = |time: u64| {
            let exact = time as i64 + 7 * SECOND + (drift * (time - 1_000 * MS) as f64).round() as i64;
            exact - exact.rem_euclid(tick_ns)
        };
        let stages = ServerTimestamps {
            received_ns: server_time(sent + forward),
            sent_ns: server_time(sent + forward + at),
            reply_number: number as u32,
        };
        delays.record_reply(sample(number, sent, sent + forward + at + reverse), stages);
    }
    delays.finish();
    delays
}

#[test]
fn a_coarse_clock_is_named_and_never_a_set_one() {
    for tick_ns in [50_000, 976_563, 1_000_000, 4_000_000, 10_000_000, 15_625_000] {
        let delays = with_clock(tick_ns, 0.0);
        let clock = delays.remote_clock().unwrap_or_else(|| panic!("{tick_ns}"));
        assert_eq!((clock.tick_ns, clock.excessive_drift_ppm), (Some(tick_ns as f64), None));
        assert!(delays.figures(&Counts::default()).is_none(), "{tick_ns}");
        // A turnaround over a step seems longer than the round trip.
        let impossible = delays.too_long_ns.len() as u64;
        assert_eq!(
            (delays.explained_by_tick(), impossible > 0),
            (impossible, (500_000..5_000_000).contains(&tick_ns))
        );
    }
    // The clock stands still, or steps once, during 30 round trips.
    let mut closed = OneWayDelays::new();
    for number in 0..30 {
        let sent = 1_000 * MS + number * 25_000 + number % 3 * 1_000;
        let at = (sent / (MS / 2) * (MS / 2)) as i64;
        let stages = ServerTimestamps { received_ns: at, sent_ns: at, reply_number: number as u32 };
        closed.record_reply(sample(number, sent, sent + 22_000), stages);
    }
    closed.finish();
    assert_eq!(closed.remote_clock().unwrap().tick_ns, Some(5e5));
    for tick_ns in [1, 1_000, 20_000] {
        let delays = with_clock(tick_ns, 0.0);
        assert_eq!(delays.remote_clock(), None, "{tick_ns}");
        let figures = delays.figures(&Counts::default()).unwrap();
        assert!((figures.forward_p50_ns - 140_000.0).abs() <= figures.one_way_error_bound_ns + 1e4);
    }
}

#[test]
fn the_step_of_a_clock_adds_to_the_error() {
    let (mut random, mut delays) = (SplitMix64::new(7), OneWayDelays::new());
    for number in 0..500u64 {
        let sent = 1_000 * MS + number * 10 * MS + (random.uniform() * 8e6) as u64;
        let server_time = |time: u64| (time - time % MS) as i64 + 5 * SECOND;
        let (forward, reverse) = (30 * MS, 10 * MS);
        let stages = ServerTimestamps {
            received_ns: server_time(sent + forward),
            sent_ns: server_time(sent + forward),
            reply_number: number as u32,
        };
        assert!(delays.record_reply(sample(number, sent, sent + forward + reverse), stages));
    }
    delays.finish();
    let figures = delays.figures(&Counts::default()).unwrap();
    assert_eq!(delays.remote_clock().unwrap().tick_ns, Some(1e6));
    assert_eq!((figures.clock_steps, figures.one_way_error_bound_ns), (0, 20e6));
}

#[test]
fn a_drift_beyond_that_of_clocks_has_no_one_way_delays() {
    for drift in [1e-3, -1e-3, 5e-3] {
        let delays = with_clock(1, drift);
        assert!(delays.figures(&Counts::default()).is_none());
        let ppm = delays.remote_clock().unwrap().excessive_drift_ppm.unwrap();
        assert!((ppm / (drift * 1e6) - 1.0).abs() < 0.05, "{ppm}");
    }
    for drift in [3e-4, -3e-4, 4.5e-4] {
        let delays = with_clock(1, drift);
        assert_eq!(delays.remote_clock(), None);
        let figures = delays.figures(&Counts::default()).unwrap();
        assert!((figures.forward_p50_ns - 140_000.0).abs() <= figures.one_way_error_bound_ns, "{figures:?}");
    }
}
