//! Terminals as serial ports: settings in and out of `termios`, pseudo-terminals for stand-ins of hardware.
//!
//! Not a link: `serial.rs` makes one of a terminal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    ControlModes, InputModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::line::{Flow, Parity, Settings, StopBits};
use super::{Fault, sys};
use crate::endpoint::{Endpoint, EndpointError};

/// The settings of a terminal. On the master side of a pseudo-terminal: those that the program on the other side made.
pub fn settings(terminal: impl AsFd) -> Result<Settings, Fault> {
    let termios = tcgetattr(terminal).map_err(|errno| Fault::system("read the settings")(errno.into()))?;
    Ok(settings_of(&termios))
}

fn settings_of(termios: &Termios) -> Settings {
    let control = termios.control_modes;
    let size = control & ControlModes::CSIZE;
    let data_bits = match () {
        () if size == ControlModes::CS5 => 5,
        () if size == ControlModes::CS6 => 6,
        () if size == ControlModes::CS7 => 7,
        () => 8,
    };
    // A pseudo-terminal keeps PARODD and CMSPAR but takes PARENB away; who sets the first two without it means nothing.
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
        Flow::RtsCts
    } else if termios.input_modes.intersects(InputModes::IXON | InputModes::IXOFF) {
        Flow::XonXoff
    } else {
        Flow::None
    };
    Settings { baud: termios.output_speed(), data_bits, parity, stop, flow }
}

/// Makes a terminal a raw serial port with these settings; returns what the driver has made of them.
pub fn set(terminal: impl AsFd, wanted: &Settings) -> Result<Settings, Fault> {
    let terminal = terminal.as_fd();
    let refused = |errno: rustix::io::Errno| Fault::system("set the line")(errno.into());
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
    if wanted.stop != StopBits::One {
        control.insert(ControlModes::CSTOPB);
    }
    termios.input_modes.remove(InputModes::IXON | InputModes::IXOFF | InputModes::IXANY);
    match wanted.flow {
        Flow::None => {}
        Flow::RtsCts => termios.control_modes.insert(ControlModes::CRTSCTS),
        Flow::XonXoff => termios.input_modes.insert(InputModes::IXON | InputModes::IXOFF),
    }
    termios.special_codes[SpecialCodeIndex::VMIN] = 1;
    termios.special_codes[SpecialCodeIndex::VTIME] = 0;
    termios.set_speed(wanted.baud).map_err(refused)?;
    tcsetattr(terminal, OptionalActions::Now, &termios).map_err(refused)?;
    settings(terminal)
}

/// Where links to a terminal lead that set its line so.
pub fn endpoint(path: &Path, line: &Settings) -> Result<Endpoint, EndpointError> {
    format!("{}://{}?{}", super::serial::TRANSPORT.scheme, path.display(), line.options()).parse()
}

/// A pseudo-terminal: a stand-in for hardware holds the master, programs open the path.
pub struct Pty {
    /// Does not block. Reads begin with a byte that says what they are ([`Packet::read`]).
    pub master: OwnedFd,
    /// Where programs find it, like `/dev/pts/7`.
    pub path: PathBuf,
    /// Kept open, so that the master does not fail while no program has it open.
    _slave: OwnedFd,
}

/// What a read from the master of a pseudo-terminal in packet mode holds (`TIOCPKT` of ioctl_tty(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    Nothing,
    /// The program wrote this.
    Data(&'a [u8]),
    /// The program threw away what it had not read, or what it had written and was not sent; or something else happened.
    Notice {
        flush_read: bool,
        flush_write: bool,
    },
}

impl<'a> Packet<'a> {
    pub fn read(bytes: &'a [u8]) -> Packet<'a> {
        const DATA: u8 = 0;
        const FLUSH_READ: u8 = 1;
        const FLUSH_WRITE: u8 = 2;
        match bytes {
            [] => Packet::Nothing,
            [DATA, data @ ..] => Packet::Data(data),
            [what, ..] => {
                Packet::Notice { flush_read: what & FLUSH_READ != 0, flush_write: what & FLUSH_WRITE != 0 }
            }
        }
    }

    /// What the program wrote, if it did.
    pub fn data(self) -> &'a [u8] {
        match self {
            Packet::Data(data) => data,
            Packet::Nothing | Packet::Notice { .. } => &[],
        }
    }
}

impl Pty {
    /// A new one, raw, with the default settings of a line.
    pub fn open() -> Result<Pty, Fault> {
        let fault = |errno: rustix::io::Errno| Fault::system("make a pseudo-terminal")(errno.into());
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(fault)?;
        grantpt(&master).map_err(fault)?;
        unlockpt(&master).map_err(fault)?;
        let name = ptsname(&master, Vec::new()).map_err(fault)?;
        let path = Path::new(OsStr::from_bytes(name.as_bytes())).to_owned();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&path, flags, Mode::empty()).map_err(fault)?;
        set(&slave, &Settings::default())?;
        sys::set_packet_mode(&master).map_err(Fault::system("set the packet mode"))?;
        fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK).map_err(fault)?;
        Ok(Pty { master, path, _slave: slave })
    }

    /// What the program on the other side has set, as far as a pseudo-terminal keeps it: rate, stop bits, flow control,
    /// odd, mark and space parity. The kernel takes data bits and even parity away (`pty_set_termios`).
    pub fn settings(&self) -> Result<Settings, Fault> {
        settings(&self.master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_sets_the_master_sees() {
        let pty = Pty::open().unwrap();
        assert_eq!(pty.settings().unwrap(), Settings::default());
        for baud in [75, 230_400, 250_000, 4_000_000] {
            for parity in [Parity::None, Parity::Odd, Parity::Mark, Parity::Space] {
                for stop in [StopBits::One, StopBits::Two] {
                    for flow in Flow::ALL {
                        let wanted = Settings { baud, data_bits: 8, parity, stop, flow };
                        assert_eq!(set(&pty._slave, &wanted).unwrap(), wanted);
                        assert_eq!(pty.settings().unwrap(), wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn an_endpoint_names_what_is_not_the_default() {
        let path = Path::new("/dev/pts/7");
        let printed = |line| {
            let endpoint = endpoint(path, &line).unwrap();
            assert_eq!(Settings::of(&endpoint).unwrap(), line);
            endpoint.to_string()
        };
        assert_eq!(printed(Settings::default()), "serial:///dev/pts/7?baud=9600");
        let all = Settings {
            baud: 75,
            data_bits: 5,
            parity: Parity::Mark,
            stop: StopBits::OneAndHalf,
            flow: Flow::RtsCts,
        };
        assert_eq!(printed(all), "serial:///dev/pts/7?baud=75&data=5&parity=mark&stop=1.5&flow=rtscts");
    }

    #[test]
    fn a_pseudo_terminal_forgets_data_bits_and_even_parity() {
        // If a kernel ever keeps them, docs/limits.md and the lab's options for them can go.
        let pty = Pty::open().unwrap();
        let wanted = Settings { data_bits: 7, parity: Parity::Even, ..Settings::default() };
        assert_eq!(set(&pty._slave, &wanted).unwrap(), Settings::default());
    }
}
