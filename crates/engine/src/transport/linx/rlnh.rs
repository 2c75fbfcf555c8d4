//! RLNH 2, the link handler of LINX: nodes announce the names and addresses of their endpoints. Parses and
//! encodes messages; `node` implements their effects.
//!
//! Everything is big-endian. The lowest byte of the first word is the type.

/// The protocol version.
pub(crate) const VERSION: u32 = 2;

/// Maximum length of a name, in bytes: longer names do not occur.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// One message. Addresses belong to the sender's own endpoints, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RlnhMessage {
    /// `asker` requests a message when an endpoint of that name exists.
    QueryName {
        /// Address of the endpoint that hunts for the name.
        asker: u32,
        /// The name that it hunts for.
        name: Vec<u8>,
    },
    /// Announces an endpoint of the sender.
    Publish {
        /// The address that the sender gives the endpoint.
        address: u32,
        /// The name of the endpoint.
        name: Vec<u8>,
    },
    /// An endpoint of the sender has ended.
    Unpublish {
        /// The address of the endpoint.
        address: u32,
    },
    /// An address of the receiver of this message is free again.
    UnpublishAck {
        /// The address that may be used again.
        address: u32,
    },
    /// The first message of each node.
    Init {
        /// The version of the sender.
        version: u32,
    },
    /// The reply to [`RlnhMessage::Init`].
    InitReply {
        /// Whether the sender supports the version.
        supported: bool,
    },
    /// `address` is one more name for the receiver's own endpoint `peer`.
    PublishPeer {
        /// The additional address.
        address: u32,
        /// The address that the endpoint already has.
        peer: u32,
    },
    /// Real nodes ignore unknown types.
    Unknown(u8),
}

/// Error of a malformed message: it is too short, or a name has no terminator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage;

impl RlnhMessage {
    /// Parses one message.
    ///
    /// # Errors
    ///
    /// Fails if the message is too short, or has a name without terminator.
    pub fn parse(bytes: &[u8]) -> Result<RlnhMessage, MalformedMessage> {
        let word = |index: usize| {
            let word = bytes.get(4 * index..4 * index + 4).ok_or(MalformedMessage)?;
            Ok(u32::from_be_bytes(word.try_into().map_err(|_| MalformedMessage)?))
        };
        // The upper bits are reserved.
        let kind = word(0)? as u8;
        Ok(match kind {
            1 => RlnhMessage::QueryName { asker: word(1)?, name: parse_name(bytes)? },
            2 => RlnhMessage::Publish { address: word(1)?, name: parse_name(bytes)? },
            3 => RlnhMessage::Unpublish { address: word(1)? },
            4 => RlnhMessage::UnpublishAck { address: word(1)? },
            5 => RlnhMessage::Init { version: word(1)? },
            6 => RlnhMessage::InitReply { supported: word(1)? == 0 },
            7 => RlnhMessage::PublishPeer { address: word(1)?, peer: word(2)? },
            kind => RlnhMessage::Unknown(kind),
        })
    }

    /// The message as bytes, with names padded to whole words.
    pub fn encode(&self) -> Vec<u8> {
        let (words, text): (&[u32], Option<&[u8]>) = match self {
            RlnhMessage::QueryName { asker, name } => (&[1, *asker], Some(name)),
            RlnhMessage::Publish { address, name } => (&[2, *address], Some(name)),
            RlnhMessage::Unpublish { address } => (&[3, *address], None),
            RlnhMessage::UnpublishAck { address } => (&[4, *address], None),
            RlnhMessage::Init { version } => (&[5, *version], None),
            // The feature string is empty: LINX defines no features.
            RlnhMessage::InitReply { supported } => (&[6, u32::from(!supported)], Some(&[])),
            RlnhMessage::PublishPeer { address, peer } => (&[7, *address, *peer], None),
            RlnhMessage::Unknown(kind) => (&[u32::from(*kind)], None),
        };
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        if let Some(text) = text {
            bytes.extend_from_slice(text);
            bytes.push(0);
            // Real nodes pad names to whole words; an empty feature string is not padded.
            let padded = if text.is_empty() { bytes.len() } else { bytes.len().next_multiple_of(4) };
            bytes.resize(padded, 0);
        }
        bytes
    }
}

/// The text after two words, up to its NUL.
fn parse_name(bytes: &[u8]) -> Result<Vec<u8>, MalformedMessage> {
    let text = bytes.get(8..).ok_or(MalformedMessage)?;
    let end = text
        .iter()
        .position(|&byte| byte == 0)
        .filter(|&end| end <= MAX_NAME_BYTES)
        .ok_or(MalformedMessage)?;
    Ok(text[..end].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        super::super::tests::hex(text)
    }

    #[test]
    fn reads_and_writes_what_real_nodes_say() {
        let all = [
            (
                "00000001 00000001 73657276 65720000",
                RlnhMessage::QueryName { asker: 1, name: b"server".to_vec() },
            ),
            (
                "00000002 00000001 636c6965 6e740000",
                RlnhMessage::Publish { address: 1, name: b"client".to_vec() },
            ),
            (
                "00000002 00000002 6c696e78 5f626d61 726b5f30 30303030 30303100",
                RlnhMessage::Publish { address: 2, name: b"linx_bmark_00000001".to_vec() },
            ),
            ("00000003 00000002", RlnhMessage::Unpublish { address: 2 }),
            ("00000004 00000002", RlnhMessage::UnpublishAck { address: 2 }),
            ("00000005 00000002", RlnhMessage::Init { version: 2 }),
            ("00000006 00000000 00", RlnhMessage::InitReply { supported: true }),
            ("00000006 00000001 00", RlnhMessage::InitReply { supported: false }),
            ("00000007 00000009 00000002", RlnhMessage::PublishPeer { address: 9, peer: 2 }),
        ];
        for (bytes, message) in all {
            assert_eq!(RlnhMessage::parse(&hex(bytes)), Ok(message.clone()), "{bytes}");
            assert_eq!(message.encode(), hex(bytes), "{message:?}");
        }
        // Real nodes send arbitrary bytes after the feature string, and may set bits above the type.
        let reply = RlnhMessage::InitReply { supported: true };
        assert_eq!(RlnhMessage::parse(&hex("00000006 00000000 00 deadbeef")), Ok(reply));
        assert_eq!(RlnhMessage::parse(&hex("abcdef05 00000002")), Ok(RlnhMessage::Init { version: 2 }));
        assert_eq!(RlnhMessage::parse(&hex("00000009")), Ok(RlnhMessage::Unknown(9)));
    }

    #[test]
    fn refuses_what_is_cut_off_or_never_ends() {
        for bytes in
            ["", "000000", "00000005", "00000005 0000", "00000007 00000001", "00000002 00000001 61626364"]
        {
            assert_eq!(RlnhMessage::parse(&hex(bytes)), Err(MalformedMessage), "{bytes}");
        }
        let mut long = hex("00000002 00000001");
        long.resize(8 + MAX_NAME_BYTES + 1, b'n');
        long.push(0);
        assert_eq!(RlnhMessage::parse(&long), Err(MalformedMessage));
    }
}
