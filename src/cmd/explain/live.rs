//! `linkgauge explain URL`: measures the link.

use std::io;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::explain::live::{DEFAULT_BUDGET, Explanation, LiveError, LiveOptions, explain_live};
use linkgauge::link::{Dialer, REPORT_TIME};
use linkgauge::report::{self, Detail, ReportOptions};
use linkgauge::units::{Bytes, Span};
use serde::Serialize;

use super::Flags;
use crate::cmd::device_changes::ChangeFlags;
use crate::cmd::help::{DURATION, TARGET, TRAFFIC};
use crate::cmd::measure::read_token;
use crate::cmd::output::{
    Messages, check_file_writable, finish_all, is_dash, print_data, print_error, print_json, print_text,
    terminal_options, write_file,
};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// How a link is measured.
#[derive(Args)]
pub struct LiveFlags {
    /// Protocol that the remote speaks; of a URL
    #[arg(long, help_heading = TARGET, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Payload of a request to a URL [default: 64; on a serial line 1]
    #[arg(long, short, help_heading = TRAFFIC, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Time for each URL [default: 60s]
    #[arg(long, short = 't', help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Time for each connection, reply or lost request [default: 1s]
    #[arg(long, short = 'W', help_heading = DURATION, value_name = "TIME")]
    timeout: Option<Span>,
    #[command(flatten)]
    changes: ChangeFlags,
}

impl LiveFlags {
    /// Fails if a flag is set that only URLs have.
    pub fn check_unused(&self) -> Result<()> {
        let set = [
            ("--protocol", self.protocol.is_some()),
            ("--size", self.size.is_some()),
            ("--time", self.time.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--allow-change", self.changes.is_used()),
        ];
        match set.iter().find(|(_, is_set)| *is_set) {
            Some((flag, _)) => bail!("{flag} needs a URL to measure, like tcp://192.0.2.7"),
            None => Ok(()),
        }
    }

    /// Whether settings of a device may be changed.
    pub fn allows_changes(&self) -> bool {
        self.changes.is_used()
    }

    fn options(&self, endpoint: Endpoint) -> Result<LiveOptions> {
        let mut options = LiveOptions::new(endpoint);
        options.change_device = self.changes.changer(&options.endpoint)?;
        if let Some(protocol) = &self.protocol {
            options.protocol.clone_from(protocol);
        }
        if let Some(size) = self.size {
            options.message_bytes = Some(u32::try_from(size.0)?);
        }
        options.budget = self.time.map_or(DEFAULT_BUDGET, |time| time.0);
        if options.budget.is_zero() {
            bail!("a time of 0 measures nothing: use a longer --time");
        }
        options.timeout = self.timeout.map(|timeout| timeout.0);
        options.token = read_token(None)?;
        Ok(options)
    }
}

/// Whether an argument names a link, not a run or a study.
pub fn is_endpoint(named: &str) -> bool {
    named.contains("://") || named.starts_with(['/', '.']) && named.parse::<Endpoint>().is_ok()
}

/// The explanation of one link, of its round trip or of its rate.
pub trait LinkExplanation: Serialize {
    /// The user interrupted before all was tested.
    fn is_interrupted(&self) -> bool;

    /// Why the link was lost before all was tested.
    fn lost_link(&self) -> Option<&str>;

    /// Writes it for a terminal.
    fn write_text(&self, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()>;

    /// Writes the page of several.
    fn write_page(explained: &[Self], out: &mut dyn io::Write) -> io::Result<()>
    where
        Self: Sized;
}

impl LinkExplanation for Explanation {
    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn lost_link(&self) -> Option<&str> {
        self.lost_link.as_deref()
    }

    fn write_text(&self, options: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
        report::write_explanation(self, options, out)
    }

