//! The files of a logger: one drive, in memory.

use std::collections::{BTreeMap, VecDeque};

use crate::LabError;
use linkgauge_engine::protocol::pakbus::directory::{self, DirectoryEntry};
use linkgauge_engine::protocol::pakbus::message::{ReplyCode, StoreRequest};
use linkgauge_engine::protocol::pakbus::value::{LOGGER_EPOCH_UNIX_SECONDS, LoggerTime};
use linkgauge_model::stats::SplitMix64;

/// The only drive.
const DRIVE: &str = "CPU:";

/// Capacity in bytes. A CR1000 has 4 MB of memory for files and tables.
const DRIVE_BYTES: usize = 4_000_000;

/// Maximum length of a name, by the BMP5 manual.
const MAX_NAME_BYTES: usize = 64;

/// Maximum number of simultaneous uploads. Beyond it the oldest one is abandoned: its client has disconnected.
const MAX_UPLOADS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct FileStore {
    files: BTreeMap<String, StoredFile>,
    /// Uploads in progress, by the client's address and transaction number.
    uploads: VecDeque<((u16, u8), StoredFile)>,
}

#[derive(Debug, Clone, Default)]
struct StoredFile {
    name: String,
    bytes: Vec<u8>,
    updated: LoggerTime,
}

/// `length` pseudo-random bytes, the same for the same seed.
pub fn generate_content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| (random.uniform() * 256.0) as u8).collect()
}

/// Rejects names that no file on the drive can have.
pub(crate) fn check_file_name(name: &str) -> Result<(), LabError> {
    match is_file_name(name) {
        true => Ok(()),
        false => Err(LabError::Invalid(format!(
            "'{name}' is not a file of a logger. Write {DRIVE}name, at most {MAX_NAME_BYTES} letters"
        ))),
    }
}

fn is_file_name(name: &str) -> bool {
    let inner = name.strip_prefix(DRIVE).unwrap_or_default();
    !inner.is_empty() && name.len() <= MAX_NAME_BYTES && inner.bytes().all(|byte| byte.is_ascii_graphic())
}

impl FileStore {
    pub(crate) fn insert(&mut self, name: String, bytes: Vec<u8>, updated: LoggerTime) {
        self.files.insert(name.clone(), StoredFile { name, bytes, updated });
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(|file| file.bytes.as_slice())
    }

    pub(crate) fn delete(&mut self, name: &str) -> ReplyCode {
        match self.files.remove(name) {
            Some(_) => ReplyCode::COMPLETE,
            None => ReplyCode::BAD_NAME,
        }
    }

    /// Free space in bytes.
    fn free_bytes(&self) -> usize {
        let files = self.files.values().chain(self.uploads.iter().map(|(_, file)| file));
        DRIVE_BYTES.saturating_sub(files.map(|file| file.bytes.len()).sum())
    }

    /// Adds a chunk to an upload. A client identifies its uploads by transaction numbers.
    pub(crate) fn store_chunk(
        &mut self,
        client: (u16, u8),
        chunk: StoreRequest,
        now: LoggerTime,
    ) -> ReplyCode {
        if chunk.data.len() > self.free_bytes() {
            return ReplyCode::FULL;
        }
        if chunk.offset == 0 {
            self.uploads.retain(|(of, _)| *of != client);
            if !is_file_name(&chunk.name) {
                return ReplyCode::BAD_NAME;
            }
            if self.uploads.len() == MAX_UPLOADS {
                self.uploads.pop_front();
            }
            self.uploads.push_back((client, StoredFile { name: chunk.name, ..StoredFile::default() }));
        }
        let Some(at) = self.uploads.iter().position(|(of, _)| *of == client) else {
            return ReplyCode::WRONG_FRAGMENT;
        };
        let bytes = &mut self.uploads[at].1.bytes;
        let offset = chunk.offset as usize;
        if offset == bytes.len() {
            bytes.extend(&chunk.data);
        } else if offset + chunk.data.len() != bytes.len() {
            // Otherwise the client did not receive the reply to its last chunk, and repeats it.
            return ReplyCode::WRONG_FRAGMENT;
        }
        if chunk.is_last
            && let Some((_, file)) = self.uploads.remove(at)
        {
            self.insert(file.name, file.bytes, now);
        }
        ReplyCode::COMPLETE
    }

