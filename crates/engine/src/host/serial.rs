//! Serial ports of this host as sysfs reports them, who may open one, and which program has it open.
//!
//! Nothing here opens a port: that would raise its wires and restart many devices. `link` opens ports.
//! Pseudo-terminals are covered only for the programs that hold them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{permissions, read};

/// Root of all paths; tests use another one.
const FILESYSTEM_ROOT: &str = "/";

/// The hardware of a port. Unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PortHardware {
    /// The name of the kernel driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Vendor and product of a USB adapter, in its own words and numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usb_adapter: Option<String>,
    /// Time that a USB adapter holds received bytes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usb_latency_timer_ms: Option<i64>,
    /// Number of bytes that a UART collects before it interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_trigger_bytes: Option<i64>,
}

/// A port with hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortInfo {
    /// The path, like `/dev/ttyS0`.
    pub device: String,
    /// Facts of the kernel about the hardware.
    #[serde(flatten)]
    pub hardware: PortHardware,
    /// The kernel writes its own messages to this port.
    pub console: bool,
    /// The group that may open the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether this process may open the port.
    pub may_open: bool,
    /// A remedy if not; a console should be left to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The program that has it open, as far as this user can see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// All ports with hardware, by name.
pub fn list_ports() -> Vec<PortInfo> {
    list_ports_in(Path::new(FILESYSTEM_ROOT))
}

fn list_ports_in(root: &Path) -> Vec<PortInfo> {
    let class = root.join("sys/class/tty");
    let mut names = read::file_names(&class);
    names.retain(|name| class.join(name).join("device").exists() && has_hardware(&class.join(name)));
    names.sort_by_key(|name| (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), name.len()));
    names.iter().map(|name| read_port(root, name)).collect()
}

/// The 8250 driver creates spare ports; those without a UART have type 0 (`PORT_UNKNOWN` of linux/serial.h).
fn has_hardware(entry: &Path) -> bool {
    read::number(entry.join("type")) != Some(0)
}

fn read_port(root: &Path, name: &str) -> PortInfo {
    let entry = root.join("sys/class/tty").join(name);
    let device = format!("/dev/{name}");
    let path = root.join("dev").join(name);
    let may_open = linkgauge_system::may_read_and_write(&path);
    let console = read::text(entry.join("console")).as_deref() == Some("Y");
    PortInfo {
        hardware: read_hardware_in(&entry),
        console,
        group: fs::metadata(&path)
            .ok()
            .and_then(|found| group_name(root, linkgauge_system::Ownership::of(&found).group)),
        may_open,
        remedy: (!may_open && !console).then(|| permission_remedy_in(root, &path)),
        used_by: find_port_user_in(root, Path::new(&device)).map(|user| user.to_string()),
        device,
    }
}

/// The hardware of a terminal, by its device number.
pub(crate) fn read_hardware(major: u32, minor: u32) -> PortHardware {
    read_hardware_in(Path::new(&format!("{FILESYSTEM_ROOT}sys/dev/char/{major}:{minor}")))
}

fn read_hardware_in(entry: &Path) -> PortHardware {
    let Ok(device) = fs::canonicalize(entry.join("device")) else { return PortHardware::default() };
    PortHardware {
        driver: driver_name(&device),
        usb_adapter: device.ancestors().find(|part| part.join("idVendor").exists()).map(usb_adapter_name),
        usb_latency_timer_ms: read::number(device.join(LATENCY_TIMER_FILE)),
        receive_trigger_bytes: read::number(entry.join("rx_trig_bytes")),
    }
}

/// Name of the driver of a device. Since Linux 6.6, two devices on a separate bus stand between a UART and the device that its
/// driver is bound to.
fn driver_name(device: &Path) -> Option<String> {
    let between = |part: &&Path| read::link_name(part.join("subsystem")).as_deref() == Some("serial-base");
    let device = device.ancestors().find(|part| !between(part))?;
    read::link_name(device.join("driver"))
}

