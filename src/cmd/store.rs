//! Saving runs, and finding runs by file, id or tag. `linkgauge::store` holds them.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use linkgauge::consistency;
use linkgauge::metric::Metric;
use linkgauge::report::printable;
use linkgauge::run::{CaseResult, Run};
use linkgauge::store::{Filter, Listing, Store, StoreError};
use linkgauge::system::create_private_folders;

use super::help::STORAGE;
use super::output::{Messages, is_dash, print_message};
use super::signals::process_interrupt_flag;
use super::status::Status;

/// The file of saved runs. Empty: runs are not saved.
const STORE_VARIABLE: &str = "LINKGAUGE_STORE";
/// In the user's data directory.
const DEFAULT_STORE_FILE: &str = "linkgauge/runs.sqlite";
/// Runs that tell what is usual.
const MAX_EARLIER_RUNS: usize = 200;

/// The forms of RUN.
pub const RUN_HELP: &str =
    "Runs: files, ids of saved runs, 'last', tags (tag:NAME or NAME); several with commas between";
pub const RUN_LONG_HELP: &str = "Runs: files ('-': standard input), ids of saved runs (their beginning or end suffices), 'last', tag:NAME (all runs \
                                 with that tag; also NAME, unless a file has this name); several with commas between";

/// Which store.
#[derive(Args, Clone, Default)]
pub struct StoreFlags {
    /// File of saved runs
    ///
    /// Default: the variable LINKGAUGE_STORE, else linkgauge/runs.sqlite in the user's data directory.
    #[arg(long, help_heading = STORAGE, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Whether and where a measuring command saves its run.
#[derive(Args, Clone, Default)]
pub struct SaveFlags {
    /// Name the saved run [list]
    ///
    /// Several runs of one name are a set (tag:NAME).
    #[arg(long = "tag", help_heading = STORAGE, value_name = "NAME", value_delimiter = ',', value_parser = parse_tag, conflicts_with = "no_store")]
    tags: Vec<String>,
    /// Do not save the run
    #[arg(long, help_heading = STORAGE, conflicts_with = "store")]
    no_store: bool,
    /// File of saved runs
    ///
    /// Default: the variable LINKGAUGE_STORE, else linkgauge/runs.sqlite in the user's data directory.
    #[arg(long, help_heading = STORAGE, value_name = "FILE", hide_short_help = true)]
    store: Option<PathBuf>,
}

/// A tag. It needs no quotes in a shell and cannot be confused with an id or a file.
pub fn parse_tag(text: &str) -> Result<String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.+@/".contains(c);
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) {
        bail!("'{text}' is not a tag. Use letters, digits and - _ . + @ /");
    }
    if text == "last" {
        bail!("'last' is the name of the last run: use another tag");
    }
    Ok(text.to_owned())
}

/// A tag as users name it. Runs of a monitor have the names of their links as tags, without spaces and the like.
pub fn tag_of(name: &str) -> String {
    linkgauge::monitor::tag(name)
}

