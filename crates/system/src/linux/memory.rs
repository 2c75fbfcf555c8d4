//! The memory that the allocator keeps.

#[cfg(target_env = "gnu")]
use libc::c_int;

/// Blocks of the allocator from this size on are mapped one by one.
#[cfg(target_env = "gnu")]
const MIN_MAPPED_BLOCK: c_int = 64 * 1024;

/// Areas from which all threads allocate. Each keeps freed memory that the others cannot use, and threads begin a new one when
/// they meet in another.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: c_int = 1;

/// Freed buffers go back to the system, and their unused pages take no memory: for programs in which many threads allocate and free
/// buffers for weeks. Only the allocator of glibc has these settings. Call it before other threads start.
pub fn return_freed_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread runs yet; the calls change numbers of the allocator, and no memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MIN_MAPPED_BLOCK);
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
    }
}
