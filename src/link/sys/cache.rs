//! Instructions about the caches of the CPU.

/// Has the CPU load the first 512 bytes of `value` into its caches, and does not wait for it. Does nothing on CPUs other than
/// x86-64, for which stable Rust has no such instruction.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes of a cache line of these CPUs.
        const LINE_BYTES: usize = 64;
        /// As many lines as a core loads at a time. Large types have first what is used often.
        const MAX_BYTES: usize = 8 * LINE_BYTES;
        let begin: *const i8 = std::ptr::from_ref(value).cast();
        let to_line = begin.addr() % LINE_BYTES;
        for offset in (0..to_line + size_of_val(value).min(MAX_BYTES)).step_by(LINE_BYTES) {
            let line = begin.wrapping_sub(to_line).wrapping_add(offset);
            // SAFETY: a prefetch neither reads nor writes anything that the program sees, and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
