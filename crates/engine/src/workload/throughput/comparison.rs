//! Compares a looped stream with the sent stream and classifies the defects: bytes changed, lost or inserted, blocks
//! reordered. Has no clock and no link.
//!
//! Equal data costs one memory comparison. After a defect, the comparison searches for the position in the stream:
//! eight bytes that occur only there. Work per byte and memory are bounded for any input: bytes without a position
//! count as changed, each in place of a sent byte.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::workload::pattern::{self, Alphabet, PatternStream};
use linkgauge_model::run::{Defect, DefectKind};

/// State that sender and receiver of the same bytes (direction `loop`) share.
#[derive(Debug, Default)]
pub struct LoopbackState {
    /// Time at which the first byte was sent; 0 before.
    pub(super) first_sent_ns: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) is_all_sent: AtomicBool,
    /// Whether the receiver has stopped.
    pub(super) is_finished: AtomicBool,
}

/// Number of bytes that identify a position: fewer would occur twice, and a longer match is rarer after defects.
const ANCHOR_BYTES: usize = 8;

/// Maximum bytes buffered while their position is unknown. Limits the length of an insertion and the delay of a late
/// block. A loss may be as long as the period of the noise less this.
const MAX_HELD_BYTES: usize = 16_384;

/// Maximum missing ranges that may still arrive.
const MAX_GAPS: usize = 64;

/// Maximum defects listed with their positions.
pub const MAX_DEFECTS: usize = 16;

/// A missing range and the index of its defect.
#[derive(Debug, Clone, Copy)]
struct Gap {
    begin: u64,
    end: u64,
    defect: Option<usize>,
}

/// Compares the returned bytes and counts the defects.
#[derive(Debug)]
pub struct StreamComparison {
    stream: PatternStream,
    /// Expected position of the next byte.
    next_position: u64,
    /// End of the part of the stream that is complete, except for the gaps.
    reached: u64,
    gaps: VecDeque<Gap>,
    /// Bytes since a defect, with unknown position.
    unplaced: VecDeque<u8>,
    /// The last eight of the unplaced bytes.
    last_anchor: u64,
    index: Option<AnchorIndex>,
    /// Bytes with another value than expected.
    pub changed: u64,
    /// Missing bytes.
    pub lost: u64,
    /// Additional bytes.
    pub inserted: u64,
    /// Blocks that arrived after later ones.
    pub reordered: u64,
    /// The first defects, at most [`MAX_DEFECTS`].
    pub defects: Vec<Defect>,
}

impl StreamComparison {
    /// Compares chunks of at most `longest` bytes.
    pub fn new(longest: usize, alphabet: &Alphabet) -> StreamComparison {
        StreamComparison {
            stream: PatternStream::new(longest.max(MAX_HELD_BYTES), alphabet),
            next_position: 0,
            reached: 0,
            gaps: VecDeque::with_capacity(MAX_GAPS),
            unplaced: VecDeque::new(),
            last_anchor: 0,
            index: None,
            changed: 0,
            lost: 0,
            inserted: 0,
            reordered: 0,
            defects: Vec::with_capacity(MAX_DEFECTS),
        }
    }

    /// Position up to which all sent bytes have arrived or are counted, if the buffered bytes belong there.
    pub fn position(&self) -> u64 {
        self.reached.max(self.next_position + self.unplaced.len() as u64)
    }

    /// Whether the position of every received byte is known.
    pub fn is_in_sync(&self) -> bool {
        self.unplaced.is_empty()
    }

