//! What functions with files return.

use std::io;

/// Owner of a file, and what others may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The number of the user; 0 is root. Windows: always this user.
    pub user: u32,
    /// The number of the group; 0 is that of root.
    pub group: u32,
    /// The permissions: nine bits.
    pub mode: u32,
    /// Number of names of the file.
    pub names: u64,
}

impl Ownership {
    /// Whether only its user has rights to it.
    pub fn is_private(&self) -> bool {
        self.mode & 0o077 == 0
    }

    /// Whether others than its user may write it.
    pub fn is_writable_by_others(&self) -> bool {
        self.mode & 0o022 != 0
    }
}

/// Error for a file or a folder that is not the requested one.
#[derive(Debug)]
pub enum OpenError {
    /// No file or folder has the name.
    NotFound,
    /// A symbolic link has the name.
    Link,
    /// The file is not a folder.
    NotAFolder,
    /// Another error.
    Other(io::Error),
}
