//! The signals of linx_bmark: their numbers and fields, all big-endian words.

use super::Style;

/// Client to server, and back from the end that serves it. Who uses which programming interface follows; nobody reads it.
pub const CONN_EST: u32 = 0x2870;
pub const ECHO: u32 = 0x2873;
pub const TERMINATE_REQ: u32 = 0x2874;
/// Old style: count, number and size of the signals wanted. New style: what was allocated is wanted now.
pub const BURST_REQ: u32 = 0x2875;
/// The server shall quit.
pub const CONN_TERM: u32 = 0x2876;
/// The end that serves shall go.
pub const ATTACH_TEST_REQ: u32 = 0x2877;
/// Count, number and size of the signals that will be wanted (2.6.8 and later), and that they are ready.
pub const ALLOC_REQ: u32 = 0x287a;
pub const ALLOC_FINI: u32 = 0x287b;
/// The signals of a burst.
pub const BURST_SIGNO: u32 = 0x8765;

/// Bytes of a signal number.
pub const NUMBER: usize = 4;

/// Bytes of the signals with three fields.
pub const LONG: usize = 16;

pub fn number(signal: &[u8]) -> Option<u32> {
    word(signal, 0)
}

/// The word at that place; a missing one counts as 0 where it may be missing.
pub fn word(signal: &[u8], index: usize) -> Option<u32> {
    let bytes = signal.get(4 * index..4 * index + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub fn of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Who opens: with the LINX interface, without threads, without its own memory.
pub fn conn_est(style: Style) -> Vec<u8> {
    match style {
        Style::Old => of(&[CONN_EST, 1, 0]),
        Style::New => of(&[CONN_EST, 1, 0, 0]),
    }
}

/// Asks for `count` signals of `size` bytes: what to say first, if anything, and what then.
pub fn burst(style: Style, count: u32, size: u32) -> (Option<Vec<u8>>, Vec<u8>) {
    match style {
        Style::Old => (None, of(&[BURST_REQ, count, BURST_SIGNO, size])),
        Style::New => (Some(of(&[ALLOC_REQ, count, BURST_SIGNO, size])), of(&[BURST_REQ])),
    }
}
