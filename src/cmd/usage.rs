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
        _ => with_plain_number(&[first].into_iter().chain(lines).collect::<Vec<_>>().join(" ")),
    }
}

/// A line about a number in which the words of the standard library are replaced.
fn with_plain_number(line: &str) -> String {
    let Some((head, what)) = line.rsplit_once("': ") else { return line.to_owned() };
    let advice = match what {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "use a whole number, 0 or more".to_owned()
        }
        "invalid float literal" => "use a number".to_owned(),
        "number too large to fit in target type" => "this number is too large".to_owned(),
        _ => match what.rsplit_once(" is not in ").and_then(|(_, range)| range.split_once("..=")) {
            Some((least, most)) if LARGEST.contains(&most) => match what.starts_with('-') || least != "0" {
                true => format!("use a whole number, {least} or more"),
                false => "this number is too large".to_owned(),
            },
            Some((least, most)) => format!("use {least} to {most}"),
            None => return line.to_owned(),
        },
    };
    format!("{head}': {advice}")
}

/// The largest numbers of types, which are no limits of an option.
const LARGEST: [&str; 2] = ["4294967295", "18446744073709551615"];
