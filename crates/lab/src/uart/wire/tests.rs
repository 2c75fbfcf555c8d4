//! The wire on a virtual clock, exact to the nanosecond.

use super::*;
use linkgauge_engine::link::serial_line::{Parity, StopBits};

fn at_baud(baud: u32) -> SerialSettings {
    SerialSettings { baud, ..SerialSettings::default() }
}

fn wire_with(delivery: DeliveryMode) -> Wire {
    Wire::new(CharacterTiming::LineRate, delivery, Time(0))
}

const EACH_CHARACTER: DeliveryMode = DeliveryMode::Batch(Duration::ZERO);

/// Deliveries up to `now`: due time and characters.
fn deliveries_by(wire: &mut Wire, now: u64) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut characters = Vec::new();
        match wire.deliver(Time(now), |_, some| characters.extend_from_slice(some)) {
            Some(due) => all.push((due.0, characters)),
            None => return all,
        }
    }
}

/// Due times of the deliveries and their numbers of characters.
fn delivery_counts(wire: &mut Wire, now: u64) -> Vec<(u64, usize)> {
    deliveries_by(wire, now).into_iter().map(|(due, characters)| (due, characters.len())).collect()
}

#[test]
fn character_takes_exactly_its_time() {
    let mut wire = wire_with(EACH_CHARACTER);
    wire.offer(b"a", &at_baud(9600), Time(500));
    assert_eq!(wire.next_delivery(), Some(NextDelivery { at: Time(1_042_167), ends_run: true }));
    assert_eq!(deliveries_by(&mut wire, 1_042_166), []);
    assert_eq!(deliveries_by(&mut wire, 1_042_167), [(1_042_167, b"a".to_vec())]);
    assert_eq!(wire.next_delivery(), None);
}

#[test]
fn late_polls_do_not_delay_characters() {
    let mut wire = wire_with(EACH_CHARACTER);
    let fast = at_baud(1_000_000);
    wire.offer(b"ab", &fast, Time(0));
    // The second character is still on the line; the third follows it.
    wire.offer(b"c", &fast, Time(19_000));
    // The line is idle, so the fourth starts when it is offered.
    wire.offer(b"d", &fast, Time(95_000));
    let due: Vec<u64> = deliveries_by(&mut wire, 1_000_000).into_iter().map(|(due, _)| due).collect();
    assert_eq!(due, [10_000, 20_000, 30_000, 105_000]);
}

#[test]
fn a_million_characters_end_exactly_on_time() {
    for (baud, seconds) in [(4_000_000, 2.5), (230_400, 1e7 / 230_400.0), (75, 1e7 / 75.0)] {
        let (settings, mut wire) = (at_baud(baud), wire_with(DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL)));
        let (mut now, mut left, mut got, mut last) = (Time(0), 1_000_000, 0, Time(0));
        while left > 0 || wire.next_delivery().is_some() {
            let offered = wire.free_characters(&settings).min(left);
            wire.offer(&vec![0x55; offered], &settings, now);
            left -= offered;
            // The caller is late by a varying time, but never so late that the line runs dry.
            now = wire.next_delivery().unwrap().at + Duration::from_nanos(now.0 % 777_777);
            while let Some(due) = wire.deliver(now, |_, characters| got += characters.len()) {
                assert!(due <= now);
                last = due;
            }
        }
        assert_eq!(got, 1_000_000);
        assert_eq!(last.0, (seconds * 1e9_f64).ceil() as u64, "{baud}");
    }
}

