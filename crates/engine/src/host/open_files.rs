//! The limit of open files of this process: each link takes one.

pub use linkgauge_system::raise_open_file_limit;

/// How many files this process may open in all; `None`: any number.
pub fn open_file_limit() -> Option<u64> {
    linkgauge_system::open_file_limits()[0]
}

/// How many files this process may still open; `None`: any number, or the system does not show which are open.
pub(crate) fn free_open_files() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(open_file_limit()?.saturating_sub(open))
}
