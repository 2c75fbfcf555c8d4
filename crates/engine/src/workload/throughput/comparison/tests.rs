//! Defects of a line in a stream, and how they are counted.

use proptest::prelude::*;

use super::*;
use crate::link::{Caps, LinkRate};

const MAX_CHUNK_BYTES: usize = 4096;

/// Every kind of alphabet, the smallest one first.
fn alphabets() -> [Alphabet; 3] {
    let line = |data_bits, in_band| {
        Some(LinkRate { data_bits, has_in_band_flow_control: in_band, ..LinkRate::without_overhead(9600.0) })
    };
    [line(5, true), line(8, true), None]
        .map(|line| Alphabet::from_caps(&Caps { link_rate: line, ..Caps::STREAM }))
}

fn sent(alphabet: &Alphabet, length: usize) -> Vec<u8> {
    let stream = PatternStream::new(MAX_CHUNK_BYTES, alphabet);
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        bytes.extend(stream.slice_at(bytes.len() as u64, MAX_CHUNK_BYTES.min(length - bytes.len())));
    }
    bytes
}

fn compared(alphabet: &Alphabet, came: &[u8], sent: usize, chunk_bytes: usize) -> StreamComparison {
    let mut comparison = StreamComparison::new(MAX_CHUNK_BYTES, alphabet);
    came.chunks(chunk_bytes).for_each(|chunk| comparison.push(chunk));
    comparison.finish(sent as u64);
    let all = comparison.reached - comparison.lost + comparison.inserted;
    assert_eq!(all, came.len() as u64, "every byte that came is accounted for");
    comparison
}

/// Returns the numbers of changed, lost, inserted and reordered bytes or blocks.
fn counts(comparison: &StreamComparison) -> (u64, u64, u64, u64) {
    (comparison.changed, comparison.lost, comparison.inserted, comparison.reordered)
}

/// Applies a defect to a stream and checks the counts, in all alphabets and for several chunk lengths.
fn check_all_alphabets(
    length: usize,
    spoil: impl Fn(&mut Vec<u8>),
    expected: (u64, u64, u64, u64),
    defects: &[(u64, u64, DefectKind)],
) {
    for alphabet in alphabets() {
        let mut came = sent(&alphabet, length);
        spoil(&mut came);
        for chunk_bytes in [1, 7, 1000, MAX_CHUNK_BYTES] {
            let comparison = compared(&alphabet, &came, length, chunk_bytes);
            assert_eq!(counts(&comparison), expected, "chunks of {chunk_bytes}");
            let found: Vec<_> = comparison.defects.iter().map(|d| (d.offset, d.bytes, d.kind)).collect();
            assert_eq!(found, defects, "chunks of {chunk_bytes}");
        }
    }
}

use DefectKind::*;

#[test]
fn an_unchanged_stream_has_no_defects() {
    check_all_alphabets(200_000, |_| {}, (0, 0, 0, 0), &[]);
    check_all_alphabets(3, |_| {}, (0, 0, 0, 0), &[]);
}

#[test]
fn changed_bytes_are_located() {
    let change = |came: &mut Vec<u8>| [5, 6, 5000, 9999].into_iter().for_each(|at| came[at] ^= 4);
    check_all_alphabets(
        10_000,
        change,
        (4, 0, 0, 0),
        &[(5, 2, Changed), (5000, 1, Changed), (9999, 1, Changed)],
    );
    // Never eight correct bytes in a row.
    let often = |came: &mut Vec<u8>| came.iter_mut().step_by(5).for_each(|byte| *byte ^= 2);
    let places: Vec<_> = (0..16).map(|number| (5 * number, 1, Changed)).collect();
    check_all_alphabets(50_000, often, (10_000, 0, 0, 0), &places);
}

