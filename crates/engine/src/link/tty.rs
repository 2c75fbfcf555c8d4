//! Terminals as serial ports: settings from and to `termios`, pseudo-terminals as stand-ins for hardware.
//!
//! `serial.rs` makes a link of a terminal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    ControlModes, InputModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::Fault;
use super::serial_line::{FlowControl, Parity, SerialSettings, StopBits};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_system::{self as system, Errno};

/// The scheme of serial ports.
pub(crate) const SCHEME: &str = "serial";

/// The settings of a terminal. On the master side of a pseudo-terminal: those set by the program on the other
/// side.
///
/// # Errors
///
/// Fails if it is no terminal, or is closed.
pub fn read_settings(terminal: impl AsFd) -> Result<SerialSettings, Fault> {
    let termios = tcgetattr(terminal).map_err(|errno| Fault::system("read the settings")(errno.into()))?;
    Ok(settings_from(&termios))
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
pub fn configure(terminal: impl AsFd, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
    let terminal = terminal.as_fd();
    let refused = |errno: Errno| Fault::system("set the line")(errno.into());
    let mut termios = tcgetattr(terminal).map_err(refused)?;
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
    termios.set_speed(wanted.baud).map_err(refused)?;
    tcsetattr(terminal, OptionalActions::Now, &termios).map_err(refused)?;
    read_settings(terminal)
}

/// The endpoint of a terminal with these line settings.
///
/// # Errors
///
/// Fails if the path does not fit an endpoint.
pub fn endpoint(path: &Path, line: &SerialSettings) -> Result<Endpoint, EndpointError> {
    format!("{}://{}?{}", SCHEME, path.display(), line.endpoint_options()).parse()
}

/// A pseudo-terminal: a stand-in for hardware holds the master, programs open the path.
pub struct Pty {
    /// Non-blocking. Each read begins with a byte for its type ([`PtyPacket::parse`]).
    pub master: OwnedFd,
    /// The path for programs, such as `/dev/pts/7`.
    pub path: PathBuf,
    /// Held open, so that reads from the master do not fail while no program has it open.
    _slave: OwnedFd,
}

/// Contents of a read from the master of a pseudo-terminal in packet mode (`TIOCPKT` of ioctl_tty(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtyPacket<'a> {
    /// The read returned no bytes.
    Nothing,
    /// Data written by the program.
    Data(&'a [u8]),
    /// The program discarded its unread or its unsent data, or another event happened.
    Notice {
        /// The program discarded data that it had not read.
        is_read_flushed: bool,
        /// The program discarded data that it had written.
        is_write_flushed: bool,
    },
}

impl<'a> PtyPacket<'a> {
    /// Parses the result of one read.
    pub fn parse(bytes: &'a [u8]) -> PtyPacket<'a> {
        const DATA: u8 = 0;
        const FLUSH_READ: u8 = 1;
        const FLUSH_WRITE: u8 = 2;
        match bytes {
            [] => PtyPacket::Nothing,
            [DATA, data @ ..] => PtyPacket::Data(data),
            [what, ..] => PtyPacket::Notice {
                is_read_flushed: what & FLUSH_READ != 0,
                is_write_flushed: what & FLUSH_WRITE != 0,
            },
        }
    }

    /// The data written by the program; empty for a notice.
    pub fn data(self) -> &'a [u8] {
        match self {
            PtyPacket::Data(data) => data,
            PtyPacket::Nothing | PtyPacket::Notice { .. } => &[],
        }
    }
}

impl Pty {
    /// Opens a raw pseudo-terminal with the default settings of a line.
    ///
    /// # Errors
    ///
    /// Fails if the system has no pseudo-terminal left, or refuses.
    pub fn open() -> Result<Pty, Fault> {
        let fault = |errno: Errno| Fault::system("make a pseudo-terminal")(errno.into());
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(fault)?;
        grantpt(&master).map_err(fault)?;
        unlockpt(&master).map_err(fault)?;
        let name = ptsname(&master, Vec::new()).map_err(fault)?;
        let path = Path::new(OsStr::from_bytes(name.as_bytes())).to_owned();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&path, flags, Mode::empty()).map_err(fault)?;
        configure(&slave, &SerialSettings::default())?;
        system::set_packet_mode(&master).map_err(Fault::system("set the packet mode"))?;
        fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK).map_err(fault)?;
        Ok(Pty { master, path, _slave: slave })
    }

    /// The settings of the program on the other side, as far as a pseudo-terminal stores them: rate, stop
    /// bits, flow control, and odd, mark and space parity. The kernel discards data bits and even parity
    /// (`pty_set_termios`).
    ///
    /// # Errors
    ///
    /// As [`read_settings`].
    pub fn settings(&self) -> Result<SerialSettings, Fault> {
        read_settings(&self.master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_sees_the_settings_of_the_program() {
        let pty = Pty::open().unwrap();
        assert_eq!(pty.settings().unwrap(), SerialSettings::default());
        for baud in [75, 230_400, 250_000, 4_000_000] {
            for parity in [Parity::None, Parity::Odd, Parity::Mark, Parity::Space] {
                for stop in [StopBits::One, StopBits::Two] {
                    for flow in FlowControl::ALL {
                        let wanted = SerialSettings {
                            baud,
                            data_bits: 8,
                            parity,
                            stop_bits: stop,
                            flow_control: flow,
                        };
                        assert_eq!(configure(&pty._slave, &wanted).unwrap(), wanted);
                        assert_eq!(pty.settings().unwrap(), wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn an_endpoint_lists_settings_that_differ_from_the_defaults() {
        let path = Path::new("/dev/pts/7");
        let printed = |line| {
            let endpoint = endpoint(path, &line).unwrap();
            assert_eq!(SerialSettings::from_endpoint(&endpoint).unwrap(), line);
            endpoint.to_string()
        };
        assert_eq!(printed(SerialSettings::default()), "serial:///dev/pts/7?baud=9600");
        let all = SerialSettings {
            baud: 75,
            data_bits: 5,
            parity: Parity::Mark,
            stop_bits: StopBits::OneAndHalf,
            flow_control: FlowControl::RtsCts,
        };
        assert_eq!(printed(all), "serial:///dev/pts/7?baud=75&data=5&parity=mark&stop=1.5&flow=rtscts");
    }

    #[test]
    fn a_pseudo_terminal_loses_data_bits_and_even_parity() {
        // If a kernel ever stores them, the entry in docs/limits.md and the lab's options for them can be
        // removed.
        let pty = Pty::open().unwrap();
        let wanted = SerialSettings { data_bits: 7, parity: Parity::Even, ..SerialSettings::default() };
        assert_eq!(configure(&pty._slave, &wanted).unwrap(), SerialSettings::default());
    }
}
