//! Blocks of a load that carries probes: a header, and payload without meaning.
//!
//! ```text
//! "LGrp" length[4] probe[8] payload[length - 16]
//! ```
//!
//! Numbers are big-endian. `length` includes the header. `probe` is 0, or the number of a probe: a block of the sender with
//! a probe is a question, and the receiver returns a header of the same number. The receiver of a load asks with a header
//! alone, and the sender puts the newest number into its next block. A header alone with the highest bit of `probe` set is a
//! count: the other bits are the bytes of the load that the receiver has got.

use crate::link::Fault;

/// Bytes of the header, which is the smallest block.
pub(crate) const HEADER_BYTES: usize = 16;

const MAGIC: &[u8; 4] = b"LGrp";

/// Flag in the field `probe` that marks a count.
const COUNT_FLAG: u64 = 1 << 63;

/// Note of a block, besides its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockNote {
    /// A probe, or the reply to it, of this number.
    Probe(u64),
    /// Bytes of the load that the receiver has got.
    Received(u64),
}

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Bytes of the block, at least [`HEADER_BYTES`].
    pub(crate) block_bytes: u32,
    /// Number of the probe, or 0.
    pub(crate) probe: u64,
}

impl BlockHeader {
    /// A block without payload.
    pub(crate) fn alone(probe: u64) -> BlockHeader {
        BlockHeader { block_bytes: HEADER_BYTES as u32, probe }
    }

    /// A count of received bytes, below 2⁶³.
    pub(crate) fn count(received: u64) -> BlockHeader {
        BlockHeader::alone(COUNT_FLAG | received)
    }

    fn note(self) -> Option<BlockNote> {
        match self.probe {
            0 => None,
            probe if probe & COUNT_FLAG == 0 => Some(BlockNote::Probe(probe)),
            count => Some(BlockNote::Received(count & !COUNT_FLAG)),
        }
    }

    /// The encoded header.
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..8].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.probe.to_be_bytes());
        bytes
    }

    /// The header in these bytes; `None` if they are none.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<BlockHeader> {
        let field = bytes.strip_prefix(MAGIC)?;
        let block_bytes = u32::from_be_bytes(field[..4].try_into().ok()?);
        let probe = u64::from_be_bytes(field[4..].try_into().ok()?);
        (block_bytes as usize >= HEADER_BYTES).then_some(BlockHeader { block_bytes, probe })
    }
}

/// Finds the headers in a stream of blocks, whatever the size of the chunks that arrive.
#[derive(Debug, Default)]
pub struct BlockReader {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    payload_left: usize,
}

impl BlockReader {
    /// Processes received bytes, and calls `on_note` for each block that has a note.
    ///
    /// # Errors
    ///
    /// The bytes are not a block.
    pub fn push(&mut self, mut bytes: &[u8], mut on_note: impl FnMut(BlockNote)) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let skipped = self.payload_left.min(bytes.len());
            self.payload_left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes < HEADER_BYTES {
                continue;
            }
            self.header_bytes = 0;
            let header = BlockHeader::parse(&self.header).ok_or_else(|| {
                Fault::UnexpectedData(
                    "the load arrived changed, or with bytes of another program: check the line with 'linkgauge throughput'"
                        .to_owned(),
                )
            })?;
            self.payload_left = header.block_bytes as usize - HEADER_BYTES;
            header.note().into_iter().for_each(&mut on_note);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn probes(reader: &mut BlockReader, bytes: &[u8]) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        let note = |note| match note {
            BlockNote::Probe(number) => numbers.push(number),
            BlockNote::Received(_) => {}
        };
        reader.push(bytes, note).ok().map(|()| numbers)
    }

    #[test]
    fn a_header_has_its_bytes() {
        let header = BlockHeader { block_bytes: 0x1234, probe: 0x0102_0304 };
        assert_eq!(&header.encode(), b"LGrp\0\0\x12\x34\0\0\0\0\x01\x02\x03\x04");
        assert_eq!(BlockHeader::parse(&header.encode()), Some(header));
        assert_eq!(BlockHeader::parse(&BlockHeader { block_bytes: 15, probe: 1 }.encode()), None);
    }

    #[test]
    fn a_count_is_no_probe() {
        let mut notes = Vec::new();
        let stream = [BlockHeader::count(77).encode(), BlockHeader::alone(3).encode()].concat();
        BlockReader::default().push(&stream, |note| notes.push(note)).unwrap();
        assert_eq!(notes, [BlockNote::Received(77), BlockNote::Probe(3)]);
    }

    #[test]
    fn strange_bytes_are_an_error() {
        assert_eq!(probes(&mut BlockReader::default(), b"LGrp\0\0\0\x10"), Some(vec![]));
        assert_eq!(probes(&mut BlockReader::default(), b"LGrq\0\0\0\x10\0\0\0\0\0\0\0\0"), None);
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_have_the_same_probes(blocks in prop::collection::vec((0u32..50, 0u64..5), 0..20), chunk in 1usize..40) {
            let mut stream = Vec::new();
            for &(payload, probe) in &blocks {
                let header = BlockHeader { block_bytes: HEADER_BYTES as u32 + payload, probe };
                stream.extend(header.encode());
                stream.resize(stream.len() + payload as usize, 0xEE);
            }
            let mut reader = BlockReader::default();
            let mut found = Vec::new();
            for part in stream.chunks(chunk) {
                found.extend(probes(&mut reader, part).unwrap());
            }
            let expected: Vec<u64> = blocks.iter().map(|block| block.1).filter(|&probe| probe > 0).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = probes(&mut BlockReader::default(), &bytes);
        }
    }
}
