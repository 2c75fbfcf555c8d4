//! A guest with a kernel of its own: runs a command as root where this host's kernel lacks a module.
//!
//! The guest is Debian's kernel under QEMU, started for one command and thrown away (`vm/guest.sh`, which is part of this
//! program). No privileges are needed, nothing is installed, and nothing of the host can be changed from inside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const GUEST_SCRIPT: &str = include_str!("vm/guest.sh");

/// What the process ends with when it cannot tell the status of the command.
pub const NO_STATUS_EXIT_CODE: i32 = 125;

/// What the guest holds.
#[derive(Debug, Clone)]
pub struct VmOptions {
    /// Kernel modules; what they depend on comes along.
    pub modules: Vec<String>,
    /// Programs of this host, found in PATH or by their paths; in the guest they have their names only.
    pub tools: Vec<String>,
    /// Is in the guest under the name of this program.
    pub program: PathBuf,
    /// The guest is ended after this time of the host.
    pub time_limit: Duration,
    /// Time in the guest is counted in its instructions: the same on a busy host.
    pub virtual_time: bool,
    /// Sockets of the file system between which the frames of the guest's Ethernet device (`eth0`) pass: its own, and that
    /// of another guest, which has them the other way round. No blank or comma may be in them.
    pub joined_sockets: Option<[PathBuf; 2]>,
    /// Keeps the kernel (some 200 MB), which is fetched once.
    pub cache_directory: PathBuf,
}

/// Those of these modules that this host's kernel has not loaded.
pub fn missing_modules(modules: &[String]) -> Vec<&str> {
    let loaded = |name: &&str| Path::new("/sys/module").join(name.replace('-', "_")).exists();
    modules.iter().map(String::as_str).filter(|name| !loaded(name)).collect()
}

/// The process that runs `command` in a guest: its output is the command's output, its status the command's, or
/// [`NO_STATUS_EXIT_CODE`] with a line on standard error.
pub fn guest_process(options: &VmOptions, command: &[String]) -> Command {
    let mut process = Command::new("bash");
    process.args(["-c", GUEST_SCRIPT, "guest"]).arg(&options.cache_directory);
    process.args([options.modules.join(","), options.tools.join(",")]).arg(&options.program);
    process.arg(options.time_limit.as_secs().max(1).to_string());
    process.args([if options.virtual_time { "1" } else { "0" }]);
    let [own, other] = options.joined_sockets.clone().unwrap_or_default();
    process.arg(own).arg(other).args(command);
    process
}
