//! What is wrong with a command line, in one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::habits;

/// The line; nothing if help or the version was requested.
pub fn line(error: &clap::Error, typed: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        _ => {}
    }
    Some(habits::advice(error, typed).unwrap_or_else(|| own_line(error, typed)))
}

fn own_line(error: &clap::Error, typed: &[String]) -> String {
    let named = |kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => Some(words.join(", ")).filter(|words| !words.is_empty()),
        _ => None,
    };
    let text = error.render().to_string();
    // The paragraphs after the first are general advice.
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ");
    match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            let mut missing = named(ContextKind::InvalidArg).unwrap_or_default();
            // One of a group of flags.
            if let Some(group) = missing.strip_prefix("<--").and_then(|rest| rest.strip_suffix('>')) {
                missing = format!("--{}", group.replace("|--", " or --"));
            }
            format!("missing: {missing}. '{} --help' shows how to use it", habits::command_name(typed))
        }
        ErrorKind::InvalidValue => {
            let known = || named(ContextKind::ValidValue).map(|known| format!("Use one of {known}"));
            let similar = named(ContextKind::SuggestedValue);
            let advice = similar.map(|word| format!("Did you mean '{word}'?")).or_else(known);
            advice.map_or(first.to_owned(), |advice| format!("{first}. {advice}"))
        }
        ErrorKind::InvalidSubcommand => {
            let word = named(ContextKind::InvalidSubcommand).unwrap_or_default();
            // The last of several words is the most similar one.
            let similar = named(ContextKind::SuggestedSubcommand);
            let similar = similar.as_deref().and_then(|all| all.rsplit(", ").next());
            let advice = similar.map(|word| format!("Did you mean '{word}'? ")).unwrap_or_default();
            format!("unknown command '{word}'. {advice}'linkgauge --help' lists all commands")
        }
        _ => [first].into_iter().chain(lines).collect::<Vec<_>>().join(" "),
    }
}
