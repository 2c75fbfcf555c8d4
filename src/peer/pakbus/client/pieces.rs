//! A file in pieces: which are to be asked for, which have come, where it ends. Not for asking (`talk.rs`).
//!
//! A file ends where less comes than was asked for; but a logger with smaller packets always sends less. So a short piece
//! is the last one only where the directory says so, or nothing comes behind it.

use std::collections::{BTreeMap, VecDeque};

/// A file that is being read.
#[derive(Debug)]
pub struct Pieces {
    /// Most bytes of a piece.
    chunk: u16,
    /// The first byte that was never asked for.
    next: u64,
    /// Places and lengths of what has to be asked for again.
    missing: VecDeque<(u32, u16)>,
    /// Up to here everything was handed out.
    base: u64,
    /// What came before its turn.
    ready: BTreeMap<u32, Vec<u8>>,
    /// What the directory says.
    size: Option<u64>,
    /// No more is wanted, or there is no more.
    end: u64,
    /// Its end was seen.
    ended: bool,
}

/// Offsets have 32 bits.
const LARGEST: u64 = 1 << 32;

/// Pieces held that came before their turn, at most: as many as can be on their way.
const HELD: usize = 255;

impl Pieces {
    /// A file of that `size`, if it is known, read in pieces of `chunk` bytes, at most up to `end`.
    pub fn new(chunk: u16, size: Option<u64>, end: Option<u64>) -> Pieces {
        let end = end.unwrap_or(LARGEST).min(LARGEST);
        let (missing, ready) = (VecDeque::new(), BTreeMap::new());
        Pieces { chunk: chunk.max(1), next: 0, missing, base: 0, ready, size, end, ended: false }
    }

    /// Bytes that were handed out.
    pub fn done(&self) -> u64 {
        self.base
    }

    pub fn is_done(&self) -> bool {
        self.base >= self.end
    }

    /// Whether all of the file was handed out, and not only what was wanted of it.
    pub fn is_whole(&self) -> bool {
        self.size.is_some_and(|size| self.base >= size) || self.ended && self.is_done()
    }

    /// How many bytes it will be, where that is known.
    pub fn planned(&self) -> Option<u64> {
        self.size.map(|size| size.min(self.end))
    }

    /// Whether the piece there can still be of use.
    pub fn wants(&self, offset: u64) -> bool {
        offset < self.end
    }

    /// Place and length of the next piece to ask for.
    pub fn ask(&mut self) -> Option<(u32, u16)> {
        if let Some((offset, length)) = self.missing.pop_front() {
            let now = length.min(self.chunk);
            if now < length {
                self.missing.push_front((offset + u32::from(now), length - now));
            }
            return Some((offset, now));
        }
        // Behind the end that the directory tells there is something only if the file has grown.
        let beyond = self.size.is_some_and(|size| self.next >= size) && self.base < self.next;
        if beyond || self.next >= self.end || self.ready.len() >= HELD {
            return None;
        }
        let length = u64::from(self.chunk).min(self.end - self.next);
        let offset = self.next as u32;
        self.next += length;
        Some((offset, length as u16))
    }

    /// What came for a piece, which may be shorter.
    pub fn came(&mut self, offset: u32, length: u16, data: Vec<u8>) {
        let end = u64::from(offset) + data.len() as u64;
        if data.is_empty() {
            self.ends_at(end);
        } else if data.len() < usize::from(length) {
            if self.size.is_some_and(|size| end >= size) {
                self.ends_at(end);
            } else {
                self.chunk = data.len() as u16;
                self.missing.push_back((end as u32, length - self.chunk));
            }
        }
        if u64::from(offset) >= self.base && !data.is_empty() {
            self.ready.insert(offset, data);
        }
        let end = self.end;
        self.missing.retain(|&(offset, _)| u64::from(offset) < end);
        self.ready.retain(|&offset, _| u64::from(offset) < end);
    }

    fn ends_at(&mut self, end: u64) {
        self.ended |= end <= self.end;
        self.end = self.end.min(end);
    }

    /// The next bytes of the file, in order.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let data = self.ready.remove(&u32::try_from(self.base).ok()?)?;
        self.base += data.len() as u64;
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a file whose logger sends at most `most` bytes at once and answers `window` requests in any order.
    fn read(
        file: &[u8],
        chunk: u16,
        most: usize,
        told: bool,
        window: usize,
        random: &mut fastrand::Rng,
    ) -> (Vec<u8>, usize) {
        let mut pieces = Pieces::new(chunk, told.then_some(file.len() as u64), None);
        let (mut asked, mut read, mut round_trips) = (Vec::new(), Vec::new(), 0);
        while !pieces.is_done() {
            while asked.len() < window
                && let Some(ask) = pieces.ask()
            {
                asked.push(ask);
            }
            let (offset, length) = asked.swap_remove(random.usize(..asked.len()));
            round_trips += 1;
            let begin = (offset as usize).min(file.len());
            let end = (begin + most.min(length.into())).min(file.len());
            pieces.came(offset, length, file[begin..end].to_vec());
            while let Some(data) = pieces.take() {
                read.extend(data);
            }
            asked.retain(|&(offset, _)| pieces.wants(offset.into()));
        }
        assert!(pieces.is_whole());
        (read, round_trips)
    }

    #[test]
    fn round_trips_are_as_few_as_can_be() {
        let random = &mut fastrand::Rng::with_seed(1);
        let mut count = |size: usize, told| read(&vec![7; size], 100, 1000, told, 1, random).1;
        assert_eq!([count(0, true), count(99, true), count(250, true)], [1, 1, 3]);
        assert_eq!(count(200, true), 3, "only an empty answer tells that it has not grown");
        assert_eq!([count(200, false), count(250, false)], [3, 4]);
    }

    #[test]
    fn no_more_is_asked_for_than_is_wanted() {
        let mut pieces = Pieces::new(100, Some(1000), Some(250));
        assert_eq!([(); 4].map(|()| pieces.ask()), [Some((0, 100)), Some((100, 100)), Some((200, 50)), None]);
        for (offset, length) in [(0, 100), (100, 100), (200, 50)] {
            pieces.came(offset, length, vec![7; length.into()]);
            pieces.take();
        }
        assert!(pieces.is_done() && !pieces.is_whole());
    }

    proptest! {
        #[test]
        fn a_file_is_read_whole(
            size in 0usize..3000, chunk in 1u16..992, most in 1usize..992, told: bool, window in 1usize..20, seed: u64,
        ) {
            let random = &mut fastrand::Rng::with_seed(seed);
            let file: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
            let (read, _) = read(&file, chunk.max(100), most.max(50), told, window, random);
            prop_assert!(read == file);
        }

        #[test]
        fn nothing_panics(answers in prop::collection::vec((any::<u32>(), any::<u16>(), 0usize..1000), 0..50)) {
            let mut pieces = Pieces::new(100, Some(5000), None);
            for (offset, length, got) in answers {
                pieces.ask();
                pieces.came(offset, length, vec![0; got.min(length.into())]);
                pieces.take();
            }
        }
    }
}