    fn write_page(explained: &[Explanation], out: &mut dyn io::Write) -> io::Result<()> {
        report::write_explanation_page(explained, out)
    }
}

pub fn run(flags: &Flags) -> Result<Status> {
    explain_each(flags, explain_live)
}

/// Explains each URL in turn, and writes what was explained, also before a failure or an interrupt.
pub fn explain_each<T: LinkExplanation>(
    flags: &Flags,
    explain: impl Fn(&LiveOptions, &Dialer, &dyn Fn(&str, f64)) -> Result<T, LiveError>,
) -> Result<Status> {
    let files = || [&flags.json, &flags.html].into_iter().flatten();
    if files().filter(|path| is_dash(path)).count() > 1 {
        bail!("--json - and --html - cannot share standard output: use a file for one of them");
    }
    files().filter(|path| !is_dash(path)).try_for_each(|path| check_file_writable(path))?;
    let mut dialer = Registry::standard().dialer(Clock::System);
    dialer.cancel = interrupt_flag()?;
    dialer.report_time = REPORT_TIME;
    let endpoints: Vec<LiveOptions> =
        flags.of.iter().map(|named| flags.live.options(named.parse()?)).collect::<Result<_>>()?;
    let (mut explained, mut failure) = (Vec::new(), None);
    for options in &endpoints {
        let progress = ExplainProgress::new(Messages::unless_quiet(flags.quiet))?;
        let explanation = explain(options, &dialer, &|phase, share| progress.show(phase, share));
        progress.bar.finish_and_clear();
        match explanation {
            Ok(explanation) => explained.push(explanation),
            Err(error) => failure = Some(error),
        }
        if explained.last().is_some_and(T::is_interrupted) || failure.is_some() {
            break;
        }
    }
    if !explained.is_empty() {
        write(flags, &explained)?;
    }
    explained.iter().filter_map(T::lost_link).for_each(print_error);
    match failure {
        Some(error @ LiveError::Interrupted) => {
            print_error(&error.to_string());
            Ok(Status::Interrupted)
        }
        Some(error) => Err(error.into()),
        None if explained.iter().any(T::is_interrupted) => Ok(Status::Interrupted),
        None if explained.iter().any(|explanation| explanation.lost_link().is_some()) => {
            Ok(Status::Incomplete)
        }
        None => Ok(Status::Complete),
    }
}

fn write<T: LinkExplanation>(flags: &Flags, explained: &[T]) -> Result<()> {
    if flags.html.as_deref().is_some_and(is_dash) {
        let document = flags.json.as_deref().map(|path| write_json(path, explained)).transpose();
        return document.and(print_data(|stdout| T::write_page(explained, stdout)));
    }
    let page = flags.html.as_deref();
    finish_all(page.map(|path| write_file(path, |file| T::write_page(explained, file))))?;
    write_documents(flags, explained)
}

fn write_json<T: LinkExplanation>(path: &Path, explained: &[T]) -> Result<()> {
    let documents: Vec<String> =
        explained.iter().map(serde_json::to_string_pretty).collect::<Result<_, _>>()?;
    let json = report::escape_json(&documents.join("\n"));
    match is_dash(path) {
        true => print_json(|stdout| writeln!(stdout, "{json}")),
        false => write_file(path, |file| writeln!(file, "{json}")),
    }
}

/// Writes the explanations as JSON where that is wanted, and as text unless the JSON takes its place.
fn write_documents<T: LinkExplanation>(flags: &Flags, explained: &[T]) -> Result<()> {
    let written = flags.json.as_deref().map(|path| write_json(path, explained));
    if flags.quiet || flags.json.as_deref().is_some_and(is_dash) {
        return finish_all(written);
    }
    let detail = if flags.all { Detail::Full } else { Detail::Summary };
    let options = ReportOptions { detail, ..terminal_options() };
    let printed = print_text(|stdout| {
        for (index, explanation) in explained.iter().enumerate() {
            if index > 0 {
                writeln!(stdout)?;
            }
            explanation.write_text(&options, stdout)?;
        }
        Ok(())
    });
    finish_all(written.into_iter().chain([printed]))
}

/// A bar on a terminal.
struct ExplainProgress {
    bar: ProgressBar,
}

impl ExplainProgress {
    fn new(messages: Messages) -> Result<ExplainProgress> {
        let bar = match messages {
            Messages::All => ProgressBar::new(100),
            Messages::ErrorsOnly => ProgressBar::hidden(),
        };
        bar.set_style(ProgressStyle::with_template("{bar:24} {percent:>3} %  {elapsed:>4}  {wide_msg}")?);
        Ok(ExplainProgress { bar })
    }

    fn show(&self, phase: &str, share: f64) {
        self.bar.set_message(phase.to_owned());
        self.bar.set_position((100.0 * share) as u64);
        self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
    }
}
