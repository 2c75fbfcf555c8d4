//! Serial lines: the bytes that return through a plug, and the terminals and wires of the lab's serial ports.

use std::time::Duration;

use linkgauge::clock::Time;
use linkgauge::lab::uart::{CharacterTiming, DeliveryMode, Wire};
use linkgauge::link::Caps;
use linkgauge::link::serial_line::SerialSettings;
use linkgauge::system::PtyPacket;
use linkgauge::workload::pattern::{Alphabet, PatternStream};
use linkgauge::workload::throughput::comparison::{MAX_DEFECTS, StreamComparison};

use super::draw::Draw;

/// A returned stream with parts lost, duplicated, changed, inserted or moved: the counts add up to the received and
/// the sent bytes, and the division into chunks does not matter.
pub fn echo_comparison(data: &[u8]) {
    let mut draw = Draw(data);
    let alphabet = Alphabet::from_caps(&Caps::STREAM);
    let stream = PatternStream::new(1 << 16, &alphabet);
    // Where the next bytes come from; where the furthest ones have come from.
    let (mut place, mut sent, mut came) = (0u64, 0u64, Vec::new());
    let chunk = usize::from(draw.byte()).max(1);
    while !draw.is_empty() && came.len() < 1 << 16 {
        match draw.byte() % 6 {
            0 => came.extend(draw.short()),
            1 => place += u64::from(draw.byte()),
            2 => place = place.saturating_sub(u64::from(draw.byte())),
            3 => place += u64::from(draw.byte()) << 8,
            kind => {
                let count = usize::from(draw.byte()) << if kind == 4 { 0 } else { 4 };
                came.extend(stream.slice_at(place, count));
                place += count as u64;
            }
        }
        sent = sent.max(place);
    }
    let whole = compared(&[&came], sent, &alphabet);
    let cut: Vec<&[u8]> = came.chunks(chunk).collect();
    assert_eq!(compared(&cut, sent, &alphabet), whole);
    let [changed, lost, inserted, _] = whole;
    assert!(changed + inserted <= came.len() as u64, "{whole:?} of {}", came.len());
    assert!(lost <= sent.max(came.len() as u64), "{whole:?} of {sent}");
}

fn compared(chunks: &[&[u8]], sent: u64, alphabet: &Alphabet) -> [u64; 4] {
    let mut comparison =
        StreamComparison::new(chunks.iter().map(|chunk| chunk.len()).max().unwrap_or(0), alphabet);
    chunks.iter().for_each(|chunk| comparison.push(chunk));
    comparison.finish(sent);
    assert!(comparison.is_in_sync() && comparison.defects.len() <= MAX_DEFECTS);
    [comparison.changed, comparison.lost, comparison.inserted, comparison.reordered]
}

/// The input of the master of a terminal in packet mode, put on a wire whose settings and state change meanwhile: data
/// that was offered and not flushed is delivered in order, and never early.
pub fn uart(data: &[u8]) {
    let mut draw = Draw(data);
    let period = Duration::from_micros(u64::from(draw.byte()) * 50);
    let hand_over = match draw.byte() % 3 {
        0 => DeliveryMode::Batch(period),
        1 => DeliveryMode::Fifo {
            trigger: u32::from(draw.byte()).max(1),
            idle_characters: u32::from(draw.byte()),
        },
        _ => DeliveryMode::Timer(period),
    };
    let mut now = Time(1);
    let timing = if draw.byte() < 200 { CharacterTiming::LineRate } else { CharacterTiming::Immediate };
    let mut wire = Wire::new(timing, hand_over, now);
    let mut settings = SerialSettings::default();
    let (mut offered, mut taken, mut flushed) = (0u64, 0u64, 0u64);
    while !draw.is_empty() {
        match draw.byte() % 6 {
            0 | 1 => match PtyPacket::parse(draw.short()) {
                PtyPacket::Data(characters) => {
                    let room = wire.free_characters(&settings).min(characters.len());
                    wire.offer(&characters[..room], &settings, now);
                    offered += room as u64;
                }
                PtyPacket::Notice { is_write_flushed: true, .. } => flushed += wire.flush(now),
                PtyPacket::Notice { .. } | PtyPacket::Nothing => {}
            },
            2 => {
                wire.offer_priority(draw.byte(), &settings, now);
                offered += 1;
            }
            3 => wire.set_held(draw.byte() & 1 != 0, now),
            4 => settings.baud = draw.one_of(&[9600, 1, 300, 115_200, 4_000_000]),
            _ => now = now + Duration::from_micros(1 << (draw.byte() % 24)),
        }
        while let Some(due) = wire.deliver(now, |_, characters| taken += characters.len() as u64) {
            assert!(due <= now, "it comes before its time");
        }
        assert!(taken + flushed <= offered);
    }
    wire.set_held(false, now);
    // The slowest line has carried all that it had room for by then.
    for _ in 0..3 {
        now = now + Duration::from_secs(1_000_000);
        while wire.deliver(now, |_, characters| taken += characters.len() as u64).is_some() {}
    }
    assert_eq!(taken + flushed, offered, "characters vanish");
}
