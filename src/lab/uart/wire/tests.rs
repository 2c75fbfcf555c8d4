//! The wire on a made-up clock: exact to the nanosecond.

use super::*;
use crate::link::line::{Parity, StopBits};

fn at(baud: u32) -> Settings {
    Settings { baud, ..Settings::default() }
}

fn wire(hand_over: HandOver) -> Wire {
    Wire::new(true, hand_over, Time(0))
}

const EACH: HandOver = HandOver::Batch(Duration::ZERO);

/// Everything that is handed over by then: when it was due, and what it was.
fn taken(wire: &mut Wire, now: u64) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut characters = Vec::new();
        match wire.take(Time(now), |_, some| characters.extend_from_slice(some)) {
            Some(due) => all.push((due.0, characters)),
            None => return all,
        }
    }
}

/// Ends of the hand-overs and how many characters came with each.
fn counts(wire: &mut Wire, now: u64) -> Vec<(u64, usize)> {
    taken(wire, now).into_iter().map(|(due, characters)| (due, characters.len())).collect()
}

#[test]
fn a_character_takes_its_time_and_no_less() {
    let mut wire = wire(EACH);
    wire.offer(b"a", &at(9600), Time(500));
    assert_eq!(wire.due(), Some(Due { at: Time(1_042_167), ends_run: true }));
    assert_eq!(taken(&mut wire, 1_042_166), []);
    assert_eq!(taken(&mut wire, 1_042_167), [(1_042_167, b"a".to_vec())]);
    assert_eq!(wire.due(), None);
}

#[test]
fn characters_follow_each_other_however_late_anybody_looks() {
    let mut wire = wire(EACH);
    let fast = at(1_000_000);
    wire.offer(b"ab", &fast, Time(0));
    // The second is still on the line: the third follows it.
    wire.offer(b"c", &fast, Time(19_000));
    // The line was free: the fourth begins when it is offered.
    wire.offer(b"d", &fast, Time(95_000));
    let due: Vec<u64> = taken(&mut wire, 1_000_000).into_iter().map(|(due, _)| due).collect();
    assert_eq!(due, [10_000, 20_000, 30_000, 105_000]);
}

#[test]
fn a_million_characters_end_exactly_on_time() {
    for (baud, seconds) in [(4_000_000, 2.5), (230_400, 1e7 / 230_400.0), (75, 1e7 / 75.0)] {
        let (settings, mut wire) = (at(baud), wire(HandOver::Batch(BATCH)));
        let (mut now, mut left, mut got, mut last) = (Time(0), 1_000_000, 0, Time(0));
        while left > 0 || wire.due().is_some() {
            let offered = wire.room(&settings).min(left);
            wire.offer(&vec![0x55; offered], &settings, now);
            left -= offered;
            // Whoever looks is late, by another time each time; never so late that the line runs dry.
            now = wire.due().unwrap().at + Duration::from_nanos(now.0 % 777_777);
            while let Some(due) = wire.take(now, |_, characters| got += characters.len()) {
                assert!(due <= now);
                last = due;
            }
        }
        assert_eq!(got, 1_000_000);
        assert_eq!(last.0, (seconds * 1e9_f64).ceil() as u64, "{baud}");
    }
}