/// `FTDI FT232R USB UART (0403:6001)`.
fn usb_adapter_name(usb: &Path) -> String {
    let text = |file: &str| read::text(usb.join(file));
    let numbers = [text("idVendor"), text("idProduct")].map(Option::unwrap_or_default).join(":");
    let parts = [text("manufacturer"), text("product"), Some(format!("({numbers})"))];
    // The device's own text may contain anything, and is shown on terminals.
    let plain = |text: String| text.replace(char::is_control, "");
    parts.into_iter().flatten().map(plain).collect::<Vec<_>>().join(" ")
}

const LATENCY_TIMER_FILE: &str = "latency_timer";

/// The latency timers of all USB adapters that have one, in milliseconds, and the files that change them.
pub(crate) fn usb_latency_timers() -> Vec<(i64, PathBuf)> {
    usb_latency_timers_in(Path::new(FILESYSTEM_ROOT))
}

pub(super) fn usb_latency_timers_in(root: &Path) -> Vec<(i64, PathBuf)> {
    let folder = root.join("sys/bus/usb-serial/devices");
    let files = read::file_names(&folder).into_iter().map(|port| folder.join(port).join(LATENCY_TIMER_FILE));
    files.filter_map(|file| Some((read::number(&file)?, file))).collect()
}

/// A command that lets this user open a terminal after a refusal.
pub(crate) fn permission_remedy(path: &Path) -> String {
    permission_remedy_in(Path::new(FILESYSTEM_ROOT), path)
}

fn permission_remedy_in(root: &Path, path: &Path) -> String {
    let Ok(found) = fs::metadata(path) else { return "it has disappeared: list the ports again".to_owned() };
    let ownership = linkgauge_system::Ownership::of(&found);
    remedy_for_mode(ownership.mode, group_name(root, ownership.group).as_deref(), path)
}

fn remedy_for_mode(mode: u32, group: Option<&str>, path: &Path) -> String {
    const GROUP_MAY: u32 = 0o060;
    match group {
        Some(group) if mode & GROUP_MAY == GROUP_MAY => {
            format!("join its group {group}: sudo usermod -aG {group} $USER, then log in again")
        }
        _ => format!("take it over: sudo chown $USER {}", path.display()),
    }
}

fn group_name(root: &Path, number: u32) -> Option<String> {
    permissions::group_name(&read::text(root.join("etc/group"))?, number).map(str::to_owned)
}

/// A program that has a terminal open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortUser {
    /// The number of the process.
    pub(crate) process: u32,
    /// The name of the program.
    pub(crate) program: String,
}

impl std::fmt::Display for PortUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, process {}", self.program, self.process)
    }
}

/// The program that has a terminal open or reserved, as far as this user can see; excludes this process.
pub(crate) fn find_port_user(device: &Path) -> Option<PortUser> {
    find_port_user_in(Path::new(FILESYSTEM_ROOT), device)
}

fn find_port_user_in(root: &Path, device: &Path) -> Option<PortUser> {
    find_lock_holder_in(root, device).or_else(|| {
        let processes = read::file_names(root.join("proc")).into_iter().filter_map(|name| name.parse().ok());
        let users = processes.filter(|&process| process != std::process::id()).filter_map(|process| {
            let open = root.join(format!("proc/{process}/fd"));
            let leads = |name: &String| fs::read_link(open.join(name)).ok();
            let files: Vec<PathBuf> = read::file_names(&open).iter().filter_map(leads).collect();
            let user =
                files.iter().any(|file| file == device).then(|| port_user_of_process(root, process))??;
            Some((files.iter().any(|file| file.ends_with("ptmx")), user))
        });
        // A program that also holds the other side of a pseudo-terminal is the hardware's stand-in.
        users.min_by_key(|(stands_in, _)| *stands_in).map(|(_, user)| user)
    })
}

/// The running program that has reserved a terminal with a UUCP lock file; excludes this process.
pub(crate) fn find_lock_holder(device: &Path) -> Option<PortUser> {
    find_lock_holder_in(Path::new(FILESYSTEM_ROOT), device)
}

