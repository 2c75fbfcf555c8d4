//! The tests of a file whose lines name them, in the order of their first lines.

use std::collections::BTreeMap;

use super::{ImportError, format_error};

/// Maximum number of tests in one file.
const MAX_TESTS: usize = 1000;

/// Values by name, in the order in which the names appeared.
pub(super) struct ByName<T> {
    places: BTreeMap<String, usize>,
    values: Vec<(String, T)>,
}

impl<T> ByName<T> {
    pub(super) fn new() -> ByName<T> {
        ByName { places: BTreeMap::new(), values: Vec::new() }
    }

    /// The value of a name; `new` makes that of a new one.
    ///
    /// # Errors
    ///
    /// The file has more tests than one run can hold.
    pub(super) fn entry(&mut self, name: &str, new: impl FnOnce() -> T) -> Result<&mut T, ImportError> {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None if self.values.len() == MAX_TESTS => {
                return Err(format_error(format!("more than {MAX_TESTS} tests in one file: split it")));
            }
            None => {
                self.places.insert(name.to_owned(), self.values.len());
                self.values.push((name.to_owned(), new()));
                self.values.len() - 1
            }
        };
        Ok(&mut self.values[place].1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The names with their values.
    pub(super) fn into_values(self) -> Vec<(String, T)> {
        self.values
    }
}
