//! The files of a logger: one drive, in memory.

use std::collections::{BTreeMap, VecDeque};

use crate::lab::LabError;
use crate::peer::pakbus::directory::{self, Entry};
use crate::peer::pakbus::message::{Code, Store};
use crate::peer::pakbus::value::{Instant, UNIX_1990};
use crate::stats::SplitMix64;

/// The only drive.
const DRIVE: &str = "CPU:";

/// Room on it, in bytes: a CR1000 has 4 MB of memory for files and tables.
const ROOM: usize = 4_000_000;

/// Longest name, as the BMP5 manual has it.
const LONGEST_NAME: usize = 64;

/// Files that clients may be storing at once. Beyond that the oldest one is given up: its client has gone.
const OPEN: usize = 16;

#[derive(Debug, Default)]
pub struct Files {
    files: BTreeMap<String, File>,
    /// Being stored, by the client's address and transaction number.
    open: VecDeque<((u16, u8), File)>,
}

#[derive(Debug, Clone, Default)]
struct File {
    name: String,
    bytes: Vec<u8>,
    updated: Instant,
}

/// `length` bytes that look random and are the same for the same seed.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| (random.uniform() * 256.0) as u8).collect()
}

/// Refuses names that no file on the drive can have.
pub fn check_name(name: &str) -> Result<(), LabError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(LabError(format!(
            "'{name}' is no file of a logger: write {DRIVE}name, at most {LONGEST_NAME} letters"
        ))),
    }
}

fn is_name(name: &str) -> bool {
    let inner = name.strip_prefix(DRIVE).unwrap_or_default();
    !inner.is_empty() && name.len() <= LONGEST_NAME && inner.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Files {
    pub fn insert(&mut self, name: String, bytes: Vec<u8>, updated: Instant) {
        self.files.insert(name.clone(), File { name, bytes, updated });
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(|file| file.bytes.as_slice())
    }

    pub fn delete(&mut self, name: &str) -> Code {
        match self.files.remove(name) {
            Some(_) => Code::COMPLETE,
            None => Code::BAD_NAME,
        }
    }

    /// Bytes that still fit.
    fn free(&self) -> usize {
        let files = self.files.values().chain(self.open.iter().map(|(_, file)| file));
        ROOM.saturating_sub(files.map(|file| file.bytes.len()).sum())
    }

    /// Takes a piece of a file from a client, which tells its files apart by their transaction numbers.
    pub fn store(&mut self, client: (u16, u8), piece: Store, now: Instant) -> Code {
        if piece.data.len() > self.free() {
            return Code::FULL;
        }
        if piece.offset == 0 {
            self.open.retain(|(of, _)| *of != client);
            if !is_name(&piece.name) {
                return Code::BAD_NAME;
            }
            if self.open.len() == OPEN {
                self.open.pop_front();
            }
            self.open.push_back((client, File { name: piece.name, ..File::default() }));
        }
        let Some(at) = self.open.iter().position(|(of, _)| *of == client) else {
            return Code::WRONG_FRAGMENT;
        };
        let bytes = &mut self.open[at].1.bytes;
        let offset = piece.offset as usize;
        if offset == bytes.len() {
            bytes.extend(&piece.data);
        } else if offset + piece.data.len() != bytes.len() {
            // Otherwise the client has not heard the answer to its last piece, and sends it again.
            return Code::WRONG_FRAGMENT;
        }
        if piece.close
            && let Some((_, file)) = self.open.remove(at)
        {
            self.insert(file.name, file.bytes, now);
        }
        Code::COMPLETE
    }

    /// The file that lists the others.
    pub fn directory(&self) -> Vec<u8> {
        let entry = |name: &str, size: usize, updated: String| Entry {
            name: name.to_owned(),
            size: u32::try_from(size).unwrap_or(u32::MAX),
            updated,
            attributes: Vec::new(),
        };
        let files = self.files.values().map(|file| entry(&file.name, file.bytes.len(), date(file.updated)));
        let entries: Vec<Entry> =
            [entry(DRIVE, self.free(), String::new())].into_iter().chain(files).collect();
        directory::write(&entries)
    }
}

/// As directories have it.
fn date(instant: Instant) -> String {
    let time = jiff::Timestamp::from_second(UNIX_1990 + i64::from(instant.seconds));
    time.map_or_else(|_| String::new(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(name: &str, offset: usize, data: &[u8], close: bool) -> Store {
        Store { security: 0, name: name.to_owned(), close, offset: offset as u32, data: data.to_vec() }
    }

    #[test]
    fn a_file_is_stored_in_pieces_and_a_piece_may_come_twice() {
        let mut files = Files::default();
        let mut store = |piece| files.store((4094, 7), piece, Instant::default());
        assert_eq!(store(piece("CPU:a", 0, b"one", false)), Code::COMPLETE);
        assert_eq!(store(piece("", 3, b"two", false)), Code::COMPLETE);
        assert_eq!(store(piece("", 3, b"two", false)), Code::COMPLETE, "again");
        assert_eq!(store(piece("", 9, b"four", false)), Code::WRONG_FRAGMENT, "a gap");
        assert_eq!(store(piece("", 6, b"", true)), Code::COMPLETE);
        assert_eq!(store(piece("", 6, b"x", true)), Code::WRONG_FRAGMENT, "it is closed");
        assert_eq!(files.get("CPU:a"), Some(&b"onetwo"[..]));
        assert_eq!((files.delete("CPU:a"), files.delete("CPU:a")), (Code::COMPLETE, Code::BAD_NAME));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut files = Files::default();
        for name in ["", "CPU:", "a", "USB:a", "CPU:a b", &format!("CPU:{}", "a".repeat(61))] {
            assert_eq!(
                files.store((1, 1), piece(name, 0, b"x", true), Instant::default()),
                Code::BAD_NAME,
                "{name}"
            );
            assert!(check_name(name).is_err());
        }
        files.insert("CPU:big".to_owned(), vec![0; ROOM - 5], Instant::default());
        assert_eq!(
            files.store((1, 1), piece("CPU:a", 0, b"12345", false), Instant::default()),
            Code::COMPLETE
        );
        assert_eq!(files.store((1, 1), piece("CPU:a", 5, b"6", false), Instant::default()), Code::FULL);
        for client in 0..100 {
            files.store((client, 1), piece("CPU:a", 0, b"", false), Instant::default());
        }
        assert_eq!(files.open.len(), OPEN);
    }

    #[test]
    fn a_directory_lists_the_drive_and_the_files() {
        let mut files = Files::default();
        files.insert("CPU:a".to_owned(), content(1, 300), Instant { seconds: 1_136_073_845, nanoseconds: 5 });
        let entries = directory::read(&files.directory()).unwrap();
        let told: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.size, e.updated.as_str())).collect();
        assert_eq!(told, [("CPU:", 3_999_700, ""), ("CPU:a", 300, "2026-01-01 00:04:05")]);
        assert_eq!(content(1, 300), content(1, 300));
        assert_ne!(content(1, 300), content(2, 300));
    }
}