    /// Processes the next received bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        // Fast path: no defect.
        if self.next_position == self.reached
            && self.unplaced.is_empty()
            && bytes == self.stream.slice_at(self.next_position, bytes.len())
        {
            self.next_position += bytes.len() as u64;
            self.reached = self.next_position;
            return;
        }
        self.compare_bytewise(bytes);
    }

    #[cold]
    fn compare_bytewise(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.unplaced.is_empty() {
                true => self.match_expected(bytes),
                false => self.search_position(bytes),
            };
        }
    }

    /// Accepts the bytes that match, and then one that does not.
    fn match_expected<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (_, limit) = self.current_region();
        let length = (limit - self.next_position).min(bytes.len() as u64) as usize;
        let expected = self.stream.slice_at(self.next_position, length);
        let agree =
            bytes[..length].iter().zip(expected).take_while(|(received, sent)| received == sent).count();
        self.accept(agree as u64);
        if agree == length {
            return &bytes[length..];
        }
        self.last_anchor = u64::from(bytes[agree]) << 56;
        self.unplaced.push_back(bytes[agree]);
        &bytes[agree + 1..]
    }

    /// The gap at the expected position, if any, and the end of the gap or of the received range.
    fn current_region(&self) -> (Option<usize>, u64) {
        if self.next_position >= self.reached {
            return (None, u64::MAX);
        }
        if let Some(gap) = self.gaps.iter().position(|gap| (gap.begin..gap.end).contains(&self.next_position))
        {
            return (Some(gap), self.gaps[gap].end);
        }
        let ahead = self.gaps.iter().map(|gap| gap.begin).filter(|&begin| begin > self.next_position);
        (None, ahead.min().unwrap_or(self.reached))
    }

    /// Accepts this many bytes from the expected position on: they have arrived.
    fn accept(&mut self, bytes: u64) {
        let end = self.next_position + bytes;
        while self.next_position < end {
            let (gap, limit) = self.current_region();
            let to = end.min(limit);
            match gap {
                Some(gap) => self.fill_gap(gap, to),
                None if self.next_position >= self.reached => self.reached = to,
                None => self.inserted += to - self.next_position,
            }
            self.next_position = to;
            // A late block is followed by new data.
            if gap.is_some() && to == limit && to == end {
                self.next_position = self.reached;
                return;
            }
        }
    }

    /// Fills a gap from the expected position on.
    fn fill_gap(&mut self, index: usize, to: u64) {
        let gap = self.gaps[index];
        self.lost -= to - self.next_position;
        if gap.begin < self.next_position && self.gaps.len() < MAX_GAPS {
            self.gaps.push_back(Gap { end: self.next_position, ..gap });
        }
        let whole = gap.begin == self.next_position && to == gap.end;
        if let Some(defect) = gap.defect.filter(|_| whole) {
            // Not lost, but late.
            self.defects[defect].kind = DefectKind::Reordered;
        }
        if to == gap.end {
            self.gaps.remove(index);
        } else {
            self.gaps[index].begin = to;
        }
    }

    /// Buffers bytes until their position is known.
    fn search_position<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (taken, &byte) in bytes.iter().enumerate() {
            if self.unplaced.len() == MAX_HELD_BYTES {
                self.give_up_half();
            }
            self.unplaced.push_back(byte);
            self.last_anchor = self.last_anchor >> 8 | u64::from(byte) << 56;
            if self.unplaced.len() >= ANCHOR_BYTES
                && let Some(place) = self.find_position()
            {
                self.resume_at(place);
                return &bytes[taken + 1..];
            }
        }
        &[]
    }

    /// The position of the last eight bytes in the stream.
    fn find_position(&mut self) -> Option<u64> {
        let before = (self.unplaced.len() - ANCHOR_BYTES) as u64;
        let straight = self.next_position + before;
        if self.last_anchor == read_anchor(self.stream.slice_at(straight, ANCHOR_BYTES)) {
            return Some(straight);
        }
        let index = self.index.get_or_insert_with(|| AnchorIndex::new(&self.stream));
        let found = index.find(self.last_anchor, &self.stream)?;
        // The noise is periodic: choose a position slightly behind, or else ahead.
        let period = pattern::NOISE_PERIOD_BYTES as u64;
        let from = (self.next_position.max(self.reached) + before).saturating_sub(MAX_HELD_BYTES as u64);
        Some(from + (found + period - from % period) % period)
    }

    /// Resynchronises: the last eight buffered bytes belong at `place`. Classifies the bytes before them and continues
    /// after them.
    fn resume_at(&mut self, place: u64) {
        let mut held = std::mem::take(&mut self.unplaced);
        let bytes: &[u8] = held.make_contiguous();
        // Earlier bytes may match this position too.
        let mut unknown = bytes.len() - ANCHOR_BYTES;
        let mut from = place;
        while unknown > 0 && from > 0 && bytes[unknown - 1] == self.stream.slice_at(from - 1, 1)[0] {
            (unknown, from) = (unknown - 1, from - 1);
        }
        let known = (bytes.len() - unknown) as u64;
        let unknown = &bytes[..unknown];
        if from == self.next_position + unknown.len() as u64 {
            self.record_changes(unknown);
        } else if from >= self.reached {
            self.skip_to(unknown, from);
        } else {
            self.record_insertion(self.next_position, unknown.len() as u64);
            self.step_back(from);
        }
        self.next_position = from;
        self.accept(known);
        held.clear();
        self.unplaced = held;
    }

    /// Continues at `from`, ahead of the expected position; `unknown` arrived instead of the skipped part. Chooses the
    /// explanation with the fewest defects: one loss or one insertion between changed bytes, or several losses.
    fn skip_to(&mut self, unknown: &[u8], from: u64) {
        self.next_position = self.reached;
        let missing = from - self.next_position;
        let (before, behind, changed) = self.split_unknown(unknown, from);
        // Bounds the work in proportion to the input.
        let few = missing <= 4 * unknown.len() as u64 + 64;
        if changed > 0 && few && self.is_subsequence(unknown, from) {
            for byte in unknown {
                let at = (self.next_position..from).find(|at| self.stream.slice_at(*at, 1)[0] == *byte);
                self.record_loss(at.unwrap_or(from));
                self.accept(1);
            }
        } else {
            self.record_changes(&unknown[..before]);
            self.record_insertion(self.next_position, (unknown.len() - before - behind) as u64);
            self.record_loss(from - behind as u64);
            self.record_changes(&unknown[unknown.len() - behind..]);
        }
        self.record_loss(from);
    }

    /// Splits these bytes into a prefix and a suffix that replace the sent bytes up to `from`, with the fewest changes.
    /// Returns the lengths of both and the number of changes.
    fn split_unknown(&self, unknown: &[u8], from: u64) -> (usize, usize, usize) {
        let all = unknown.len().min((from - self.next_position) as usize);
        let end = unknown.len() - all;
        let (first, last) = (self.next_position, from - all as u64);
        let differs = |at: u64, byte: u8| usize::from(self.stream.slice_at(at, 1)[0] != byte);
        let mut changed: usize =
            (0..all).map(|index| differs(last + index as u64, unknown[end + index])).sum();
        let mut best = (0, all, changed);
        for index in 0..all {
            changed += differs(first + index as u64, unknown[index]);
            changed -= differs(last + index as u64, unknown[end + index]);
            if changed < best.2 {
                best = (index + 1, all - index - 1, changed);
            }
        }
        best
    }

    /// Whether these bytes are a subsequence of the sent bytes up to `from`.
    fn is_subsequence(&self, unknown: &[u8], from: u64) -> bool {
        let mut sent = (self.next_position..from).map(|at| self.stream.slice_at(at, 1)[0]);
        unknown.iter().all(|byte| sent.any(|other| other == *byte))
    }

    /// Records a loss: everything from the expected position up to `to` is missing.
    pub fn record_loss(&mut self, to: u64) {
        let (begin, end) = (self.next_position, to);
        if begin < end {
            self.lost += end - begin;
            let defect = self.record_defect(begin, end - begin, DefectKind::Lost);
            if self.gaps.len() == MAX_GAPS {
                self.gaps.pop_front();
            }
            self.gaps.push_back(Gap { begin, end, defect });
            (self.next_position, self.reached) = (end, end);
        }
    }

    /// Continues at an earlier position: missing bytes arrive late, or bytes are repeated.
    fn step_back(&mut self, from: u64) {
        if self.gaps.iter().any(|gap| (gap.begin..gap.end).contains(&from)) {
            self.reordered += 1;
        } else {
            self.record_defect(from, self.reached - from, DefectKind::Inserted);
        }
    }

    /// Records these bytes as a replacement of as many sent bytes.
    fn record_changes(&mut self, bytes: &[u8]) {
        let (begin, mut run) = (self.next_position, 0);
        for (at, byte) in (begin..).zip(bytes) {
            if *byte == self.stream.slice_at(at, 1)[0] {
                self.record_changed_run(at - run, run);
                run = 0;
            } else {
                run += 1;
            }
        }
        self.record_changed_run(begin + bytes.len() as u64 - run, run);
        self.accept(bytes.len() as u64);
    }

    fn record_changed_run(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.changed += bytes;
            self.record_defect(at, bytes, DefectKind::Changed);
        }
    }

    fn record_insertion(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.inserted += bytes;
            self.record_defect(at, bytes, DefectKind::Inserted);
        }
    }

    /// Lists a defect if there is room, or extends the last one. Returns its index.
    fn record_defect(&mut self, offset: u64, bytes: u64, kind: DefectKind) -> Option<usize> {
        if let Some(last) = self.defects.last_mut()
            && last.kind == kind
            && last.offset + last.bytes == offset
        {
            last.bytes += bytes;
        } else if self.defects.len() < MAX_DEFECTS {
            self.defects.push(Defect { offset, bytes, kind });
        } else {
            return None;
        }
        Some(self.defects.len() - 1)
    }

    /// Counts the first half of the buffered bytes as changed.
    fn give_up_half(&mut self) {
        let mut held = std::mem::take(&mut self.unplaced);
        self.record_changes(&held.make_contiguous()[..MAX_HELD_BYTES / 2]);
        held.drain(..MAX_HELD_BYTES / 2);
        self.unplaced = held;
    }

    /// Ends the comparison; `sent` is the total number of sent bytes.
    pub fn finish(&mut self, sent: u64) {
        let held: Vec<u8> = self.unplaced.drain(..).collect();
        self.skip_to(&held, sent.max(self.reached));
    }
}

