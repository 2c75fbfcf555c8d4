//! Destinations of results: terminal, files, standard output. All output of the program passes here.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::lists::{REPORT_FORMATS, report_format};
use linkgauge::report::{self, Detail, MAX_RUN_GROUPS, ReportFormat, ReportOptions, RunGroup};
use linkgauge::run::Run;

use super::help::OUTPUT;

mod file;
pub mod terminal;

use file::replace_each_other;
pub use file::{check_file_writable, write_file};
pub use linkgauge::system::is_reader_gone;

#[derive(Args, Clone, Default)]
pub struct OutputFlags {
    /// Write the run document ('-': standard output)
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-")]
    html: Option<PathBuf>,
    /// Write CSV, one row per case
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    csv: Option<PathBuf>,
    /// Write CSV, one row per repetition of each case
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    csv_repetitions: Option<PathBuf>,
    /// Write CSV, one row per port of each case
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    csv_ports: Option<PathBuf>,
    /// Write CSV, one row per interval of each time series
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    csv_series: Option<PathBuf>,
    /// Write CSV, one row per hop of each path
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    csv_hops: Option<PathBuf>,
    /// Write JUnit XML, one test per case and threshold
    #[arg(long, help_heading = OUTPUT, value_name = "FILE|-", hide_short_help = true)]
    junit: Option<PathBuf>,
    /// Format of standard output
    #[arg(long, help_heading = OUTPUT, value_name = "FORMAT", value_parser = format_values(), hide_short_help = true)]
    format: Option<String>,
    /// Print all tables, figures, notes and warnings
    #[arg(long, visible_alias = "notes", help_heading = OUTPUT)]
    pub all: bool,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
}

fn format_values() -> clap::builder::PossibleValuesParser {
    REPORT_FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().into()
}

impl OutputFlags {
    /// The requested files, by format.
    fn file_targets(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("json", &self.json),
            ("html", &self.html),
            ("csv", &self.csv),
            ("csv-repetitions", &self.csv_repetitions),
            ("csv-ports", &self.csv_ports),
            ("csv-series", &self.csv_series),
            ("csv-hops", &self.csv_hops),
            ("junit", &self.junit),
        ];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)))
    }

    pub fn html_or(&mut self, path: PathBuf) -> PathBuf {
        self.html.get_or_insert(path).clone()
    }

    pub fn json_or(&mut self, path: PathBuf) -> PathBuf {
        self.json.get_or_insert(path).clone()
    }

    /// Checks before the measurement that the results can be written. `others`: further users of standard output.
    pub fn check_writable(&self, others: usize) -> Result<()> {
        let dashes = self.file_targets().filter(|(_, path)| is_dash(path)).count();
        if dashes + usize::from(self.format.is_some()) + others > 1 {
            bail!("only one result can go to standard output. Use files for the others");
        }
        let files: Vec<(&str, &Path)> = self.file_targets().filter(|(_, path)| !is_dash(path)).collect();
        for (index, (name, path)) in files.iter().enumerate() {
            let same = files[..index].iter().find(|(_, earlier)| replace_each_other(earlier, path));
            if let Some((other, _)) = same {
                bail!("{}: --{other} and --{name} name one file: name two", path.display());
            }
            check_file_writable(path)?;
        }
        Ok(())
    }

    /// Writes all requested formats but the text, for a command that prints its own.
    pub fn write_without_text(&self, run: &Run) -> Result<()> {
        let format = self.format.clone().filter(|format| format != "text");
        OutputFlags { format, ..self.clone() }.write(run, RunText::Omitted)
    }

    /// How much the text shows.
    pub fn detail(&self) -> Detail {
        if self.all { Detail::Full } else { Detail::Summary }
    }

    /// Which messages are printed.
    pub fn messages(&self) -> Messages {
        Messages::unless_quiet(self.quiet)
    }

    /// True if standard output gets text for people.
    pub fn prints_text(&self) -> bool {
        let text = self.format.as_deref().is_none_or(|format| format == "text");
        text && !self.quiet && !self.file_targets().any(|(_, path)| is_dash(path))
    }

    /// Writes all requested formats. Without one for standard output, it gets the text of the run, if `text` says so.
    pub fn write(&self, run: &Run, text: RunText) -> Result<()> {
        self.write_with(text, &|format, options, out| (format.write)(run, options, out))
    }

    /// The same for several runs: a page that overlays them, one table, or documents one after another.
    pub fn write_all(&self, sides: &[RunGroup]) -> Result<()> {
        let wanted = |name| {
            self.format.as_deref() == Some(name) || self.file_targets().any(|(other, _)| other == name)
        };
        if wanted("html") && sides.len() > MAX_RUN_GROUPS {
            bail!("a page overlays at most {MAX_RUN_GROUPS} runs. Name fewer, or sets of runs (tag:NAME)");
        }
        if wanted("junit") {
            bail!("JUnit XML holds one run. Name one");
        }
        self.write_with(RunText::Printed, &|format, options, out| {
            write_run_groups(sides, format, options, out)
        })
    }

    /// A failure does not stop the other formats.
    fn write_with(&self, text: RunText, write: &FormatWriter) -> Result<()> {
        let on_stdout = self.file_targets().find(|(_, path)| is_dash(path)).map(|(name, _)| name);
        let on_stdout = match on_stdout.or(self.format.as_deref()) {
            None if self.quiet || text == RunText::Omitted => None,
            named => Some(named.unwrap_or("text")),
        };
        let options = ReportOptions { detail: self.detail(), ..terminal_options() };
        let files = self.file_targets().filter(|(_, path)| !is_dash(path));
        let files = files.map(|(name, path)| {
            write_file(path, |file| write(find_format(name), &ReportOptions::default(), file))
        });
        let stdout = on_stdout
            .into_iter()
            .map(|name| print_report(name, |out| write(find_format(name), &options, out)));
        finish_all(files.chain(stdout))
    }
}

