//! Reads a file, those that it includes, and the files of targets that they name.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::actions::{ActionEntry, PushEntry, REPEATS, SilenceEntry};
use super::discovery::{self, FileError, TargetFiles};
use super::{
    Config, ConfigError, MAX_WATCHES, MIN_STORE_BYTES, Watch, WatchEntry, check, label, probe, watches_of,
};
use crate::monitor::probe::target_url;
use linkgauge_engine::workload::latency;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::{CaseSpec, CaseSpecError, OneOrMany, toml_text};
use linkgauge_model::units::{Bytes, Span};

/// The label of a group of targets that names its links.
const NAME_LABEL: &str = "name";

/// The keys of an entry that are not those of a case.
const ENTRY_KEYS: [&str; 10] = [
    "name",
    "behind",
    "every",
    "alert",
    "quiet",
    "bytes-per-day",
    "bytes_per_day",
    "explain",
    "file_sd",
    "scheme",
];

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct MonitorToml {
    defaults: toml::Table,
    watch: Vec<toml::Table>,
    action: Vec<ActionEntry>,
    #[serde(rename = "store-size", alias = "store_size")]
    store_size: Option<Bytes>,
    push: Option<PushEntry>,
    silence: Vec<SilenceEntry>,
    probe: Option<probe::ProbeEntry>,
    module: toml::Table,
    repeat: Option<Span>,
    include: Option<OneOrMany<String>>,
}

/// A file that another one includes.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct IncludedToml {
    defaults: toml::Table,
    watch: Vec<toml::Table>,
}

impl Config {
    /// Reads a text that names no other files.
    ///
    /// # Errors
    ///
    /// The text is invalid, or describes something that cannot be measured. Nothing was opened.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        Config::read(text, None)
    }

    /// Reads a text, and the files that it names by paths from a folder.
    ///
    /// # Errors
    ///
    /// Same errors as [`Config::from_toml`], also for the other files.
    pub fn from_toml_in(text: &str, folder: &Path) -> Result<Config, ConfigError> {
        Config::read(text, Some(folder))
    }

    fn read(text: &str, folder: Option<&Path>) -> Result<Config, ConfigError> {
        let wrong = |error: toml::de::Error| ConfigError::Toml(toml_text::describe(&error, text));
        let file: MonitorToml = toml::from_str(text).map_err(wrong)?;
        // The same once more, with the places of all values for messages.
        let mut document = DeTable::parse(text).map_err(wrong)?.into_inner();
        let mut reading = Reading { folder, watches: Vec::new(), patterns: Vec::new() };
        let modules = document.remove("module");
        reading.add_watches(document, text)?;
        for pattern in file.include.iter().flat_map(OneOrMany::as_slice) {
            reading.include(pattern).map_err(|error| error.at_key(text, "include"))?;
        }
        let Reading { watches, patterns, .. } = reading;
        let actions = file.action.into_iter().zip(1..).map(|(entry, number)| {
            entry.action().map_err(|why| ConfigError::Action { action: number, why }.at_entry(text, 0))
        });
        let actions = actions.collect::<Result<_, _>>()?;
        if let Some(Bytes(size)) = file.store_size.filter(|size| size.0 < MIN_STORE_BYTES) {
            return Err(ConfigError::StoreSize(size).at_entry(text, 0));
        }
        let probe = probe::settings(file.probe, modules, text)?;
        let may_be_empty = probe.is_some() || !patterns.is_empty();
        let config = match watches.is_empty() && may_be_empty {
            true => Config { actions, ..Config::default() },
            false => Config::new(watches, actions)?,
        };
        super::check_gateways(&config.watches, patterns.is_empty())
            .map_err(|error| error.at_entry(text, 0))?;
        let push = file.push.map(PushEntry::push).transpose();
        let push = push.map_err(|why| ConfigError::Push { why }.at_entry(text, 0))?;
        let silences = file.silence.into_iter().zip(1..).map(|(entry, number)| {
            let silence = entry.silence(&config.watches, patterns.is_empty());
            silence.map_err(|error| ConfigError::Silence { silence: number, error }.at_entry(text, 0))
        });
        let silences = silences.collect::<Result<_, _>>()?;
        let repeat = file.repeat.map(|repeat| repeat.0);
        if repeat.is_some_and(|repeat| !REPEATS.contains(&repeat)) {
            return Err(ConfigError::Repeat.at_entry(text, 0));
        }
        let (max_store_bytes, targets) = (file.store_size.map(|size| size.0), TargetFiles::new(patterns));
        Ok(Config { max_store_bytes, push, probe, silences, repeat, targets, ..config })
    }
}

