//! Files that other users may not have planted, and what this user may do with them.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{Access, AtFlags, Mode, OFlags, access, open, openat, unlinkat};
use rustix::io::Errno;

use crate::files::{OpenError, Ownership};

/// Creates a folder, and those above it, that only this user can read and write.
///
/// # Errors
///
/// The folders cannot be created.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a folder that only this user can read and write.
///
/// # Errors
///
/// The folder exists, or cannot be created.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a file that only this user can read and write.
///
/// # Errors
///
/// The file exists, or cannot be created.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes opening fail at a symbolic link, and not wait at a pipe or a device.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
}

impl Ownership {
    /// The ownership of a file with these metadata.
    pub fn of(metadata: &Metadata) -> Ownership {
        Ownership {
            user: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode() & 0o777,
            names: metadata.nlink(),
        }
    }
}

/// Gives a new file the owner, as far as this user may, and the permissions of the old one.
///
/// # Errors
///
/// The permissions cannot be set.
pub fn copy_ownership(old: &Metadata, new: &File) -> io::Result<()> {
    // Only root may change the owner.
    let _ = fchown(new, Some(old.uid()), Some(old.gid()));
    new.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

/// Whether this user may read and write a file.
pub fn may_read_and_write(path: &Path) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Whether this user may run a program.
pub fn may_run(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Whether a path names a device that moves characters, as a serial port or a terminal does.
pub fn is_character_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_char_device())
}

/// A folder that stays the same one, whatever happens to its path.
#[derive(Debug)]
pub struct Folder(File);

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> OpenError {
        match errno {
            Errno::NOENT => OpenError::NotFound,
            Errno::LOOP => OpenError::Link,
            Errno::NOTDIR => OpenError::NotAFolder,
            errno => OpenError::Other(errno.into()),
        }
    }
}

impl Folder {
    /// Opens a folder, at whose end no symbolic link is followed.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Folder, OpenError> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(open(path, how, Mode::empty())?.into()))
    }

    /// File of the folder, for its metadata and its lock.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// A second handle.
    ///
    /// # Errors
    ///
    /// The system gives none.
    pub fn try_clone(&self) -> io::Result<Folder> {
        self.0.try_clone().map(Folder)
    }

    /// Creates a file in it that only this user can read and write.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created.
    pub fn create_private_file(&self, name: &str) -> io::Result<File> {
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, how, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file in it for reading. Opening a pipe or a device has no effect and does not wait.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_file(&self, name: &std::ffi::OsStr) -> Result<File, OpenError> {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, how, Mode::empty())?.into())
    }

    /// Removes a file in it.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn remove_file(&self, name: &std::ffi::OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// Whether a path names a socket itself.
pub fn is_socket_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
}

/// Identity of a file, which one that replaced it does not have.
pub fn file_identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// A connection to a program that listens at a path.
pub use std::os::unix::net::UnixStream as LocalStream;

/// A symbolic link to a file.
pub use std::os::unix::fs::symlink;