#[test]
fn nothing_comes_before_its_time_in_any_order_of_events() {
    let mut random = fastrand::Rng::with_seed(11);
    for hand_over in [
        EACH,
        HandOver::Batch(BATCH),
        HandOver::Fifo { trigger: 8, idle_characters: 4 },
        HandOver::Timer(Duration::from_millis(16)),
    ] {
        let (mut wire, mut now, mut free) = (wire(hand_over), Time(0), Time(0));
        let mut ends = VecDeque::new();
        for number in 0..5000 {
            now = now + Duration::from_nanos(random.u64(0..3_000_000));
            match random.u8(0..10) {
                0..=5 => {
                    // Characters of whole nanoseconds: the simple sum below is exact.
                    let settings = at([100_000, 500_000, 4_000_000][number % 3]);
                    let characters = vec![0; random.usize(1..30)];
                    wire.offer(&characters, &settings, now);
                    for n in 1..=characters.len() as u64 {
                        ends.push_back(free.max(now) + settings.time_of(n));
                    }
                    free = ends.back().copied().unwrap();
                }
                6 => wire.hold(true, now),
                7 => wire.hold(false, now),
                _ => {}
            }
            // A line that is held now and then is never faster than one that is not.
            let mut take = |_: &Settings, characters: &[u8]| {
                for _ in characters {
                    let end: Time = ends.pop_front().unwrap();
                    assert!(end <= now, "{hand_over:?}");
                }
            };
            while wire.take(now, &mut take).is_some() {}
        }
        wire.hold(false, now);
        let rest: usize = counts(&mut wire, u64::MAX - 1).iter().map(|(_, count)| count).sum();
        assert_eq!(rest, ends.len(), "{hand_over:?}");
    }
}

#[test]
fn a_run_is_handed_over_in_parts_and_its_end_on_time() {
    // 115200: 86.8 µs each; the first millisecond ends behind the eleventh.
    let mut wire = wire(HandOver::Batch(BATCH));
    wire.offer(&[0; 14], &at(115_200), Time(0));
    assert!(!wire.due().unwrap().ends_run);
    assert_eq!(counts(&mut wire, 10_000_000), [(954_862, 11), (1_215_278, 3)]);
    // Slow characters come one by one, each in its own time.
    wire.offer(&[0; 3], &at(9600), Time(20_000_000));
    assert_eq!(counts(&mut wire, 30_000_000), [(21_041_667, 1), (22_083_334, 1), (23_125_000, 1)]);
}

#[test]
fn new_settings_hold_for_what_is_offered_after_them() {
    let mut wire = wire(EACH);
    wire.offer(b"ab", &at(1_000_000), Time(0));
    let slow = Settings { stop: StopBits::Two, parity: Parity::Odd, ..at(100_000) };
    wire.offer(b"c", &slow, Time(0));
    assert_eq!(counts(&mut wire, 1_000_000), [(10_000, 1), (20_000, 1), (140_000, 1)]);
}

#[test]
fn a_fifo_fills_or_times_out() {
    let mut wire = wire(HandOver::Fifo { trigger: 8, idle_characters: 4 });
    let fast = at(1_000_000);
    wire.offer(&[0; 19], &fast, Time(0));
    assert_eq!(counts(&mut wire, 1_000_000), [(80_000, 8), (160_000, 8), (230_000, 3)]);
    // A gap shorter than the time-out: still the same FIFO. Then a longer one.
    wire.offer(&[0; 3], &fast, Time(1_000_000));
    wire.offer(&[0; 2], &fast, Time(1_055_000));
    assert_eq!(wire.due(), Some(Due { at: Time(1_115_000), ends_run: true }));
    wire.offer(&[0; 4], &fast, Time(1_110_000));
    assert_eq!(counts(&mut wire, 2_000_000), [(1_115_000, 5), (1_190_000, 4)]);
}

#[test]
fn a_usb_adapter_waits_for_its_timer_or_a_full_packet() {
    let mut wire = wire(HandOver::Timer(Duration::from_millis(16)));
    let fast = at(1_000_000);
    wire.offer(b"a", &fast, Time(1_000_000));
    assert_eq!(counts(&mut wire, 16_000_000), [(16_000_000, 1)]);
    // The timer went on alone meanwhile.
    wire.offer(b"b", &fast, Time(50_000_000));
    assert_eq!(counts(&mut wire, 64_000_000), [(64_000_000, 1)]);
    // A full packet goes at once, and starts the timer again.
    wire.offer(&[0; 65], &fast, Time(70_000_000));
    assert_eq!(counts(&mut wire, 90_000_000), [(70_620_000, 62), (86_620_000, 3)]);
}

