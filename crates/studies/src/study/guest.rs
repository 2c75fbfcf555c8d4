//! Kernel features that a cell needs. A host without them measures the cell in a guest.
//!
//! This module starts no guest. `lab::vm` does that, and the program that runs the study moves itself inside.

use serde::Deserialize;

use super::{Cell, Study, StudyError};
use linkgauge_model::endpoint::Endpoint;

/// A kind of guest. Cells of the same kind share one guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// The guest that it extends: that one's modules, tools and commands come first.
    #[serde(default)]
    like: Option<String>,
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

/// Replacement of a cell in the guest of the cell that it is compared with; the same fields as in [`Cell`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuestPlace {
    command: String,
    #[serde(default)]
    under: String,
    address: Option<Endpoint>,
}

impl Study {
    /// Adds to each guest what the one has that it extends.
    pub(super) fn complete_guests(&mut self) -> Result<(), StudyError> {
        let all = self.guests.clone();
        for guest in self.guests.values_mut() {
            let Some(name) = &guest.like else { continue };
            let base = all.get(name).ok_or_else(|| StudyError::Plan(format!("no guest '{name}'")))?;
            guest.modules.splice(0..0, base.modules.iter().cloned());
            guest.tools.splice(0..0, base.tools.iter().cloned());
            guest.before = format!("{}{}", base.before, guest.before);
        }
        Ok(())
    }

    /// Replaces the cells that are compared with cells of this guest, because the study runs inside it.
    pub fn enter_guest(&mut self, name: &str) {
        let cells = self.cells.clone();
        let is_here = |cell: &Cell| {
            let other =
                cell.beside.as_ref().and_then(|beside| cells.iter().find(|other| other.name == *beside));
            other.is_some_and(|other| other.guest.as_deref() == Some(name))
        };
        for cell in self.cells.iter_mut().filter(|cell| is_here(cell)) {
            if let Some(place) = cell.in_guest.take() {
                (cell.command, cell.under, cell.address) = (place.command, place.under, place.address);
                (cell.quick_command, cell.stand_in) = (None, None);
            }
        }
    }

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
