//! This process, its limits, and others that it ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, kill_process_group, setrlimit,
};

/// The number of the user whose rights this process has; 0 is root.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number of the user who started this process.
pub fn real_user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The name of this host.
pub fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// The release of the kernel.
pub fn kernel_release() -> Option<String> {
    rustix::system::uname().release().to_str().ok().map(str::to_owned)
}

/// The architecture of the CPU, as the kernel calls it.
pub fn architecture() -> Option<String> {
    rustix::system::uname().machine().to_str().ok().map(str::to_owned)
}

/// Raises the limit of open files to the hard limit: every connection is a file.
pub fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the old limit remains, which is enough for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Numbers of files that this process may open in all, now and at most; `None`: any number.
pub fn open_file_limits() -> [Option<u64>; 2] {
    let limit = getrlimit(Resource::Nofile);
    [limit.current, limit.maximum]
}

/// The signal of a closed terminal.
pub const HANGUP_SIGNAL: Option<i32> = Some(libc::SIGHUP);

/// Ends this process as by the signal that asks programs to end.
pub fn end_this_process() {
    let _ = kill_process(getpid(), Signal::TERM);
}

/// Starts the program in a process group of its own, so that Ctrl-C in the terminal does not reach it.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Asks a child to end.
pub fn ask_to_end(child: &Child) {
    if let Some(process) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(process, Signal::TERM);
    }
}

/// Ends a child that leads a process group, and all of its group.
pub fn kill_group(child: &Child) {
    if let Some(process) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(process, Signal::KILL);
    }
}

/// Makes reads and writes of a pipe return at once.
///
/// # Errors
///
/// The system refuses.
pub fn set_nonblocking<T: std::os::fd::AsFd>(pipe: &T) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(pipe, true)?)
}
