//! What a program does with a pseudo-terminal, as the stand-in for hardware at its other side reads it.

/// Contents of a read from the master of a pseudo-terminal in packet mode (`TIOCPKT` of ioctl_tty(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtyPacket<'a> {
    /// The read returned no bytes.
    Nothing,
    /// Data written by the program.
    Data(&'a [u8]),
    /// The program discarded its unread or its unsent data, or another event happened.
    Notice {
        /// The program discarded data that it had not read.
        is_read_flushed: bool,
        /// The program discarded data that it had written.
        is_write_flushed: bool,
    },
}

impl<'a> PtyPacket<'a> {
    /// Parses the result of one read.
    pub fn parse(bytes: &'a [u8]) -> PtyPacket<'a> {
        const DATA: u8 = 0;
        const FLUSH_READ: u8 = 1;
        const FLUSH_WRITE: u8 = 2;
        match bytes {
            [] => PtyPacket::Nothing,
            [DATA, data @ ..] => PtyPacket::Data(data),
            [what, ..] => PtyPacket::Notice {
                is_read_flushed: what & FLUSH_READ != 0,
                is_write_flushed: what & FLUSH_WRITE != 0,
            },
        }
    }

    /// The data written by the program; empty for a notice.
    pub fn data(self) -> &'a [u8] {
        match self {
            PtyPacket::Data(data) => data,
            PtyPacket::Nothing | PtyPacket::Notice { .. } => &[],
        }
    }
}
