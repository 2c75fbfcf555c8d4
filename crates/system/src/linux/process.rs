//! Random bytes and limits as Linux gives them.

use rustix::process::{Resource, getrlimit};

/// Unpredictable random bytes from the system.
///
/// # Panics
///
/// The system gives none, as no kernel since 3.17 does.
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system gives no random bytes: {error}"),
        }
    }
    bytes
}

/// The highest real-time priority that this process may give itself; `None`: any.
pub fn max_real_time_priority() -> Option<u64> {
    getrlimit(Resource::Rtprio).current
}
