//! Journals of changed settings: what restores them when the processes that changed them were killed.
//!
//! A journal names each setting and its earlier value before anything is changed. Its process and the one that restores share a
//! lock on it; a journal without a lock was left by processes that were killed. Root restores what a journal says. So journals
//! lie in a folder that only this user can write, whatever the folders above it allow, and each of them is checked as well.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{DeviceSetting, SettingError, apply, setting_error};
use crate::host::read;
use linkgauge_system::{Folder, OpenError, Ownership, create_private_folders, effective_user};

/// The folder of the journals, beside the saved runs.
const FOLDER_NAME: &str = "restore";
/// Prefix of the names of journals.
const JOURNAL_PREFIX: &str = "restore-";
/// Maximum size of a journal that is read: no journal has more.
const MAX_JOURNAL_BYTES: u64 = 1 << 20;
/// Timeout for the folder of the journals. Another process holds it only while it writes one file or restores some settings.
const FOLDER_TIMEOUT: Duration = Duration::from_secs(5);
const FOLDER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The folder of the journals. One process at a time has it open, so that none restores what another begins to change.
pub struct RestoreFolder {
    path: PathBuf,
    /// The lock ends when it is closed.
    folder: Folder,
    /// Root of the file system with the settings.
    root: PathBuf,
}

