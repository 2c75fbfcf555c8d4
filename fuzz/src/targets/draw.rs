//! Values drawn from the bytes of a fuzzer, for targets where a MAC, a number or a length would stop it: the target
//! computes signatures and counts, the fuzzer chooses the rest.

/// Bytes that are used up from the front; where none are left every value is zero.
pub struct Draw<'a>(pub &'a [u8]);

impl<'a> Draw<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn word(&mut self) -> u64 {
        self.bytes(8).iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    /// As many bytes, or those that are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (drawn, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        drawn
    }

    /// Bytes after a byte that gives their number.
    pub fn short(&mut self) -> &'a [u8] {
        let count = self.byte();
        self.bytes(count.into())
    }

    /// One of these.
    pub fn one_of<T: Clone>(&mut self, these: &[T]) -> T {
        these[usize::from(self.byte()) % these.len()].clone()
    }

    /// A number that is often at an edge: small, or all the bits.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            0 => u64::MAX,
            1 => self.word(),
            2 => 1 << (self.byte() % 64),
            small => u64::from(small) - 3,
        }
    }

    /// Any number at all, the strangest ones often.
    pub fn float(&mut self) -> f64 {
        const STRANGE: [f64; 8] = [0.0, -1.0, 1e-300, 5e-324, 1e308, -1e308, 1.0, 1e9];
        match self.byte() {
            strange @ 0..=7 => STRANGE[usize::from(strange)],
            8..=127 => f64::from_bits(self.word()),
            plain => f64::from(plain),
        }
    }
}