#[test]
fn a_held_line_finishes_its_character_and_goes_on_where_it_stood() {
    let mut wire = wire(EACH);
    let fast = at(1_000_000);
    wire.offer(&[1, 2, 3, 4], &fast, Time(0));
    wire.hold(true, Time(15_000));
    wire.offer(&[5], &fast, Time(16_000));
    assert_eq!(taken(&mut wire, 900_000), [(10_000, vec![1]), (20_000, vec![2])]);
    assert_eq!(wire.due(), None);
    wire.hold(false, Time(1_000_000));
    let rest = taken(&mut wire, 2_000_000);
    assert_eq!(rest, [(1_010_000, vec![3]), (1_020_000, vec![4]), (1_030_000, vec![5])]);
}

#[test]
fn a_stop_between_two_characters_sends_no_other() {
    let mut wire = wire(EACH);
    wire.offer(&[1, 2], &at(1_000_000), Time(0));
    wire.hold(true, Time(10_000));
    assert_eq!(counts(&mut wire, 900_000), [(10_000, 1)]);
    // Let go at once: nothing was lost of the time.
    wire.hold(false, Time(900_000));
    assert_eq!(counts(&mut wire, 1_000_000), [(910_000, 1)]);
}

#[test]
fn xoff_passes_what_waits_and_a_line_that_is_held() {
    let mut wire = wire(EACH);
    let fast = at(1_000_000);
    wire.offer(&[1, 2, 3], &fast, Time(0));
    wire.offer_first(0x13, &fast, Time(5_000));
    wire.offer_first(0x11, &fast, Time(6_000));
    let sent: Vec<u8> = taken(&mut wire, 50_000).into_iter().flat_map(|(_, sent)| sent).collect();
    assert_eq!(sent, [1, 0x13, 0x11, 2, 3]);
    wire.offer(&[4, 5], &fast, Time(50_000));
    wire.hold(true, Time(55_000));
    wire.offer_first(0x11, &fast, Time(56_000));
    assert_eq!(taken(&mut wire, 900_000), [(60_000, vec![4]), (70_000, vec![0x11])]);
    wire.hold(false, Time(900_000));
    assert_eq!(taken(&mut wire, 950_000), [(910_000, vec![5])]);
}

#[test]
fn a_flush_leaves_the_character_on_the_line() {
    let mut wire = wire(EACH);
    let fast = at(1_000_000);
    wire.offer(&[1, 2, 3, 4], &fast, Time(0));
    assert_eq!(wire.flush(Time(12_000)), 2);
    wire.offer(&[5], &fast, Time(15_000));
    let sent = taken(&mut wire, 900_000);
    assert_eq!(sent, [(10_000, vec![1]), (20_000, vec![2]), (30_000, vec![5])]);
}

#[test]
fn the_queue_is_bounded() {
    let mut wire = wire(EACH);
    assert_eq!(wire.room(&at(9600)), 4096);
    wire.offer(&[0; 4096], &at(9600), Time(0));
    assert_eq!(wire.room(&at(9600)), 0);
    // Fast lines have room for so much time.
    assert_eq!(wire.room(&at(4_000_000)), 16_000 - 4096);
}

#[test]
fn without_pacing_everything_is_due_at_once() {
    let mut wire = Wire::new(false, HandOver::Batch(BATCH), Time(0));
    wire.offer(&[1, 2, 3], &at(75), Time(7));
    assert_eq!(taken(&mut wire, 7), [(7, vec![1, 2, 3])]);
    wire.hold(true, Time(8));
    wire.offer(&[4], &at(75), Time(9));
    assert_eq!(taken(&mut wire, 20), []);
    wire.hold(false, Time(30));
    assert_eq!(taken(&mut wire, 30), [(30, vec![4])]);
}