    /// The file that lists the others.
    pub fn directory_file(&self) -> Vec<u8> {
        let entry = |name: &str, size: usize, updated: String| DirectoryEntry {
            name: name.to_owned(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
            updated,
            attributes: Vec::new(),
        };
        let files =
            self.files.values().map(|file| entry(&file.name, file.bytes.len(), directory_date(file.updated)));
        let entries: Vec<DirectoryEntry> =
            [entry(DRIVE, self.free_bytes(), String::new())].into_iter().chain(files).collect();
        directory::write(&entries)
    }
}

/// The format that directories use.
fn directory_date(instant: LoggerTime) -> String {
    let time = jiff::Timestamp::from_second(LOGGER_EPOCH_UNIX_SECONDS + i64::from(instant.seconds));
    time.map_or_else(|_| String::new(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &str, offset: usize, data: &[u8], close: bool) -> StoreRequest {
        StoreRequest {
            security: 0,
            name: name.to_owned(),
            is_last: close,
            offset: offset as u32,
            data: data.to_vec(),
        }
    }

    #[test]
    fn file_is_stored_in_chunks_and_a_chunk_may_repeat() {
        let mut files = FileStore::default();
        let mut store = |chunk| files.store_chunk((4094, 7), chunk, LoggerTime::default());
        assert_eq!(store(chunk("CPU:a", 0, b"one", false)), ReplyCode::COMPLETE);
        assert_eq!(store(chunk("", 3, b"two", false)), ReplyCode::COMPLETE);
        assert_eq!(store(chunk("", 3, b"two", false)), ReplyCode::COMPLETE, "again");
        assert_eq!(store(chunk("", 9, b"four", false)), ReplyCode::WRONG_FRAGMENT, "a gap");
        assert_eq!(store(chunk("", 6, b"", true)), ReplyCode::COMPLETE);
        assert_eq!(store(chunk("", 6, b"x", true)), ReplyCode::WRONG_FRAGMENT, "it is closed");
        assert_eq!(files.get("CPU:a"), Some(&b"onetwo"[..]));
        assert_eq!(
            (files.delete("CPU:a"), files.delete("CPU:a")),
            (ReplyCode::COMPLETE, ReplyCode::BAD_NAME)
        );
    }

    #[test]
    fn files_beyond_the_drive_are_refused() {
        let mut files = FileStore::default();
        for name in ["", "CPU:", "a", "USB:a", "CPU:a b", &format!("CPU:{}", "a".repeat(61))] {
            assert_eq!(
                files.store_chunk((1, 1), chunk(name, 0, b"x", true), LoggerTime::default()),
                ReplyCode::BAD_NAME,
                "{name}"
            );
            assert!(check_file_name(name).is_err());
        }
        files.insert("CPU:big".to_owned(), vec![0; DRIVE_BYTES - 5], LoggerTime::default());
        assert_eq!(
            files.store_chunk((1, 1), chunk("CPU:a", 0, b"12345", false), LoggerTime::default()),
            ReplyCode::COMPLETE
        );
        assert_eq!(
            files.store_chunk((1, 1), chunk("CPU:a", 5, b"6", false), LoggerTime::default()),
            ReplyCode::FULL
        );
        for client in 0..100 {
            files.store_chunk((client, 1), chunk("CPU:a", 0, b"", false), LoggerTime::default());
        }
        assert_eq!(files.uploads.len(), MAX_UPLOADS);
    }

    #[test]
    fn a_directory_lists_the_drive_and_the_files() {
        let mut files = FileStore::default();
        files.insert(
            "CPU:a".to_owned(),
            generate_content(1, 300),
            LoggerTime { seconds: 1_136_073_845, nanoseconds: 5 },
        );
        let entries = directory::read(&files.directory_file()).unwrap();
        let listed: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.size, e.updated.as_str())).collect();
        assert_eq!(listed, [("CPU:", 3_999_700, ""), ("CPU:a", 300, "2026-01-01 00:04:05")]);
        assert_eq!(generate_content(1, 300), generate_content(1, 300));
        assert_ne!(generate_content(1, 300), generate_content(2, 300));
    }
}
