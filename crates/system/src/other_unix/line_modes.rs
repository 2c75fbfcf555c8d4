//! The modes of a terminal.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::termios::{ControlModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The parity bit keeps its value: this system has no such mode.
pub(crate) const STICK_PARITY: ControlModes = ControlModes::empty();

/// The modes of a terminal.
pub(crate) fn modes(terminal: impl AsFd) -> Result<Termios, Errno> {
    tcgetattr(terminal)
}

/// Changes the modes of a terminal.
pub(crate) fn set_modes(terminal: impl AsFd, modes: &Termios) -> Result<(), Errno> {
    tcsetattr(terminal, OptionalActions::Now, modes)
}
