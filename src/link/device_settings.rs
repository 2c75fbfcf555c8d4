//! Settings of devices that outlive a process (files of sysfs, interrupt delay of a network card, power save of Wi-Fi): changed for
//! a while, and restored whatever happens.
//!
//! A journal names each setting and its earlier value before anything is changed. The process that holds the lock of the
//! journal restores the values and removes it. A journal without a lock was left by processes that were killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::internet;
use super::sys::{self, InterruptCoalescing};
use crate::endpoint::Endpoint;
use crate::host::{interfaces, radio, read};

/// Where a setting is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SettingPlace {
    /// A file of sysfs, with the value as its text.
    Path(PathBuf),
    /// The interrupt delay of this network interface for received packets: µs, with ` adaptive` if its driver adapts it.
    InterruptDelay(String),
    /// Power save of this Wi-Fi interface: `on` or `off`.
    PowerSave(String),
}

/// A setting of a device and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSetting {
    /// Where it is.
    #[serde(flatten)]
    pub place: SettingPlace,
    /// The value, without a line end.
    pub value: String,
}

/// After the microseconds of an interrupt delay that the driver adapts to the traffic.
const ADAPTIVE: &str = " adaptive";

impl SettingPlace {
    /// The present value; `None` if the device has no such setting.
    fn read(&self) -> Option<String> {
        match self {
            SettingPlace::Path(path) => read::text(path),
            SettingPlace::InterruptDelay(interface) => {
                let now = sys::interrupt_coalescing(any_socket().ok()?, interface)?;
                Some(format!("{}{}", now.receive_us, if now.is_adaptive { ADAPTIVE } else { "" }))
            }
            SettingPlace::PowerSave(interface) => {
                let on = radio::power_save(interfaces::number_of(interface)?)?;
                Some(if on { "on" } else { "off" }.to_owned())
            }
        }
    }

    fn write(&self, value: &str) -> io::Result<()> {
        match self {
            SettingPlace::Path(path) => fs::write(path, value),
            SettingPlace::InterruptDelay(interface) => {
                let (delay, is_adaptive) = match value.strip_suffix(ADAPTIVE) {
                    Some(delay) => (delay, true),
                    None => (value, false),
                };
                let receive_us = delay.parse().map_err(io::Error::other)?;
                let wanted = InterruptCoalescing { receive_us, is_adaptive };
                sys::set_interrupt_coalescing(any_socket()?, interface, wanted)
            }
            SettingPlace::PowerSave(interface) => {
                let index = interfaces::number_of(interface).ok_or(io::ErrorKind::NotFound)?;
                radio::set_power_save(index, value == "on")
            }
        }
    }
}

/// A socket to ask the kernel about interfaces.
fn any_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

impl std::fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingPlace::Path(path) => path.display().fmt(f),
            SettingPlace::InterruptDelay(interface) => write!(f, "{RX_USECS} of {interface}"),
            SettingPlace::PowerSave(interface) => write!(f, "{POWER_SAVE} of {interface}"),
        }
    }
}

/// Why a setting could not be changed or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
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
        /// What it can be.
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
        /// What failed.
        operation: &'static str,
        /// The setting.
        place: SettingPlace,
        /// The reason of the system.
        source: io::Error,
    },
    /// A journal could not be read or written.
    #[error("{operation} {}: {source}", path.display())]
    Journal {
        /// What failed.
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

fn file_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SettingError + 'a {
    move |source| SettingError::Journal { operation, path: path.to_owned(), source }
}

/// The settings of a serial port: name, folder below the root of the file system, largest value. All begin at 1.
const PORT_SETTINGS: [(&str, &str, u32); 2] =
    [("latency_timer", "sys/bus/usb-serial/devices", 255), ("rx_trig_bytes", "sys/class/tty", 128)];

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
    let is_number =
        |range: std::ops::RangeInclusive<u32>| value.parse().is_ok_and(|number| range.contains(&number));
    let bad = |name, allowed| SettingError::BadValue { name, allowed, value: value.to_owned() };
    let value = value.to_owned();
    match name {
        RX_USECS if !is_number(0..=MAX_RX_USECS) => {
            Err(bad(RX_USECS, format!("a number from 0 to {MAX_RX_USECS}")))
        }
        RX_USECS => setting_of_interface(endpoint, RX_USECS, SettingPlace::InterruptDelay, value),
        POWER_SAVE if value != "on" && value != "off" => Err(bad(POWER_SAVE, "on or off".to_owned())),
        POWER_SAVE => setting_of_interface(endpoint, POWER_SAVE, SettingPlace::PowerSave, value),
        _ => {
            let known = PORT_SETTINGS.iter().find(|(known, ..)| *known == name);
            let (name, folder, most) = *known.ok_or_else(|| SettingError::UnknownName(name.to_owned()))?;
            if !is_number(1..=most) {
                return Err(bad(name, format!("a number from 1 to {most}")));
            }
            let device = endpoint.address();
            let real = fs::canonicalize(device).unwrap_or_else(|_| device.into());
            let path = root.join(folder).join(real.file_name().unwrap_or_default()).join(name);
            if !path.exists() {
                return Err(SettingError::NoSuchSetting { device: device.to_owned(), name });
            }
            Ok(DeviceSetting { place: SettingPlace::Path(path), value })
        }
    }
}

