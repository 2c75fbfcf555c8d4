//! A terminal opened as a serial port: ours alone while it is open, given back as it was found.
//!
//! Not for moving bytes: `serial.rs` does that.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, major, minor};
use rustix::io::Errno;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, ioctl_tiocexcl, ioctl_tiocnxcl, tcflush, tcgetattr, tcsetattr,
};

use crate::endpoint::{Endpoint, EndpointError};
use crate::host::serial;
use crate::link::line::{self, Errors, Modem, Settings, Signal};
use crate::link::socket::flag;
use crate::link::sys::{self, LineCounters, Rs485};
use crate::link::{Facts, Fault, tty};
use crate::units;

pub const LOW_LATENCY: (&str, &str) =
    ("low_latency", "1 has the driver hand over received bytes at once, 0 not (as it is)");
pub const RS485: (&str, &str) =
    ("rs485", "1 has the driver switch a half-duplex line by RTS, where it can (as it is)");
pub const DELAY_BEFORE: (&str, &str) =
    ("rs485_delay_before", "from RTS on to the first bit, 0ms to 100ms (0ms)");
pub const DELAY_AFTER: (&str, &str) =
    ("rs485_delay_after", "from the last bit to RTS off, 0ms to 100ms (0ms)");

/// An endpoint of this transport, read.
pub struct Options {
    pub path: PathBuf,
    pub line: Settings,
    low_latency: Option<bool>,
    rs485: Option<Rs485>,
}

impl Options {
    pub fn of(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let path = endpoint.place();
        if !path.starts_with('/') {
            let wanted = "the path of a device, with the slash it begins with: serial:///dev/ttyS0";
            return Err(EndpointError::BadPlace { url: endpoint.to_string(), wanted });
        }
        let is_on = flag(endpoint, RS485.0)?;
        let delay = |name| {
            let wanted = "whole milliseconds from 0ms to 100ms, with rs485=1";
            let delay =
                endpoint.parsed(name, wanted, |text| milliseconds(text).filter(|_| is_on == Some(true)));
            delay.map(Option::unwrap_or_default)
        };
        let (before, after) = (delay(DELAY_BEFORE.0)?, delay(DELAY_AFTER.0)?);
        Ok(Options {
            path: path.into(),
            line: Settings::of(endpoint)?,
            low_latency: flag(endpoint, LOW_LATENCY.0)?,
            rs485: is_on.map(|is_on| if is_on { Rs485::on(before, after) } else { Rs485::default() }),
        })
    }
}

fn milliseconds(text: &str) -> Option<u32> {
    // `RS485_MAX_RTS_DELAY` of the kernel's serial core.
    const LONGEST: u32 = 100;
    let delay = units::duration(text).ok()?;
    let whole = delay.subsec_nanos() % 1_000_000 == 0;
    u32::try_from(delay.as_millis()).ok().filter(|&delay| whole && delay <= LONGEST)
}

/// An open terminal, ours alone.
pub struct Device {
    terminal: OwnedFd,
    path: PathBuf,
    number: Number,
    before: Before,
}

/// What was found and is given back; absent where the driver does not know such a thing or it was left alone.
struct Before {
    termios: Termios,
    low_latency: Option<bool>,
    rs485: Option<Rs485>,
    outputs: Option<i32>,
    counters: Option<LineCounters>,
}

const OUTPUTS: i32 = libc::TIOCM_DTR | libc::TIOCM_RTS;

impl Device {
    /// Opens the port, takes it for this process alone and sets what was asked for.
    pub fn open(options: &Options) -> Result<Device, Fault> {
        let (path, number) = find(&options.path)?;
        // Without O_NONBLOCK opening waits for the carrier of a modem.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| refused(&path, errno))?;
        let termios = tcgetattr(&terminal).map_err(|errno| match errno {
            Errno::IO => no_port("there is no hardware behind this port"),
            _ => no_port("this is no serial port"),
        })?;
        // Whoever stands in for hardware holds its pseudo-terminal open as well.
        let user = if is_virtual(number) { serial::reserved(&path) } else { serial::user(&path) };
        if user.is_some() {
            return Err(busy(user));
        }
        let locked = flock(&terminal, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|_| busy(serial::user(&path)))?;
        let _ = ioctl_tiocexcl(&terminal);
        let before = Before {
            termios,
            low_latency: None,
            rs485: None,
            outputs: sys::wires(&terminal).ok().map(|wires| wires & OUTPUTS),
            counters: sys::line_counters(&terminal).ok(),
        };
        let mut device = Device { terminal, path, number, before };
        device.set_extras(options)?;
        let granted = tty::set(&device, &options.line).map_err(|fault| match fault {
            Fault::System { source, .. } => unable(options.line, &source),
            fault => fault,
        })?;
        line::check_granted(&options.line, &granted)?;
        let _ = tcflush(&device, QueueSelector::IOFlush);
        Ok(device)
    }

