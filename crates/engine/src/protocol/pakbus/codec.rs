//! Encoding and decoding of the elements of messages: big-endian numbers, zero-terminated texts, times.

use super::PakBusParseError;
use super::time::LoggerTime;

/// Unread rest of a message.
#[derive(Debug, Clone, Copy)]
pub struct MessageReader<'a>(pub &'a [u8]);

impl<'a> MessageReader<'a> {
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], PakBusParseError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(PakBusParseError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PakBusParseError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(PakBusParseError::TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, PakBusParseError> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, PakBusParseError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, PakBusParseError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, PakBusParseError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn instant(&mut self) -> Result<LoggerTime, PakBusParseError> {
        Ok(LoggerTime { seconds: self.i32()?, nanoseconds: self.i32()? })
    }

    /// Reads a text and its terminating zero.
    pub fn text(&mut self) -> Result<String, PakBusParseError> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(PakBusParseError::TooShort)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(from_latin1(text))
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Decodes Latin-1: each byte is a character.
pub(crate) fn from_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Encodes Latin-1; other characters become a question mark.
pub(crate) fn to_latin1(text: &str) -> impl Iterator<Item = u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
}

/// Output of the encoders.
pub(crate) trait MessageWriter {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn instant(&mut self, value: LoggerTime);
    /// Writes a text and a terminating zero; zeros within the text are omitted.
    fn text(&mut self, text: &str);
}

impl MessageWriter for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend(value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn instant(&mut self, value: LoggerTime) {
        self.extend(value.seconds.to_be_bytes());
        self.extend(value.nanoseconds.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.extend(to_latin1(text).filter(|&byte| byte != 0));
        self.push(0);
    }
}
