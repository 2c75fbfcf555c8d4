//! Settings of devices that change while a command measures. A child process restores them when this one ends, for
//! whatever reason, and at the latest after a time; `restore-settings` is that process.

use std::any::Any;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::device_settings::{self, ChangeJournal, DeviceSetting, RestoreDuty, RestoreFolder};
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::live::{DeviceChanger, LiveError};
use linkgauge::units::Span;

use super::help::ADVANCED;
use super::output::print_message;
use super::signals::protected_interrupt_flag;
use super::status::Status;
use super::store::data_folder;

/// Flags of commands that may change settings of the devices that they measure.
#[derive(Args, Clone, Default)]
pub struct ChangeFlags {
    /// Change a setting of the device while measuring, like latency_timer=1 (root) [list]
    ///
    /// Of a serial port: latency_timer=1 (USB adapters), rx_trig_bytes=1 (16550). Of the network interface: rx-usecs=0 (interrupt
    /// delay of a card), power_save=off (Wi-Fi).
    /// The earlier value is restored at the end, also after a crash: by a child process, or by the next start.
    #[arg(long, help_heading = ADVANCED, hide_short_help = true, value_name = "NAME=VALUE", value_delimiter = ',')]
    allow_change: Vec<String>,
    /// Root of the file system with the settings
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    settings_root: PathBuf,
}

impl ChangeFlags {
    /// Whether changes are allowed.
    pub fn is_used(&self) -> bool {
        !self.allow_change.is_empty()
    }

    /// Makes the changes; dropping them restores what was before. Also restores what a killed process left.
    pub fn make(&self, urls: &[Endpoint]) -> Result<Option<DeviceChanges>> {
        if self.allow_change.is_empty() {
            return Ok(None);
        }
        let folder = self.journal_folder()?;
        let mut settings = Vec::new();
        for url in urls {
            for text in &self.allow_change {
                settings.push(device_settings::setting_of(&self.settings_root, url, text)?);
            }
        }
        DeviceChanges::make((&folder, &self.settings_root), &settings).map(Some)
    }

    /// The folder of the saved runs, beside which journals lie. Restores what killed processes have left there.
    fn journal_folder(&self) -> Result<PathBuf> {
        let Some(folder) = data_folder()? else {
            bail!("--allow-change needs a folder for its journal: set HOME or LINKGAUGE_STORE");
        };
        let (restored, errors) = RestoreFolder::open(&folder, &self.settings_root)?.restore_leftovers();
        if restored > 0 {
            print_message("restored device settings that an earlier measurement could not restore");
        }
        for error in errors {
            print_message(format!("device settings of an earlier measurement were not restored: {error}"));
        }
        Ok(folder)
    }

    /// Makes single changes to the device of this endpoint, when an explanation needs them. Fails if the device lacks a
    /// setting.
    pub fn changer(&self, url: &Endpoint) -> Result<Option<DeviceChanger>> {
        if self.allow_change.is_empty() {
            return Ok(None);
        }
        let (folder, root, url) = (self.journal_folder()?, self.settings_root.clone(), url.clone());
        let known = |text: &String| device_settings::setting_of(&root, &url, text).map(|_| ());
        self.allow_change.iter().try_for_each(known)?;
        let names = self.allow_change.iter().filter_map(|text| text.split('=').next());
        let names = names.map(str::to_owned).collect();
        let change = move |text: &str| -> Result<DeviceChanges> {
            let setting = device_settings::setting_of(&root, &url, text)?;
            DeviceChanges::make((&folder, &root), &[setting])
        };
        let make = move |text: &str| match change(text) {
            Ok(changes) => Ok(Box::new(changes) as Box<dyn Any>),
            Err(error) => Err(LiveError::InvalidCase(format!("{error:#}"))),
        };
        Ok(Some(DeviceChanger { names, make: Rc::new(make) }))
    }
}

/// Changed settings of devices, until this is dropped.
pub struct DeviceChanges {
    restorer: Child,
    /// Until then no other process restores it.
    _journal: ChangeJournal,
}

/// Longer than any measurement: a restorer that outlives its parent without an end of the pipe is a defect.
const RESTORE_TIMEOUT: &str = "24h";

impl DeviceChanges {
    /// Writes a journal into the folder `data`, starts the restorer, and changes the settings below `root`.
    pub fn make((data, root): (&Path, &Path), settings: &[DeviceSetting]) -> Result<DeviceChanges> {
        let journal = RestoreFolder::open(data, root)?.begin(settings)?;
        let program = std::env::current_exe().context("this program does not find itself")?;
        let mut command = Command::new(program);
        command.args(["restore-settings", "--time", RESTORE_TIMEOUT, "--journal"]).arg(&journal.path);
        command.arg("--settings-root").arg(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C in the terminal is for this program alone.
        let mut restorer = linkgauge::system::in_own_group(&mut command)
            .spawn()
            .context("the process that restores device settings does not start")?;
        let mut line = String::new();
        let ready = restorer.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let changes = DeviceChanges { restorer, _journal: journal };
        if !matches!(ready, Some(Ok(length)) if length > 0) {
            bail!("the process that restores device settings does not start: nothing was changed");
        }
        device_settings::apply(root, settings)?;
        Ok(changes)
    }
}

impl Drop for DeviceChanges {
    fn drop(&mut self) {
        // The end of its input is the order to restore.
        drop(self.restorer.stdin.take());
        let _ = self.restorer.wait();
    }
}

/// Restore device settings when standard input ends
#[derive(Args)]
pub struct Flags {
    /// The journal with the earlier values
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
    /// Root of the file system with the settings
    #[arg(long, value_name = "DIR", default_value = "/")]
    settings_root: PathBuf,
    /// Restore after this time at the latest
    #[arg(long, value_name = "TIME")]
    time: Span,
}

pub fn run(flags: Flags) -> Result<Status> {
    // No signal ends it before it has restored.
    let _ = protected_interrupt_flag()?;
    let duty = RestoreDuty::share(&flags.journal, &flags.settings_root)?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready").and_then(|()| stdout.flush()).context("standard output")?;
    wait_for_end_of_input(flags.time.0);
    duty.restore()?;
    Ok(Status::Complete)
}

/// Waits until standard input ends, at most this long.
fn wait_for_end_of_input(longest: Duration) {
    let (ended, end) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // A failed read counts as the end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(ended);
    });
    let _ = end.recv_timeout(longest);
}
