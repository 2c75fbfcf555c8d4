//! Compares what comes back of a stream with what was sent, and tells what became of it: bytes changed, lost, inserted,
//! blocks in another order. Pure: it knows no clock and no link.
//!
//! What agrees costs one comparison of memory. After a defect it looks for the place in the stream that the bytes now
//! come from: eight that occur there and nowhere else. The work for a byte and the memory are bounded, whatever comes:
//! bytes that are found nowhere count as changed, each in the place of one that was sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::run::{Defect, DefectKind};
use crate::workload::pattern::{self, Alphabet, Stream};

/// What a sender and the receiver of the same bytes (direction `loop`) know of each other.
#[derive(Debug, Default)]
pub struct Looped {
    /// When the first byte was sent; 0 before.
    pub(super) first_ns: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) all_sent: AtomicBool,
    /// Nobody listens for more.
    pub(super) over: AtomicBool,
}

/// Bytes that tell a place of the stream: fewer would occur twice, more would be met less often.
const ANCHOR: usize = 8;

/// Bytes held back at most while it is unknown where they belong. So long may be what is inserted, and so far may a
/// block have fallen behind; what is missing may be as long as the period of the noise less this.
const HELD: usize = 16_384;

/// Ranges that are missing and may still come, at most.
const GAPS: usize = 64;

/// Defects kept with their places.
pub const DEFECTS: usize = 16;

/// A range that has not come, and the defect it was noted as.
#[derive(Debug, Clone, Copy)]
struct Gap {
    begin: u64,
    end: u64,
    defect: Option<usize>,
}

/// Told what comes back, counts what is wrong with it.
#[derive(Debug)]
pub struct Comparison {
    stream: Stream,
    /// The place that the next byte should come from.
    next: u64,
    /// Up to here the stream has come, but for the gaps.
    reached: u64,
    gaps: VecDeque<Gap>,
    /// Bytes since a defect, whose place is not known yet.
    held: VecDeque<u8>,
    /// The last eight of them.
    anchor: u64,
    index: Option<Index>,
    pub changed: u64,
    pub lost: u64,
    pub inserted: u64,
    /// Blocks that came after others that were sent later.
    pub reordered: u64,
    pub defects: Vec<Defect>,
}

impl Comparison {
    /// Compares pieces of at most `longest` bytes.
    pub fn new(longest: usize, alphabet: &Alphabet) -> Comparison {
        Comparison {
            stream: Stream::new(longest.max(HELD), alphabet),
            next: 0,
            reached: 0,
            gaps: VecDeque::with_capacity(GAPS),
            held: VecDeque::new(),
            anchor: 0,
            index: None,
            changed: 0,
            lost: 0,
            inserted: 0,
            reordered: 0,
            defects: Vec::with_capacity(DEFECTS),
        }
    }

    /// Up to here all that was sent has come or is accounted for, if what is held back belongs there.
    pub fn position(&self) -> u64 {
        self.reached.max(self.next + self.held.len() as u64)
    }

    /// Where each of the bytes that came belongs is known.
    pub fn is_settled(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes the next bytes that came.
    #[inline]
    pub fn take(&mut self, bytes: &[u8]) {
        // Nearly always all is as it should be.
        if self.next == self.reached
            && self.held.is_empty()
            && bytes == self.stream.at(self.next, bytes.len())
        {
            self.next += bytes.len() as u64;
            self.reached = self.next;
            return;
        }
        self.look_closer(bytes);
    }

    #[cold]
    fn look_closer(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.held.is_empty() {
                true => self.follow(bytes),
                false => self.search(bytes),
            };
        }
    }

