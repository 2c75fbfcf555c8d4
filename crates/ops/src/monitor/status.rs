//! The state of the monitor itself: whether it could read its file last, and whether the store can be written.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// The state of a monitor itself, shared by those who set and show it.
#[derive(Debug, Default)]
pub struct MonitorStatus(Mutex<StatusValues>);

#[derive(Debug, Default)]
struct StatusValues {
    /// Whether the file could be read last, and when it could.
    is_read: Option<(bool, Timestamp)>,
    is_store_writable: Option<bool>,
}

impl MonitorStatus {
    fn values(&self) -> MutexGuard<'_, StatusValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file was read now, at the start or again.
    pub fn set_read(&self, now: Timestamp) {
        self.values().is_read = Some((true, now));
    }

    /// The file could not be read again.
    pub fn set_unreadable(&self) {
        if let Some((is_read, _)) = &mut self.values().is_read {
            *is_read = false;
        }
    }

    /// Whether the store could be written last. Returns what was known before.
    pub(crate) fn set_store_writable(&self, is_writable: bool) -> Option<bool> {
        self.values().is_store_writable.replace(is_writable)
    }

    /// Whether the file could be read last, and when it could.
    pub(crate) fn last_read(&self) -> Option<(bool, Timestamp)> {
        self.values().is_read
    }

    /// Whether the store could be written last.
    pub(crate) fn is_store_writable(&self) -> Option<bool> {
        self.values().is_store_writable
    }
}
