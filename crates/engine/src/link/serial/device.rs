//! A terminal opened exclusively as a serial port; its state is restored on close.
//!
//! `serial.rs` moves the bytes.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, major, minor};
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, ioctl_tiocexcl, ioctl_tiocnxcl, tcflush, tcgetattr, tcsetattr,
};

use crate::host::serial;
use crate::link::serial_line::{self, ModemLines, OutputSignal, SerialSettings, UartErrors};
use crate::link::socket::parse_flag;
use crate::link::{Facts, Fault, tty};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::units;
use linkgauge_system::{self as system, Errno, LineCounters, Rs485};

/// Option for the delivery of received bytes.
pub(crate) const LOW_LATENCY_OPTION: (&str, &str) =
    ("low_latency", "1 has the driver hand over received bytes at once, 0 not (as it is)");
/// Option for half-duplex lines.
pub(crate) const RS485_OPTION: (&str, &str) =
    ("rs485", "1 has the driver switch a half-duplex line by RTS, where it can (as it is)");
/// Option for the delay before the first bit.
pub(crate) const DELAY_BEFORE_OPTION: (&str, &str) =
    ("rs485_delay_before", "from RTS on to the first bit, 0ms to 100ms (0ms)");
/// Option for the delay after the last bit.
pub(crate) const DELAY_AFTER_OPTION: (&str, &str) =
    ("rs485_delay_after", "from the last bit to RTS off, 0ms to 100ms (0ms)");

/// A parsed endpoint of this transport.
pub(crate) struct Options {
    /// The device file.
    pub(crate) path: PathBuf,
    /// Rate, frame and flow control.
    pub(crate) settings: SerialSettings,
    low_latency: Option<bool>,
    rs485: Option<Rs485>,
}

impl Options {
    pub(crate) fn from_endpoint(endpoint: &Endpoint) -> Result<Options, EndpointError> {
        let path = endpoint.address();
        if !path.starts_with('/') {
            let wanted = "the path of a device, with the slash it begins with: serial:///dev/ttyS0";
            return Err(EndpointError::BadAddress { url: endpoint.to_string(), wanted });
        }
        let is_on = parse_flag(endpoint, RS485_OPTION.0)?;
        let delay = |name| {
            let wanted = "whole milliseconds from 0ms to 100ms, with rs485=1";
            let delay = endpoint
                .parse_option(name, wanted, |text| parse_delay_ms(text).filter(|_| is_on == Some(true)));
            delay.map(Option::unwrap_or_default)
        };
        let (before, after) = (delay(DELAY_BEFORE_OPTION.0)?, delay(DELAY_AFTER_OPTION.0)?);
        Ok(Options {
            path: path.into(),
            settings: SerialSettings::from_endpoint(endpoint)?,
            low_latency: parse_flag(endpoint, LOW_LATENCY_OPTION.0)?,
            rs485: is_on.map(|is_on| if is_on { Rs485::enabled(before, after) } else { Rs485::default() }),
        })
    }
}

fn parse_delay_ms(text: &str) -> Option<u32> {
    // `RS485_MAX_RTS_DELAY` of the kernel's serial core.
    const LONGEST: u32 = 100;
    let delay = units::parse_duration(text).ok()?;
    let is_whole_ms = delay.subsec_nanos() % 1_000_000 == 0;
    u32::try_from(delay.as_millis()).ok().filter(|&delay| is_whole_ms && delay <= LONGEST)
}

/// An open terminal, used exclusively.
pub(crate) struct SerialDevice {
    terminal: OwnedFd,
    path: PathBuf,
    device_number: DeviceNumber,
    saved_state: SavedState,
}

/// State to restore on close; `None` where the driver does not support it or it was not changed.
struct SavedState {
    termios: Termios,
    low_latency: Option<bool>,
    rs485: Option<Rs485>,
    output_bits: Option<i32>,
    counters: Option<LineCounters>,
}

const OUTPUT_BITS: i32 = libc::TIOCM_DTR | libc::TIOCM_RTS;

