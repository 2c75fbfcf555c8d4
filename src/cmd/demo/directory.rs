//! The temporary directory of the demo, with its sockets. A demo that was killed cannot remove it, so a later one does.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use linkgauge::system::{Ownership, create_private_folder, effective_user, without_links};

/// Short: the path of a Unix socket has at most 107 bytes.
const NAME_PREFIX: &str = "linkgauge-";

/// Locked by the process that uses the directory. Not empty once the lock is held.
const LOCK_NAME: &str = "lock";

/// Removed at the end.
pub(super) struct TemporaryDirectory {
    path: PathBuf,
    _lock: File,
}

impl TemporaryDirectory {
    /// Creates a directory, and removes those of processes that ended without removing theirs.
    pub(super) fn create() -> Result<TemporaryDirectory> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let path = parent.join(format!("{NAME_PREFIX}{:04x}", fastrand::u16(..)));
        let create = || {
            create_private_folder(&path)?;
            let mut lock = File::create_new(path.join(LOCK_NAME))?;
            lock.try_lock()?;
            lock.write_all(b"locked\n")?;
            Ok::<_, std::io::Error>(lock)
        };
        let lock = create().with_context(|| {
            format!("{}: cannot be created. Set TMPDIR to a writable directory", path.display())
        })?;
        Ok(TemporaryDirectory { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // The next demo removes it if this fails.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of this user whose process has ended.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let own = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME_PREFIX));
    for path in own.map(|entry| entry.path()).filter(|path| is_abandoned(path)) {
        // Links in it are not followed.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Whether it is a directory that only this user can change, with a lock that no process holds.
fn is_abandoned(path: &Path) -> bool {
    let is_private = |path: &Path| {
        let about = std::fs::symlink_metadata(path).ok()?;
        let is_own = {
            let ownership = Ownership::of(&about);
            ownership.user == effective_user() && ownership.is_private()
        };
        (about.is_dir() && is_own).then_some(())
    };
    let has_free_lock = || {
        let mut lock = without_links(OpenOptions::new().read(true)).open(path.join(LOCK_NAME)).ok()?;
        // Empty: its process is about to lock it.
        lock.read_exact(&mut [0]).ok()?;
        lock.try_lock().ok()
    };
    is_private(path).and_then(|()| has_free_lock()).is_some()
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    #[test]
    fn only_directories_without_their_process_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32, lock: Option<&str>| {
            let path = parent.path().join(format!("{NAME_PREFIX}{name}"));
            DirBuilder::new().mode(mode).create(&path).unwrap();
            lock.into_iter().for_each(|text| std::fs::write(path.join(LOCK_NAME), text).unwrap());
            path
        };
        let abandoned = make("0001", 0o700, Some("locked\n"));
        std::fs::write(abandoned.join("socket"), "").unwrap();
        let outside = parent.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, abandoned.join("link")).unwrap();
        let used = make("0002", 0o700, Some("locked\n"));
        let lock = File::open(used.join(LOCK_NAME)).unwrap();
        lock.try_lock().unwrap();
        let kept = [
            used,
            make("0003", 0o700, Some("")),
            make("0004", 0o700, None),
            make("0005", 0o755, Some("locked\n")),
            outside,
        ];
        let link = parent.path().join(format!("{NAME_PREFIX}0006"));
        std::os::unix::fs::symlink(&kept[2], &link).unwrap();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists());
        assert!(kept.iter().chain([&link]).all(|path| path.exists()));
    }
}
