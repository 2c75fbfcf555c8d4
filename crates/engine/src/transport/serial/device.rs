//! Opening a serial port with the options of its endpoint.
//!
//! `serial.rs` moves the bytes.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::serial;
use crate::link::serial_line::{self, PurgeTarget, SerialSettings};
use crate::link::{Facts, Fault};
use crate::transport::socket::parse_flag;
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::units;
use linkgauge_system::{PortError, Rs485, SerialPort};

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
        if !linkgauge_system::is_port_address(path) {
            let wanted = linkgauge_system::PORT_ADDRESS;
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
            settings: serial_line::settings_of(endpoint)?,
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

/// Opens the port exclusively and applies the options.
pub(crate) fn open(options: &Options) -> Result<SerialPort, Fault> {
    let mut port = SerialPort::open(&options.path).map_err(|error| open_fault(&options.path, error))?;
    // A program that stands in for hardware also holds its pseudo-terminal open.
    let user = match port.is_pseudo_terminal() {
        true => serial::find_lock_holder(port.path()),
        false => serial::find_port_user(port.path()),
    };
    if user.is_some() {
        return Err(busy_fault(user));
    }
    if !port.lock() {
        return Err(busy_fault(serial::find_port_user(port.path())));
    }
    if let Some(on) = options.low_latency {
        let option = format!("{}={}", LOW_LATENCY_OPTION.0, u8::from(on));
        port.set_low_latency(on).map_err(|error| unsupported_option_fault(option, &error))?;
    }
    if let Some(wanted) = options.rs485 {
        let option = format!("{}={}", RS485_OPTION.0, u8::from(wanted.is_enabled()));
        port.set_rs485(wanted).map_err(|error| unsupported_option_fault(option, &error))?;
    }
    let granted = port
        .configure(&options.settings)
        .map_err(|error| unsupported_option_fault(options.settings, &error))?;
    serial_line::check_granted(&options.settings, &granted)?;
    let _ = port.purge(PurgeTarget::Both);
    Ok(port)
}

/// Properties of the port, and the driver options besides the line's settings.
pub(crate) fn facts(port: &SerialPort) -> Facts {
    let mut facts = Facts::new();
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    note("device", Some(port.path().display().to_string().into()));
    note("virtual", port.is_pseudo_terminal().then_some(true.into()));
    note("low_latency", port.is_low_latency().map(Into::into));
    if let Some(rs485) = port.rs485() {
        note("rs485", Some(rs485.is_enabled().into()));
        if rs485.is_enabled() {
            note("rs485_delay_before_send_ms", Some(rs485.delay_before_send_ms.into()));
            note("rs485_delay_after_send_ms", Some(rs485.delay_after_send_ms.into()));
        }
    }
    let (major, minor) = port.device_number();
    if let Ok(serde_json::Value::Object(hardware)) = serde_json::to_value(serial::read_hardware(major, minor))
    {
        facts.extend(hardware);
    }
    facts
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
    Fault::Unsupported(match error.kind() {
        io::ErrorKind::Unsupported => {
            format!("the driver of this port does not support '{option}': leave it out")
        }
        _ => format!("the driver of this port refuses '{option}': {error}: leave it out, or request less"),
    })
}

fn open_fault(path: &Path, error: PortError) -> Fault {
    match error {
        PortError::NotFound => not_a_port_fault("no such serial port"),
        PortError::Directory => not_a_port_fault("this is a directory, not a serial port"),
        PortError::NotAPort => not_a_port_fault("this is not a serial port"),
        PortError::NoHardware => not_a_port_fault("this port has no hardware"),
        PortError::InUse => busy_fault(serial::find_port_user(path)),
        PortError::NotPermitted => {
            Fault::NotPermitted(format!("this user may not open it: {}", serial::permission_remedy(path)))
        }
        PortError::Lookup(error) => Fault::NotPermitted(format!("cannot be examined: {error}")),
        PortError::Open(error) => Fault::system("open")(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
