//! Settings of devices that outlive a process (files of sysfs): changed for a while, and restored whatever happens.
//!
//! A journal names each file and its earlier value before anything is changed. The process that holds the lock of the
//! journal restores the values and removes it. A journal without a lock was left by processes that were killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::read;

/// A file of sysfs and the value in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSetting {
    /// The file.
    pub path: PathBuf,
    /// The value, without a line end.
    pub value: String,
}

/// Why a setting could not be changed or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
    #[error(
        "no device setting '{0}': use latency_timer=1 (USB serial adapters) or rx_trig_bytes=1 (16550 ports)"
    )]
    UnknownName(String),
    /// The value is outside of its range.
    #[error("{name} is a number from 1 to {most}: '{value}' is not")]
    BadValue {
        /// The name of the setting.
        name: &'static str,
        /// The largest value.
        most: u32,
        /// The requested value.
        value: String,
    },
    /// The device does not have the setting.
    #[error("{device} has no {name}: leave it out, or use another port")]
    NoSuchSetting {
        /// The device file.
        device: String,
        /// The name of the setting.
        name: &'static str,
    },
    /// A file could not be read or written.
    #[error("{operation} {}: {source}{}", path.display(), right_remedy(source))]
    File {
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

fn file_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SettingError + 'a {
    move |source| SettingError::File { operation, path: path.to_owned(), source }
}

/// The settings of a serial port: name, folder below the root of the file system, largest value. All begin at 1.
const PORT_SETTINGS: [(&str, &str, u32); 2] =
    [("latency_timer", "sys/bus/usb-serial/devices", 255), ("rx_trig_bytes", "sys/class/tty", 128)];

/// The file of a setting like `latency_timer=1` of a serial port; `root` is `/`.
///
/// # Errors
///
/// Fails for unknown names, values outside of their range, and ports without the setting.
pub fn setting_of_port(root: &Path, device: &Path, text: &str) -> Result<DeviceSetting, SettingError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let known = PORT_SETTINGS.iter().find(|(known, ..)| *known == name);
    let (name, folder, most) = *known.ok_or_else(|| SettingError::UnknownName(name.to_owned()))?;
    if !value.parse().is_ok_and(|number: u32| (1..=most).contains(&number)) {
        return Err(SettingError::BadValue { name, most, value: value.to_owned() });
    }
    let real = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    let port = real.file_name().unwrap_or_default();
    let path = root.join(folder).join(port).join(name);
    if !path.exists() {
        return Err(SettingError::NoSuchSetting { device: device.display().to_string(), name });
    }
    Ok(DeviceSetting { path, value: value.to_owned() })
}

/// Names of journals begin with this.
const JOURNAL_PREFIX: &str = "restore-";

/// Writes the earlier values of the files of `wanted` into a new journal in `folder`. Changes nothing else.
///
/// # Errors
///
/// Fails if a setting cannot be read, or if the journal cannot be written.
pub fn write_journal(folder: &Path, wanted: &[DeviceSetting]) -> Result<PathBuf, SettingError> {
    let read = |setting: &DeviceSetting| {
        let value = read::text(&setting.path);
        let path = setting.path.clone();
        value
            .map(|value| DeviceSetting { path, value })
            .ok_or_else(|| file_error("read", &setting.path)(io::Error::from(io::ErrorKind::NotFound)))
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
/// Fails at the first file that cannot be written.
pub fn apply(settings: &[DeviceSetting]) -> Result<(), SettingError> {
    settings.iter().try_for_each(|setting| {
        fs::write(&setting.path, &setting.value).map_err(file_error("write", &setting.path))
    })
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
            earlier.into_iter().filter(|setting| setting.path.exists()).collect();
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
            let device = Path::new("/dev/ttyUSB0");
            setting_of_port(self.0.path(), device, text)
        }

        fn journals(&self) -> PathBuf {
            self.0.path().join("journals")
        }
    }

    #[test]
    fn a_setting_has_a_name_a_range_and_a_file() {
        let system = FakeSystem::new();
        let setting = system.setting("latency_timer=1").unwrap();
        assert!(setting.path.ends_with("ttyUSB0/latency_timer") && setting.value == "1");
        insta::assert_snapshot!(system.setting("latency_timer=0").unwrap_err(), @"latency_timer is a number from 1 to 255: '0' is not");
        insta::assert_snapshot!(system.setting("rx_trig_bytes=1").unwrap_err(), @"/dev/ttyUSB0 has no rx_trig_bytes: leave it out, or use another port");
        insta::assert_snapshot!(system.setting("speed=1").unwrap_err(), @"no device setting 'speed': use latency_timer=1 (USB serial adapters) or rx_trig_bytes=1 (16550 ports)");
    }

    #[test]
    fn the_earlier_value_comes_back_and_the_journal_goes() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        let journal = write_journal(&system.journals(), &wanted).unwrap();
        apply(&wanted).unwrap();
        assert_eq!(read::number(&wanted[0].path), Some(1));
        let duty = RestoreDuty::take(&journal).unwrap().unwrap();
        assert!(RestoreDuty::take(&journal).unwrap().is_none(), "one process restores");
        assert_eq!(restore_leftovers(&system.journals()).unwrap(), 0, "it is not left");
        duty.restore().unwrap();
        assert_eq!((read::number(&wanted[0].path), journal.exists()), (Some(16), false));
    }

    #[test]
    fn a_journal_without_a_process_is_finished_later() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        write_journal(&system.journals(), &wanted).unwrap();
        apply(&wanted).unwrap();
        fs::write(system.journals().join("restore-1-cut.json"), "[{\"path\"").unwrap();
        assert_eq!(restore_leftovers(&system.journals()).unwrap(), 2);
        assert_eq!(read::number(&wanted[0].path), Some(16));
        assert_eq!(restore_leftovers(Path::new("/nowhere/at/all")).unwrap(), 0);
    }

    #[test]
    fn an_unplugged_device_has_nothing_to_restore() {
        let system = FakeSystem::new();
        let wanted = [system.setting("latency_timer=1").unwrap()];
        let journal = write_journal(&system.journals(), &wanted).unwrap();
        fs::remove_file(&wanted[0].path).unwrap();
        RestoreDuty::take(&journal).unwrap().unwrap().restore().unwrap();
        assert!(!journal.exists() && !wanted[0].path.exists());
    }
}
