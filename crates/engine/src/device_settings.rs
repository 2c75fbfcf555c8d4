//! Settings of devices that outlive a process (files of sysfs, interrupt delay of a network card, power save of Wi-Fi): changed for
//! a while, and restored whatever happens.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::host::{interfaces, radio, read};
use crate::transport::internet;
use linkgauge_model::endpoint::Endpoint;

mod journal;

pub use journal::{ChangeJournal, RestoreDuty, RestoreFolder};
use linkgauge_system::{self as system, InterruptCoalescing};

/// Place of a setting. No other setting can be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingPlace {
    /// The latency timer of this USB serial adapter (`ttyUSB0`): ms.
    LatencyTimer(String),
    /// The receive trigger of this 16550 port (`ttyS0`): bytes.
    #[serde(rename = "rx_trig_bytes")]
    ReceiveTrigger(String),
    /// The interrupt delay of this network interface for received packets: µs, with ` adaptive` if its driver adapts it.
    InterruptDelay(String),
    /// Power save of this Wi-Fi interface: `on` or `off`.
    PowerSave(String),
}

/// A setting of a device and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSetting {
    /// Place of the setting.
    #[serde(flatten)]
    pub place: SettingPlace,
    /// The value, without a line end.
    pub value: String,
}

/// Text after the microseconds of an interrupt delay that the driver adapts to the traffic.
const ADAPTIVE: &str = " adaptive";

impl SettingPlace {
    /// Name of the setting, as of `--allow-change`.
    fn name(&self) -> &'static str {
        match self {
            SettingPlace::LatencyTimer(_) => LATENCY_TIMER,
            SettingPlace::ReceiveTrigger(_) => RX_TRIG_BYTES,
            SettingPlace::InterruptDelay(_) => RX_USECS,
            SettingPlace::PowerSave(_) => POWER_SAVE,
        }
    }

    /// The port or the network interface.
    fn device(&self) -> &str {
        match self {
            SettingPlace::LatencyTimer(device)
            | SettingPlace::ReceiveTrigger(device)
            | SettingPlace::InterruptDelay(device)
            | SettingPlace::PowerSave(device) => device,
        }
    }

    /// Whether the device is a name and no path.
    fn has_device_name(&self) -> bool {
        let name = self.device();
        !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
    }

    /// The file of sysfs with the setting of a port.
    fn port_file(&self, root: &Path) -> Option<PathBuf> {
        let folder = match self {
            SettingPlace::LatencyTimer(_) => "sys/bus/usb-serial/devices",
            SettingPlace::ReceiveTrigger(_) => "sys/class/tty",
            SettingPlace::InterruptDelay(_) | SettingPlace::PowerSave(_) => return None,
        };
        Some(root.join(folder).join(self.device()).join(self.name()))
    }

    /// The present value; `None` if the device has no such setting.
    fn read(&self, root: &Path) -> Option<String> {
        match self {
            SettingPlace::InterruptDelay(interface) => {
                let now = system::interrupt_coalescing(any_socket().ok()?, interface)?;
                Some(format!("{}{}", now.receive_us, if now.is_adaptive { ADAPTIVE } else { "" }))
            }
            SettingPlace::PowerSave(interface) => {
                let on = radio::power_save(interfaces::number_of(interface)?)?;
                Some(if on { "on" } else { "off" }.to_owned())
            }
            port => read::text(port.port_file(root)?),
        }
    }

    fn write(&self, root: &Path, value: &str) -> io::Result<()> {
        match self {
            SettingPlace::InterruptDelay(interface) => {
                let wanted = parse_interrupt_delay(value).ok_or(io::ErrorKind::InvalidInput)?;
                system::set_interrupt_coalescing(any_socket()?, interface, wanted)
            }
            SettingPlace::PowerSave(interface) => {
                let index = interfaces::number_of(interface).ok_or(io::ErrorKind::NotFound)?;
                radio::set_power_save(index, value == "on")
            }
            port => {
                let path = port.port_file(root).ok_or(io::ErrorKind::NotFound)?;
                // A file that does not exist is not created.
                OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
            }
        }
    }
}