fn find_lock_holder_in(root: &Path, device: &Path) -> Option<PortUser> {
    let name = device.strip_prefix("/dev").ok()?.to_str()?.replace('/', "_");
    // The process in decimal, right-aligned (Filesystem Hierarchy Standard 3.0, 5.9); some programs append
    // text.
    let text = read::text(root.join(format!("var/lock/LCK..{name}")))?;
    let process = text.split_whitespace().next()?.parse().ok()?;
    if process == std::process::id() { None } else { port_user_of_process(root, process) }
}

/// `None` if the process does not run.
fn port_user_of_process(root: &Path, process: u32) -> Option<PortUser> {
    let program = read::text(root.join(format!("proc/{process}/comm")))?;
    Some(PortUser { process, program: program.replace(char::is_control, "") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A simulated root.
    struct Root(tempfile::TempDir);

    impl Root {
        pub fn new(files: &[(&str, &str)], links: &[(&str, &str)]) -> Root {
            let root = Root(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = root.path(path);
                fs::write(path, text).unwrap();
            }
            for (path, leads) in links {
                symlink(leads, root.path(path)).unwrap();
            }
            root
        }

        fn path(&self, path: &str) -> PathBuf {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }
    }

    /// A UART as Linux 6.6 and later show it, a spare port, an adapter, and a device that is no serial port.
    fn machine() -> Root {
        const UART: &str = "sys/devices/pnp0/00:00/00:00:0/00:00:0.0/tty/ttyS0";
        const SPARE: &str = "sys/devices/platform/serial8250/tty/ttyS1";
        const USB: &str = "sys/devices/pci0/usb1/1-2";
        let adapter = format!("{USB}/1-2:1.0/ttyUSB0");
        let files = [
            (format!("{UART}/type"), "4\n"),
            (format!("{UART}/rx_trig_bytes"), "8\n"),
            (format!("{UART}/console"), "Y\n"),
            (format!("{SPARE}/type"), "0\n"),
            (format!("{USB}/idVendor"), "0403\n"),
            (format!("{USB}/idProduct"), "6001\n"),
            (format!("{USB}/manufacturer"), "FTDI\n"),
            (format!("{USB}/product"), "FT232R \u{1b}[31mUSB UART\n"),
            (format!("{adapter}/latency_timer"), "16\n"),
            (format!("{adapter}/tty/ttyUSB0/dev"), "188:0\n"),
            ("sys/devices/virtual/tty/tty0/dev".to_owned(), "4:0\n"),
            ("dev/ttyS0".to_owned(), ""),
            ("dev/ttyUSB0".to_owned(), ""),
            ("etc/group".to_owned(), "root:x:0:\n"),
            ("var/lock/LCK..ttyUSB0".to_owned(), "       812 minicom root\n"),
            ("proc/812/comm".to_owned(), "minicom\n"),
            ("proc/90/comm".to_owned(), "getty\n"),
        ];
        let links = [
            (format!("{UART}/device"), "../../../00:00:0.0"),
            ("sys/devices/pnp0/00:00/00:00:0/00:00:0.0/subsystem".to_owned(), "/sys/bus/serial-base"),
            ("sys/devices/pnp0/00:00/00:00:0/subsystem".to_owned(), "/sys/bus/serial-base"),
            ("sys/devices/pnp0/00:00/driver".to_owned(), "/sys/bus/pnp/drivers/serial"),
            (format!("{SPARE}/device"), "../../../serial8250"),
            (format!("{adapter}/tty/ttyUSB0/device"), "../../../ttyUSB0"),
            (format!("{adapter}/driver"), "/sys/bus/usb-serial/drivers/ftdi_sio"),
            ("sys/class/tty/ttyS0".to_owned(), "../../devices/pnp0/00:00/00:00:0/00:00:0.0/tty/ttyS0"),
            ("sys/class/tty/ttyS1".to_owned(), "../../devices/platform/serial8250/tty/ttyS1"),
            ("sys/class/tty/ttyUSB0".to_owned(), "../../devices/pci0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0"),
            ("sys/class/tty/tty0".to_owned(), "../../devices/virtual/tty/tty0"),
            (
                "sys/bus/usb-serial/devices/ttyUSB0".to_owned(),
                "../../../devices/pci0/usb1/1-2/1-2:1.0/ttyUSB0",
            ),
            ("proc/90/fd/0".to_owned(), "/dev/null"),
            ("proc/90/fd/1".to_owned(), "/dev/ttyS0"),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let links: Vec<_> = links.iter().map(|(path, leads)| (path.as_str(), *leads)).collect();
        Root::new(&files, &links)
    }

    #[test]
    fn ports_with_hardware_are_found() {
        let root = machine();
        let mut ports = list_ports_in(root.0.path());
        // The group is that of the user who runs the test.
        ports.iter_mut().for_each(|port| port.group = None);
        insta::assert_snapshot!(serde_json::to_string_pretty(&ports).unwrap(), @r#"
        [
          {
            "device": "/dev/ttyS0",
            "driver": "serial",
            "receive_trigger_bytes": 8,
            "console": true,
            "may_open": true,
            "used_by": "getty, process 90"
          },
          {
            "device": "/dev/ttyUSB0",
            "driver": "ftdi_sio",
            "usb_adapter": "FTDI FT232R [31mUSB UART (0403:6001)",
            "usb_latency_timer_ms": 16,
            "console": false,
            "may_open": true,
            "used_by": "minicom, process 812"
          }
        ]
        "#);
    }

    #[test]
    fn timers_are_found_with_the_file_that_changes_them() {
        let root = machine();
        let file = root.0.path().join("sys/bus/usb-serial/devices/ttyUSB0/latency_timer");
        assert_eq!(usb_latency_timers_in(root.0.path()), [(16, file)]);
    }

    #[test]
    fn the_program_behind_a_pseudo_terminal_is_named_last() {
        for (lab, program) in [("5", "7"), ("7", "5")] {
            let process = |id: &str, name: &str| (format!("proc/{id}/comm"), format!("{name}\n"));
            let files = [process(lab, "lab"), process(program, "minicom")];
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let [master, slave, used] =
                [(lab, 0), (lab, 1), (program, 4)].map(|(id, file)| format!("proc/{id}/fd/{file}"));
            let links = [(&*master, "/dev/ptmx"), (&*slave, "/dev/pts/3"), (&*used, "/dev/pts/3")];
            let root = Root::new(&files, &links);
            let user = find_port_user_in(root.0.path(), Path::new("/dev/pts/3")).unwrap();
            assert_eq!(user.program, "minicom");
        }
    }

    #[test]
    fn a_lock_file_counts_as_long_as_its_process_runs() {
        let root = machine();
        let reserved =
            |name: &str| find_lock_holder_in(root.0.path(), Path::new(name)).map(|user| user.process);
        assert_eq!(reserved("/dev/ttyUSB0"), Some(812));
        assert_eq!(reserved("/dev/ttyS0"), None);
        assert_eq!(reserved("/tmp/ttyS0"), None);
        for text in ["99999", "", "x", &std::process::id().to_string()] {
            fs::write(root.path("var/lock/LCK..pts_3"), text).unwrap();
            assert_eq!(reserved("/dev/pts/3"), None, "{text}");
        }
    }

    #[test]
    fn a_refused_user_gets_a_remedy() {
        let remedy = |mode, group| remedy_for_mode(mode, group, Path::new("/dev/ttyS0"));
        insta::assert_snapshot!([
            remedy(0o660, Some("dialout")), remedy(0o600, Some("root")), remedy(0o660, None),
        ].join("\n"), @r"
        join its group dialout: sudo usermod -aG dialout $USER, then log in again
        take it over: sudo chown $USER /dev/ttyS0
        take it over: sudo chown $USER /dev/ttyS0
        ");
    }

    #[test]
    fn an_empty_system_has_no_ports() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(list_ports_in(empty.path()), []);
        assert_eq!(read_hardware_in(&empty.path().join("sys/dev/char/4:64")), PortHardware::default());
        assert_eq!(find_port_user_in(empty.path(), Path::new("/dev/ttyS0")), None);
    }
}
