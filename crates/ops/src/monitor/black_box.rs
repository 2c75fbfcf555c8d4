//! The last minute of a link, packed: most of it is never read.

use std::collections::VecDeque;
use std::io::Read;

use flate2::read::ZlibDecoder;
use flate2::{Compress, Compression, FlushCompress};

use linkgauge_model::run::{MAX_DOCUMENT_BYTES, Run};

/// Slices that a black box holds: a minute before an alarm.
const SLICES: usize = 6;

/// Packs documents, with the same memory for all of them.
pub(super) struct DocumentCompressor {
    compress: Compress,
    text: Vec<u8>,
    packed: Vec<u8>,
}

impl DocumentCompressor {
    pub fn new() -> DocumentCompressor {
        let compress = Compress::new(Compression::fast(), true);
        DocumentCompressor { compress, text: Vec::new(), packed: Vec::new() }
    }

    /// The packed document, until the next one. `None` if it cannot be packed.
    fn pack(&mut self, run: &Run) -> Option<&[u8]> {
        self.text.clear();
        self.packed.clear();
        serde_json::to_writer(&mut self.text, run).ok()?;
        // Longer than any result.
        self.packed.reserve(self.text.len() + 1024);
        self.compress.reset();
        self.compress.compress_vec(&self.text, &mut self.packed, FlushCompress::Finish).ok()?;
        Some(&self.packed)
    }
}

/// The documents of the last slices of a link, one after another: a block of its own for each would leave a hole when it goes.
#[derive(Debug, Clone, Default)]
pub(super) struct BlackBox {
    packed: Vec<u8>,
    lengths: VecDeque<usize>,
}

impl BlackBox {
    /// Adds the document of a slice.
    pub fn push(&mut self, run: &Run, packer: &mut DocumentCompressor) {
        if self.lengths.len() == SLICES {
            let oldest = self.lengths.pop_front().unwrap_or_default();
            self.packed.drain(..oldest);
        }
        if let Some(document) = packer.pack(run) {
            self.packed.extend_from_slice(document);
            self.lengths.push_back(document.len());
        }
    }

    /// Makes one document with the cases of all slices; `None` without slices.
    pub(super) fn run(&self) -> Option<Run> {
        let mut rest = &self.packed[..];
        let packed = self.lengths.iter().filter_map(|&length| rest.split_off(..length));
        let mut runs: Vec<Run> = packed.filter_map(unpack).collect();
        let last = runs.pop()?;
        let started = runs.first().map_or(last.started, |first| first.started);
        let before = last.started.duration_since(started).as_nanos();
        let elapsed_ns = last.elapsed_ns.saturating_add(u64::try_from(before).unwrap_or(0));
        let cases = runs.into_iter().flat_map(|run| run.cases).chain(last.cases).collect();
        Some(Run { cases, started, elapsed_ns, ..last })
    }
}

fn unpack(packed: &[u8]) -> Option<Run> {
    let mut text = String::new();
    ZlibDecoder::new(packed).take(MAX_DOCUMENT_BYTES).read_to_string(&mut text).ok()?;
    Run::from_json(&text).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use linkgauge_model::run::Environment;

    use super::*;

    #[test]
    fn a_run_begins_with_its_first_slice() {
        let (mut all, mut packer) = (BlackBox::default(), DocumentCompressor::new());
        for slice in 0..8 {
            let started = Timestamp::from_second(1_800_000_000 + 10 * slice).unwrap();
            all.push(&Run::of_cases(started, 9_000_000_000, Vec::new(), Environment::default()), &mut packer);
        }
        let run = all.run().unwrap();
        assert_eq!((run.started.as_second(), run.elapsed_ns), (1_800_000_020, 59_000_000_000));
    }
}