impl DeviceSetting {
    /// Whether a device can have had this value.
    fn is_possible(&self) -> bool {
        let is_number = |largest: u32| self.value.parse::<u32>().is_ok_and(|number| number <= largest);
        let has_value = match self.place {
            SettingPlace::LatencyTimer(_) => is_number(MAX_LATENCY_TIMER_MS),
            SettingPlace::ReceiveTrigger(_) => is_number(MAX_RX_TRIG_BYTES),
            SettingPlace::InterruptDelay(_) => parse_interrupt_delay(&self.value).is_some(),
            SettingPlace::PowerSave(_) => matches!(self.value.as_str(), "on" | "off"),
        };
        has_value && self.place.has_device_name()
    }
}

/// An interrupt delay like `50` or `50 adaptive`.
fn parse_interrupt_delay(value: &str) -> Option<InterruptCoalescing> {
    let adaptive = value.strip_suffix(ADAPTIVE);
    let receive_us = adaptive.unwrap_or(value).parse().ok()?;
    Some(InterruptCoalescing { receive_us, is_adaptive: adaptive.is_some() })
}

/// A socket to ask the kernel about interfaces.
fn any_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

impl std::fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.name(), self.device())
    }
}

/// Error of changing or restoring a setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The name is not that of a setting.
    #[error(
        "no device setting '{0}': use latency_timer=1 (USB serial adapters), rx_trig_bytes=1 (16550 ports), \
         rx-usecs=0 (network cards) or power_save=off (Wi-Fi)"
    )]
    UnknownName(String),
    /// The value is outside of its range.
    #[error("{name} is {allowed}: '{value}' is not")]
    BadValue {
        /// The name of the setting.
        name: &'static str,
        /// Values that the setting can have.
        allowed: String,
        /// The requested value.
        value: String,
    },
    /// The device does not have the setting.
    #[error("{device} has no {name}: leave it out, or use another device")]
    NoSuchSetting {
        /// The device file or the interface.
        device: String,
        /// The name of the setting.
        name: &'static str,
    },
    /// No network interface leads to the endpoint.
    #[error("{name} is a setting of a network interface, and none leads to {endpoint}: leave it out")]
    NoInterface {
        /// The endpoint.
        endpoint: String,
        /// The name of the setting.
        name: &'static str,
    },
    /// A setting could not be read or written.
    #[error("{operation} {place}: {source}{}", right_remedy(source))]
    Setting {
        /// The operation that failed.
        operation: &'static str,
        /// The setting.
        place: SettingPlace,
        /// The reason of the system.
        source: io::Error,
    },
    /// Another process has changed the setting.
    #[error("change {0}: another linkgauge has changed it. Try again when that one has ended")]
    InUse(SettingPlace),
    /// Another user could have written a journal.
    #[error("{}: {why}, so the journals of device settings there are not used. {remedy}", path.display())]
    NotPrivate {
        /// The folder or the journal.
        path: PathBuf,
        /// Reason for not using the folder or the journal.
        why: &'static str,
        /// Remedy for the user to try.
        remedy: &'static str,
    },
    /// A journal could not be read or written.
    #[error("{operation} {}: {source}", path.display())]
    Journal {
        /// The operation that failed.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason of the system.
        source: io::Error,
    },
}

fn right_remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { ". Settings of devices need root" } else { "" }
}

fn setting_error(operation: &'static str, place: &SettingPlace, source: io::Error) -> SettingError {
    SettingError::Setting { operation, place: place.clone(), source }
}

