//! Kernel features that a cell needs. A host without them measures the cell in a guest.
//!
//! This module starts no guest. `lab::vm` does that, and the program that runs the study moves itself inside.

use serde::Deserialize;

use super::{Cell, Study};

/// A kind of guest. Cells of the same kind share one guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Kernel modules. Their dependencies are added automatically.
    pub modules: Vec<String>,
    /// Programs of the host to copy into the guest.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Shell commands that run in the guest before any measurement. If one fails, nothing is measured. They change the
    /// machine, so a cell that needs them is never measured outside a guest.
    #[serde(default)]
    pub before: String,
}

impl Study {
    /// The guest that a cell needs if the host lacks a feature, with its name.
    pub fn guest_for(&self, cell: &Cell) -> Option<(&str, &GuestSpec)> {
        let name = cell.guest.as_deref()?;
        self.guests.get_key_value(name).map(|(name, guest)| (name.as_str(), guest))
    }

    /// The kernel modules that a cell requires.
    pub fn modules_for<'a>(&'a self, cell: &'a Cell) -> &'a [String] {
        match self.guest_for(cell) {
            Some((_, guest)) if cell.modules.is_empty() => &guest.modules,
            _ => &cell.modules,
        }
    }

    /// Finds the guest of that name.
    pub fn find_guest(&self, name: &str) -> Option<&GuestSpec> {
        self.guests.get(name)
    }
}
