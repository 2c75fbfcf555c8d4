//! The file `.DIR`: the list of files on a logger.

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};

/// Version of the file: the only supported one.
const DIRECTORY_VERSION: u8 = 1;

/// One file, or a drive like `CPU:`, whose size is its free space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name of the file with its drive, or the drive alone.
    pub name: String,
    /// Size of the file, or free space of the drive, in bytes.
    pub size: u32,
    /// Time of the last change, as `YYYY-MM-DD hh:mm:ss` of the logger's clock; empty for drives.
    pub updated: String,
    /// Attributes of the file: 1 running, 2 run on power-up, 3 read-only, 4 hidden, 5 paused.
    pub attributes: Vec<u8>,
}

/// Parses a `.DIR`.
///
/// # Errors
///
/// [`PakBusParseError::TooShort`] for a truncated file, [`PakBusParseError::Unknown`] for another version.
pub fn read(bytes: &[u8]) -> Result<Vec<DirectoryEntry>, PakBusParseError> {
    let mut reader = MessageReader(bytes);
    if reader.u8()? != DIRECTORY_VERSION {
        return Err(PakBusParseError::Unknown);
    }
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let (name, size, updated) = (reader.text()?, reader.u32()?, reader.text()?);
        let mut attributes = Vec::new();
        loop {
            match reader.u8()? {
                0 => break,
                attribute => attributes.push(attribute),
            }
        }
        entries.push(DirectoryEntry { name, size, updated, attributes });
    }
    Ok(entries)
}

/// Encodes a `.DIR` with these entries.
pub fn write(entries: &[DirectoryEntry]) -> Vec<u8> {
    let mut bytes = vec![DIRECTORY_VERSION];
    for entry in entries {
        bytes.text(&entry.name);
        bytes.u32(entry.size);
        bytes.text(&entry.updated);
        bytes.extend(&entry.attributes);
        bytes.u8(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_directory_is_as_others_read_it() {
        let bytes = b"\x01CPU:\0\x00\x06\xDD\xD0\0\0CPU:bench.bin\0\0\0\x05\x142026-01-02 03:04:05\0\0";
        let entry = |name: &str, size, updated: &str| DirectoryEntry {
            name: name.to_owned(),
            size,
            updated: updated.to_owned(),
            attributes: Vec::new(),
        };
        let entries = [entry("CPU:", 450_000, ""), entry("CPU:bench.bin", 1300, "2026-01-02 03:04:05")];
        assert_eq!(read(bytes).unwrap(), entries);
        assert_eq!(write(&entries), bytes);
        assert_eq!(read(&bytes[..bytes.len() - 1]), Err(PakBusParseError::TooShort));
        assert_eq!(read(b"\x02"), Err(PakBusParseError::Unknown));
    }

    proptest! {
        #[test]
        fn what_can_be_read_writes_back(bytes: Vec<u8>) {
            let bytes = [vec![DIRECTORY_VERSION], bytes].concat();
            if let Ok(entries) = read(&bytes) {
                prop_assert_eq!(write(&entries), bytes);
            }
        }
    }
}
