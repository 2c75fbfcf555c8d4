//! Instructions about the caches of the CPU.

/// Asks the CPU to load the first 512 bytes of `value` into its caches, without waiting for them. Does nothing on CPUs other than
/// x86-64, for which stable Rust has no such instruction.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes of a cache line of these CPUs.
        const LINE_BYTES: usize = 64;
        /// A core loads 10 to 16 lines at a time, and twice as many made 10,000 flows slower. Large types have first what is used often.
        const MAX_BYTES: usize = 8 * LINE_BYTES;
        let begin: *const i8 = std::ptr::from_ref(value).cast();
        for offset in (0..size_of_val(value).min(MAX_BYTES)).step_by(LINE_BYTES) {
            // SAFETY: the address lies in `value`, and a prefetch neither reads nor writes anything that the program sees.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