#[test]
fn no_delivery_is_early_in_any_order_of_events() {
    let mut random = fastrand::Rng::with_seed(11);
    for delivery in [
        EACH_CHARACTER,
        DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL),
        DeliveryMode::Fifo { trigger: 8, idle_characters: 4 },
        DeliveryMode::Timer(Duration::from_millis(16)),
    ] {
        let (mut wire, mut now, mut free) = (wire_with(delivery), Time(0), Time(0));
        let mut ends = VecDeque::new();
        for number in 0..5000 {
            now = now + Duration::from_nanos(random.u64(0..3_000_000));
            match random.u8(0..10) {
                0..=5 => {
                    // Character times are whole nanoseconds, so the simple sum below is exact.
                    let settings = at_baud([100_000, 500_000, 4_000_000][number % 3]);
                    let characters = vec![0; random.usize(1..30)];
                    wire.offer(&characters, &settings, now);
                    for n in 1..=characters.len() as u64 {
                        ends.push_back(free.max(now) + settings.transmission_time(n));
                    }
                    free = ends.back().copied().unwrap();
                }
                6 => wire.set_held(true, now),
                7 => wire.set_held(false, now),
                _ => {}
            }
            // A line that is held at times is never faster than a line that is not.
            let mut take = |_: &SerialSettings, characters: &[u8]| {
                for _ in characters {
                    let end: Time = ends.pop_front().unwrap();
                    assert!(end <= now, "{delivery:?}");
                }
            };
            while wire.deliver(now, &mut take).is_some() {}
        }
        wire.set_held(false, now);
        let rest: usize = delivery_counts(&mut wire, u64::MAX - 1).iter().map(|(_, count)| count).sum();
        assert_eq!(rest, ends.len(), "{delivery:?}");
    }
}

#[test]
fn run_is_delivered_in_batches_and_ends_on_time() {
    // 115200: 86.8 µs each; the first millisecond ends after the eleventh.
    let mut wire = wire_with(DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL));
    wire.offer(&[0; 14], &at_baud(115_200), Time(0));
    assert!(!wire.next_delivery().unwrap().ends_run);
    assert_eq!(delivery_counts(&mut wire, 10_000_000), [(954_862, 11), (1_215_278, 3)]);
    // Slow characters are delivered one by one.
    wire.offer(&[0; 3], &at_baud(9600), Time(20_000_000));
    assert_eq!(delivery_counts(&mut wire, 30_000_000), [(21_041_667, 1), (22_083_334, 1), (23_125_000, 1)]);
}

#[test]
fn new_settings_apply_to_later_characters() {
    let mut wire = wire_with(EACH_CHARACTER);
    wire.offer(b"ab", &at_baud(1_000_000), Time(0));
    let slow = SerialSettings { stop_bits: StopBits::Two, parity: Parity::Odd, ..at_baud(100_000) };
    wire.offer(b"c", &slow, Time(0));
    assert_eq!(delivery_counts(&mut wire, 1_000_000), [(10_000, 1), (20_000, 1), (140_000, 1)]);
}

#[test]
fn a_fifo_fills_or_times_out() {
    let mut wire = wire_with(DeliveryMode::Fifo { trigger: 8, idle_characters: 4 });
    let fast = at_baud(1_000_000);
    wire.offer(&[0; 19], &fast, Time(0));
    assert_eq!(delivery_counts(&mut wire, 1_000_000), [(80_000, 8), (160_000, 8), (230_000, 3)]);
    // A gap shorter than the timeout stays in the same FIFO batch. A longer one follows.
    wire.offer(&[0; 3], &fast, Time(1_000_000));
    wire.offer(&[0; 2], &fast, Time(1_055_000));
    assert_eq!(wire.next_delivery(), Some(NextDelivery { at: Time(1_115_000), ends_run: true }));
    wire.offer(&[0; 4], &fast, Time(1_110_000));
    assert_eq!(delivery_counts(&mut wire, 2_000_000), [(1_115_000, 5), (1_190_000, 4)]);
}

#[test]
fn a_usb_adapter_waits_for_its_timer_or_a_full_packet() {
    let mut wire = wire_with(DeliveryMode::Timer(Duration::from_millis(16)));
    let fast = at_baud(1_000_000);
    wire.offer(b"a", &fast, Time(1_000_000));
    assert_eq!(delivery_counts(&mut wire, 16_000_000), [(16_000_000, 1)]);
    // The timer continued meanwhile.
    wire.offer(b"b", &fast, Time(50_000_000));
    assert_eq!(delivery_counts(&mut wire, 64_000_000), [(64_000_000, 1)]);
    // A full packet is delivered at once and restarts the timer.
    wire.offer(&[0; 65], &fast, Time(70_000_000));
    assert_eq!(delivery_counts(&mut wire, 90_000_000), [(70_620_000, 62), (86_620_000, 3)]);
}

