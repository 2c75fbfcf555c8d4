//! A file in chunks: the requests that remain, the received chunks, the end of the file. `conversation.rs` sends them.
//!
//! A reply shorter than requested marks the end of a file, but a logger with smaller packets always sends short
//! replies. So a short chunk is the last one only if the directory confirms the size, or nothing follows it.

use std::collections::{BTreeMap, VecDeque};

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct FileChunks {
    /// Maximum bytes of a chunk.
    chunk_bytes: u16,
    /// Offset of the first byte to deliver.
    first_offset: u64,
    /// Offset of the first byte that was never requested.
    next_offset: u64,
    /// Offsets and lengths to request again.
    missing_ranges: VecDeque<(u32, u16)>,
    /// End of the delivered part.
    delivered_bytes: u64,
    /// Chunks that arrived out of order.
    buffered_chunks: BTreeMap<u32, Vec<u8>>,
    /// Size of the file in the directory.
    file_bytes: Option<u64>,
    /// End of the requested part or of the file.
    end_offset: u64,
    /// Whether the end of the file was seen.
    has_seen_end: bool,
}

/// Maximum size of a file: offsets have 32 bits.
const MAX_FILE_BYTES: u64 = 1 << 32;

/// Maximum chunks buffered out of order: the maximum in flight.
const MAX_HELD_CHUNKS: usize = 255;

impl FileChunks {
    /// File of that `size`, if it is known, read in chunks of `chunk` bytes, at most up to `end`.
    pub fn new(chunk: u16, size: Option<u64>, end: Option<u64>) -> FileChunks {
        let end = end.unwrap_or(MAX_FILE_BYTES).min(MAX_FILE_BYTES);
        let (missing, ready) = (VecDeque::new(), BTreeMap::new());
        FileChunks {
            chunk_bytes: chunk.max(1),
            first_offset: 0,
            next_offset: 0,
            missing_ranges: missing,
            delivered_bytes: 0,
            buffered_chunks: ready,
            file_bytes: size,
            end_offset: end,
            has_seen_end: false,
        }
    }

    /// Skips the first `offset` bytes of the file.
    pub(crate) fn starting_at(self, offset: u64) -> FileChunks {
        FileChunks { first_offset: offset, next_offset: offset, delivered_bytes: offset, ..self }
    }

