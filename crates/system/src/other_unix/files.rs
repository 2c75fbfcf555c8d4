//! A check of a folder by its permissions.

use std::io;
use std::path::Path;

use rustix::fs::{Access, access};

/// Checks that files can be created in a folder.
///
/// # Errors
///
/// No files can be created in the folder, or there is no such folder.
pub fn check_folder_writable(folder: &Path) -> io::Result<()> {
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}
