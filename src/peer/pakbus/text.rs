//! Reading and writing the pieces that messages are made of: big-endian numbers, texts that end with a zero byte, times.

use super::Malformed;
use super::value::Instant;

/// What is left of a message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn instant(&mut self) -> Result<Instant, Malformed> {
        Ok(Instant { seconds: self.i32()?, nanoseconds: self.i32()? })
    }

    /// A text and the zero behind it.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Malformed::Short)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(latin(text))
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Bytes as text, each a character.
pub fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Text as bytes; what Latin-1 lacks becomes a question mark.
pub fn bytes(text: &str) -> impl Iterator<Item = u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
}

/// What messages are written into.
pub trait Write {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn instant(&mut self, value: Instant);
    /// The text and a zero; zeros within are left out.
    fn text(&mut self, text: &str);
}

impl Write for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend(value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn instant(&mut self, value: Instant) {
        self.extend(value.seconds.to_be_bytes());
        self.extend(value.nanoseconds.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.extend(bytes(text).filter(|&byte| byte != 0));
        self.push(0);
    }
}
