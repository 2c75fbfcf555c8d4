//! `linkgauge lab vm`.

use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::lab::vm::{self, GuestClock, NO_STATUS_EXIT_CODE, VmOptions};
use linkgauge::units::Span;

use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

const GUEST: &str = "Guest";
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Run a command in a guest with its own kernel
///
/// For features that the kernel of this host lacks: Debian's kernel under QEMU with the requested modules. It needs no privileges.
/// The first run downloads the kernel with apt-get (70 MB) into a cache. The guest contains this program, and other programs of
/// this host only with --tools.
#[derive(Args)]
pub struct Flags {
    /// Kernel modules, like sctp,tipc; their dependencies are included
    #[arg(long, help_heading = GUEST, value_name = "NAMES", value_delimiter = ',')]
    modules: Vec<String>,
    /// Programs of this host to copy, like ip,tc; by name or path
    #[arg(long, help_heading = GUEST, value_name = "NAMES", value_delimiter = ',')]
    tools: Vec<String>,
    /// Ethernet device eth0 that leads to another guest: its own socket, and that of the other guest, which gets the two in
    /// reverse order
    #[arg(long, help_heading = GUEST, num_args = 2, value_names = ["OWN", "OTHER"], conflicts_with = "virtual_time")]
    join: Option<Vec<PathBuf>>,
    #[command(flatten)]
    guest: GuestFlags,
    /// The command and its arguments, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How a guest runs.
#[derive(Args)]
pub struct GuestFlags {
    /// Derive the guest's time from its instructions
    ///
    /// A busy host does not change the result, and waiting takes no time.
    #[arg(long, help_heading = GUEST, hide_short_help = true)]
    virtual_time: bool,
    /// Stop the guest after this time [default: 2min; for a study as long as it needs]
    #[arg(long, help_heading = GUEST, hide_short_help = true, value_name = "TIME")]
    limit: Option<Span>,
    /// Directory of the guest's kernel [default: linkgauge/vm in ~/.cache]
    #[arg(long, help_heading = GUEST, hide_short_help = true, value_name = "DIRECTORY")]
    cache: Option<PathBuf>,
}

impl GuestFlags {
    pub fn any_set(&self) -> bool {
        self.virtual_time || self.limit.is_some() || self.cache.is_some()
    }

    /// The options of a guest. `limit` applies unless a flag sets another one.
    pub fn options(&self, modules: &[String], tools: &[String], limit: Duration) -> Result<VmOptions> {
        Ok(VmOptions {
            modules: modules.to_vec(),
            tools: tools.to_vec(),
            program: std::env::current_exe().context("the path of this program cannot be read")?,
            time_limit: self.limit.map_or(limit, |limit| limit.0),
            clock: if self.virtual_time { GuestClock::Instructions } else { GuestClock::Host },
            joined_sockets: None,
            cache_directory: self.cache.clone().map_or_else(default_cache, Ok)?,
        })
    }
}

/// Waits for the end of a guest. `None`: ended by Ctrl-C.
pub fn wait_for_guest(guest: &mut Child, cancel: &AtomicBool) -> Result<Option<ExitStatus>> {
    let mut is_stopped = false;
    loop {
        if let Some(status) = guest.try_wait()? {
            return Ok((!is_stopped).then_some(status));
        }
        if cancel.load(Relaxed) && !is_stopped {
            // The guest ends with it.
            linkgauge::system::ask_to_end(guest);
            is_stopped = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let mut options = flags.guest.options(&flags.modules, &flags.tools, DEFAULT_TIME_LIMIT)?;
    options.joined_sockets = flags.join.map(socket_pair).transpose()?;
    let mut process = vm::guest_process(&options, &flags.command);
    let mut guest = process.stdin(Stdio::null()).spawn().context("bash cannot be started")?;
    let Some(status) = wait_for_guest(&mut guest, &cancel)? else { return Ok(Status::Interrupted) };
    match status.code() {
        Some(0) => Ok(Status::Complete),
        // It has printed its error.
        Some(NO_STATUS_EXIT_CODE) | None => Ok(Status::Incomplete),
        Some(status) => bail!("in the guest {} ended with status {status}", flags.command[0]),
    }
}

fn socket_pair(sockets: Vec<PathBuf>) -> Result<[PathBuf; 2]> {
    let odd = sockets.iter().find(|path| path.to_string_lossy().contains([' ', ',']));
    if let Some(path) = odd {
        bail!("--join {}: the name of a socket cannot contain spaces and commas", path.display());
    }
    sockets.try_into().map_err(|_| anyhow::anyhow!("--join takes two sockets"))
}

fn default_cache() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(caches.context("the cache directory is unknown. Use --cache DIRECTORY")?.join("linkgauge/vm"))
}
