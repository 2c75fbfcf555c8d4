//! Resources shared by links to the same place: for example a connection of two nodes that stays open between
//! the cases of a run.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Resources by name. They live as long as a dialer that holds them.
#[derive(Clone, Default)]
pub struct SharedResources(Arc<Mutex<BTreeMap<String, Box<dyn Any + Send>>>>);

impl SharedResources {
    /// Stores a resource and replaces the previous one of that name.
    pub(crate) fn insert(&self, name: String, thing: impl Any + Send) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Box::new(thing));
        // Dropping may take a while, and must not block the others.
        drop(before);
    }
}

impl fmt::Debug for SharedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
