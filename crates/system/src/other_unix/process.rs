//! Random bytes of this system, which has no limit of priorities.

/// The highest real-time priority that this process may give itself, which this system does not limit by a number.
pub fn max_real_time_priority() -> Option<u64> {
    None
}

/// Unpredictable random bytes from the system.
///
/// # Panics
///
/// The system gives none.
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // The system gives at most this many in a call.
    for part in bytes.chunks_mut(256) {
        // SAFETY: `part` is valid for writes of its length.
        let result = unsafe { libc::getentropy(part.as_mut_ptr().cast(), part.len()) };
        assert_eq!(result, 0, "the system gives no random bytes");
    }
    bytes
}
