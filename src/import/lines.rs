//! The lines of a file, one at a time and none too long. Not for what stands in them.

use std::io::{BufRead, Read};

use super::ImportError;

/// Reads line by line, and knows which one it is at.
pub struct Lines<'a> {
    file: &'a mut dyn BufRead,
    buffer: Vec<u8>,
    most: u64,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Of at most `most` bytes each.
    pub fn new(file: &'a mut dyn BufRead, most: u64) -> Lines<'a> {
        Lines { file, buffer: Vec::new(), most, number: 0 }
    }

    /// The next line without its end; `None` after the last.
    pub fn next(&mut self) -> Result<Option<&str>, ImportError> {
        self.buffer.clear();
        self.number += 1;
        let read = (&mut *self.file).take(self.most).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == self.most && self.buffer.last() != Some(&b'\n') {
            return Err(self.wrong(format!("longer than {} bytes", self.most)));
        }
        match str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some(line.trim_end_matches(['\n', '\r']))),
            Err(_) => Err(wrong(self.number, "not text".to_owned())),
        }
    }

    /// What is wrong with the line read last.
    pub fn wrong(&self, what: String) -> ImportError {
        wrong(self.number, what)
    }
}

pub fn wrong(line: u64, what: String) -> ImportError {
    ImportError::Line { line, what }
}

/// What somebody wrote, short enough for a line.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("'{}…'", &text[..end]),
        None => format!("'{text}'"),
    }
}