#[test]
fn lost_bytes_do_not_shift_the_rest() {
    for (at, bytes) in [(0, 1), (0, 300), (700, 1), (700, 8), (700, 40_000), (65_000, 2000), (69_000, 999)] {
        // The byte after a lost one may be equal to it.
        let alphabet = &alphabets()[2];
        let mut came = sent(alphabet, 70_000);
        came.drain(at..at + bytes);
        let comparison = compared(alphabet, &came, 70_000, 512);
        assert_eq!(counts(&comparison), (0, bytes as u64, 0, 0), "{at} {bytes}");
        let first = comparison.defects[0];
        assert_eq!((first.bytes, first.kind), (bytes as u64, Lost));
        assert!(first.offset.abs_diff(at as u64) <= 3, "{at} {first:?}");
    }
    check_all_alphabets(5000, |came| came.truncate(4321), (0, 679, 0, 0), &[(4321, 679, Lost)]);
    check_all_alphabets(5000, |came| came.clear(), (0, 5000, 0, 0), &[(0, 5000, Lost)]);
}

#[test]
fn a_byte_lost_just_before_the_end_is_one_byte() {
    for before in 1..12 {
        let alphabet = &alphabets()[2];
        let mut came = sent(alphabet, 1000);
        came.remove(1000 - before);
        assert_eq!(counts(&compared(alphabet, &came, 1000, 64)), (0, 1, 0, 0), "{before}");
        let mut came = sent(alphabet, 1000);
        came.insert(1000 - before, came[1000 - before] ^ 0x55);
        assert_eq!(counts(&compared(alphabet, &came, 1000, 64)), (0, 0, 1, 0), "{before}");
    }
}

#[test]
fn losses_close_to_each_other_change_nothing_between_them() {
    for between in 0..12 {
        let alphabet = &alphabets()[2];
        let mut came = sent(alphabet, 3000);
        came.drain(1000 + between..1003 + between);
        came.drain(990..1000);
        assert_eq!(counts(&compared(alphabet, &came, 3000, 50)), (0, 13, 0, 0), "{between}");
    }
    // A changed byte stays one changed byte.
    for between in 0..12 {
        let alphabet = &alphabets()[2];
        let mut came = sent(alphabet, 3000);
        came[1003 + between] ^= 4;
        came.drain(990..1000);
        assert_eq!(counts(&compared(alphabet, &came, 3000, 50)), (1, 10, 0, 0), "{between}");
        let mut came = sent(alphabet, 3000);
        drop(came.splice(1003 + between..1003 + between, [3; 20]));
        came[999] ^= 4;
        assert_eq!(counts(&compared(alphabet, &came, 3000, 50)), (1, 0, 20, 0), "{between}");
    }
    // Every second byte is missing for a while.
    let alphabet = &alphabets()[2];
    let came: Vec<u8> = sent(alphabet, 3000)
        .into_iter()
        .enumerate()
        .filter_map(|(at, byte)| (!(1000..1400).contains(&at) || at % 2 == 0).then_some(byte))
        .collect();
    assert_eq!(counts(&compared(alphabet, &came, 3000, 50)), (0, 200, 0, 0));
}

#[test]
fn unsent_bytes_count_as_inserted() {
    let noise = |came: &mut Vec<u8>| drop(came.splice(600..600, [3; 100]));
    check_all_alphabets(20_000, noise, (0, 0, 100, 0), &[(600, 100, Inserted)]);
    let before = |came: &mut Vec<u8>| drop(came.splice(0..0, [3; 20]));
    check_all_alphabets(20_000, before, (0, 0, 20, 0), &[(0, 20, Inserted)]);
    let behind = |came: &mut Vec<u8>| came.extend([3; 20]);
    check_all_alphabets(20_000, behind, (0, 0, 20, 0), &[(20_000, 20, Inserted)]);
}

