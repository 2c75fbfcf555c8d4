//! The last minute of a link, packed: most of it is never read.

use std::collections::VecDeque;
use std::io::Read;

use flate2::read::ZlibDecoder;
use flate2::{Compress, Compression, FlushCompress};

use crate::run::Run;

/// Slices that a black box holds: a minute before an alarm.
const SLICES: usize = 6;

/// Packs documents, with the same memory for all of them.
pub(super) struct DocumentCompressor(Compress);

impl DocumentCompressor {
    pub(super) fn new() -> DocumentCompressor {
        DocumentCompressor(Compress::new(Compression::fast(), true))
    }

    /// `None` if a document cannot be packed.
    fn pack(&mut self, run: &Run) -> Option<Vec<u8>> {
        let text = serde_json::to_vec(run).ok()?;
        // Longer than any result.
        let mut packed = Vec::with_capacity(text.len() + 1024);
        self.0.reset();
        self.0.compress_vec(&text, &mut packed, FlushCompress::Finish).ok()?;
        packed.shrink_to_fit();
        Some(packed)
    }
}

/// The documents of the last slices of a link.
#[derive(Debug, Clone, Default)]
pub(super) struct BlackBox(VecDeque<Vec<u8>>);

impl BlackBox {
    /// Adds the document of a slice.
    pub(super) fn push(&mut self, run: &Run, packer: &mut DocumentCompressor) {
        if self.0.len() == SLICES {
            self.0.pop_front();
        }
        self.0.extend(packer.pack(run));
    }

    /// One document with the cases of all slices; `None` without slices.
    pub(super) fn run(&self) -> Option<Run> {
        let mut runs: Vec<Run> = self.0.iter().filter_map(|packed| unpack(packed)).collect();
        let last = runs.pop()?;
        let cases = runs.into_iter().flat_map(|run| run.cases).chain(last.cases).collect();
        Some(Run { cases, ..last })
    }
}

fn unpack(packed: &[u8]) -> Option<Run> {
    let mut text = String::new();
    ZlibDecoder::new(packed).read_to_string(&mut text).ok()?;
    Run::from_json(&text).ok()
}