impl RestoreFolder {
    /// Opens the folder of the journals in `data`, the folder of the saved runs, and creates it if necessary. `root` is `/`.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, other users can write it, or another process keeps it for too long.
    pub fn open(data: &Path, root: &Path) -> Result<RestoreFolder, SettingError> {
        let path = data.join(FOLDER_NAME);
        create_private_folders(&path).map_err(journal_error("create", &path))?;
        let folder = open_folder(&path)?;
        let deadline = Instant::now() + FOLDER_TIMEOUT;
        while folder.file().try_lock().is_err() {
            if Instant::now() > deadline {
                return Err(journal_error("lock", &path)(io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(FOLDER_POLL_INTERVAL);
        }
        Ok(RestoreFolder { path, folder, root: root.to_owned() })
    }

    /// Writes the earlier values of the settings of `wanted` into a new journal. Changes nothing else.
    ///
    /// # Errors
    ///
    /// A setting cannot be read, another process has changed it, or the journal cannot be written.
    pub fn begin(&self, wanted: &[DeviceSetting]) -> Result<ChangeJournal, SettingError> {
        for name in self.names() {
            let theirs = self.duty(&name).and_then(|duty| duty.map(|mut duty| duty.read()).transpose());
            // An unusable journal restores nothing.
            let theirs = theirs.ok().flatten().unwrap_or_default();
            if let Some(both) =
                wanted.iter().find(|mine| theirs.iter().any(|other| other.place == mine.place))
            {
                return Err(SettingError::InUse(both.place.clone()));
            }
        }
        let read = |setting: &DeviceSetting| match setting.place.read(&self.root) {
            Some(value) => Ok(DeviceSetting { place: setting.place.clone(), value }),
            None => Err(setting_error("read", &setting.place, io::ErrorKind::NotFound.into())),
        };
        let earlier: Vec<DeviceSetting> = wanted.iter().map(read).collect::<Result<_, _>>()?;
        let name = format!("{JOURNAL_PREFIX}{}-{:08x}.json", std::process::id(), fastrand::u32(..));
        let path = self.path.join(&name);
        let file = self.folder.create_private_file(&name);
        let mut file = file.map_err(journal_error("create", &path))?;
        let json = serde_json::to_vec(&earlier).expect("names and texts are JSON");
        let written = file.lock_shared().and_then(|()| file.write_all(&json)).and_then(|()| file.sync_all());
        written.map_err(journal_error("write", &path))?;
        Ok(ChangeJournal { path, _lock: file })
    }

    /// Restores the journals that no process restores: theirs were killed. Returns their number, and the errors of those that could
    /// not be restored.
    pub fn restore_leftovers(&self) -> (usize, Vec<SettingError>) {
        let (mut restored, mut errors) = (0, Vec::new());
        for name in self.names() {
            let leftover = self.duty(&name).map(|duty| duty.filter(|duty| duty.file.try_lock().is_ok()));
            match leftover.and_then(|duty| duty.map(RestoreDuty::restore).transpose()) {
                Ok(done) => restored += usize::from(done.is_some()),
                Err(error) => errors.push(error),
            }
        }
        (restored, errors)
    }

    fn names(&self) -> Vec<String> {
        let names = read::file_names(&self.path).into_iter();
        names.filter(|name| name.starts_with(JOURNAL_PREFIX)).collect()
    }

    fn duty(&self, name: &str) -> Result<Option<RestoreDuty>, SettingError> {
        let folder = self.folder.try_clone().map_err(journal_error("open", &self.path))?;
        RestoreDuty::open(folder, self.path.join(name), &self.root)
    }
}

/// The journal of this process. While it exists, no other process restores it.
pub struct ChangeJournal {
    /// The file.
    pub path: PathBuf,
    _lock: File,
}

/// The duty to restore the settings of a journal.
pub struct RestoreDuty {
    folder: Folder,
    path: PathBuf,
    file: File,
    root: PathBuf,
}

impl RestoreDuty {
    /// Shares the journal of a process that has not yet changed anything, until that process ends.
    ///
    /// # Errors
    ///
    /// The journal cannot be opened, or another user could have written it.
    pub fn share(journal: &Path, root: &Path) -> Result<RestoreDuty, SettingError> {
        let folder = open_folder(journal.parent().unwrap_or(Path::new(".")))?;
        let duty = RestoreDuty::open(folder, journal.to_owned(), root)?;
        let duty = duty.ok_or_else(|| journal_error("open", journal)(io::ErrorKind::NotFound.into()))?;
        duty.file.lock_shared().map_err(journal_error("lock", journal))?;
        Ok(duty)
    }

    /// Opens a journal; `None` if it was removed meanwhile.
    fn open(folder: Folder, path: PathBuf, root: &Path) -> Result<Option<RestoreDuty>, SettingError> {
        let file = match folder.open_file(path.file_name().unwrap_or_default()) {
            Ok(file) => file,
            Err(OpenError::NotFound) => return Ok(None),
            Err(OpenError::Link) => return Err(not_private(&path, "it is a symbolic link", REMOVE)),
            Err(OpenError::NotAFolder) => return Err(not_private(&path, "its folder is none", REMOVE)),
            Err(OpenError::Other(error)) => return Err(journal_error("open", &path)(error)),
        };
        let facts = file.metadata().map_err(journal_error("open", &path))?;
        match Ownership::of(&facts).names {
            0 => return Ok(None),
            1 if facts.is_file() => check_private(&facts, &path, REMOVE)?,
            _ => return Err(not_private(&path, "it is not a file with one name", REMOVE)),
        }
        Ok(Some(RestoreDuty { folder, path, file, root: root.to_owned() }))
    }

    /// The earlier values. A journal that was cut short was never followed by a change.
    fn read(&mut self) -> Result<Vec<DeviceSetting>, SettingError> {
        let mut text = Vec::new();
        let mut limited = (&self.file).take(MAX_JOURNAL_BYTES);
        limited.read_to_end(&mut text).map_err(journal_error("read", &self.path))?;
        let foreign = || not_private(&self.path, "this program did not write it", REMOVE);
        match serde_json::from_slice::<Vec<DeviceSetting>>(&text) {
            Ok(earlier) if earlier.iter().all(DeviceSetting::is_possible) => Ok(earlier),
            Err(error) if error.is_eof() => Ok(Vec::new()),
            Ok(_) | Err(_) => Err(foreign()),
        }
    }

    /// Writes the earlier values and removes the journal.
    ///
    /// # Errors
    ///
    /// The first setting that could not be written; the journal then stays, for a later try. A device that was unplugged
    /// has nothing to restore.
    pub fn restore(mut self) -> Result<(), SettingError> {
        let mut earlier = self.read()?;
        earlier.retain(|setting| setting.place.read(&self.root).is_some());
        apply(&self.root, &earlier)?;
        let removed = self.folder.remove_file(self.path.file_name().unwrap_or_default());
        removed.map_err(journal_error("remove", &self.path))
    }
}

const REMOVE: &str = "Remove it";

/// Opens the folder of the journals, which no other user can have written.
fn open_folder(path: &Path) -> Result<Folder, SettingError> {
    let folder = match Folder::open(path) {
        Ok(folder) => folder,
        Err(OpenError::Link | OpenError::NotAFolder) => {
            return Err(not_private(path, "it is not a folder", REMOVE));
        }
        Err(OpenError::NotFound) => return Err(journal_error("open", path)(io::ErrorKind::NotFound.into())),
        Err(OpenError::Other(error)) => return Err(journal_error("open", path)(error)),
    };
    let facts = folder.file().metadata().map_err(journal_error("open", path))?;
    check_private(&facts, path, "Remove it with its content")?;
    Ok(folder)
}

/// Whether only this user can have written a file.
fn check_private(facts: &fs::Metadata, path: &Path, remedy: &'static str) -> Result<(), SettingError> {
    let ownership = Ownership::of(facts);
    if ownership.user != effective_user() {
        return Err(not_private(path, "it belongs to another user", remedy));
    }
    match ownership.is_private() {
        true => Ok(()),
        false => Err(not_private(path, "other users have rights to it", remedy)),
    }
}

fn not_private(path: &Path, why: &'static str, remedy: &'static str) -> SettingError {
    SettingError::NotPrivate { path: path.to_owned(), why, remedy }
}

fn journal_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SettingError + 'a {
    move |source| SettingError::Journal { operation, path: path.to_owned(), source }
}
