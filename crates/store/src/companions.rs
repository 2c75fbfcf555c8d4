//! Files that SQLite would use as a database or beside it, and that another user can have put there.

use linkgauge_system::{Ownership, effective_user};
use std::path::{Path, PathBuf};

/// SQLite would use this file, and another user can have written it.
#[derive(Debug)]
pub struct PlantedFile(pub PathBuf);

/// Refuses files that SQLite would roll back or write beside the database, if another user can have put them there: it follows
/// links, and replays what such a file holds. Refuses a database that is a link of another user.
///
/// # Errors
///
/// Returns the first such file.
pub fn check_companions(path: &Path) -> Result<(), PlantedFile> {
    let own = effective_user();
    let is_foreign =
        |facts: std::fs::Metadata| facts.is_symlink() && ![0, own].contains(&Ownership::of(&facts).user);
    if path.symlink_metadata().is_ok_and(is_foreign) {
        return Err(PlantedFile(path.to_owned()));
    }
    // SQLite resolves the path as well.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let database = path.metadata().ok().map(|facts| Ownership::of(&facts));
    let may_own = |uid: u32| {
        // The system, and users who may write the database itself, leave a journal while they write it.
        uid == 0
            || uid == own
            || database
                .as_ref()
                .is_some_and(|database| database.user == uid || database.is_writable_by_others())
    };
    for suffix in ["-journal", "-wal", "-shm"] {
        let mut companion = path.clone().into_os_string();
        companion.push(suffix);
        let Ok(facts) = std::fs::symlink_metadata(&companion) else { continue };
        let ownership = Ownership::of(&facts);
        if !facts.is_file() || ownership.names > 1 || !may_own(ownership.user) {
            return Err(PlantedFile(companion.into()));
        }
    }
    Ok(())
}
