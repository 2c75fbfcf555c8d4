//! Orderly end by signals: results are reported, settings restored and temporary files removed.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result};
use linkgauge::system::HANGUP_SIGNAL;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};

/// Set by the first signal, if a command has requested it.
static INTERRUPT_FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// SIGHUP reloads a file and interrupts nothing.
static IS_RELOADED: AtomicBool = AtomicBool::new(false);
static HANDLERS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// A flag that the first Ctrl-C, SIGTERM or SIGHUP sets; the second Ctrl-C or SIGTERM ends the program at once.
pub fn interrupt_flag() -> Result<Arc<AtomicBool>> {
    install_handlers(|signal, flag| {
        register_conditional_shutdown(signal, 130, flag.clone())?;
        register(signal, flag.clone())
    })
}

/// The same for settings that must be restored: no signal ends the program before.
pub fn protected_interrupt_flag() -> Result<Arc<AtomicBool>> {
    install_handlers(|signal, flag| register(signal, flag.clone()))
}

/// A flag that SIGHUP sets, for the command that reads its file again. Call it before [`interrupt_flag`].
pub fn reload_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    if let Some(signal) = HANGUP_SIGNAL {
        register(signal, Arc::clone(&flag)).context("signal handlers cannot be installed")?;
    }
    IS_RELOADED.store(true, Relaxed);
    Ok(flag)
}

/// The flag of this process.
pub fn process_interrupt_flag() -> Arc<AtomicBool> {
    INTERRUPT_FLAG.get_or_init(Arc::default).clone()
}

fn install_handlers(
    add: impl Fn(i32, &Arc<AtomicBool>) -> std::io::Result<signal_hook::SigId>,
) -> Result<Arc<AtomicBool>> {
    let flag = process_interrupt_flag();
    if HANDLERS_INSTALLED.swap(true, Relaxed) {
        return Ok(flag);
    }
    for signal in [SIGINT, SIGTERM] {
        add(signal, &flag).context("signal handlers cannot be installed")?;
    }
    // A closing terminal sends it twice, by its shell and by the kernel, so the second one does not mean haste. 'nohup' and
    // similar programs ignore it, and that is preserved.
    let hangup = HANGUP_SIGNAL.filter(|signal| !is_ignored(*signal) && !IS_RELOADED.load(Relaxed));
    if let Some(signal) = hangup {
        register(signal, flag.clone()).context("signal handlers cannot be installed")?;
    }
    Ok(flag)
}

/// Whether the parent process wants this program to ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// The flag of the same name, for programs that start this one.
pub const UNTIL_INPUT_ENDS_FLAG: &str = "--until-input-ends";

/// Stops the program as SIGTERM does.
pub fn terminate_when_input_ends() {
    std::thread::spawn(|| {
        // A failed read counts as the end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        linkgauge::system::end_this_process();
    });
}
