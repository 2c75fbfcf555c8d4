//! Settings of a serial line from and to those of a terminal.

use std::io;
use std::os::fd::AsFd;

use rustix::termios::{ControlModes, InputModes, SpecialCodeIndex, Termios};

use crate::platform::line_modes::{STICK_PARITY, modes, set_modes};
use crate::serial_settings::{FlowControl, Parity, SerialSettings, StopBits};

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
        control.intersects(STICK_PARITY),
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
            | STICK_PARITY
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
        Parity::Mark => ControlModes::PARENB | ControlModes::PARODD | STICK_PARITY,
        Parity::Space => ControlModes::PARENB | STICK_PARITY,
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
