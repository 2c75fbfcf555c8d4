//! A run document in the store: deflated JSON.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use linkgauge_model::run::{MAX_DOCUMENT_BYTES, Run};

/// A run as text.
pub fn to_json(run: &Run) -> String {
    serde_json::to_string(run).expect("a run has only texts as keys, and its numbers are finite")
}

/// The text in the zlib format.
pub fn deflate(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).expect("memory takes everything")
}

/// `None` if it is damaged, or longer than any document.
pub fn inflate(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    let length = ZlibDecoder::new(bytes).take(MAX_DOCUMENT_BYTES + 1).read_to_string(&mut text).ok()?;
    (length as u64 <= MAX_DOCUMENT_BYTES).then_some(text)
}
