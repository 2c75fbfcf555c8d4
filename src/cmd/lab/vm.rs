//! `linkgauge lab vm`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::lab::vm::{self, NO_STATUS, Options};
use linkgauge::units::Span;
use rustix::process::{Pid, Signal, kill_process};

use crate::cmd::Status;
use crate::cmd::measure::on_interrupt;

/// Run a command in a guest with a kernel of its own
///
/// For what this host's kernel cannot do: Debian's kernel under QEMU with the modules asked for, without privileges, thrown
/// away afterwards. The first time the kernel is fetched with apt-get (70 MB) and kept. This program is in the guest under
/// its own name. Nothing else of this host is, unless asked for.
#[derive(Args)]
pub struct Flags {
    /// Kernel modules, with what they depend on
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    modules: Vec<String>,
    /// Programs of this host to take along, like ip and tc
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Vec<String>,
    /// Count the guest's time in its instructions: the same result on a busy host, and waiting takes no time
    #[arg(long)]
    virtual_time: bool,
    /// Give it an Ethernet device, eth0, that leads to another guest: a socket of its own and that of the other one, which
    /// is started with the same two the other way round
    #[arg(long, num_args = 2, value_names = ["OWN", "OTHER"], conflicts_with = "virtual_time")]
    join: Option<Vec<PathBuf>>,
    /// End the guest after this time
    #[arg(long, value_name = "TIME", default_value = "2min")]
    limit: Span,
    /// Where the kernel is kept [default: linkgauge/vm in ~/.cache]
    #[arg(long, value_name = "DIRECTORY")]
    cache: Option<PathBuf>,
    /// The command and its arguments, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = on_interrupt()?;
    let options = Options {
        modules: flags.modules,
        tools: flags.tools,
        program: std::env::current_exe().context("the path of this program cannot be read")?,
        limit: flags.limit.0,
        virtual_time: flags.virtual_time,
        join: flags.join.map(joined).transpose()?,
        cache: flags.cache.map_or_else(usual_cache, Ok)?,
    };
    let mut process = vm::process(&options, &flags.command);
    let mut guest = process.stdin(Stdio::null()).spawn().context("bash cannot be started")?;
    let mut told = false;
    let status = loop {
        if let Some(status) = guest.try_wait()? {
            break status;
        }
        if cancel.load(Relaxed) && !told {
            // It takes its guest with it.
            kill_process(Pid::from_child(&guest), Signal::TERM)?;
            told = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    match status.code() {
        _ if told => Ok(Status::Interrupted),
        Some(0) => Ok(Status::Complete),
        // It has said why.
        Some(NO_STATUS) | None => Ok(Status::Incomplete),
        Some(status) => bail!("in the guest {} ended with status {status}", flags.command[0]),
    }
}

fn joined(sockets: Vec<PathBuf>) -> Result<[PathBuf; 2]> {
    let odd = sockets.iter().find(|path| path.to_string_lossy().contains([' ', ',']));
    if let Some(path) = odd {
        bail!(
            "--join {}: blanks and commas cannot be in the name of a socket between guests",
            path.display()
        );
    }
    sockets.try_into().map_err(|_| anyhow::anyhow!("--join takes two sockets"))
}

fn usual_cache() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(caches.context("no place for the kernel is known: say --cache DIRECTORY")?.join("linkgauge/vm"))
}
