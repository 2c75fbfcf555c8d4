//! A check of a folder that leaves nothing in it.

use std::io;
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;

/// Checks that files can be created in a folder, without creating one that others see.
///
/// # Errors
///
/// No files can be created in the folder, or there is no such folder.
pub fn check_folder_writable(folder: &Path) -> io::Result<()> {
    match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR) {
        Ok(_) => Ok(()),
        // Some file systems do not support them.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?),
        Err(error) => Err(error.into()),
    }
}