    /// Number of delivered bytes, including the skipped bytes before the first one.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    pub(crate) fn is_done(&self) -> bool {
        self.delivered_bytes >= self.end_offset
    }

    /// Whether the whole file was delivered, not only the requested part.
    pub(crate) fn is_complete(&self) -> bool {
        self.file_bytes.is_some_and(|size| self.delivered_bytes >= size)
            || self.has_seen_end && self.is_done()
    }

    /// Number of bytes to deliver, if known.
    pub(crate) fn planned_bytes(&self) -> Option<u64> {
        self.file_bytes.map(|size| size.min(self.end_offset).saturating_sub(self.first_offset))
    }

    /// Whether the chunk at this offset is still missing.
    pub(crate) fn is_needed(&self, offset: u64) -> bool {
        offset < self.end_offset
    }

    /// Offset and length of the next chunk to request.
    pub(crate) fn next_request(&mut self) -> Option<(u32, u16)> {
        if let Some((offset, length)) = self.missing_ranges.pop_front() {
            let now = length.min(self.chunk_bytes);
            if now < length {
                self.missing_ranges.push_front((offset + u32::from(now), length - now));
            }
            return Some((offset, now));
        }
        // There is data after the size in the directory only if the file has grown.
        let beyond = self.file_bytes.is_some_and(|size| self.next_offset >= size)
            && self.delivered_bytes < self.next_offset;
        if beyond || self.next_offset >= self.end_offset || self.buffered_chunks.len() >= MAX_HELD_CHUNKS {
            return None;
        }
        let length = u64::from(self.chunk_bytes).min(self.end_offset - self.next_offset);
        let offset = self.next_offset as u32;
        self.next_offset += length;
        Some((offset, length as u16))
    }

    /// Adds a received chunk, which may be shorter than requested.
    pub(crate) fn add_chunk(&mut self, offset: u32, length: u16, data: Vec<u8>) {
        let end = u64::from(offset) + data.len() as u64;
        if data.is_empty() {
            self.set_end(end);
        } else if data.len() < usize::from(length) {
            if self.file_bytes.is_some_and(|size| end >= size) {
                self.set_end(end);
            } else {
                self.chunk_bytes = data.len() as u16;
                self.missing_ranges.push_back((end as u32, length - self.chunk_bytes));
            }
        }
        if u64::from(offset) >= self.delivered_bytes && !data.is_empty() {
            self.buffered_chunks.insert(offset, data);
        }
        let end = self.end_offset;
        self.missing_ranges.retain(|&(offset, _)| u64::from(offset) < end);
        self.buffered_chunks.retain(|&offset, _| u64::from(offset) < end);
    }

    pub fn set_end(&mut self, end: u64) {
        self.has_seen_end |= end <= self.end_offset;
        self.end_offset = self.end_offset.min(end);
    }

    /// Returns the next bytes of the file, in order.
    pub(crate) fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let data = self.buffered_chunks.remove(&u32::try_from(self.delivered_bytes).ok()?)?;
        self.delivered_bytes += data.len() as u64;
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a file from a logger that sends at most `most` bytes at once and replies to `window` requests in any
    /// order.
    fn read(
        file: &[u8],
        chunk: u16,
        most: usize,
        is_size_known: bool,
        window: usize,
        random: &mut fastrand::Rng,
    ) -> (Vec<u8>, usize) {
        let mut chunks = FileChunks::new(chunk, is_size_known.then_some(file.len() as u64), None);
        let (mut outstanding, mut read, mut round_trips) = (Vec::new(), Vec::new(), 0);
        while !chunks.is_done() {
            while outstanding.len() < window
                && let Some(request) = chunks.next_request()
            {
                outstanding.push(request);
            }
            let (offset, length) = outstanding.swap_remove(random.usize(..outstanding.len()));
            round_trips += 1;
            let begin = (offset as usize).min(file.len());
            let end = (begin + most.min(length.into())).min(file.len());
            chunks.add_chunk(offset, length, file[begin..end].to_vec());
            while let Some(data) = chunks.take_chunk() {
                read.extend(data);
            }
            outstanding.retain(|&(offset, _)| chunks.is_needed(offset.into()));
        }
        assert!(chunks.is_complete());
        (read, round_trips)
    }

    #[test]
    fn round_trips_are_minimal() {
        let random = &mut fastrand::Rng::with_seed(1);
        let mut count =
            |size: usize, is_size_known| read(&vec![7; size], 100, 1000, is_size_known, 1, random).1;
        assert_eq!([count(0, true), count(99, true), count(250, true)], [1, 1, 3]);
        assert_eq!(count(200, true), 3, "only an empty reply shows that it has not grown");
        assert_eq!([count(200, false), count(250, false)], [3, 4]);
    }

    #[test]
    fn a_file_can_be_read_from_its_middle() {
        let mut chunks = FileChunks::new(100, Some(250), None).starting_at(130);
        assert_eq!(chunks.planned_bytes(), Some(120));
        assert_eq!([(); 2].map(|()| chunks.next_request()), [Some((130, 100)), Some((230, 100))]);
        chunks.add_chunk(230, 100, vec![2; 20]);
        assert_eq!(chunks.take_chunk(), None);
        chunks.add_chunk(130, 100, vec![1; 100]);
        assert_eq!((chunks.take_chunk(), chunks.take_chunk()), (Some(vec![1; 100]), Some(vec![2; 20])));
        assert!(chunks.is_complete() && chunks.delivered_bytes() == 250);
        // The file is shorter.
        let mut chunks = FileChunks::new(100, Some(120), None).starting_at(130);
        assert_eq!(chunks.next_request(), Some((130, 100)));
        chunks.add_chunk(130, 100, Vec::new());
        assert!(chunks.is_done());
    }

    #[test]
    fn requests_stop_at_the_wanted_end() {
        let mut chunks = FileChunks::new(100, Some(1000), Some(250));
        assert_eq!(
            [(); 4].map(|()| chunks.next_request()),
            [Some((0, 100)), Some((100, 100)), Some((200, 50)), None]
        );
        for (offset, length) in [(0, 100), (100, 100), (200, 50)] {
            chunks.add_chunk(offset, length, vec![7; length.into()]);
            chunks.take_chunk();
        }
        assert!(chunks.is_done() && !chunks.is_complete());
    }

    proptest! {
        #[test]
        fn a_file_is_read_whole(
            size in 0usize..3000, chunk in 1u16..992, most in 1usize..992, is_size_known: bool,
            window in 1usize..20, seed: u64,
        ) {
            let random = &mut fastrand::Rng::with_seed(seed);
            let file: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
            let (read, _) = read(&file, chunk.max(100), most.max(50), is_size_known, window, random);
            prop_assert!(read == file);
        }

        #[test]
        fn nothing_panics(replies in prop::collection::vec((any::<u32>(), any::<u16>(), 0usize..1000), 0..50)) {
            let mut chunks = FileChunks::new(100, Some(5000), None);
            for (offset, length, received) in replies {
                chunks.next_request();
                chunks.add_chunk(offset, length, vec![0; received.min(length.into())]);
                chunks.take_chunk();
            }
        }
    }
}
