//! Targets in files that other programs write, as Prometheus reads them (`file_sd`), and the files that a configuration consists of.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use saphyr_parser::{Event, Parser};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::pattern::matches;

/// Maximum size of a file of targets, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Lists and maps within each other in a file of targets: a list of groups, each with a list.
const MAX_DEPTH: usize = 8;

/// Error of a file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// File that cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// File that is longer than any such file.
    #[error("is larger than 16 MiB, which no such file is: name another")]
    TooLong,
    /// File that is not JSON, or has other content than targets.
    #[error("is no list of targets: {0}. Write it like [{{\"targets\": [\"192.0.2.1\"]}}]")]
    Json(#[from] serde_json::Error),
    /// File that is not YAML.
    #[error("is not YAML: {0}")]
    Yaml(#[from] saphyr_parser::ScanError),
    /// YAML that lists of targets do not need.
    #[error("has aliases, tags or too many levels, which lists of targets do not need: write the values")]
    Complex,
}

/// Targets with the same labels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetGroup {
    pub targets: Vec<String>,
    #[serde(default)]
    pub labels: Map<String, Value>,
}

/// Reads a file of settings or targets.
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES { Err(FileError::TooLong) } else { Ok(text) }
}

/// The targets in the text of a file, which is YAML if its name ends like that.
pub(super) fn targets(path: &Path, text: &str) -> Result<Vec<TargetGroup>, FileError> {
    let is_yaml = path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
    let value = if is_yaml { from_yaml(text)? } else { serde_json::from_str(text)? };
    // An empty file of YAML has no groups.
    if value.is_null() { Ok(Vec::new()) } else { Ok(Vec::deserialize(value)?) }
}

/// A document of YAML without aliases; each scalar is a text.
fn from_yaml(text: &str) -> Result<Value, FileError> {
    let mut open: Vec<(Value, Option<String>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let done = match event?.0 {
            Event::Scalar(text, _, 0, None) => Value::String(text.into_owned()),
            Event::SequenceStart(0, None) if open.len() < MAX_DEPTH => {
                open.push((Value::Array(Vec::new()), None));
                continue;
            }
            Event::MappingStart(0, None) if open.len() < MAX_DEPTH => {
                open.push((Value::Object(Map::new()), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map_or(Value::Null, |(value, _)| value),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => continue,
            Event::StreamEnd => return Ok(Value::Null),
            _ => return Err(FileError::Complex),
        };
        match open.last_mut() {
            None => return Ok(if done == "" { Value::Null } else { done }),
            Some((Value::Array(values), _)) => values.push(done),
            Some((Value::Object(map), key)) => match (key.take(), done.as_str()) {
                (Some(key), _) => drop(map.insert(key, done)),
                (None, Some(text)) => *key = Some(text.to_owned()),
                (None, None) => return Err(FileError::Complex),
            },
            // Nothing else is open.
            Some(_) => {}
        }
    }
    Ok(Value::Null)
}

/// The files that a path names: one file, or those of a folder whose names are as the last part says (`conf.d/*.toml`), or with this ending
/// for a folder itself. In the order of their names.
pub(super) fn files(pattern: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let last = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (folder, name) = match (last.contains('*'), pattern.is_dir()) {
        (true, _) => (pattern.parent().unwrap_or(Path::new(".")), last.to_owned()),
        (false, true) => (pattern, format!("*{ending}")),
        (false, false) => return Ok(vec![pattern.to_owned()]),
    };
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound && last.contains('*') => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let has_name = |text: &str| !text.starts_with('.') && matches(&name, text);
        if path.file_name().and_then(|text| text.to_str()).is_some_and(has_name) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The files of targets of a configuration, and what they were like when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetFiles {
    patterns: Vec<PathBuf>,
    seen: Vec<(PathBuf, Option<(SystemTime, u64)>)>,
}

impl TargetFiles {
    /// Reads which files there are now.
    pub(super) fn new(patterns: Vec<PathBuf>) -> TargetFiles {
        let found = patterns.iter().flat_map(|pattern| files(pattern, ".json").unwrap_or_default());
        let state = |path: PathBuf| {
            let facts = path.metadata().and_then(|facts| Ok((facts.modified()?, facts.len())));
            (path, facts.ok())
        };
        let seen = found.map(state).collect();
        TargetFiles { patterns, seen }
    }

    /// State of the files as they are now.
    #[must_use]
    pub fn now(&self) -> TargetFiles {
        TargetFiles::new(self.patterns.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_name_the_same_targets() {
        let json = r#"[{"targets": ["192.0.2.1", "tcp://192.0.2.2:7100"], "labels": {"name": "a", "rack": "2"}}, {"targets": []}]"#;
        let yaml = "# written by a script\n- targets:\n    - 192.0.2.1\n    - 'tcp://192.0.2.2:7100'\n  labels: {name: a, rack: 2}\n- targets: []\n";
        let groups = targets(Path::new("a.json"), json).unwrap();
        assert_eq!(groups, targets(Path::new("a.yml"), yaml).unwrap());
        assert_eq!(
            (groups.len(), groups[0].targets.len(), groups[0].labels["rack"].as_str()),
            (2, 2, Some("2"))
        );
        assert_eq!(targets(Path::new("a.yaml"), "").unwrap(), []);
        assert_eq!(targets(Path::new("a.yaml"), "---\n").unwrap(), []);
    }

    #[test]
    fn other_content_is_refused() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\n".to_owned();
        let deep = "[".repeat(100_000);
        for (name, text, why) in [
            ("a.json", "[{\"targets\": [1]}]", "is no list of targets"),
            ("a.json", "[{\"target\": [\"a\"]}]", "unknown field `target`"),
            ("a.json", "", "is no list of targets"),
            ("a.yml", "- targets: a", "is no list of targets"),
            ("a.yml", &bomb, "has aliases"),
            ("a.yml", &deep, "is not YAML: recursion limit"),
            ("a.yml", &"[".repeat(20), "too many levels"),
            ("a.yml", "- targets: [a", "is not YAML"),
            ("a.yml", "- {[a]: b}", "has aliases, tags or too many levels"),
        ] {
            let error = targets(Path::new(name), text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:.60}: {error}");
        }
    }

    #[test]
    fn a_folder_and_a_pattern_name_files() {
        let place = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.json", ".hidden.json", "c.yml"] {
            std::fs::write(place.path().join(name), "[]").unwrap();
        }
        let names = |pattern: &str| -> Vec<String> {
            let found = files(&place.path().join(pattern), ".json").unwrap();
            found.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(""), ["a.json", "b.json"]);
        assert_eq!(
            (names("*.yml"), names("missing/*.json").len(), names("x.json")),
            (vec!["c.yml".to_owned()], 0, vec!["x.json".to_owned()])
        );
        let before = TargetFiles::new(vec![place.path().join("*.json")]);
        assert_eq!(before, before.now());
        std::fs::write(place.path().join("d.json"), "[]").unwrap();
        assert_ne!(before, before.now());
    }
}
