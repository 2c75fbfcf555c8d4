//! The lines of RFC 864: a generator, and a check that accepts those of every program.
//!
//! The lines are a ring of the 95 printable characters. A line has 72 characters and starts one character after the start of
//! the line before. The first character varies between programs and is not checked.

/// The first printable character of ASCII.
const FIRST_CHARACTER: u8 = b' ';
const LAST_CHARACTER: u8 = b'~';
const RING_CHARACTERS: u8 = 95;
/// Characters of a line, without CR and LF.
const LINE_CHARACTERS: u8 = 72;
const LAST_COLUMN: u8 = LINE_CHARACTERS + 1;

/// Bytes after which the lines repeat.
pub const PERIOD_BYTES: usize = RING_CHARACTERS as usize * (LAST_COLUMN as usize + 1);

/// Generates the lines without end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Generator {
    line: u8,
    column: u8,
}

impl Generator {
    /// Fills the output with the next bytes.
    pub fn fill(&mut self, output: &mut [u8]) {
        for byte in output {
            *byte = match self.column {
                LINE_CHARACTERS => b'\r',
                LAST_COLUMN => b'\n',
                column => FIRST_CHARACTER + (self.line + column) % RING_CHARACTERS,
            };
            self.column += 1;
            if self.column > LAST_COLUMN {
                (self.line, self.column) = ((self.line + 1) % RING_CHARACTERS, 0);
            }
        }
    }
}

/// Compares the input with the expected lines. Programs differ in the ends of their ring and in the order of lines, so
/// each line is checked on its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineChecker {
    /// Position in the line.
    column: u8,
    last_character: u8,
}

impl LineChecker {
    /// Number of wrong bytes.
    pub fn count_wrong(&mut self, bytes: &[u8]) -> u64 {
        let mut wrong = 0;
        for &byte in bytes {
            let right = match self.column {
                0 => (FIRST_CHARACTER..=LAST_CHARACTER).contains(&byte),
                LINE_CHARACTERS => byte == b'\r',
                LAST_COLUMN => byte == b'\n',
                _ => {
                    byte == self.last_character.wrapping_add(1)
                        || self.last_character >= LAST_CHARACTER - 1 && byte <= FIRST_CHARACTER + 1
                }
            };
            wrong += u64::from(!right);
            self.last_character = byte;
            self.column = if self.column == LAST_COLUMN { 0 } else { self.column + 1 };
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_pass_their_own_check_in_any_chunks() {
        let mut whole = [0; 2 * PERIOD_BYTES];
        Generator::default().fill(&mut whole);
        assert_eq!(whole[..PERIOD_BYTES], whole[PERIOD_BYTES..], "the period");
        assert_eq!(&whole[..4], b" !\"#");
        assert_eq!(&whole[70..78], b"fg\r\n!\"#$");
        for chunk in [1, 7, 74, 1000] {
            let (mut generator, mut checker) = (Generator::default(), LineChecker::default());
            let mut wrong = 0;
            for expected in whole.chunks(chunk) {
                let mut bytes = [0; 1000];
                generator.fill(&mut bytes[..expected.len()]);
                assert_eq!(&bytes[..expected.len()], expected);
                wrong += checker.count_wrong(expected);
            }
            assert_eq!(wrong, 0, "chunks of {chunk}");
        }
        whole[100] ^= 1;
        assert!(LineChecker::default().count_wrong(&whole) > 0);
    }
}