#[test]
fn duplicated_bytes_count_as_inserted() {
    let twice = |came: &mut Vec<u8>| {
        let block = came[1000..1500].to_vec();
        drop(came.splice(1500..1500, block));
    };
    check_all_alphabets(20_000, twice, (0, 0, 500, 0), &[(1000, 500, Inserted)]);
    // Much later, and with other defects after it.
    let later = |came: &mut Vec<u8>| {
        let block = came[1000..1500].to_vec();
        drop(came.splice(9000..9000, block));
    };
    for alphabet in alphabets() {
        let mut came = sent(&alphabet, 20_000);
        later(&mut came);
        assert_eq!(counts(&compared(&alphabet, &came, 20_000, 100)), (0, 0, 500, 0));
    }
}

#[test]
fn a_block_that_comes_later_is_not_lost() {
    let swap = |came: &mut Vec<u8>| came[2000..3500].rotate_left(500);
    check_all_alphabets(20_000, swap, (0, 0, 0, 1), &[(2000, 500, Reordered)]);
    // With other bytes in between, and only part of the missing range.
    for alphabet in alphabets() {
        let mut came = sent(&alphabet, 20_000);
        let block = came.drain(2000..2600).skip(100).take(400).collect::<Vec<u8>>();
        drop(came.splice(7000..7000, block));
        let comparison = compared(&alphabet, &came, 20_000, 100);
        assert_eq!(counts(&comparison), (0, 200, 0, 1));
    }
}

#[test]
fn several_kinds_of_defects_are_distinguished() {
    let spoil = |came: &mut Vec<u8>| {
        came[9000] ^= 1;
        drop(came.drain(6000..6010));
        drop(came.splice(3000..3000, [1, 2, 3]));
        came[1000] ^= 1;
    };
    for alphabet in alphabets() {
        let mut came = sent(&alphabet, 12_000);
        spoil(&mut came);
        let comparison = compared(&alphabet, &came, 12_000, 333);
        assert_eq!(counts(&comparison), (2, 10, 3, 0));
        let kinds: Vec<_> = comparison.defects.iter().map(|defect| defect.kind).collect();
        assert_eq!(kinds, [Changed, Inserted, Lost, Changed]);
    }
}

#[test]
fn garbage_counts_as_changed_in_bounded_memory() {
    let alphabet = &alphabets()[2];
    let mut random = fastrand::Rng::with_seed(7);
    let mut comparison = StreamComparison::new(MAX_CHUNK_BYTES, alphabet);
    for _ in 0..200 {
        let chunk: Vec<u8> = (0..MAX_CHUNK_BYTES).map(|_| random.u8(..)).collect();
        comparison.push(&chunk);
        assert!(
            comparison.unplaced.len() <= MAX_HELD_BYTES
                && comparison.unplaced.capacity() <= 2 * MAX_HELD_BYTES
        );
    }
    let came = 200 * MAX_CHUNK_BYTES as u64;
    assert!(comparison.position() == came);
    comparison.finish(came);
    let (changed, lost, inserted, reordered) = counts(&comparison);
    assert_eq!((lost, inserted, reordered), (0, 0, 0));
    assert!(changed > came / 256 * 254, "one of 256 is right by chance");
    assert_eq!(comparison.defects.len(), MAX_DEFECTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Chunks of the stream in any order with random bytes between them: every byte is counted, memory stays bounded.
    #[test]
    fn nothing_that_comes_back_upsets_it(
        parts in proptest::collection::vec((0usize..90_000, 0usize..3000, any::<bool>()), 0..20),
        chunk_bytes in 1usize..5000,
    ) {
        let alphabet = &alphabets()[0];
        let stream = sent(alphabet, 100_000);
        let mut came = Vec::new();
        for (at, length, rubbish) in parts {
            let part = &stream[at..at + length];
            came.extend(part.iter().map(|byte| if rubbish { byte ^ 1 } else { *byte }));
        }
        let comparison = compared(alphabet, &came, 100_000, chunk_bytes.min(MAX_CHUNK_BYTES));
        prop_assert!(comparison.gaps.len() <= MAX_GAPS && comparison.defects.len() <= MAX_DEFECTS);
        prop_assert!(comparison.reached >= 100_000);
    }
}
