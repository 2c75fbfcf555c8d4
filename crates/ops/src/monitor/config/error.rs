//! Errors of a file or a list of URLs, with the line.

use std::path::PathBuf;

use super::actions::SilenceError;
use super::discovery::FileError;
use super::{MAX_WATCHES, MIN_STORE_BYTES};
use crate::monitor::alert::InvalidRule;
use crate::monitor::calendar::InvalidQuietHours;
use linkgauge_engine::schedule::InvalidCase;
use linkgauge_model::plan::{CaseSpecError, toml_text};
use linkgauge_model::units::format_bytes;

/// Error of a file or a list of URLs that cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not valid TOML, or has unknown keys.
    #[error("{0}")]
    Toml(String),
    /// A case is invalid on its own.
    #[error("watch {watch}: {error}")]
    Case {
        /// Name of the entry in quotes, or its number, from 1.
        watch: String,
        /// Problem of the case.
        error: CaseSpecError,
    },
    /// A case cannot be measured.
    #[error("watch '{name}': {error}")]
    Invalid {
        /// Name of the watch.
        name: String,
        /// Problem of the case.
        error: Box<InvalidCase>,
    },
    /// A rule cannot be read.
    #[error("watch {watch}: {error}")]
    Rule {
        /// Name of the entry in quotes, or its number, from 1.
        watch: String,
        /// Problem of the rule.
        error: InvalidRule,
    },
    /// Quiet hours cannot be read.
    #[error("watch {watch}: {error}")]
    QuietHours {
        /// Name of the entry in quotes, or its number, from 1.
        watch: String,
        /// Problem of the quiet hours.
        error: InvalidQuietHours,
    },
    /// An action cannot be performed.
    #[error("action {action}: {why}")]
    Action {
        /// Number of the entry, from 1.
        action: usize,
        /// Problem, and what to try.
        why: &'static str,
    },
    /// The metrics cannot be pushed.
    #[error("push: {why}")]
    Push {
        /// Problem, and what to try.
        why: &'static str,
    },
    /// A silence is about nothing.
    #[error("silence {silence}: {error}")]
    Silence {
        /// Number of the entry, from 1.
        silence: usize,
        /// Problem, and what to try.
        error: SilenceError,
    },
    /// An included file or a file of targets cannot be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file cannot be used.
        error: FileError,
    },
    /// The content of an included file or of a file of targets is wrong.
    #[error("{}: {error}", .path.display())]
    Included {
        /// Path of the file.
        path: PathBuf,
        /// Problem in its content.
        error: Box<ConfigError>,
    },
    /// A text that is no file names another file.
    #[error("'{0}': only a file can name other files")]
    OtherFile(String),
    /// Probes on request are not possible.
    #[error("{place}: {why}")]
    Probe {
        /// The table or the key.
        place: String,
        /// Problem, and what to try.
        why: String,
    },
    /// Messages cannot be repeated after this time.
    #[error("a message cannot be repeated after this time: use 1min to 366d")]
    Repeat,
    /// Two watches have one name.
    #[error("two watches are named '{0}': give each a name of its own")]
    SameName(String),
    /// Number of links to watch, which is 0 or too large.
    #[error("{amount} links to watch: a monitor watches 1 to {MAX_WATCHES}", amount = format_amount(*.0))]
    Count(usize),
    /// The store would hold nothing.
    #[error("store-size is {0} B: use {least} or more", least = format_bytes(MIN_STORE_BYTES))]
    StoreSize(u64),
    /// The line of the file that another error is about.
    #[error("line {line}: {error}")]
    At {
        /// Number of the line, from 1.
        line: usize,
        /// Problem in that line.
        error: Box<ConfigError>,
    },
    /// A setting does not fit the others.
    #[error("watch '{name}': {why}")]
    Unfit {
        /// Name of the watch.
        name: String,
        /// Problem, and what to try.
        why: String,
    },
}

impl ConfigError {
    /// Adds the line in the text to an error about one entry: the `number`th watch, an action, or another key.
    pub(super) fn at_entry(self, text: &str, number: usize) -> ConfigError {
        let of_watch = |key| toml_text::line_of_entry(text, "watch", number, key);
        let line = match &self {
            ConfigError::Case { error, .. } => of_watch(Some(error.field)),
            ConfigError::Rule { .. } => of_watch(Some("alert")),
            ConfigError::QuietHours { .. } => of_watch(Some("quiet")),
            ConfigError::Invalid { .. } | ConfigError::Unfit { .. } | ConfigError::SameName(_) => {
                of_watch(None)
            }
            ConfigError::Action { action, .. } => toml_text::line_of_entry(text, "action", *action, None),
            ConfigError::Silence { silence, .. } => toml_text::line_of_entry(text, "silence", *silence, None),
            ConfigError::Repeat => toml_text::line_of(text, &["repeat"]),
            ConfigError::Push { .. } => toml_text::line_of(text, &["push"]),
            ConfigError::StoreSize(_) => toml_text::line_of(text, &["store-size"]),
            ConfigError::File { .. } | ConfigError::Included { .. } | ConfigError::OtherFile(_) => {
                of_watch(Some("file_sd"))
            }
            ConfigError::Toml(_)
            | ConfigError::Count(_)
            | ConfigError::Probe { .. }
            | ConfigError::At { .. } => None,
        };
        self.at(line)
    }

    /// Adds the line of a key in the text to the error.
    pub(super) fn at_key(self, text: &str, key: &str) -> ConfigError {
        self.at(toml_text::line_of(text, &[key]))
    }

    fn at(self, line: Option<usize>) -> ConfigError {
        match line {
            Some(line) => ConfigError::At { line, error: Box::new(self) },
            None => self,
        }
    }
}

fn format_amount(links: usize) -> String {
    if links > MAX_WATCHES { format!("more than {MAX_WATCHES}") } else { links.to_string() }
}