/// Name of the latency timer of a USB serial adapter, and its largest value in ms.
const LATENCY_TIMER: &str = "latency_timer";
const MAX_LATENCY_TIMER_MS: u32 = 255;
/// Name of the receive trigger of a 16550 port, and its largest value in bytes.
const RX_TRIG_BYTES: &str = "rx_trig_bytes";
const MAX_RX_TRIG_BYTES: u32 = 128;
/// Name of the interrupt delay of a network card, as of ethtool, and its largest value in µs.
const RX_USECS: &str = "rx-usecs";
const MAX_RX_USECS: u32 = 10_000;
/// Name of the power save of Wi-Fi, as of iw.
const POWER_SAVE: &str = "power_save";

/// A setting like `latency_timer=1` of the device at an endpoint: of its serial port, or of the network interface that leads to it.
/// `root` is `/`.
///
/// # Errors
///
/// Fails for unknown names, values outside of their range, and devices without the setting.
pub fn setting_of(root: &Path, endpoint: &Endpoint, text: &str) -> Result<DeviceSetting, SettingError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let check_number = |name, smallest: u32, largest: u32| {
        let is_in_range = value.parse().is_ok_and(|number| (smallest..=largest).contains(&number));
        let allowed = format!("a number from {smallest} to {largest}");
        let bad = SettingError::BadValue { name, allowed, value: value.to_owned() };
        if is_in_range { Ok(value.to_owned()) } else { Err(bad) }
    };
    match name {
        LATENCY_TIMER => {
            let value = check_number(LATENCY_TIMER, 1, MAX_LATENCY_TIMER_MS)?;
            setting_of_port(root, endpoint, SettingPlace::LatencyTimer, value)
        }
        RX_TRIG_BYTES => {
            let value = check_number(RX_TRIG_BYTES, 1, MAX_RX_TRIG_BYTES)?;
            setting_of_port(root, endpoint, SettingPlace::ReceiveTrigger, value)
        }
        RX_USECS => {
            let value = check_number(RX_USECS, 0, MAX_RX_USECS)?;
            setting_of_interface(endpoint, SettingPlace::InterruptDelay, value)
        }
        POWER_SAVE if matches!(value, "on" | "off") => {
            setting_of_interface(endpoint, SettingPlace::PowerSave, value.to_owned())
        }
        POWER_SAVE => Err(SettingError::BadValue {
            name: POWER_SAVE,
            allowed: "on or off".to_owned(),
            value: value.to_owned(),
        }),
        _ => Err(SettingError::UnknownName(name.to_owned())),
    }
}

fn setting_of_port(
    root: &Path,
    endpoint: &Endpoint,
    place: fn(String) -> SettingPlace,
    value: String,
) -> Result<DeviceSetting, SettingError> {
    let device = endpoint.address();
    let real = fs::canonicalize(device).unwrap_or_else(|_| device.into());
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    existing(root, DeviceSetting { place: place(name.to_owned()), value }, device)
}

fn setting_of_interface(
    endpoint: &Endpoint,
    place: fn(String) -> SettingPlace,
    value: String,
) -> Result<DeviceSetting, SettingError> {
    let Some(interface) = internet::interface_of(endpoint) else {
        let name = place(String::new()).name();
        return Err(SettingError::NoInterface { endpoint: endpoint.to_string(), name });
    };
    existing(Path::new("/"), DeviceSetting { place: place(interface.clone()), value }, &interface)
}

/// The setting, if its device has it. `device` is its name for people.
fn existing(root: &Path, setting: DeviceSetting, device: &str) -> Result<DeviceSetting, SettingError> {
    if setting.place.has_device_name() && setting.place.read(root).is_some() {
        return Ok(setting);
    }
    Err(SettingError::NoSuchSetting { device: device.to_owned(), name: setting.place.name() })
}

/// Writes these values.
///
/// # Errors
///
/// Fails at the first setting that cannot be written.
pub fn apply(root: &Path, settings: &[DeviceSetting]) -> Result<(), SettingError> {
    let write = |setting: &DeviceSetting| {
        let written = setting.place.write(root, &setting.value);
        written.map_err(|source| setting_error("write", &setting.place, source))
    };
    settings.iter().try_for_each(write)
}

#[cfg(test)]
mod tests;