/// The messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    All,
    ErrorsOnly,
}

impl Messages {
    /// By the flag --quiet.
    pub fn unless_quiet(quiet: bool) -> Messages {
        if quiet { Messages::ErrorsOnly } else { Messages::All }
    }
}

/// Whether a command prints the text of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunText {
    Printed,
    /// Standard output gets something else, or nothing was measured.
    Omitted,
}

impl RunText {
    pub fn printed_if(is_wanted: bool) -> RunText {
        if is_wanted { RunText::Printed } else { RunText::Omitted }
    }
}

/// Writes one format.
type FormatWriter<'a> = dyn Fn(&ReportFormat, &ReportOptions, &mut dyn Write) -> io::Result<()> + 'a;

fn write_run_groups(
    sides: &[RunGroup],
    format: &ReportFormat,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if format.name == "html" {
        return report::write_overlay(sides, None, out);
    }
    let mut header: Option<Vec<u8>> = None;
    for run in sides.iter().flat_map(|side| side.runs) {
        let mut text = Vec::new();
        (format.write)(run, options, &mut text)?;
        match (format.name, &header) {
            ("text", Some(_)) => out.write_all(b"\n")?,
            // The header appears once.
            (name, Some(header)) if name.starts_with("csv") && text.starts_with(header.as_slice()) => {
                drop(text.drain(..header.len()))
            }
            _ => {}
        }
        out.write_all(&text)?;
        header = header.or_else(|| text.split_inclusive(|&byte| byte == b'\n').next().map(<[u8]>::to_vec));
    }
    Ok(())
}

pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Evaluates all results. Prints all errors but the last, which it returns.
pub fn finish_all(done: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut last = Ok(());
    for failed in done.into_iter().filter(Result::is_err) {
        if let Err(before) = std::mem::replace(&mut last, failed) {
            print_error(&format!("{before:#}"));
        }
    }
    last
}

fn find_format(name: &str) -> &'static ReportFormat {
    report_format(name).expect("clap and the flags know only these")
}

/// Prints a report in a format.
fn print_report(format: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    match format {
        "text" | "netio" => print_text(write),
        "json" => print_json(write),
        _ => print_data(write),
    }
}

/// Prints text for people, with colours if the terminal supports them.
pub fn print_text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_stdout(write, |text| match is_coloured() {
        true => terminal::sanitize_text(&text),
        false => anstream::adapter::strip_str(&terminal::sanitize_text(&text)).to_string(),
    })
}

/// Prints JSON, with escapes for unprintable characters.
pub fn print_json(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_stdout(write, |json| report::escape_json(&json))
}

/// Prints data for programs unchanged. On a terminal unprintable characters are replaced.
pub fn print_data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_stdout(write, |text| if io::stdout().is_terminal() { terminal::sanitize_text(&text) } else { text })
}

/// Writes to standard output. A closed reader is not an error.
fn write_stdout(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    show: impl FnOnce(String) -> String,
) -> Result<()> {
    let mut text = Vec::new();
    let written = write(&mut text).and_then(|()| {
        let text = show(String::from_utf8_lossy(&text).into_owned());
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    });
    match written {
        Err(error) if is_reader_gone(&error) => Ok(()),
        written => written.context("standard output could not be written"),
    }
}

/// Prints a message for people to standard error. Write errors are ignored.
pub fn print_message(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", terminal::sanitize_message(&text.to_string()));
}

/// Prints an error.
pub fn print_error(error: &str) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let error = terminal::sanitize_message(error.trim_start());
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {error}");
}

/// Prints the requested help. Returns the exit status.
pub fn print_usage(error: &clap::Error) -> u8 {
    let text = terminal::sanitize_text(&error.render().ansi().to_string());
    let written = match error.use_stderr() {
        true => write!(anstream::stderr(), "{text}"),
        false => write!(anstream::stdout(), "{text}").and_then(|()| io::stdout().flush()),
    };
    match written {
        Err(failure) if !error.use_stderr() && !is_reader_gone(&failure) => {
            print_error(&format!("standard output could not be written: {failure}"));
            2
        }
        _ => u8::try_from(error.exit_code()).unwrap_or(2),
    }
}

/// True if standard output gets colours.
fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// The properties of the terminal.
pub fn terminal_options() -> ReportOptions {
    ReportOptions {
        colour: is_coloured(),
        unicode: supports_unicode(),
        width: terminal_width(),
        keeps_answer_whole: !io::stdout().is_terminal(),
        ..ReportOptions::default()
    }
}

/// Columns of the terminal; for pipes and files those of the variable COLUMNS, or else 80.
fn terminal_width() -> usize {
    let of_terminal = linkgauge::system::terminal_size(io::stdout()).map(|(columns, _)| usize::from(columns));
    let of_variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    let is_set = |columns: &usize| *columns > 0;
    let columns = of_terminal.filter(is_set).or_else(|| of_variable().filter(is_set));
    columns.unwrap_or(ReportOptions::default().width)
}

/// True if the locale uses UTF-8. Pipes and files always get UTF-8.
pub fn supports_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let utf8 = locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    utf8 || !io::stdout().is_terminal()
}