    /// Takes what agrees with the stream at the next place, and then one byte that does not.
    fn follow<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (_, limit) = self.region();
        let length = (limit - self.next).min(bytes.len() as u64) as usize;
        let expected = self.stream.at(self.next, length);
        let agree = bytes[..length].iter().zip(expected).take_while(|(came, sent)| came == sent).count();
        self.arrive(agree as u64);
        if agree == length {
            return &bytes[length..];
        }
        self.anchor = u64::from(bytes[agree]) << 56;
        self.held.push_back(bytes[agree]);
        &bytes[agree + 1..]
    }

    /// The gap that the next place lies in, if it does; and where that ends, or what has come already.
    fn region(&self) -> (Option<usize>, u64) {
        if self.next >= self.reached {
            return (None, u64::MAX);
        }
        if let Some(gap) = self.gaps.iter().position(|gap| (gap.begin..gap.end).contains(&self.next)) {
            return (Some(gap), self.gaps[gap].end);
        }
        let ahead = self.gaps.iter().map(|gap| gap.begin).filter(|&begin| begin > self.next);
        (None, ahead.min().unwrap_or(self.reached))
    }

    /// So many bytes from the next place on have come.
    fn arrive(&mut self, bytes: u64) {
        let end = self.next + bytes;
        while self.next < end {
            let (gap, limit) = self.region();
            let to = end.min(limit);
            match gap {
                Some(gap) => self.fill(gap, to),
                None if self.next >= self.reached => self.reached = to,
                None => self.inserted += to - self.next,
            }
            self.next = to;
            // A block that was late is followed by what is new.
            if gap.is_some() && to == limit && to == end {
                self.next = self.reached;
                return;
            }
        }
    }

    /// A gap is filled from the next place on.
    fn fill(&mut self, index: usize, to: u64) {
        let gap = self.gaps[index];
        self.lost -= to - self.next;
        if gap.begin < self.next && self.gaps.len() < GAPS {
            self.gaps.push_back(Gap { end: self.next, ..gap });
        }
        let whole = gap.begin == self.next && to == gap.end;
        if let Some(defect) = gap.defect.filter(|_| whole) {
            // It was not lost, it came late.
            self.defects[defect].kind = DefectKind::Reordered;
        }
        if to == gap.end {
            self.gaps.remove(index);
        } else {
            self.gaps[index].begin = to;
        }
    }

    /// Holds bytes until they tell where they come from.
    fn search<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        for (taken, &byte) in bytes.iter().enumerate() {
            if self.held.len() == HELD {
                self.give_up();
            }
            self.held.push_back(byte);
            self.anchor = self.anchor >> 8 | u64::from(byte) << 56;
            if self.held.len() >= ANCHOR
                && let Some(place) = self.place()
            {
                self.resume(place);
                return &bytes[taken + 1..];
            }
        }
        &[]
    }

    /// Where in the stream the last eight bytes come from.
    fn place(&mut self) -> Option<u64> {
        let before = (self.held.len() - ANCHOR) as u64;
        let straight = self.next + before;
        if self.anchor == anchor(self.stream.at(straight, ANCHOR)) {
            return Some(straight);
        }
        let index = self.index.get_or_insert_with(|| Index::new(&self.stream));
        let found = index.find(self.anchor, &self.stream)?;
        // The noise comes round again and again: a bit behind, or else ahead.
        let period = pattern::PERIOD as u64;
        let from = (self.next.max(self.reached) + before).saturating_sub(HELD as u64);
        Some(from + (found + period - from % period) % period)
    }

    /// The last eight of the bytes held come from `place`: settles what came before them, and goes on behind them.
    fn resume(&mut self, place: u64) {
        let mut held = std::mem::take(&mut self.held);
        let bytes: &[u8] = held.make_contiguous();
        // The place may be right for more of them.
        let mut unknown = bytes.len() - ANCHOR;
        let mut from = place;
        while unknown > 0 && from > 0 && bytes[unknown - 1] == self.stream.at(from - 1, 1)[0] {
            (unknown, from) = (unknown - 1, from - 1);
        }
        let known = (bytes.len() - unknown) as u64;
        let unknown = &bytes[..unknown];
        if from == self.next + unknown.len() as u64 {
            self.change(unknown);
        } else if from >= self.reached {
            self.skip(unknown, from);
        } else {
            self.insert(self.next, unknown.len() as u64);
            self.step_back(from);
        }
        self.next = from;
        self.arrive(known);
        held.clear();
        self.held = held;
    }

    /// Goes on at `from`, ahead; `unknown` came instead of what was sent up to there. What explains it with fewest
    /// defects is taken: one hole, or one piece too many, with changed bytes around it, or several holes.
    fn skip(&mut self, unknown: &[u8], from: u64) {
        self.next = self.reached;
        let missing = from - self.next;
        let (before, behind, changed) = self.split(unknown, from);
        // So that the work stays in proportion to what came.
        let few = missing <= 4 * unknown.len() as u64 + 64;
        if changed > 0 && few && self.is_left(unknown, from) {
            for byte in unknown {
                let at = (self.next..from).find(|at| self.stream.at(*at, 1)[0] == *byte);
                self.lose(at.unwrap_or(from));
                self.arrive(1);
            }
        } else {
            self.change(&unknown[..before]);
            self.insert(self.next, (unknown.len() - before - behind) as u64);
            self.lose(from - behind as u64);
            self.change(&unknown[unknown.len() - behind..]);
        }
        self.lose(from);
    }

    /// How many of these bytes, at their beginning and at their end, stand for what was sent from the next place on and
    /// up to `from`, so that fewest are changed; and how many these are.
    fn split(&self, unknown: &[u8], from: u64) -> (usize, usize, usize) {
        let all = unknown.len().min((from - self.next) as usize);
        let end = unknown.len() - all;
        let (first, last) = (self.next, from - all as u64);
        let differs = |at: u64, byte: u8| usize::from(self.stream.at(at, 1)[0] != byte);
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

    /// Whether these bytes, in this order, remain of what was sent up to `from` when others are left out.
    fn is_left(&self, unknown: &[u8], from: u64) -> bool {
        let mut sent = (self.next..from).map(|at| self.stream.at(at, 1)[0]);
        unknown.iter().all(|byte| sent.any(|other| other == *byte))
    }

    /// All from the next place up to this one is missing.
    fn lose(&mut self, to: u64) {
        let (begin, end) = (self.next, to);
        if begin < end {
            self.lost += end - begin;
            let defect = self.note(begin, end - begin, DefectKind::Lost);
            if self.gaps.len() == GAPS {
                self.gaps.pop_front();
            }
            self.gaps.push_back(Gap { begin, end, defect });
            (self.next, self.reached) = (end, end);
        }
    }

    /// Goes on at a place that was passed: what was missing there comes now, or it comes once more.
    fn step_back(&mut self, from: u64) {
        if self.gaps.iter().any(|gap| (gap.begin..gap.end).contains(&from)) {
            self.reordered += 1;
        } else {
            self.note(from, self.reached - from, DefectKind::Inserted);
        }
    }

    /// These bytes came in the place of as many others.
    fn change(&mut self, bytes: &[u8]) {
        let (begin, mut run) = (self.next, 0);
        for (at, byte) in (begin..).zip(bytes) {
            if *byte == self.stream.at(at, 1)[0] {
                self.note_changed(at - run, run);
                run = 0;
            } else {
                run += 1;
            }
        }
        self.note_changed(begin + bytes.len() as u64 - run, run);
        self.arrive(bytes.len() as u64);
    }

    fn note_changed(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.changed += bytes;
            self.note(at, bytes, DefectKind::Changed);
        }
    }

    fn insert(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.inserted += bytes;
            self.note(at, bytes, DefectKind::Inserted);
        }
    }

    /// Keeps a defect if there is room, or makes the last one longer; its place among them.
    fn note(&mut self, offset: u64, bytes: u64, kind: DefectKind) -> Option<usize> {
        if let Some(last) = self.defects.last_mut()
            && last.kind == kind
            && last.offset + last.bytes == offset
        {
            last.bytes += bytes;
        } else if self.defects.len() < DEFECTS {
            self.defects.push(Defect { offset, bytes, kind });
        } else {
            return None;
        }
        Some(self.defects.len() - 1)
    }

    /// Takes the first half of what is held as changed.
    fn give_up(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        self.change(&held.make_contiguous()[..HELD / 2]);
        held.drain(..HELD / 2);
        self.held = held;
    }

    /// Nothing more comes, and so much had been sent.
    pub fn finish(&mut self, sent: u64) {
        let held: Vec<u8> = self.held.drain(..).collect();
        self.skip(&held, sent.max(self.reached));
    }
}

