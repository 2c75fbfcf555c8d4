//! Where results go: the terminal, files, standard output. The same flags for every command that has results.
//!
//! Everything that is printed is printed here.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::report::{self, Format, MOST_SIDES, Options, Side};
use linkgauge::run::Run;
use rustix::fs::FileType;

mod file;
pub mod terminal;

pub use file::{check_file, to_file};

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// Write the run document as JSON ('-': standard output, instead of the table)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE|-")]
    html: Option<PathBuf>,
    /// Write one CSV row a case
    #[arg(long, value_name = "FILE|-")]
    csv: Option<PathBuf>,
    /// Write JUnit XML, one test a case and a threshold
    #[arg(long, value_name = "FILE|-")]
    junit: Option<PathBuf>,
    /// What to print on standard output
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: Option<String>,
    /// Print no table, no progress and no notes; only errors
    #[arg(long, short)]
    pub quiet: bool,
}

fn formats() -> clap::builder::PossibleValuesParser {
    report::FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().into()
}

impl OutputFlags {
    /// The files asked for, by format.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [("json", &self.json), ("html", &self.html), ("csv", &self.csv), ("junit", &self.junit)];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)))
    }

    pub fn also_html(&mut self, path: PathBuf) -> PathBuf {
        self.html.get_or_insert(path).clone()
    }

    pub fn also_json(&mut self, path: PathBuf) -> PathBuf {
        self.json.get_or_insert(path).clone()
    }

    /// Finds out before anything is measured whether the results can be written; `others` also want standard output.
    pub fn check(&self, others: usize) -> Result<()> {
        let dashes = self.files().filter(|(_, path)| is_dash(path)).count();
        if dashes + usize::from(self.format.is_some()) + others > 1 {
            bail!("only one thing can go to standard output: give the others a file");
        }
        self.files().filter(|(_, path)| !is_dash(path)).try_for_each(|(_, path)| check_file(path))
    }

    /// Whether people read standard output.
    pub fn is_read(&self) -> bool {
        let text = self.format.as_deref().is_none_or(|format| format == "text");
        text && !self.quiet && !self.files().any(|(_, path)| is_dash(path))
    }

    /// Writes everything that was asked for; the table, if it is wanted, unless something else goes to standard output.
    pub fn write(&self, run: &Run, table: bool) -> Result<()> {
        self.write_by(table, &|format, options, out| (format.write)(run, options, out))
    }

    /// The same of several runs: a page with all of them over each other, one table, documents one after another.
    pub fn write_all(&self, sides: &[Side]) -> Result<()> {
        let wanted =
            |name| self.format.as_deref() == Some(name) || self.files().any(|(other, _)| other == name);
        if wanted("html") && sides.len() > MOST_SIDES {
            bail!("a page can tell {MOST_SIDES} apart: name fewer runs, or sets of them (tag:NAME)");
        }
        if wanted("junit") {
            bail!("JUnit XML is of one run: name one");
        }
        self.write_by(true, &|format, options, out| all(sides, format, options, out))
    }

    /// What cannot be written keeps nothing else from being written.
    fn write_by(&self, table: bool, write: &WriteIn) -> Result<()> {
        let on_stdout = self.files().find(|(_, path)| is_dash(path)).map(|(name, _)| name);
        let on_stdout = match on_stdout.or(self.format.as_deref()) {
            None if self.quiet || !table => None,
            named => Some(named.unwrap_or("text")),
        };
        let files = self.files().filter(|(_, path)| !is_dash(path));
        let files =
            files.map(|(name, path)| to_file(path, |file| write(find(name), &Options::default(), file)));
        let stdout = on_stdout.into_iter().map(|name| print(name, |out| write(find(name), &options(), out)));
        all_of(files.chain(stdout))
    }
}

/// Writes in a format.
type WriteIn<'a> = dyn Fn(&Format, &Options, &mut dyn Write) -> io::Result<()> + 'a;

fn all(sides: &[Side], format: &Format, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    if format.name == "html" {
        return report::overlay(sides, None, out);
    }
    let mut header: Option<Vec<u8>> = None;
    for run in sides.iter().flat_map(|side| side.runs) {
        let mut text = Vec::new();
        (format.write)(run, options, &mut text)?;
        match (format.name, &header) {
            ("text", Some(_)) => out.write_all(b"\n")?,
            // One table has its head once.
            ("csv", Some(header)) if text.starts_with(header.as_slice()) => drop(text.drain(..header.len())),
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

/// Does each of these, whatever becomes of the others. What fails is reported, the last by the caller.
pub fn all_of(done: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut last = Ok(());
    for failed in done.into_iter().filter(Result::is_err) {
        if let Err(before) = std::mem::replace(&mut last, failed) {
            complain(&format!("{before:#}"));
        }
    }
    last
}

fn find(name: &str) -> &'static Format {
    report::FORMATS.iter().find(|format| format.name == name).expect("clap and the flags know only these")
}

/// Prints a report in a format.
fn print(format: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    match format {
        "text" | "netio" => put(write),
        "json" => put_json(write),
        _ => put_data(write),
    }
}

/// Prints text for people, with colours where they are wanted.
pub fn put(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    on_stdout(write, |text| match is_coloured() {
        true => terminal::text(&text),
        false => anstream::adapter::strip_str(&terminal::text(&text)).to_string(),
    })
}

/// Prints JSON: on a terminal what does not show stands there as an escape.
pub fn put_json(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    on_stdout(write, |json| terminal::json(&json))
}

/// Prints what programs read, byte by byte; a terminal gets what shows of it.
pub fn put_data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    on_stdout(write, |text| if io::stdout().is_terminal() { terminal::text(&text) } else { text })
}

/// A reader that has seen enough is no error.
fn on_stdout(
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
        Err(error) if reader_is_gone(&error) => Ok(()),
        written => written.context("standard output could not be written"),
    }
}

/// Whether this says that standard output has no reader any more: a pipe without its reader, a terminal that was closed.
pub fn reader_is_gone(error: &io::Error) -> bool {
    let hung_up = || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let is_device = || {
        let what = rustix::fs::fstat(io::stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        what == Ok(FileType::CharacterDevice)
    };
    error.kind() == io::ErrorKind::BrokenPipe || hung_up() && is_device()
}

/// Prints a message for people beside the results. A closed reader costs no result.
pub fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", terminal::message(&text.to_string()));
}

/// Reports what failed.
pub fn complain(error: &str) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let error = terminal::message(error.trim_start());
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {error}");
}

/// Prints what is wrong with a command line, or the help that it asks for; returns the exit status.
pub fn usage(error: &clap::Error) -> u8 {
    let text = terminal::text(&error.render().ansi().to_string());
    let _ = match error.use_stderr() {
        true => write!(anstream::stderr(), "{text}"),
        false => write!(anstream::stdout(), "{text}"),
    };
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Whether standard output gets colours.
fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// What the terminal can show.
pub fn options() -> Options {
    Options { colour: is_coloured(), unicode: speaks_unicode(), ..Options::default() }
}

/// Whether the locale says that the terminal understands UTF-8; a pipe or file always gets it.
pub fn speaks_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let utf8 = locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    utf8 || !io::stdout().is_terminal()
}
