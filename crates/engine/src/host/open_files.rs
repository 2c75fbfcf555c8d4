//! The limit of open files of this process: each link takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit: every connection is a file.
pub fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the old limit remains, which is enough for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// How many files this process may open in all; `None`: any number.
pub fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How many files this process may still open; `None`: any number, or the system does not show which are open.
pub(crate) fn free_open_files() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(open_file_limit()?.saturating_sub(open))
}
