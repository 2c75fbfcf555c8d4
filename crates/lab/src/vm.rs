//! A guest with its own kernel: runs a command as root if this host's kernel lacks a module.
//!
//! The guest is Debian's kernel under QEMU. It starts for one command and is discarded (`vm/guest.sh`, which is part
//! of this program). It needs no privileges and no installation, and cannot change anything on the host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const GUEST_SCRIPT: &str = include_str!("vm/guest.sh");

/// Exit code of the process if the command's status is unknown.
pub const NO_STATUS_EXIT_CODE: i32 = 125;

/// The source of a guest's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestClock {
    /// The time of the host.
    Host,
    /// The number of instructions that the guest executed, which does not depend on the host's load.
    Instructions,
}

/// Contents and limits of the guest.
#[derive(Debug, Clone)]
pub struct VmOptions {
    /// Kernel modules. Their dependencies are added automatically.
    pub modules: Vec<String>,
    /// Programs of this host, from PATH or by path. In the guest they have only their names.
    pub tools: Vec<String>,
    /// Path of a program that the guest has under the name of this program.
    pub program: PathBuf,
    /// The guest is stopped after this time of the host.
    pub time_limit: Duration,
    /// The time of the guest.
    pub clock: GuestClock,
    /// Unix sockets that carry the frames of the guest's Ethernet device (`eth0`): its own, and that of another guest,
    /// which has them in reverse order. The paths must not contain blanks or commas.
    pub joined_sockets: Option<[PathBuf; 2]>,
    /// Cache for the kernel (about 200 MB), which is downloaded once.
    pub cache_directory: PathBuf,
}

/// The modules among these that this host's kernel has not loaded.
pub fn missing_modules(modules: &[String]) -> Vec<&str> {
    let loaded = |name: &&str| Path::new("/sys/module").join(name.replace('-', "_")).exists();
    modules.iter().map(String::as_str).filter(|name| !loaded(name)).collect()
}

/// The process that runs `command` in a guest. Its output and exit status are those of the command, or
/// [`NO_STATUS_EXIT_CODE`] with a line on standard error.
pub fn guest_process(options: &VmOptions, command: &[String]) -> Command {
    let mut process = Command::new("bash");
    process.args(["-c", GUEST_SCRIPT, "guest"]).arg(&options.cache_directory);
    process.args([options.modules.join(","), options.tools.join(",")]).arg(&options.program);
    process.arg(options.time_limit.as_secs().max(1).to_string());
    process.args([if options.clock == GuestClock::Instructions { "1" } else { "0" }]);
    let [own, other] = options.joined_sockets.clone().unwrap_or_default();
    process.arg(own).arg(other).args(command);
    process
}
