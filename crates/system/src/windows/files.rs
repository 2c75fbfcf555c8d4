//! Files. Others may do with them what the folder permits: those of the user's profile are the user's own.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT};

use crate::files::{OpenError, Ownership};

/// Creates a folder, and those above it.
///
/// # Errors
///
/// The folders cannot be created.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Creates a folder.
///
/// # Errors
///
/// The folder exists, or cannot be created.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// Creates a file.
///
/// # Errors
///
/// The file exists, or cannot be created.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Makes opening open a symbolic link itself, not its target.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

impl Ownership {
    /// The ownership of any file: that of this user, as far as the folder does not say.
    pub fn of(_metadata: &Metadata) -> Ownership {
        Ownership { user: super::process::effective_user(), group: 1, mode: 0o600, names: 1 }
    }
}

/// Gives a new file the attributes of the old one.
///
/// # Errors
///
/// The attributes cannot be set.
pub fn copy_ownership(old: &Metadata, new: &File) -> io::Result<()> {
    new.set_permissions(old.permissions())
}

/// Whether this user may read and write a file.
pub fn may_read_and_write(path: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(path).is_ok()
}

/// Whether this user may run a program.
pub fn may_run(path: &Path) -> bool {
    path.is_file()
}

/// Checks that files can be created in a folder: one that is gone when it is closed.
///
/// # Errors
///
/// No files can be created in the folder, or there is no such folder.
pub fn check_folder_writable(folder: &Path) -> io::Result<()> {
    use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_DELETE_ON_CLOSE;
    let name = format!(".linkgauge-{}", std::process::id());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(FILE_FLAG_DELETE_ON_CLOSE);
    options.open(folder.join(name)).map(|_| ())
}

/// Whether a path names a serial port, like `COM3`.
pub fn is_character_device(path: &Path) -> bool {
    super::serial_port::port_name(path).is_some()
}

/// A folder.
#[derive(Debug)]
pub struct Folder {
    file: File,
    path: PathBuf,
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        match error.kind() {
            io::ErrorKind::NotFound => OpenError::NotFound,
            _ => OpenError::Other(error),
        }
    }
}

/// A file, unless it is a link.
fn open_itself(options: &mut OpenOptions, path: &Path) -> Result<File, OpenError> {
    let file = options.open(path)?;
    if file.metadata()?.file_type().is_symlink() { Err(OpenError::Link) } else { Ok(file) }
}

impl Folder {
    /// Opens a folder, at whose end no symbolic link is followed.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Folder, OpenError> {
        let flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
        let file = open_itself(OpenOptions::new().read(true).custom_flags(flags), path)?;
        if !file.metadata()?.is_dir() {
            return Err(OpenError::NotAFolder);
        }
        Ok(Folder { file, path: path.to_owned() })
    }

    /// File of the folder, for its metadata and its lock.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A second handle.
    ///
    /// # Errors
    ///
    /// The system gives none.
    pub fn try_clone(&self) -> io::Result<Folder> {
        Ok(Folder { file: self.file.try_clone()?, path: self.path.clone() })
    }

    /// Creates a file in it.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created.
    pub fn create_private_file(&self, name: &str) -> io::Result<File> {
        create_private_file(&self.path.join(name))
    }

    /// Opens a file in it for reading.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open_file(&self, name: &OsStr) -> Result<File, OpenError> {
        open_itself(without_links(OpenOptions::new().read(true)), &self.path.join(name))
    }

    /// Removes a file in it.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

/// Whether a path names a socket itself, which links here do not use.
pub fn is_socket_file(_path: &Path) -> bool {
    false
}

/// Identity of a file, which one that replaced it does not have: none here.
pub fn file_identity(_path: &Path) -> Option<(u64, u64)> {
    None
}

/// A connection to a program that listens at a path, which this system does not have.
#[derive(Debug)]
pub enum LocalStream {}

impl LocalStream {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn connect(_path: impl AsRef<Path>) -> io::Result<LocalStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Limits the time of a read.
    ///
    /// # Errors
    ///
    /// There is no stream.
    pub fn set_read_timeout(&self, _limit: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    /// Limits the time of a write.
    ///
    /// # Errors
    ///
    /// There is no stream.
    pub fn set_write_timeout(&self, _limit: Option<Duration>) -> io::Result<()> {
        match *self {}
    }
}

impl io::Read for LocalStream {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl io::Write for LocalStream {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

/// A symbolic link to a file.
pub use std::os::windows::fs::symlink_file as symlink;
