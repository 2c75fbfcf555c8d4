//! What a cell may need of a kernel that a host need not have, so that it is measured in a guest that has it.
//!
//! Not for starting one: `lab::vm` does that, and whoever runs the study puts itself inside.

use serde::Deserialize;

use super::{Cell, Study};

/// A kind of guest; cells of the same kind are measured in one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Of the kernel; what they depend on comes along.
    pub modules: Vec<String>,
    /// Programs of the host that are taken along.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Done in the guest before anything is measured, by its shell; where a command of it fails, nothing is. It changes the
    /// machine that it runs on, so a cell that needs it is never measured outside.
    #[serde(default)]
    pub before: String,
}

impl Study {
    /// The guest that a cell needs where the host is not enough, with its name.
    pub fn guest_for(&self, cell: &Cell) -> Option<(&str, &GuestSpec)> {
        let name = cell.guest.as_deref()?;
        self.guests.get_key_value(name).map(|(name, guest)| (name.as_str(), guest))
    }

    /// The kernel modules that a cell cannot be measured without.
    pub fn modules_for<'a>(&'a self, cell: &'a Cell) -> &'a [String] {
        match self.guest_for(cell) {
            Some((_, guest)) if cell.modules.is_empty() => &guest.modules,
            _ => &cell.modules,
        }
    }

    /// The kind of guest of that name.
    pub fn find_guest(&self, name: &str) -> Option<&GuestSpec> {
        self.guests.get(name)
    }
}