#[test]
fn held_line_finishes_its_character_and_resumes() {
    let mut wire = wire_with(EACH_CHARACTER);
    let fast = at_baud(1_000_000);
    wire.offer(&[1, 2, 3, 4], &fast, Time(0));
    wire.set_held(true, Time(15_000));
    wire.offer(&[5], &fast, Time(16_000));
    assert_eq!(deliveries_by(&mut wire, 900_000), [(10_000, vec![1]), (20_000, vec![2])]);
    assert_eq!(wire.next_delivery(), None);
    wire.set_held(false, Time(1_000_000));
    let rest = deliveries_by(&mut wire, 2_000_000);
    assert_eq!(rest, [(1_010_000, vec![3]), (1_020_000, vec![4]), (1_030_000, vec![5])]);
}

#[test]
fn hold_between_characters_sends_none() {
    let mut wire = wire_with(EACH_CHARACTER);
    wire.offer(&[1, 2], &at_baud(1_000_000), Time(0));
    wire.set_held(true, Time(10_000));
    assert_eq!(delivery_counts(&mut wire, 900_000), [(10_000, 1)]);
    // Released immediately, so no time was lost.
    wire.set_held(false, Time(900_000));
    assert_eq!(delivery_counts(&mut wire, 1_000_000), [(910_000, 1)]);
}

#[test]
fn xoff_overtakes_waiting_characters_and_a_held_line() {
    let mut wire = wire_with(EACH_CHARACTER);
    let fast = at_baud(1_000_000);
    wire.offer(&[1, 2, 3], &fast, Time(0));
    wire.offer_priority(0x13, &fast, Time(5_000));
    wire.offer_priority(0x11, &fast, Time(6_000));
    let sent: Vec<u8> = deliveries_by(&mut wire, 50_000).into_iter().flat_map(|(_, sent)| sent).collect();
    assert_eq!(sent, [1, 0x13, 0x11, 2, 3]);
    wire.offer(&[4, 5], &fast, Time(50_000));
    wire.set_held(true, Time(55_000));
    wire.offer_priority(0x11, &fast, Time(56_000));
    assert_eq!(deliveries_by(&mut wire, 900_000), [(60_000, vec![4]), (70_000, vec![0x11])]);
    wire.set_held(false, Time(900_000));
    assert_eq!(deliveries_by(&mut wire, 950_000), [(910_000, vec![5])]);
}

#[test]
fn a_flush_leaves_the_character_on_the_line() {
    let mut wire = wire_with(EACH_CHARACTER);
    let fast = at_baud(1_000_000);
    wire.offer(&[1, 2, 3, 4], &fast, Time(0));
    assert_eq!(wire.flush(Time(12_000)), 2);
    wire.offer(&[5], &fast, Time(15_000));
    let sent = deliveries_by(&mut wire, 900_000);
    assert_eq!(sent, [(10_000, vec![1]), (20_000, vec![2]), (30_000, vec![5])]);
}

#[test]
fn the_queue_is_bounded() {
    let mut wire = wire_with(EACH_CHARACTER);
    assert_eq!(wire.free_characters(&at_baud(9600)), 4096);
    wire.offer(&[0; 4096], &at_baud(9600), Time(0));
    assert_eq!(wire.free_characters(&at_baud(9600)), 0);
    // Fast lines have a queue for a fixed time.
    assert_eq!(wire.free_characters(&at_baud(4_000_000)), 16_000 - 4096);
}

#[test]
fn without_pacing_everything_is_due_at_once() {
    let mut wire =
        Wire::new(CharacterTiming::Immediate, DeliveryMode::Batch(DEFAULT_BATCH_INTERVAL), Time(0));
    wire.offer(&[1, 2, 3], &at_baud(75), Time(7));
    assert_eq!(deliveries_by(&mut wire, 7), [(7, vec![1, 2, 3])]);
    wire.set_held(true, Time(8));
    wire.offer(&[4], &at_baud(75), Time(9));
    assert_eq!(deliveries_by(&mut wire, 20), []);
    wire.set_held(false, Time(30));
    assert_eq!(deliveries_by(&mut wire, 30), [(30, vec![4])]);
}
