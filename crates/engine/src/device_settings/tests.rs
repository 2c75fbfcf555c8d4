//! Settings and their journals, in a fake file system.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A file system with the settings of ttyUSB0, and a folder for saved runs.
struct FakeSystem(tempfile::TempDir);

impl FakeSystem {
    pub fn new() -> FakeSystem {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/bus/usb-serial/devices/ttyUSB0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("latency_timer"), "16\n").unwrap();
        FakeSystem(root)
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn setting(&self, text: &str) -> Result<DeviceSetting, SettingError> {
        setting_of(self.root(), &"serial:///dev/ttyUSB0".parse().unwrap(), text)
    }

    /// The file of the latency timer.
    fn timer(&self) -> PathBuf {
        self.root().join("sys/bus/usb-serial/devices/ttyUSB0/latency_timer")
    }

    fn journals(&self) -> PathBuf {
        self.root().join("data/restore")
    }

    fn open(&self) -> Result<RestoreFolder, SettingError> {
        RestoreFolder::open(&self.root().join("data"), self.root())
    }

    /// Begins a change of the latency timer, and makes it.
    fn change(&self) -> ChangeJournal {
        let wanted = [self.setting("latency_timer=1").unwrap()];
        let journal = self.open().unwrap().begin(&wanted).unwrap();
        apply(self.root(), &wanted).unwrap();
        journal
    }

    /// The number of restored journals, and the errors of the others without the path of this system.
    fn restore_leftovers(&self) -> (usize, Vec<String>) {
        let (restored, errors) = self.open().unwrap().restore_leftovers();
        let short = |error: &SettingError| error.to_string().replace(self.root().to_str().unwrap(), "");
        (restored, errors.iter().map(short).collect())
    }

    fn timer_value(&self) -> Option<i64> {
        read::number(self.timer())
    }

