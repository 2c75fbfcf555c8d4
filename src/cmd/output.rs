//! Where results go: the terminal, files, standard output. The same flags for every command that has results.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use linkgauge::report::{self, Format, Options};
use linkgauge::run::Run;

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
        let files = [("json", &self.json), ("html", &self.html), ("csv", &self.csv)];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)))
    }

    pub fn also_html(&mut self, path: PathBuf) -> PathBuf {
        self.html.get_or_insert(path).clone()
    }

    pub fn also_json(&mut self, path: PathBuf) -> PathBuf {
        self.json.get_or_insert(path).clone()
    }

    /// Finds out before anything is measured whether the results can be written.
    pub fn check(&self) -> Result<()> {
        self.check_beside(None)
    }

    /// The same, where `other` is written as well while it is measured.
    pub fn check_beside(&self, other: Option<&Path>) -> Result<()> {
        let dashes = self.files().map(|(_, path)| path).chain(other).filter(|path| is_dash(path)).count();
        if dashes + usize::from(self.format.is_some()) > 1 {
            bail!("only one format can go to standard output: give the others a file");
        }
        for (_, path) in self.files().filter(|(_, path)| !is_dash(path)) {
            let new = !path.exists();
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .with_context(|| format!("{}: cannot be written", path.display()))?;
            // Nothing is left behind if nothing gets measured.
            if new {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Writes everything that was asked for; the table unless something else goes to standard output.
    pub fn write(&self, run: &Run) -> Result<()> {
        let mut on_stdout = self.format.as_deref();
        for (name, path) in self.files() {
            if is_dash(path) {
                on_stdout = Some(name);
                continue;
            }
            let write = |file: &mut File| (find(name).write)(run, &Options::default(), file);
            File::create(path)
                .and_then(|mut file| write(&mut file))
                .with_context(|| format!("{}: could not be written", path.display()))?;
        }
        match on_stdout {
            Some(name) => print(find(name), run),
            // The error has been told already; a table of nothing tells no more.
            None if self.quiet || is_empty(run) => Ok(()),
            None => print(find("text"), run),
        }
    }
}

/// Whether nothing at all was measured.
fn is_empty(run: &Run) -> bool {
    run.cases.iter().all(|case| case.figures.sent == 0 && case.figures.received == 0)
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn find(name: &str) -> &'static Format {
    report::FORMATS.iter().find(|format| format.name == name).expect("clap and the flags know only these")
}

/// Prints a run; a reader that has seen enough is no error.
pub fn print(format: &Format, run: &Run) -> Result<()> {
    let mut stdout = anstream::stdout();
    let colour = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let options = Options { colour, unicode: speaks_unicode(), ..Options::default() };
    let written = (format.write)(run, &options, &mut stdout).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output could not be written"),
    }
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