/// Eight bytes as one number, the first one lowest.
fn anchor(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |anchor, byte| anchor << 8 | u64::from(*byte))
}

/// Finds eight bytes in a period of the noise: a hash table of their places.
struct Index {
    places: Vec<u16>,
}

/// A quarter full or less, so that few places collide.
const PLACES: usize = 1 << 18;
/// No place: the period is shorter.
const FREE: u16 = u16::MAX;

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}

impl Index {
    fn new(stream: &Stream) -> Index {
        let mut places = vec![FREE; PLACES];
        for place in 0..pattern::PERIOD as u16 {
            let mut slot = Index::slot(anchor(stream.at(place.into(), ANCHOR)));
            while places[slot] != FREE {
                slot = (slot + 1) % PLACES;
            }
            places[slot] = place;
        }
        Index { places }
    }

    fn slot(anchor: u64) -> usize {
        (anchor.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46) as usize
    }

    fn find(&self, wanted: u64, stream: &Stream) -> Option<u64> {
        let mut slot = Index::slot(wanted);
        while self.places[slot] != FREE {
            let place = u64::from(self.places[slot]);
            if anchor(stream.at(place, ANCHOR)) == wanted {
                return Some(place);
            }
            slot = (slot + 1) % PLACES;
        }
        None
    }
}

#[cfg(test)]
mod tests;
