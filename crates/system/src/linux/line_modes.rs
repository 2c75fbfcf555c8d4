//! The modes of a terminal, also where a kernel or an emulator has the older requests only.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::termios::{ControlModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The parity bit keeps its value.
pub(crate) const STICK_PARITY: ControlModes = ControlModes::CMSPAR;

/// Rates that the older requests of terminals know.
const STANDARD_RATES: [u32; 19] = [
    300, 600, 1200, 1800, 2400, 4800, 9600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800, 921_600,
    1_000_000, 1_500_000, 2_000_000, 3_000_000, 4_000_000,
];

/// The modes of a terminal. Emulators of another processor may lack the newer request; with the older one there are standard rates only.
pub(crate) fn modes(terminal: impl AsFd) -> Result<Termios, Errno> {
    match tcgetattr(&terminal) {
        Err(Errno::NOSYS) => older_modes(terminal),
        modes => modes,
    }
}

fn older_modes(terminal: impl AsFd) -> Result<Termios, Errno> {
    // SAFETY: a C structure of integers.
    let mut modes: Termios = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes its `termios`, the begin of the structure, which lives through the call.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TCGETS, &raw mut modes) };
    if result != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let with_rate = |rate: &u32| {
        let mut candidate = modes.clone();
        candidate.set_speed(*rate).ok()?;
        let changed = candidate.control_modes.bits() ^ modes.control_modes.bits();
        (changed & libc::CBAUD == 0).then_some(candidate)
    };
    STANDARD_RATES.iter().find_map(with_rate).ok_or(Errno::RANGE)
}

/// Changes the modes of a terminal.
pub(crate) fn set_modes(terminal: impl AsFd, modes: &Termios) -> Result<(), Errno> {
    match tcsetattr(&terminal, OptionalActions::Now, modes) {
        Err(Errno::NOSYS) => {
            // SAFETY: the kernel reads its `termios`, the begin of the structure, which lives through the call.
            match unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TCSETS, &raw const *modes) } {
                0 => Ok(()),
                _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
            }
        }
        result => result,
    }
}