impl SerialDevice {
    /// Opens the port exclusively and applies the options.
    pub(crate) fn open(options: &Options) -> Result<SerialDevice, Fault> {
        let (path, number) = resolve_device(&options.path)?;
        // Without O_NONBLOCK opening waits for the carrier of a modem.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| open_fault(&path, errno))?;
        let termios = tcgetattr(&terminal).map_err(|errno| match errno {
            Errno::IO => not_a_port_fault("this port has no hardware"),
            _ => not_a_port_fault("this is not a serial port"),
        })?;
        // A program that stands in for hardware also holds its pseudo-terminal open.
        let user = if is_pseudo_terminal(number) {
            serial::find_lock_holder(&path)
        } else {
            serial::find_port_user(&path)
        };
        if user.is_some() {
            return Err(busy_fault(user));
        }
        let locked = flock(&terminal, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|_| busy_fault(serial::find_port_user(&path)))?;
        let _ = ioctl_tiocexcl(&terminal);
        let before = SavedState {
            termios,
            low_latency: None,
            rs485: None,
            output_bits: system::modem_bits(&terminal).ok().map(|wires| wires & OUTPUT_BITS),
            counters: system::line_counters(&terminal).ok(),
        };
        let mut device = SerialDevice { terminal, path, device_number: number, saved_state: before };
        device.set_driver_options(options)?;
        let granted = tty::configure(&device, &options.settings).map_err(|fault| match fault {
            Fault::System { source, .. } => unsupported_option_fault(options.settings, &source),
            fault => fault,
        })?;
        serial_line::check_granted(&options.settings, &granted)?;
        let _ = tcflush(&device, QueueSelector::IOFlush);
        Ok(device)
    }

    /// If a step fails, dropping the device restores the earlier changes.
    fn set_driver_options(&mut self, options: &Options) -> Result<(), Fault> {
        if let Some(on) = options.low_latency {
            let unable = |error| {
                unsupported_option_fault(format!("{}={}", LOW_LATENCY_OPTION.0, u8::from(on)), &error)
            };
            let before = system::is_low_latency(&self.terminal).map_err(unable)?;
            self.saved_state.low_latency = Some(before);
            system::set_low_latency(&self.terminal, on).map_err(unable)?;
        }
        if let Some(mut wanted) = options.rs485 {
            let option = format!("{}={}", RS485_OPTION.0, u8::from(wanted.is_enabled()));
            let unable = |error| unsupported_option_fault(&option, &error);
            let before = system::rs485(&self.terminal).map_err(unable)?;
            self.saved_state.rs485 = Some(before);
            system::set_rs485(&self.terminal, &mut wanted).map_err(unable)?;
        }
        Ok(())
    }

    /// Properties of the port, and the driver options besides the line's settings.
    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        let mut note = |name: &str, value: Option<serde_json::Value>| {
            facts.extend(value.map(|value| (name.to_owned(), value)));
        };
        note("device", Some(self.path.display().to_string().into()));
        note("virtual", is_pseudo_terminal(self.device_number).then_some(true.into()));
        note("low_latency", system::is_low_latency(&self.terminal).ok().map(Into::into));
        if let Ok(rs485) = system::rs485(&self.terminal) {
            note("rs485", Some(rs485.is_enabled().into()));
            if rs485.is_enabled() {
                note("rs485_delay_before_send_ms", Some(rs485.delay_before_send_ms.into()));
                note("rs485_delay_after_send_ms", Some(rs485.delay_after_send_ms.into()));
            }
        }
        let (major, minor) = self.device_number;
        if let Ok(serde_json::Value::Object(hardware)) =
            serde_json::to_value(serial::read_hardware(major, minor))
        {
            facts.extend(hardware);
        }
        facts
    }

    /// Sets or clears an output. Does nothing on a terminal without it.
    pub(crate) fn set_signal(&self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        let (operation, done) = match signal {
            OutputSignal::Dtr => ("set DTR", system::set_modem_bits(&self.terminal, libc::TIOCM_DTR, on)),
            OutputSignal::Rts => ("set RTS", system::set_modem_bits(&self.terminal, libc::TIOCM_RTS, on)),
            OutputSignal::Break => ("hold the line", system::set_break(&self.terminal, on)),
        };
        match done {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(()),
            done => done.map_err(Fault::system(operation)),
        }
    }

    pub(crate) fn modem_lines(&self) -> Option<ModemLines> {
        let wires = system::modem_bits(&self.terminal).ok()?;
        let is_on = |wire: i32| wires & wire != 0;
        Some(ModemLines {
            cts: is_on(libc::TIOCM_CTS),
            dsr: is_on(libc::TIOCM_DSR),
            ri: is_on(libc::TIOCM_RNG),
            cd: is_on(libc::TIOCM_CAR),
        })
    }

    /// The driver's counters since the port was opened.
    pub(crate) fn uart_errors(&self) -> Option<UartErrors> {
        Some(errors_between(&self.saved_state.counters?, &system::line_counters(&self.terminal).ok()?))
    }
}

