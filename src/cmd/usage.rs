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
    Some(habits::advice(error, typed).unwrap_or_else(|| {
        let words = |kind| match error.get(kind) {
            Some(ContextValue::String(word)) => word.clone(),
            Some(ContextValue::Strings(words)) => words.join(", "),
            _ => String::new(),
        };
        let text = error.render().to_string();
        // Its other paragraphs are advice.
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let first = lines.first().map_or("", |line| line.trim_start_matches("error: "));
        let similar = |kind| Some(words(kind)).filter(|word| !word.is_empty());
        match error.kind() {
            ErrorKind::MissingRequiredArgument => {
                let mut missing = words(ContextKind::InvalidArg);
                // One of a group of flags.
                if let Some(group) = missing.strip_prefix("<--").and_then(|rest| rest.strip_suffix('>')) {
                    missing = format!("--{}", group.replace("|--", " or --"));
                }
                format!("missing: {missing}. '{} --help' shows how to use it", habits::command_name(typed))
            }
            ErrorKind::InvalidValue => {
                let known = similar(ContextKind::ValidValue).map(|known| format!(". Use one of {known}"));
                let like =
                    similar(ContextKind::SuggestedValue).map(|like| format!(". Did you mean '{like}'?"));
                format!("{first}{}", like.or(known).unwrap_or_default())
            }
            ErrorKind::InvalidSubcommand => {
                let word = words(ContextKind::InvalidSubcommand);
                // The last of several words is the most similar one.
                let like = similar(ContextKind::SuggestedSubcommand);
                let like = like.as_deref().and_then(|like| like.rsplit(", ").next());
                let like = like.map(|like| format!("Did you mean '{like}'? ")).unwrap_or_default();
                let name = habits::command_name(&[]);
                format!("unknown command '{word}'. {like}'{name} --help' lists all commands")
            }
            _ => [first].into_iter().chain(lines.into_iter().skip(1)).collect::<Vec<_>>().join(" "),
        }
    }))
}