fn setting_of_interface(
    endpoint: &Endpoint,
    name: &'static str,
    place: fn(String) -> SettingPlace,
    value: String,
) -> Result<DeviceSetting, SettingError> {
    let Some(interface) = internet::interface_of(endpoint) else {
        return Err(SettingError::NoInterface { endpoint: endpoint.to_string(), name });
    };
    let place = place(interface.clone());
    match place.read() {
        Some(_) => Ok(DeviceSetting { place, value }),
        None => Err(SettingError::NoSuchSetting { device: interface, name }),
    }
}

/// Names of journals begin with this.
const JOURNAL_PREFIX: &str = "restore-";

/// Writes the earlier values of the settings of `wanted` into a new journal in `folder`. Changes nothing else.
///
/// # Errors
///
/// Fails if a setting cannot be read, or if the journal cannot be written.
pub fn write_journal(folder: &Path, wanted: &[DeviceSetting]) -> Result<PathBuf, SettingError> {
    let read = |setting: &DeviceSetting| match setting.place.read() {
        Some(value) => Ok(DeviceSetting { place: setting.place.clone(), value }),
        None => Err(setting_error("read", &setting.place, io::ErrorKind::NotFound.into())),
    };
    let earlier: Vec<DeviceSetting> = wanted.iter().map(read).collect::<Result<_, _>>()?;
    fs::create_dir_all(folder).map_err(file_error("create", folder))?;
    let path = folder.join(format!("{JOURNAL_PREFIX}{}-{:08x}.json", std::process::id(), fastrand::u32(..)));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(file_error("create", &path))?;
    let json = serde_json::to_vec(&earlier).expect("paths and texts are JSON");
    file.write_all(&json).and_then(|()| file.sync_all()).map_err(file_error("write", &path))?;
    Ok(path)
}

/// Writes these values.
///
/// # Errors
///
/// Fails at the first setting that cannot be written.
pub fn apply(settings: &[DeviceSetting]) -> Result<(), SettingError> {
    let write = |setting: &DeviceSetting| {
        let written = setting.place.write(&setting.value);
        written.map_err(|source| setting_error("write", &setting.place, source))
    };
    settings.iter().try_for_each(write)
}

/// The duty to restore the settings of a journal, held by a lock on it.
pub struct RestoreDuty {
    path: PathBuf,
    file: File,
}

impl RestoreDuty {
    /// Takes the duty; `None` if another process has it.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be opened.
    pub fn take(journal: &Path) -> Result<Option<RestoreDuty>, SettingError> {
        let file = File::open(journal).map_err(file_error("open", journal))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RestoreDuty { path: journal.to_owned(), file })),
            Err(_) => Ok(None),
        }
    }

    /// Writes the earlier values and removes the journal.
    ///
    /// # Errors
    ///
    /// The first file that could not be written; the journal then stays, for a later try. A device that was unplugged
    /// has nothing to restore.
    pub fn restore(mut self) -> Result<(), SettingError> {
        let mut text = Vec::new();
        self.file.read_to_end(&mut text).map_err(file_error("read", &self.path))?;
        // A journal that was cut short was never followed by a change.
        let earlier: Vec<DeviceSetting> = serde_json::from_slice(&text).unwrap_or_default();
        let present: Vec<DeviceSetting> =
            earlier.into_iter().filter(|setting| setting.place.read().is_some()).collect();
        apply(&present)?;
        fs::remove_file(&self.path).map_err(file_error("remove", &self.path))
    }
}