/// Configuration that was read so far.
struct Reading<'a> {
    /// Folder of the other files; `None`: no other file is read.
    folder: Option<&'a Path>,
    watches: Vec<Watch>,
    /// Files of targets.
    patterns: Vec<PathBuf>,
}

impl Reading<'_> {
    fn path(&self, name: &str) -> Result<PathBuf, ConfigError> {
        self.folder.map(|folder| folder.join(name)).ok_or_else(|| ConfigError::OtherFile(name.to_owned()))
    }

    /// Reads the watches of the files that a path names.
    fn include(&mut self, pattern: &str) -> Result<(), ConfigError> {
        let pattern = self.path(pattern)?;
        let in_file = |path: &Path, error: FileError| ConfigError::File { path: path.to_owned(), error };
        let files = discovery::files(&pattern, ".toml");
        for path in files.map_err(|error| in_file(&pattern, error.into()))? {
            let text = discovery::read(&path).map_err(|error| in_file(&path, error))?;
            let wrong = |error: toml::de::Error| ConfigError::Toml(toml_text::describe(&error, &text));
            let read = toml::from_str::<IncludedToml>(&text).map_err(wrong).and_then(|_| {
                let document = DeTable::parse(&text).map_err(wrong)?;
                self.add_watches(document.into_inner(), &text)
            });
            read.map_err(|error| ConfigError::Included { path, error: Box::new(error) })?;
        }
        Ok(())
    }

    /// Adds the watches of a file with its defaults.
    fn add_watches(&mut self, mut document: DeTable, text: &str) -> Result<(), ConfigError> {
        let defaults = document.remove("defaults").map(tables).unwrap_or_default().pop().unwrap_or_default();
        for (table, number) in document.remove("watch").map(tables).unwrap_or_default().into_iter().zip(1..) {
            let mut whole = defaults.clone();
            // A default rate is that of probes, and would limit the tests of other workloads.
            let workload = table.get("workload").or_else(|| defaults.get("workload"));
            let workload = workload.and_then(|value| value.get_ref().as_str());
            if workload.is_some_and(|workload| workload != latency::WORKLOAD.name) {
                whole.remove("rate");
            }
            whole.extend(table);
            let (spec, entry) = read_entry(whole, text, number)?;
            let located = |error: ConfigError| error.at_entry(text, number);
            let of_entry = match &entry.file_sd {
                None if entry.scheme.is_some() => Err(ConfigError::Case {
                    watch: label(entry.name.as_deref(), number),
                    error: CaseSpecError::new(
                        "scheme",
                        "a scheme is that of the targets of 'file_sd': write it in 'url'",
                    ),
                }),
                None => watches_of(spec, &entry, number),
                Some(files) => self.discovered(&spec, &entry, (files, number)),
            };
            let of_entry = of_entry.map_err(located)?;
            of_entry.iter().try_for_each(check).map_err(located)?;
            for watch in of_entry {
                if self.watches.iter().any(|other| other.name == watch.name) {
                    return Err(located(ConfigError::SameName(watch.name)));
                }
                self.watches.push(watch);
            }
            if self.watches.len() > MAX_WATCHES {
                return Err(ConfigError::Count(self.watches.len()));
            }
        }
        Ok(())
    }

    /// A watch for each target of the files of an entry.
    fn discovered(
        &mut self,
        spec: &CaseSpec,
        entry: &WatchEntry,
        (patterns, number): (&OneOrMany<String>, usize),
    ) -> Result<Vec<Watch>, ConfigError> {
        let wrong = |field, why: &str| ConfigError::Case {
            watch: label(entry.name.as_deref(), number),
            error: CaseSpecError::new(field, why),
        };
        if spec.url.is_some() {
            return Err(wrong("url", "its URLs are in the files of 'file_sd': remove one of both"));
        }
        let scheme = entry.scheme.as_deref();
        let mut watches = Vec::new();
        for pattern in patterns.as_slice() {
            let pattern = self.path(pattern)?;
            let in_file = |path: &Path, error: FileError| ConfigError::File { path: path.to_owned(), error };
            for path in
                discovery::files(&pattern, ".json").map_err(|error| in_file(&pattern, error.into()))?
            {
                let text = discovery::read(&path).map_err(|error| in_file(&path, error))?;
                for group in discovery::targets(&path, &text).map_err(|error| in_file(&path, error))? {
                    let name = group.labels.get(NAME_LABEL).and_then(|name| name.as_str());
                    for target in &group.targets {
                        let text = scheme.map_or_else(|| target.clone(), |scheme| target_url(scheme, target));
                        let url: Option<Endpoint> = text.parse().ok();
                        let url = url.ok_or_else(|| {
                            let error =
                                Box::new(wrong("url", &format!("'{target}' is no HOST, HOST:PORT or URL")));
                            ConfigError::Included { path: path.clone(), error }
                        })?;
                        let name = match (name, entry.name.as_deref(), group.targets.len()) {
                            (Some(name), _, 1) => Some(name.to_owned()),
                            (Some(name), _, _) | (None, Some(name), _) => Some(format!("{name} {target}")),
                            (None, None, _) => None,
                        };
                        let spec = CaseSpec { url: Some(OneOrMany::One(url)), ..spec.clone() };
                        let entry = WatchEntry { name, ..entry.clone() };
                        let one = watches_of(spec, &entry, number);
                        watches.extend(one.map_err(|error| ConfigError::Included {
                            path: path.clone(),
                            error: Box::new(error),
                        })?);
                    }
                }
            }
            self.patterns.push(pattern);
        }
        Ok(watches)
    }
}