    /// Puts a journal with this text into the folder, as its owner would.
    fn plant(&self, name: &str, text: &str) -> PathBuf {
        drop(self.open().unwrap());
        let path = self.journals().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

#[test]
fn a_setting_has_a_name_a_range_and_a_file() {
    let system = FakeSystem::new();
    let setting = system.setting("latency_timer=1").unwrap();
    assert_eq!(setting.place, SettingPlace::LatencyTimer("ttyUSB0".to_owned()));
    assert_eq!((setting.place.port_file(system.root()), setting.value.as_str()), (Some(system.timer()), "1"));
    insta::assert_snapshot!(system.setting("latency_timer=0").unwrap_err(), @"latency_timer is a number from 1 to 255: '0' is not");
    insta::assert_snapshot!(system.setting("rx_trig_bytes=1").unwrap_err(), @"/dev/ttyUSB0 has no rx_trig_bytes: leave it out, or use another device");
    insta::assert_snapshot!(system.setting("speed=1").unwrap_err(), @"no device setting 'speed': use latency_timer=1 (USB serial adapters), rx_trig_bytes=1 (16550 ports), rx-usecs=0 (network cards) or power_save=off (Wi-Fi)");
}

#[test]
fn the_earlier_value_comes_back_and_the_journal_goes() {
    let system = FakeSystem::new();
    let journal = system.change();
    assert_eq!(system.timer_value(), Some(1));
    let duty = RestoreDuty::share(&journal.path, system.root()).unwrap();
    assert_eq!(system.restore_leftovers(), (0, vec![]), "it is not left");
    let path = journal.path.clone();
    drop(journal);
    assert_eq!(system.restore_leftovers(), (0, vec![]), "the other process still has it");
    duty.restore().unwrap();
    assert_eq!((system.timer_value(), path.exists()), (Some(16), false));
}

#[test]
fn a_journal_without_a_process_is_finished_later() {
    let system = FakeSystem::new();
    drop(system.change());
    system.plant("restore-1-cut.json", "[{\"latency_timer\"");
    assert_eq!(system.restore_leftovers(), (2, vec![]));
    assert_eq!(system.timer_value(), Some(16));
    assert_eq!(system.restore_leftovers(), (0, vec![]));
}

#[test]
fn an_unplugged_device_has_nothing_to_restore() {
    let system = FakeSystem::new();
    let journal = system.change();
    fs::remove_file(system.timer()).unwrap();
    RestoreDuty::share(&journal.path, system.root()).unwrap().restore().unwrap();
    assert!(!journal.path.exists() && !system.timer().exists());
}

#[test]
fn two_processes_cannot_change_the_same_setting() {
    let system = FakeSystem::new();
    let first = system.change();
    let wanted = [system.setting("latency_timer=2").unwrap()];
    let refused = system.open().unwrap().begin(&wanted).err().unwrap();
    insta::assert_snapshot!(refused, @"change latency_timer of ttyUSB0: another linkgauge has changed it. Try again when that one has ended");
    RestoreDuty::share(&first.path, system.root()).unwrap().restore().unwrap();
    assert!(system.open().unwrap().begin(&wanted).is_ok());
}

#[test]
fn a_journal_restores_known_settings_only() {
    let system = FakeSystem::new();
    let target = system.root().join("etc-passwd");
    fs::write(&target, "root").unwrap();
    let path = target.display();
    for text in [
        format!(r#"[{{"path":"{path}","value":"16"}}]"#),
        format!(r#"[{{"latency_timer":"{path}","value":"16"}}]"#),
        r#"[{"latency_timer":"../usb-serial/devices/ttyUSB0","value":"16"}]"#.to_owned(),
        r#"[{"latency_timer":"..","value":"16"}]"#.to_owned(),
        r#"[{"latency_timer":"ttyUSB0","value":"16\nx"}]"#.to_owned(),
        r#"[{"latency_timer":"ttyUSB0","value":"256"}]"#.to_owned(),
        r#"[{"rx_trig_bytes":"ttyUSB0","value":"-1"}]"#.to_owned(),
        r#"[{"interrupt_delay":"lo","value":"often"}]"#.to_owned(),
        r#"[{"power_save":"lo","value":"maybe"}]"#.to_owned(),
        "[1]".to_owned(),
    ] {
        let planted = system.plant("restore-1-1.json", &text);
        // One that is good comes after it.
        drop(system.change());
        let (restored, errors) = system.restore_leftovers();
        assert_eq!((restored, errors.len(), system.timer_value()), (1, 1, Some(16)), "{text}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(errors[0], @"/data/restore/restore-1-1.json: this program did not write it, so the journals of device settings there are not used. Remove it");
        }
        fs::remove_file(planted).unwrap();
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "root");
}

#[test]
fn a_journal_that_others_can_have_written_is_left_alone() {
    let text = r#"[{"latency_timer":"ttyUSB0","value":"200"}]"#;
    let refused = |plant: &dyn Fn(&FakeSystem, &Path)| {
        let system = FakeSystem::new();
        plant(&system, &system.plant("restore-1-1.json", text));
        let (restored, mut errors) = system.restore_leftovers();
        assert_eq!((restored, errors.len(), system.timer_value()), (0, 1, Some(16)), "{errors:?}");
        errors.remove(0).split(", so").next().unwrap().to_owned()
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    insta::assert_snapshot!(refused(&|_, path| mode(path, 0o620)), @"/data/restore/restore-1-1.json: other users have rights to it");
    let linked = refused(&|system, path| {
        fs::rename(path, system.root().join("elsewhere")).unwrap();
        symlink(system.root().join("elsewhere"), path).unwrap();
    });
    insta::assert_snapshot!(linked, @"/data/restore/restore-1-1.json: it is a symbolic link");
    let two_names = refused(&|system, path| fs::hard_link(path, system.root().join("elsewhere")).unwrap());
    insta::assert_snapshot!(two_names, @"/data/restore/restore-1-1.json: it is not a file with one name");
    let pipe = refused(&|_, path| {
        fs::remove_file(path).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    });
    insta::assert_snapshot!(pipe, @"/data/restore/restore-1-1.json: it is not a file with one name");
    if linkgauge_system::effective_user() == 0 {
        let foreign = refused(&|_, path| std::os::unix::fs::chown(path, Some(65_534), None).unwrap());
        insta::assert_snapshot!(foreign, @"/data/restore/restore-1-1.json: it belongs to another user");
    }
}

#[test]
fn a_folder_that_others_can_write_is_not_used() {
    let refused = |plant: &dyn Fn(&FakeSystem)| {
        let system = FakeSystem::new();
        drop(system.open().unwrap());
        plant(&system);
        let error = system.open().err().unwrap().to_string();
        error.replace(system.root().to_str().unwrap(), "")
    };
    let open_to_all =
        refused(&|system| fs::set_permissions(system.journals(), fs::Permissions::from_mode(0o777)).unwrap());
    insta::assert_snapshot!(open_to_all, @"/data/restore: other users have rights to it, so the journals of device settings there are not used. Remove it with its content");
    let linked = refused(&|system| {
        fs::rename(system.journals(), system.root().join("elsewhere")).unwrap();
        symlink(system.root().join("elsewhere"), system.journals()).unwrap();
    });
    insta::assert_snapshot!(linked, @"/data/restore: it is not a folder, so the journals of device settings there are not used. Remove it");
    if linkgauge_system::effective_user() == 0 {
        let foreign =
            refused(&|system| std::os::unix::fs::chown(system.journals(), Some(65_534), None).unwrap());
        insta::assert_snapshot!(foreign, @"/data/restore: it belongs to another user, so the journals of device settings there are not used. Remove it with its content");
    }
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
    let text = r#"[{"latency_timer":"ttyUSB0","value":"16"},{"rx_trig_bytes":"ttyS0","value":"8"},{"interrupt_delay":"eth0","value":"50 adaptive"},{"power_save":"wlan0","value":"on"}]"#;
    let settings: Vec<DeviceSetting> = serde_json::from_str(text).unwrap();
    assert_eq!(settings[2].place, SettingPlace::InterruptDelay("eth0".to_owned()));
    assert_eq!(serde_json::to_string(&settings).unwrap(), text);
    assert!(settings.iter().all(DeviceSetting::is_possible));
}