/// Restores the journals of this folder that no process restores: theirs were killed. Returns their number.
///
/// # Errors
///
/// The first journal that cannot be restored.
pub fn restore_leftovers(folder: &Path) -> Result<usize, SettingError> {
    let mut restored = 0;
    for name in read::file_names(folder).iter().filter(|name| name.starts_with(JOURNAL_PREFIX)) {
        if let Some(duty) = RestoreDuty::take(&folder.join(name))? {
            duty.restore()?;
            restored += 1;
        }
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system with the settings of ttyUSB0, and a folder for journals.
    struct FakeSystem(tempfile::TempDir);

    impl FakeSystem {
        fn new() -> FakeSystem {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("sys/bus/usb-serial/devices/ttyUSB0");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("latency_timer"), "16\n").unwrap();
            FakeSystem(root)
        }

        fn setting(&self, text: &str) -> Result<DeviceSetting, SettingError> {
            setting_of(self.0.path(), &"serial:///dev/ttyUSB0".parse().unwrap(), text)
        }

        /// The file of the latency timer.
        fn timer(&self) -> PathBuf {
            self.0.path().join("sys/bus/usb-serial/devices/ttyUSB0/latency_timer")
        }

        fn journals(&self) -> PathBuf {
            self.0.path().join("journals")
        }
    }

    #[test]
    fn a_setting_has_a_name_a_range_and_a_file() {
        let system = FakeSystem::new();
        let setting = system.setting("latency_timer=1").unwrap();
        assert_eq!((&setting.place, setting.value.as_str()), (&SettingPlace::Path(system.timer()), "1"));
        insta::assert_snapshot!(system.setting("latency_timer=0").unwrap_err(), @"latency_timer is a number from 1 to 255: '0' is not");
        insta::assert_snapshot!(system.setting("rx_trig_bytes=1").unwrap_err(), @"/dev/ttyUSB0 has no rx_trig_bytes: leave it out, or use another device");
        insta::assert_snapshot!(system.setting("speed=1").unwrap_err(), @"no device setting 'speed': use latency_timer=1 (USB serial adapters), rx_trig_bytes=1 (16550 ports), rx-usecs=0 (network cards) or power_save=off (Wi-Fi)");
    }

    #[test]
    fn the_earlier_value_comes_back_and_the_journal_goes() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        let journal = write_journal(&system.journals(), &wanted).unwrap();
        apply(&wanted).unwrap();
        assert_eq!(read::number(system.timer()), Some(1));
        let duty = RestoreDuty::take(&journal).unwrap().unwrap();
        assert!(RestoreDuty::take(&journal).unwrap().is_none(), "one process restores");
        assert_eq!(restore_leftovers(&system.journals()).unwrap(), 0, "it is not left");
        duty.restore().unwrap();
        assert_eq!((read::number(system.timer()), journal.exists()), (Some(16), false));
    }

    #[test]
    fn a_journal_without_a_process_is_finished_later() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        write_journal(&system.journals(), &wanted).unwrap();
        apply(&wanted).unwrap();
        fs::write(system.journals().join("restore-1-cut.json"), "[{\"path\"").unwrap();
        assert_eq!(restore_leftovers(&system.journals()).unwrap(), 2);
        assert_eq!(read::number(system.timer()), Some(16));
        assert_eq!(restore_leftovers(Path::new("/nowhere/at/all")).unwrap(), 0);
    }

    #[test]
    fn an_unplugged_device_has_nothing_to_restore() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        let journal = write_journal(&system.journals(), &wanted).unwrap();
        fs::remove_file(system.timer()).unwrap();
        RestoreDuty::take(&journal).unwrap().unwrap().restore().unwrap();
        assert!(!journal.exists() && !system.timer().exists());
    }

    #[test]
    fn settings_of_interfaces_need_one_that_has_them() {
        let wrong = |url: &str, text: &str| {
            setting_of(Path::new("/"), &url.parse().unwrap(), text).unwrap_err().to_string()
        };
        insta::assert_snapshot!(wrong("tcp://127.0.0.1:7", "rx-usecs=0"), @"lo has no rx-usecs: leave it out, or use another device");
        insta::assert_snapshot!(wrong("udp://127.0.0.1:7?device=lo", "power_save=off"), @"lo has no power_save: leave it out, or use another device");
        insta::assert_snapshot!(wrong("unix:///tmp/socket", "rx-usecs=0"), @"rx-usecs is a setting of a network interface, and none leads to unix:///tmp/socket: leave it out");
        insta::assert_snapshot!(wrong("tcp://127.0.0.1:7", "rx-usecs=-1"), @"rx-usecs is a number from 0 to 10000: '-1' is not");
        insta::assert_snapshot!(wrong("tcp://127.0.0.1:7", "power_save=1"), @"power_save is on or off: '1' is not");
    }

    #[test]
    fn journals_keep_their_form() {
        let text = r#"[{"path":"/sys/x","value":"16"},{"interrupt_delay":"eth0","value":"50 adaptive"},{"power_save":"wlan0","value":"on"}]"#;
        let settings: Vec<DeviceSetting> = serde_json::from_str(text).unwrap();
        assert_eq!(settings[1].place, SettingPlace::InterruptDelay("eth0".to_owned()));
        assert_eq!(serde_json::to_string(&settings).unwrap(), text);
    }
}