/// Path of the store. `None`: runs are not saved.
fn store_path(given: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = given {
        return Ok(Some(path.to_owned()));
    }
    if let Some(path) = std::env::var_os(STORE_VARIABLE) {
        return Ok((!path.is_empty()).then(|| path.into()));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let data = data.ok_or_else(|| {
        anyhow!("XDG_DATA_HOME and HOME are unset, so the data directory is unknown. Use --store FILE")
    })?;
    Ok(Some(data.join(DEFAULT_STORE_FILE)))
}

/// The folder of the saved runs. `None`: runs are not saved.
pub fn data_folder() -> Result<Option<PathBuf>> {
    Ok(store_path(None)?.and_then(|path| path.parent().map(Path::to_owned)))
}

impl StoreFlags {
    /// The store that a measuring command saves to.
    pub fn of(save: &SaveFlags) -> StoreFlags {
        StoreFlags { store: save.store.clone() }
    }

    /// Opens the store, which is created if it does not exist.
    pub fn create(&self) -> Result<Store> {
        let flags = SaveFlags { store: self.store.clone(), ..SaveFlags::default() };
        flags
            .open()?
            .ok_or_else(|| anyhow!("{STORE_VARIABLE} is empty, so nothing is saved. Use --store FILE"))
    }

    /// Opens the store, which must exist.
    pub fn open(&self) -> Result<Store> {
        let path = store_path(self.store.as_deref())?;
        let path =
            path.ok_or_else(|| anyhow!("{STORE_VARIABLE} is empty, so no run is saved. Use --store FILE"))?;
        Ok(Store::open_existing(&path)?)
    }

    /// The ids of the last two runs, the older one first.
    pub fn last_two(&self) -> Result<[String; 2]> {
        let filter = Filter { limit: Some(2), ..Filter::default() };
        let Listing { mut entries, .. } = self.open()?.runs(&filter)?;
        match (entries.pop(), entries.pop()) {
            (Some(older), Some(newer)) => Ok([older.id, newer.id]),
            _ => bail!("two saved runs are needed. Measure twice, or name two files"),
        }
    }
}

/// A home directory that does not exist is not created: service accounts have none on purpose.
fn check_home(path: &Path) -> Result<()> {
    match std::env::var_os("HOME").map(PathBuf::from) {
        Some(home) if path.starts_with(&home) && !home.is_dir() => {
            bail!("{}: the home directory does not exist", home.display())
        }
        _ => Ok(()),
    }
}

/// Creates a folder where none is, for its owner only.
pub fn create_private_folder(path: &Path) -> Result<()> {
    let made = create_private_folders(path);
    made.with_context(|| format!("{}: cannot be created", path.display()))
}

/// Results of saved runs on this host.
pub struct EarlierResults {
    store: Option<Store>,
    host: Option<String>,
}

impl EarlierResults {
    /// The values of a metric in earlier runs of the same case, oldest first.
    pub fn values(&self, case: &CaseResult, metric: &Metric) -> Vec<f64> {
        let filter = Filter {
            endpoint: Some(case.endpoint.clone()),
            workload: Some(case.workload.clone()),
            limit: Some(MAX_EARLIER_RUNS),
            ..Filter::default()
        };
        let trends = self.store.as_ref().and_then(|store| store.trends(&filter, metric).ok());
        let mut trends = trends.map(|found| found.entries).unwrap_or_default().into_iter();
        let trend = trends.find(|trend| trend.is_of(case, self.host.as_deref()));
        trend.map(|trend| trend.points.iter().map(|point| point.value).collect()).unwrap_or_default()
    }
}

impl SaveFlags {
    /// Opens the store. `None` if the run is not to be saved.
    pub fn open(&self) -> Result<Option<Store>> {
        let Some(path) = self.path()? else { return Ok(None) };
        // A missing directory that the user named is a typing error. The default one is created, private to its owner.
        if self.store.is_none()
            && let Some(directory) = path.parent()
        {
            check_home(&path)?;
            create_private_folder(directory)?;
        }
        Ok(Some(Store::open_until(&path, process_interrupt_flag())?))
    }

    /// The file of the store. `None` if runs are not to be saved.
    pub fn path(&self) -> Result<Option<PathBuf>> {
        if self.no_store { Ok(None) } else { store_path(self.store.as_deref()) }
    }

    /// Whether runs are to get names.
    pub fn has_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    /// The names of the saved runs.
    #[cfg(feature = "fleet")]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Earlier results of the cases of a run; none where the store cannot be read. Saving reports the error.
    pub fn earlier_results(&self, run: &Run) -> EarlierResults {
        let path = self.path().ok().flatten().filter(|path| path.exists());
        let host = run.environment.client.get("hostname").and_then(|name| name.as_str());
        EarlierResults {
            store: path.and_then(|path| Store::open_until(&path, process_interrupt_flag()).ok()),
            host: host.map(str::to_owned),
        }
    }

    /// Checks before the measurement that the requested store can be written.
    pub fn check(&self) -> Result<()> {
        match self.store {
            Some(_) => match self.open()? {
                Some(store) => Ok(store.check_writable()?),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Saves a run and prints how to show it again. A failure is a warning: the result is printed
    /// nevertheless.
    pub fn save_and_print(&self, run: &Run, messages: Messages) {
        if self.save_or_warn(run) && messages == Messages::All {
            print_saved(run);
        }
    }

    /// Saves a run. Returns false with a warning if that fails, and if no store is wanted.
    pub fn save_or_warn(&self, run: &Run) -> bool {
        self.save(run).unwrap_or_else(|error| {
            let remedy = "Try --store FILE for another file, or --no-store";
            print_message(format_args!("warning: the run was not saved: {error:#}. {remedy}"));
            false
        })
    }

    /// Saves a run. Returns false if no store is wanted.
    pub fn save(&self, run: &Run) -> Result<bool> {
        let Some(mut store) = self.open()? else { return Ok(false) };
        store.save(run)?;
        store.tag(&run.id, &self.tags)?;
        Ok(true)
    }
}

/// Warns of rows that cannot be read. Returns the status of the command.
pub fn warn_of_damaged_rows(damaged: &[String]) -> Status {
    let Some(first) = damaged.first() else { return Status::Complete };
    let more = match damaged.len() {
        1 => String::new(),
        several => format!(" and {} more", several - 1),
    };
    let remedy = "Try 'linkgauge export DIRECTORY', which writes all intact runs";
    print_message(format_args!("warning: the store is damaged: {first}{more} cannot be read. {remedy}"));
    Status::Incomplete
}

/// Prints the id, and the command that shows the run again.
pub fn print_saved(run: &Run) {
    let id = printable(short_id(&run.id));
    print_message(format_args!("Saved as {id}.  Next: linkgauge show {id} --html report.html"));
}

/// The random part of an id, which usually identifies the run.
pub fn short_id(id: &str) -> &str {
    id.rsplit('-').next().filter(|part| part.len() >= 4).unwrap_or(id)
}

/// Loads the named runs, at least one, from files or the store.
pub fn load_runs(named: &str, store: &StoreFlags) -> Result<Vec<Run>> {
    if names_a_file(named) {
        let mut run = read_document(Path::new(named))?;
        if !consistency::drop_contradictions(&mut run) {
            bail!("{named}: its figures contradict each other, and none is left");
        }
        let tag = format!("tag:{named}");
        if parse_tag(named).is_ok() && is_saved(&tag, store) {
            print_message(format_args!("{named} is read from the file. The saved runs with this tag: {tag}"));
        }
        return Ok(vec![run]);
    }
    if named.contains(',') {
        let each: Vec<Vec<Run>> =
            named.split(',').map(|part| load_runs(part, store)).collect::<Result<_>>()?;
        return Ok(each.into_iter().flatten().collect());
    }
    let opened = store.open();
    let opened = if names_a_saved_run(named) {
        opened?
    } else {
        opened.with_context(|| format!("'{named}' is not a file"))?
    };
    let ids = find_ids(&opened, named)?;
    Ok(ids.iter().map(|id| opened.load(id)).collect::<Result<_, _>>()?)
}

/// The ids of the runs with a tag (`tag:NAME`, or the name alone), or else of the run with this id.
fn find_ids(store: &Store, named: &str) -> Result<Vec<String>, StoreError> {
    match store.ids_with_tag(&tag_of(named.strip_prefix("tag:").unwrap_or(named))) {
        Err(StoreError::UnknownTag(_)) if !named.starts_with("tag:") => Ok(vec![store.resolve_id(named)?]),
        found => found,
    }
}

/// The ids of the saved runs with these names, with commas between.
pub fn find_saved_runs(store: &Store, named: &str) -> Result<Vec<String>, StoreError> {
    let each: Vec<_> = named.split(',').map(|part| find_ids(store, part)).collect::<Result<_, _>>()?;
    Ok(each.concat())
}

/// Whether a name is that of saved runs.
pub fn is_saved(named: &str, store: &StoreFlags) -> bool {
    store.open().is_ok_and(|opened| {
        !matches!(find_ids(&opened, named), Err(StoreError::Unknown(_) | StoreError::UnknownTag(_)))
    })
}

/// Whether a name can mean nothing but saved runs.
pub fn names_a_saved_run(named: &str) -> bool {
    named == "last" || named.starts_with("tag:")
}

/// True if the name is a path, whether or not the file exists.
pub fn names_a_file(named: &str) -> bool {
    let path = Path::new(named);
    is_dash(path)
        || path.is_file()
        || !named.contains(',') && (named.contains('/') || named.ends_with(".json"))
}

/// Reads a run document from a file.
pub fn read_document(path: &Path) -> Result<Run> {
    let name = if is_dash(path) { "standard input".to_owned() } else { path.display().to_string() };
    let run = match is_dash(path) {
        true => Run::read(std::io::stdin().lock()),
        false => Run::read(File::open(path).with_context(|| format!("{name}: cannot be read"))?),
    };
    run.context(name)
}
