//! Where results go: the terminal, files, standard output. The same flags for every command that has results.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::report::{self, Format, MOST_SIDES, Options, Side};
use linkgauge::run::Run;

mod file;

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

    fn write_by(&self, table: bool, write: &WriteIn) -> Result<()> {
        let mut on_stdout = self.format.as_deref();
        for (name, path) in self.files() {
            if is_dash(path) {
                on_stdout = Some(name);
                continue;
            }
            to_file(path, |file| write(find(name), &Options::default(), file))?;
        }
        match on_stdout {
            Some(name) => put(|out| write(find(name), &options(), out)),
            None if self.quiet || !table => Ok(()),
            None => put(|out| write(find("text"), &options(), out)),
        }
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

fn find(name: &str) -> &'static Format {
    report::FORMATS.iter().find(|format| format.name == name).expect("clap and the flags know only these")
}

/// Writes to standard output; a reader that has seen enough is no error.
pub fn put(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut stdout = anstream::stdout();
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output could not be written"),
    }
}

/// Tells people something beside the results. Nobody listening must not cost a result.
pub fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// What the terminal can show.
pub fn options() -> Options {
    let colour = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    Options { colour, unicode: speaks_unicode(), ..Options::default() }
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
