//! Settings of a serial line from and to those of a terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::termios::{
    ControlModes, InputModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::serial_settings::{FlowControl, Parity, SerialSettings, StopBits};

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

/// The settings of a terminal. On the master side of a pseudo-terminal: those set by the program on the other
/// side.
///
/// # Errors
///
/// Fails if it is no terminal, or is closed.
pub fn line_settings(terminal: impl AsFd) -> io::Result<SerialSettings> {
    Ok(settings_from(&modes(terminal)?))
}

fn settings_from(termios: &Termios) -> SerialSettings {
    let control = termios.control_modes;
    let size = control & ControlModes::CSIZE;
    let data_bits = match () {
        () if size == ControlModes::CS5 => 5,
        () if size == ControlModes::CS6 => 6,
        () if size == ControlModes::CS7 => 7,
        () => 8,
    };
    // A pseudo-terminal stores PARODD and CMSPAR but clears PARENB; PARODD or CMSPAR without PARENB has no
    // other use.
    let parity = match (
        control.contains(ControlModes::PARODD),
        control.contains(ControlModes::CMSPAR),
        control.contains(ControlModes::PARENB),
    ) {
        (true, false, _) => Parity::Odd,
        (true, true, _) => Parity::Mark,
        (false, true, _) => Parity::Space,
        (false, false, true) => Parity::Even,
        (false, false, false) => Parity::None,
    };
    let stop = match (control.contains(ControlModes::CSTOPB), data_bits) {
        (false, _) => StopBits::One,
        (true, 5) => StopBits::OneAndHalf,
        (true, _) => StopBits::Two,
    };
    let flow = if control.contains(ControlModes::CRTSCTS) {
        FlowControl::RtsCts
    } else if termios.input_modes.intersects(InputModes::IXON | InputModes::IXOFF) {
        FlowControl::XonXoff
    } else {
        FlowControl::None
    };
    SerialSettings { baud: termios.output_speed(), data_bits, parity, stop_bits: stop, flow_control: flow }
}

/// Configures a terminal as a raw serial port; returns the effective settings.
///
/// # Errors
///
/// Fails if it is no terminal, or if the driver does not support the rate.
pub fn set_line(terminal: impl AsFd, wanted: &SerialSettings) -> io::Result<SerialSettings> {
    let terminal = terminal.as_fd();
    let mut termios = modes(terminal)?;
    termios.make_raw();
    let control = &mut termios.control_modes;
    control.remove(
        ControlModes::CSIZE
            | ControlModes::PARENB
            | ControlModes::PARODD
            | ControlModes::CMSPAR
            | ControlModes::CSTOPB
            | ControlModes::CRTSCTS
            | ControlModes::HUPCL,
    );
    control.insert(ControlModes::CREAD | ControlModes::CLOCAL);
    control.insert(match wanted.data_bits {
        5 => ControlModes::CS5,
        6 => ControlModes::CS6,
        7 => ControlModes::CS7,
        _ => ControlModes::CS8,
    });
    control.insert(match wanted.parity {
        Parity::None => ControlModes::empty(),
        Parity::Odd => ControlModes::PARENB | ControlModes::PARODD,
        Parity::Even => ControlModes::PARENB,
        Parity::Mark => ControlModes::PARENB | ControlModes::PARODD | ControlModes::CMSPAR,
        Parity::Space => ControlModes::PARENB | ControlModes::CMSPAR,
    });
    if wanted.stop_bits != StopBits::One {
        control.insert(ControlModes::CSTOPB);
    }
    termios.input_modes.remove(InputModes::IXON | InputModes::IXOFF | InputModes::IXANY);
    match wanted.flow_control {
        FlowControl::None => {}
        FlowControl::RtsCts => termios.control_modes.insert(ControlModes::CRTSCTS),
        FlowControl::XonXoff => termios.input_modes.insert(InputModes::IXON | InputModes::IXOFF),
    }
    termios.special_codes[SpecialCodeIndex::VMIN] = 1;
    termios.special_codes[SpecialCodeIndex::VTIME] = 0;
    termios.set_speed(wanted.baud)?;
    set_modes(terminal, &termios)?;
    line_settings(terminal)
}