/// The case and the other keys of an entry.
fn read_entry(mut table: DeTable, text: &str, number: usize) -> Result<(CaseSpec, WatchEntry), ConfigError> {
    let mut own = DeTable::new();
    for key in ENTRY_KEYS {
        own.extend(table.remove_entry(key));
    }
    let name = own.get("name").and_then(|name| name.get_ref().as_str());
    let watch = label(name, number);
    let wrong =
        |error: toml::de::Error| in_watch(ConfigError::Toml(toml_text::describe(&error, text)), &watch);
    let deserializer = |table| toml::de::Deserializer::from(Spanned::new(0..0, table));
    let entry = WatchEntry::deserialize(deserializer(own)).map_err(wrong)?;
    let spec = CaseSpec::deserialize(deserializer(table)).map_err(|error| with_entry_keys(wrong(error)))?;
    Ok((spec, entry))
}

/// An error about an unknown key, which names the keys of a case, with those of an entry before them.
fn with_entry_keys(error: ConfigError) -> ConfigError {
    let ConfigError::Toml(text) = error else { return error };
    const KNOWN: &str = ", expected one of ";
    let keys = ENTRY_KEYS.iter().filter(|key| !key.contains('_')).map(|key| format!("`{key}`, "));
    ConfigError::Toml(match text.contains("unknown field") {
        true => text.replacen(KNOWN, &format!("{KNOWN}{}", keys.collect::<String>()), 1),
        false => text,
    })
}

/// An error of the parser that names the watch after the line.
fn in_watch(error: ConfigError, watch: &str) -> ConfigError {
    match error {
        ConfigError::Toml(text) => ConfigError::Toml(match text.split_once(": ") {
            Some((line, what)) if line.starts_with("line ") => format!("{line}: watch {watch}: {what}"),
            _ => format!("watch {watch}: {text}"),
        }),
        other => other,
    }
}

/// The tables of a value: of a table itself, or of a list of tables.
fn tables(value: Spanned<DeValue<'_>>) -> Vec<DeTable<'_>> {
    match value.into_inner() {
        DeValue::Table(table) => vec![table],
        DeValue::Array(values) => values.into_iter().flat_map(tables).collect(),
        _ => Vec::new(),
    }
}
