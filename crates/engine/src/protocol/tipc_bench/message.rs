//! The control messages of the benchmark: two fixed formats, numbers of 32 bits in network order.
//!
//! The data has no format: messages of the announced size, without separators on a stream.

/// Maximum message of the benchmark, announced to servers (`TIPC_MAX_USER_MSG_SIZE`).
pub(crate) const MAX_MESSAGE_BYTES: u32 = 66_000;

/// A command of a client to all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchCommand {
    /// Requests to listen for connections with messages of at most this many bytes; over TCP if `tcp` is set.
    Listen {
        /// Maximum payload bytes of one message.
        max_message_bytes: u32,
        /// Whether to listen over TCP instead of TIPC.
        tcp: bool,
    },
    /// Announces `count` messages of this size on each connection. The server returns them if `echo` is set, else drops them.
    Measure {
        /// Size of the payload of one message, in bytes.
        message_bytes: u32,
        /// Number of messages on each connection.
        count: u32,
        /// Whether to return the messages.
        echo: bool,
    },
    /// Closes the connections of earlier clients.
    Restart,
}

impl BenchCommand {
    /// Length of an encoded command, in bytes.
    pub(crate) const ENCODED_BYTES: usize = 16;

    /// Encodes the command.
    pub fn write(self) -> [u8; BenchCommand::ENCODED_BYTES] {
        let words = match self {
            BenchCommand::Listen { max_message_bytes: longest, tcp } => [u32::from(tcp), longest, 0, 0],
            BenchCommand::Measure { message_bytes: size, count, echo } => [2, size, count, u32::from(echo)],
            BenchCommand::Restart => [3, 0, 0, 0],
        };
        let mut bytes = [0; BenchCommand::ENCODED_BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes a command; `None` if the bytes are not a command.
    pub fn read(bytes: &[u8]) -> Option<BenchCommand> {
        let bytes: &[u8; BenchCommand::ENCODED_BYTES] = bytes.try_into().ok()?;
        let [kind, size, count, echo] = [0, 4, 8, 12]
            .map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        match (kind, echo) {
            (0 | 1, _) => Some(BenchCommand::Listen { max_message_bytes: size, tcp: kind == 1 }),
            (2, 0 | 1) => Some(BenchCommand::Measure { message_bytes: size, count, echo: echo == 1 }),
            (3, _) => Some(BenchCommand::Restart),
            _ => None,
        }
    }
}

/// Status of the server: `Listening` once, the others once for each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchStatus {
    /// The server listens for connections.
    Listening,
    /// The connection is ready for the announced messages.
    Ready,
    /// All messages of a connection have been received, or returned.
    Finished,
}

/// Status and number of the node that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchReply {
    /// The status of the server.
    pub status: BenchStatus,
    /// Number of the node.
    pub node: u32,
}

impl BenchReply {
    /// Length of an encoded reply, in bytes. It includes a port and sixteen addresses for TCP, after status and node.
    pub(crate) const ENCODED_BYTES: usize = 76;

    /// Encodes the reply; port and addresses are zero.
    pub fn write(self) -> [u8; BenchReply::ENCODED_BYTES] {
        let mut bytes = [0; BenchReply::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&(self.status as u32).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.node.to_be_bytes());
        bytes
    }

    /// Decodes a reply; `None` if the bytes are not a reply, or have the wrong length.
    pub fn read(bytes: &[u8]) -> Option<BenchReply> {
        let bytes: &[u8; BenchReply::ENCODED_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let words = [BenchStatus::Listening, BenchStatus::Ready, BenchStatus::Finished];
        Some(BenchReply { status: *words.get(number(0) as usize)?, node: number(4) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes words of four bytes, as in a trace.
    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn commands_are_those_of_the_original() {
        for (command, words) in [
            (BenchCommand::Restart, [3, 0, 0, 0]),
            (
                BenchCommand::Listen { max_message_bytes: MAX_MESSAGE_BYTES, tcp: false },
                [0, 0x0001_01d0, 0, 0],
            ),
            (BenchCommand::Listen { max_message_bytes: 64, tcp: true }, [1, 64, 0, 0]),
            (BenchCommand::Measure { message_bytes: 64, count: 400, echo: true }, [2, 0x40, 0x190, 1]),
            (
                BenchCommand::Measure { message_bytes: 65_536, count: 20_000, echo: false },
                [2, 0x10000, 0x4e20, 0],
            ),
        ] {
            assert_eq!(command.write().to_vec(), bytes(&words));
            assert_eq!(BenchCommand::read(&bytes(&words)), Some(command));
        }
    }

    #[test]
    fn replies_are_those_of_the_original() {
        for (number, word) in
            [(0, BenchStatus::Listening), (1, BenchStatus::Ready), (2, BenchStatus::Finished)]
        {
            let encoded = [bytes(&[number, 0x6e32_0000]), vec![0; 68]].concat();
            assert_eq!(encoded.len(), 76);
            assert_eq!(BenchReply { status: word, node: 0x6e32_0000 }.write().to_vec(), encoded);
            assert_eq!(BenchReply::read(&encoded), Some(BenchReply { status: word, node: 0x6e32_0000 }));
        }
    }

    #[test]
    fn what_is_something_else_is_refused() {
        assert_eq!(BenchCommand::read(&bytes(&[4, 64, 400, 1])), None);
        assert_eq!(BenchCommand::read(&bytes(&[2, 64, 400, 2])), None);
        assert_eq!(BenchCommand::read(&bytes(&[2, 64, 400])), None);
        assert_eq!(BenchReply::read(&[0; 75]), None);
        assert_eq!(BenchReply::read(&[bytes(&[3, 0]), vec![0; 68]].concat()), None);
    }
}