/// Eight bytes as one number, the first one lowest.
fn read_anchor(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |anchor, byte| anchor << 8 | u64::from(*byte))
}

/// Finds eight bytes in a period of the noise: a hash table of positions.
struct AnchorIndex {
    positions: Vec<u16>,
}

/// Number of slots: at most a quarter of them is used, to keep collisions rare.
const INDEX_SLOTS: usize = 1 << 18;
/// Value of a free slot. No position has this value: the period is shorter.
const FREE_SLOT: u16 = u16::MAX;

impl std::fmt::Debug for AnchorIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}

impl AnchorIndex {
    pub fn new(stream: &PatternStream) -> AnchorIndex {
        let mut places = vec![FREE_SLOT; INDEX_SLOTS];
        for place in 0..pattern::NOISE_PERIOD_BYTES as u16 {
            let mut slot = AnchorIndex::slot(read_anchor(stream.slice_at(place.into(), ANCHOR_BYTES)));
            while places[slot] != FREE_SLOT {
                slot = (slot + 1) % INDEX_SLOTS;
            }
            places[slot] = place;
        }
        AnchorIndex { positions: places }
    }

    fn slot(anchor: u64) -> usize {
        (anchor.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46) as usize
    }

    fn find(&self, wanted: u64, stream: &PatternStream) -> Option<u64> {
        let mut slot = AnchorIndex::slot(wanted);
        while self.positions[slot] != FREE_SLOT {
            let place = u64::from(self.positions[slot]);
            if read_anchor(stream.slice_at(place, ANCHOR_BYTES)) == wanted {
                return Some(place);
            }
            slot = (slot + 1) % INDEX_SLOTS;
        }
        None
    }
}

#[cfg(test)]
mod tests;