fn errors_between(before: &LineCounters, now: &LineCounters) -> UartErrors {
    // The kernel's counters have 32 bits and wrap around.
    let since =
        |count: fn(&LineCounters) -> i32| u64::from(count(now).wrapping_sub(count(before)).cast_unsigned());
    UartErrors {
        framing: since(|counters| counters.framing),
        parity: since(|counters| counters.parity),
        breaks: since(|counters| counters.breaks),
        overruns: since(|counters| counters.overrun) + since(|counters| counters.buffer_overrun),
    }
}

impl AsFd for SerialDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for SerialDevice {
    fn drop(&mut self) {
        // Unsent data would delay closing for up to half a minute. A device that was unplugged refuses these
        // calls and does not need them.
        let _ = tcflush(&self.terminal, QueueSelector::IOFlush);
        let _ = system::set_break(&self.terminal, false);
        if let Some(mut before) = self.saved_state.rs485 {
            let _ = system::set_rs485(&self.terminal, &mut before);
        }
        if let Some(before) = self.saved_state.low_latency {
            let _ = system::set_low_latency(&self.terminal, before);
        }
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.saved_state.termios);
        if let Some(before) = self.saved_state.output_bits {
            let _ = system::set_modem_bits(&self.terminal, before, true);
            let _ = system::set_modem_bits(&self.terminal, OUTPUT_BITS & !before, false);
        }
        let _ = ioctl_tiocnxcl(&self.terminal);
        // A child of this process holds the open file until it starts its program, and with it the lock.
        let _ = flock(&self.terminal, FlockOperation::Unlock);
    }
}

/// The major and the minor number of a device.
type DeviceNumber = (u32, u32);

/// Whether it is a pseudo-terminal: a program is at the other side, and the kernel simulates no timing.
fn is_pseudo_terminal((major, _): DeviceNumber) -> bool {
    // `UNIX98_PTY_SLAVE_MAJOR` of linux/major.h and the seven that follow.
    (136..=143).contains(&major)
}

/// Resolves a path before anything is opened: opening has side effects on some devices.
fn resolve_device(path: &Path) -> Result<(PathBuf, DeviceNumber), Fault> {
    let path = fs::canonicalize(path).map_err(|error| lookup_fault(&error))?;
    let found = fs::metadata(&path).map_err(|error| lookup_fault(&error))?;
    if found.is_dir() {
        return Err(not_a_port_fault("this is a directory, not a serial port"));
    }
    if !found.file_type().is_char_device() {
        return Err(not_a_port_fault("this is not a serial port"));
    }
    Ok((path, (major(found.rdev()), minor(found.rdev()))))
}

fn lookup_fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => not_a_port_fault("no such serial port"),
        _ => Fault::NotPermitted(format!("cannot be examined: {error}")),
    }
}

fn not_a_port_fault(what: &str) -> Fault {
    Fault::NotFound(format!("{what}: 'linkgauge doctor' lists those of this host"))
}

fn busy_fault(user: Option<serial::PortUser>) -> Fault {
    let holder = user.map_or(String::new(), |user| format!(" ({user})"));
    Fault::InUse(format!(
        "another program has this port open{holder}: close that one, or choose another port"
    ))
}

/// The fault for an option that the driver does not support.
fn unsupported_option_fault(option: impl Display, error: &io::Error) -> Fault {
    Fault::Unsupported(match error.raw_os_error() {
        Some(libc::ENOTTY) => format!("the driver of this port does not support '{option}': leave it out"),
        _ => format!("the driver of this port refuses '{option}': {error}: leave it out, or request less"),
    })
}

fn open_fault(path: &Path, errno: Errno) -> Fault {
    match errno {
        Errno::BUSY => busy_fault(serial::find_port_user(path)),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => not_a_port_fault("no such serial port"),
        Errno::ACCESS => {
            Fault::NotPermitted(format!("this user may not open it: {}", serial::permission_remedy(path)))
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
        let expected = UartErrors { framing: 2, parity: 3, breaks: 4, overruns: 3 };
        assert_eq!(errors_between(&before, &now), expected);
    }

    #[test]
    fn options_are_parsed_or_refused() {
        let of = |options: &str| {
            let endpoint: Endpoint = format!("serial:///dev/ttyS0?{options}").parse().unwrap();
            Options::from_endpoint(&endpoint).map_err(|error| error.to_string())
        };
        let typed = of("low_latency=0&rs485=1&rs485_delay_before=2ms&rs485_delay_after=100ms").unwrap();
        assert_eq!(typed.low_latency, Some(false));
        assert_eq!(typed.rs485, Some(Rs485::enabled(2, 100)));
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
