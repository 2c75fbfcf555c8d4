//! Reads the lines of a file one by one, with a maximum length. It does not interpret them.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use super::ImportError;
use linkgauge_model::run::{Warning, WarningCode};

/// Reads line by line and counts lines.
pub(crate) struct LineReader<'a> {
    file: &'a mut dyn BufRead,
    buffer: Vec<u8>,
    max_bytes: u64,
    line_number: u64,
}

impl<'a> LineReader<'a> {
    /// Makes a reader of lines of at most `most` bytes.
    pub fn new(file: &'a mut dyn BufRead, most: u64) -> LineReader<'a> {
        LineReader { file, buffer: Vec::new(), max_bytes: most, line_number: 0 }
    }

    /// The next line without its line break; `None` after the last.
    pub(crate) fn next_line(&mut self) -> Result<Option<&str>, ImportError> {
        if !self.read_line()? {
            return Ok(None);
        }
        match str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some(line.trim_end_matches(['\n', '\r']))),
            Err(_) => Err(line_error(self.line_number, "not UTF-8 text: convert it with iconv".to_owned())),
        }
    }

    /// Next line of text in any encoding that contains ASCII; a replacement character stands for bytes that are not UTF-8.
    pub(crate) fn next_lossy_line(&mut self) -> Result<Option<Cow<'_, str>>, ImportError> {
        Ok(if self.read_line()? { Some(String::from_utf8_lossy(&self.buffer)) } else { None })
    }

    /// Reads the next line into the buffer. `false` after the last line.
    fn read_line(&mut self) -> Result<bool, ImportError> {
        self.buffer.clear();
        self.line_number += 1;
        let read = (&mut *self.file).take(self.max_bytes).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(false);
        }
        if read as u64 == self.max_bytes && self.buffer.last() != Some(&b'\n') {
            return Err(self.error(format!("longer than {} bytes", self.max_bytes)));
        }
        Ok(true)
    }

    /// Whether the line read last has no line end, as the last line of a file that is cut off.
    pub fn is_unfinished(&self) -> bool {
        !self.buffer.is_empty() && self.buffer.last() != Some(&b'\n')
    }

    /// An error about the line read last.
    pub(crate) fn error(&self, what: String) -> ImportError {
        line_error(self.line_number, what)
    }
}

/// The note on a last line that is left out because it has no line end.
pub(crate) fn unfinished_line() -> Warning {
    Warning::new(
        WarningCode::SkippedText,
        "the last line has no line end, so it may be cut off and is left out",
        "import the whole output",
    )
}

/// The error of a file whose only line may be cut off.
pub(crate) fn only_unfinished_line() -> ImportError {
    ImportError::Format(
        "its only line has no line end, so it may be cut off: import the whole output".to_owned(),
    )
}

pub(crate) fn line_error(line: u64, what: String) -> ImportError {
    ImportError::Line { line, what }
}

/// Shortens untrusted text for a message.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("'{}…'", &text[..end]),
        None => format!("'{text}'"),
    }
}
