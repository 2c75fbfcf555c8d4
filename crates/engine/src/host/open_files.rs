//! The limit of open files of this process: each link takes one.

pub use linkgauge_system::raise_open_file_limit;

/// Maximum number of files that this process may open; `None`: any number.
pub fn open_file_limit() -> Option<u64> {
    linkgauge_system::open_file_limits()[0]
}

/// Number of further files that this process may open; `None`: any number, or the system does not show which are open.
pub(crate) fn free_open_files() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(open_file_limit()?.saturating_sub(open))
}
