//! Signals of linx_bmark: their numbers and fields, all big-endian words.

use super::ClientStyle;

/// Connect signal: client to server, and back from the serving endpoint. An unused field with the programming interface follows.
pub(crate) const CONN_EST: u32 = 0x2870;
pub(crate) const ECHO: u32 = 0x2873;
pub(crate) const TERMINATE_REQ: u32 = 0x2874;
/// Request of signals. Old style: their count, number and size. New style: requests the allocated signals.
pub(crate) const BURST_REQ: u32 = 0x2875;
/// Terminates the server.
pub(crate) const CONN_TERM: u32 = 0x2876;
/// Terminates the serving endpoint.
pub(crate) const ATTACH_TEST_REQ: u32 = 0x2877;
/// Allocates signals: count, number and size (2.6.8 and later). The reply confirms the allocation.
pub(crate) const ALLOC_REQ: u32 = 0x287a;
pub(crate) const ALLOC_FINI: u32 = 0x287b;
/// Number of the signals of a burst.
pub(crate) const BURST_SIGNO: u32 = 0x8765;

/// Size of a signal number, in bytes.
pub(crate) const SIGNAL_NUMBER_BYTES: usize = 4;

/// Size of the signals with three fields, in bytes.
pub(crate) const THREE_FIELD_SIGNAL_BYTES: usize = 16;

pub(crate) fn signal_number(signal: &[u8]) -> Option<u32> {
    read_word(signal, 0)
}

/// Returns the word at this index. A missing word is 0 if it is optional.
pub(crate) fn read_word(signal: &[u8], index: usize) -> Option<u32> {
    let bytes = signal.get(4 * index..4 * index + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub(crate) fn from_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Connect signal of a client with the LINX interface, without threads and without its own memory.
pub(crate) fn encode_conn_est(style: ClientStyle) -> Vec<u8> {
    match style {
        ClientStyle::Old => from_words(&[CONN_EST, 1, 0]),
        ClientStyle::New => from_words(&[CONN_EST, 1, 0, 0]),
    }
}

/// Encodes a request of `count` signals of `size` bytes: the signal to send first, if any, and the request.
pub(crate) fn encode_burst(style: ClientStyle, count: u32, size: u32) -> (Option<Vec<u8>>, Vec<u8>) {
    match style {
        ClientStyle::Old => (None, from_words(&[BURST_REQ, count, BURST_SIGNO, size])),
        ClientStyle::New => {
            (Some(from_words(&[ALLOC_REQ, count, BURST_SIGNO, size])), from_words(&[BURST_REQ]))
        }
    }
}
