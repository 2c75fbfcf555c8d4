//! The store as the commands use it: where it is, keeping what was measured, finding what is asked for by file or id.
//!
//! Not for what is in it: `linkgauge::store`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use linkgauge::report::printable;
use linkgauge::run::Run;
use linkgauge::store::Store;

use super::Status;
use super::output::{is_dash, print_message};
use super::signals::process_interrupt_flag;

/// A file to keep runs in, or nothing at all: to keep none.
const STORE_VARIABLE: &str = "LINKGAUGE_STORE";
/// In the user's data directory.
const DEFAULT_STORE_FILE: &str = "linkgauge/runs.sqlite";
/// No honest document is longer.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

/// How a RUN may be named.
pub const RUN_HELP: &str = "Runs: files ('-': standard input), or from the store: an id, how it begins or ends, 'last', 'tag:NAME' (all that have \
                            it); several with commas between";

/// Which store.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Store")]
pub struct StoreFlags {
    /// The store [default: the variable LINKGAUGE_STORE, else linkgauge/runs.sqlite in the user's data directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Whether and where a measuring command keeps its run.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Store")]
pub struct SaveFlags {
    /// Keep the run in this store [default: the variable LINKGAUGE_STORE, else linkgauge/runs.sqlite in the user's data
    /// directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Keep the run in no store
    #[arg(long, conflicts_with = "store")]
    no_store: bool,
    /// Name the run in the store; several runs of one name are a set (tag:NAME) [list]
    #[arg(long = "tag", value_name = "NAME", value_delimiter = ',', value_parser = parse_tag, conflicts_with = "no_store")]
    tags: Vec<String>,
}

/// A tag: what can stand in a command line without quotes, and cannot be taken for anything else.
pub fn parse_tag(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.+@/".contains(c);
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) {
        return Err(format!("'{text}' is no tag: use letters, digits and - _ . + @ /"));
    }
    Ok(text.to_owned())
}

/// Where the store is, if there is to be one.
fn store_path(given: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = given {
        return Ok(Some(path.to_owned()));
    }
    if let Some(path) = std::env::var_os(STORE_VARIABLE) {
        return Ok((!path.is_empty()).then(|| path.into()));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| anyhow!("neither XDG_DATA_HOME nor HOME says where the user's data is"))?;
    Ok(Some(data.join(DEFAULT_STORE_FILE)))
}

impl StoreFlags {
    /// The store, which has to be there.
    pub fn open(&self) -> Result<Store> {
        let path = store_path(self.store.as_deref())?;
        let path = path.ok_or_else(|| {
            anyhow!("{STORE_VARIABLE} is empty, so there is no store: name one with --store")
        })?;
        Ok(Store::open_existing(&path)?)
    }
}

impl SaveFlags {
    /// Opens the store; `None` where none is wanted.
    fn open(&self) -> Result<Option<Store>> {
        if self.no_store {
            return Ok(None);
        }
        let Some(path) = store_path(self.store.as_deref())? else { return Ok(None) };
        // A place that somebody names is there or a slip; our own place is made, for its owner only.
        if self.store.is_none()
            && let Some(directory) = path.parent()
        {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.with_context(|| format!("{}: cannot be made", directory.display()))?;
        }
        Ok(Some(Store::open_until(&path, process_interrupt_flag())?))
    }

    /// Finds out before anything is measured whether a store that was asked for can be written.
    pub fn check(&self) -> Result<()> {
        match self.store {
            Some(_) => self.open().map(drop),
            None => Ok(()),
        }
    }

    /// Keeps a run. That it cannot be kept costs a line, never the result.
    pub fn save_or_warn(&self, run: &Run, quiet: bool) {
        match self.save(run) {
            Ok(true) if !quiet => print_saved(run),
            Ok(_) => {}
            Err(error) => {
                let remedy = "--store FILE names another place, --no-store keeps nothing";
                print_message(format_args!("warning: the run was not kept: {error:#}: {remedy}"));
            }
        }
    }

    /// Whether there is a store that it was kept in.
    pub fn save(&self, run: &Run) -> Result<bool> {
        let Some(mut store) = self.open()? else { return Ok(false) };
        store.save(run)?;
        store.tag(&run.id, &self.tags)?;
        Ok(true)
    }
}

/// Warns of rows that cannot be read; what becomes of the command for them.
pub fn warn_of_damaged_rows(damaged: &[String]) -> Status {
    let Some(first) = damaged.first() else { return Status::Complete };
    let more = match damaged.len() {
        1 => String::new(),
        several => format!(" and {} more", several - 1),
    };
    let remedy = "'linkgauge export DIRECTORY' writes all runs whose documents are whole";
    print_message(format_args!("warning: the store is damaged, left out is {first}{more}: {remedy}"));
    Status::Incomplete
}

/// Says how to see it again.
pub fn print_saved(run: &Run) {
    print_message(format_args!("\nkept: linkgauge show {}", printable(short_id(&run.id))));
}

/// The random part of an id, which mostly is enough to name it.
pub fn short_id(id: &str) -> &str {
    id.rsplit('-').next().filter(|part| part.len() >= 4).unwrap_or(id)
}

/// The runs that somebody named, each a file or in the store; at least one.
pub fn load_runs(named: &str, store: &StoreFlags) -> Result<Vec<Run>> {
    if names_a_file(named) {
        return Ok(vec![read_document(Path::new(named))?]);
    }
    if named.contains(',') {
        let each: Vec<Vec<Run>> =
            named.split(',').map(|part| load_runs(part, store)).collect::<Result<_>>()?;
        return Ok(each.into_iter().flatten().collect());
    }
    let opened = store.open().with_context(|| format!("'{named}' is no file"))?;
    let ids = match named.strip_prefix("tag:") {
        Some(tag) => opened.ids_with_tag(tag)?,
        None => vec![named.to_owned()],
    };
    Ok(ids.iter().map(|id| opened.load(id)).collect::<Result<_, _>>()?)
}

/// What looks like a path is one, there or not.
pub fn names_a_file(named: &str) -> bool {
    let path = Path::new(named);
    is_dash(path)
        || path.is_file()
        || !named.contains(',') && (named.contains('/') || named.ends_with(".json"))
}

/// A run document from a file.
pub fn read_document(path: &Path) -> Result<Run> {
    let name = if is_dash(path) { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = String::new();
    let read = match is_dash(path) {
        true => std::io::stdin().lock().take(MAX_DOCUMENT_BYTES).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(MAX_DOCUMENT_BYTES).read_to_string(&mut text)),
    };
    read.with_context(|| format!("{name}: cannot be read"))?;
    Run::from_json(&text).context(name)
}