    /// Whatever of it fails, dropping the device gives back what was changed before.
    fn set_extras(&mut self, options: &Options) -> Result<(), Fault> {
        if let Some(on) = options.low_latency {
            let unable = |error| unable(format!("{}={}", LOW_LATENCY.0, u8::from(on)), &error);
            let before = sys::low_latency(&self.terminal).map_err(unable)?;
            self.before.low_latency = Some(before);
            sys::set_low_latency(&self.terminal, on).map_err(unable)?;
        }
        if let Some(mut wanted) = options.rs485 {
            let option = format!("{}={}", RS485.0, u8::from(wanted.is_on()));
            let unable = |error| unable(&option, &error);
            let before = sys::rs485(&self.terminal).map_err(unable)?;
            self.before.rs485 = Some(before);
            sys::set_rs485(&self.terminal, &mut wanted).map_err(unable)?;
        }
        Ok(())
    }

    /// What the port is, and what its driver has been told besides the line's settings.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        let mut note = |name: &str, value: Option<serde_json::Value>| {
            facts.extend(value.map(|value| (name.to_owned(), value)));
        };
        note("device", Some(self.path.display().to_string().into()));
        note("virtual", is_virtual(self.number).then_some(true.into()));
        note("low_latency", sys::low_latency(&self.terminal).ok().map(Into::into));
        if let Ok(rs485) = sys::rs485(&self.terminal) {
            note("rs485", Some(rs485.is_on().into()));
            if rs485.is_on() {
                note("rs485_delay_before_send_ms", Some(rs485.delay_before_send_ms.into()));
                note("rs485_delay_after_send_ms", Some(rs485.delay_after_send_ms.into()));
            }
        }
        let (major, minor) = self.number;
        if let Ok(serde_json::Value::Object(hardware)) = serde_json::to_value(serial::hardware(major, minor))
        {
            facts.extend(hardware);
        }
        facts
    }

    /// Raises or drops an output; a terminal that has none does nothing.
    pub fn signal(&self, signal: Signal, on: bool) -> Result<(), Fault> {
        let (operation, done) = match signal {
            Signal::Dtr => ("set DTR", sys::set_wires(&self.terminal, libc::TIOCM_DTR, on)),
            Signal::Rts => ("set RTS", sys::set_wires(&self.terminal, libc::TIOCM_RTS, on)),
            Signal::Break => ("hold the line", sys::set_break(&self.terminal, on)),
        };
        match done {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(()),
            done => done.map_err(Fault::system(operation)),
        }
    }

    pub fn modem(&self) -> Option<Modem> {
        let wires = sys::wires(&self.terminal).ok()?;
        let is_on = |wire: i32| wires & wire != 0;
        Some(Modem {
            cts: is_on(libc::TIOCM_CTS),
            dsr: is_on(libc::TIOCM_DSR),
            ri: is_on(libc::TIOCM_RNG),
            cd: is_on(libc::TIOCM_CAR),
        })
    }

    /// What the driver counted since the port was opened.
    pub fn errors(&self) -> Option<Errors> {
        Some(errors_between(&self.before.counters?, &sys::line_counters(&self.terminal).ok()?))
    }
}

fn errors_between(before: &LineCounters, now: &LineCounters) -> Errors {
    // The kernel's counters are 32 bits wide and begin again at their end.
    let since =
        |count: fn(&LineCounters) -> i32| u64::from(count(now).wrapping_sub(count(before)).cast_unsigned());
    Errors {
        framing: since(|counters| counters.framing),
        parity: since(|counters| counters.parity),
        breaks: since(|counters| counters.breaks),
        overruns: since(|counters| counters.overrun) + since(|counters| counters.buffer_overrun),
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What the line has not taken yet would hold up closing for half a minute. A device that was pulled out
        // refuses all of this, and needs none of it.
        let _ = tcflush(&self.terminal, QueueSelector::IOFlush);
        let _ = sys::set_break(&self.terminal, false);
        if let Some(mut before) = self.before.rs485 {
            let _ = sys::set_rs485(&self.terminal, &mut before);
        }
        if let Some(before) = self.before.low_latency {
            let _ = sys::set_low_latency(&self.terminal, before);
        }
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before.termios);
        if let Some(before) = self.before.outputs {
            let _ = sys::set_wires(&self.terminal, before, true);
            let _ = sys::set_wires(&self.terminal, OUTPUTS & !before, false);
        }
        let _ = ioctl_tiocnxcl(&self.terminal);
    }
}

/// The major and the minor number of a device.
type Number = (u32, u32);

