//! What links to the same place share: a connection of two nodes that stays open from one case of a run to the next.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Things by name, which live as long as a dialer that has them.
#[derive(Clone, Default)]
pub struct SharedResources(Arc<Mutex<BTreeMap<String, Box<dyn Any + Send>>>>);

impl SharedResources {
    /// Keeps a thing in place of the one that was kept under that name.
    pub fn insert(&self, name: String, thing: impl Any + Send) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Box::new(thing));
        // To drop it may take a while, and the others must not wait for that.
        drop(before);
    }
}

impl fmt::Debug for SharedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