/// Whether it is a pseudo-terminal: a program is at the far end, and the kernel keeps no time.
fn is_virtual((major, _): Number) -> bool {
    // `UNIX98_PTY_SLAVE_MAJOR` of linux/major.h and the seven that follow.
    (136..=143).contains(&major)
}

/// Where a path leads in the end. Looked at before anything is opened: with some devices opening alone does something.
fn find(path: &Path) -> Result<(PathBuf, Number), Fault> {
    let path = fs::canonicalize(path).map_err(|error| missing(&error))?;
    let found = fs::metadata(&path).map_err(|error| missing(&error))?;
    if found.is_dir() {
        return Err(no_port("this is a directory, no serial port"));
    }
    if !found.file_type().is_char_device() {
        return Err(no_port("this is no serial port"));
    }
    Ok((path, (major(found.rdev()), minor(found.rdev()))))
}

fn missing(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => no_port("no such serial port"),
        _ => Fault::Other(format!("cannot be looked at: {error}")),
    }
}

fn no_port(what: &str) -> Fault {
    Fault::Other(format!("{what}: 'linkgauge doctor' lists those of this host"))
}

fn busy(user: Option<serial::User>) -> Fault {
    let who = user.map_or(String::new(), |user| format!(" ({user})"));
    Fault::Other(format!("another program has this port open{who}: close that one, or choose another port"))
}

/// The driver does not do what an option asks for.
fn unable(option: impl Display, error: &io::Error) -> Fault {
    Fault::Other(match error.raw_os_error() {
        Some(libc::ENOTTY) => format!("the driver of this port knows no '{option}': leave it out"),
        _ => format!("the driver of this port refuses '{option}': {error}: leave it out, or ask for less"),
    })
}

fn refused(path: &Path, errno: Errno) -> Fault {
    match errno {
        Errno::BUSY => busy(serial::user(path)),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => no_port("no such serial port"),
        Errno::ACCESS => {
            Fault::Other(format!("this user may not open it: {}", serial::permission_remedy(path)))
        }
        errno => Fault::system("open")(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_begin_at_the_opening_and_may_wrap() {
        let before =
            LineCounters { framing: 5, overrun: i32::MAX, buffer_overrun: -1, ..LineCounters::default() };
        let now = LineCounters {
            framing: 7,
            overrun: i32::MIN,
            buffer_overrun: 1,
            parity: 3,
            breaks: 4,
            ..LineCounters::default()
        };
        let expected = Errors { framing: 2, parity: 3, breaks: 4, overruns: 3 };
        assert_eq!(errors_between(&before, &now), expected);
    }

    #[test]
    fn what_was_typed_is_read_or_refused() {
        let of = |options: &str| {
            let endpoint: Endpoint = format!("serial:///dev/ttyS0?{options}").parse().unwrap();
            Options::of(&endpoint).map_err(|error| error.to_string())
        };
        let typed = of("low_latency=0&rs485=1&rs485_delay_before=2ms&rs485_delay_after=100ms").unwrap();
        assert_eq!(typed.low_latency, Some(false));
        assert_eq!(typed.rs485, Some(Rs485::on(2, 100)));
        assert_eq!(of("rs485=0").unwrap().rs485, Some(Rs485::default()));
        let plain = of("").unwrap();
        assert_eq!((plain.low_latency, plain.rs485), (None, None));
        let refused = [
            "low_latency=yes",
            "rs485=2",
            "rs485_delay_before=2ms",
            "rs485=0&rs485_delay_after=2ms",
            "rs485=1&rs485_delay_after=1.5ms",
            "rs485=1&rs485_delay_after=101ms",
        ];
        insta::assert_snapshot!(refused.map(|options| of(options).err().unwrap()).join("\n"), @r"
        serial:///dev/ttyS0?low_latency=yes: 'low_latency=yes' is not 0 or 1
        serial:///dev/ttyS0?rs485=2: 'rs485=2' is not 0 or 1
        serial:///dev/ttyS0?rs485_delay_before=2ms: 'rs485_delay_before=2ms' is not whole milliseconds from 0ms to 100ms, with rs485=1
        serial:///dev/ttyS0?rs485=0&rs485_delay_after=2ms: 'rs485_delay_after=2ms' is not whole milliseconds from 0ms to 100ms, with rs485=1
        serial:///dev/ttyS0?rs485=1&rs485_delay_after=1.5ms: 'rs485_delay_after=1.5ms' is not whole milliseconds from 0ms to 100ms, with rs485=1
        serial:///dev/ttyS0?rs485=1&rs485_delay_after=101ms: 'rs485_delay_after=101ms' is not whole milliseconds from 0ms to 100ms, with rs485=1
        ");
    }
}
