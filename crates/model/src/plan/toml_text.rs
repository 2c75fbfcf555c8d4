//! Errors of files in TOML, in one line: where, which key, what is wrong, what is allowed. The parser's own messages quote the
//! line, and name types of Rust.

use toml::de::{DeArray, DeTable, DeValue, Error};

use super::expand::MAX_PARALLEL;

/// `line 3: parallel: -1 does not fit: use a whole number from 0 to 4294967295`, for an error in this text.
pub fn describe(error: &Error, text: &str) -> String {
    let what = in_plain_words(error.message());
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return what };
    let line = 1 + before.matches('\n').count();
    match key_of_value(before) {
        Some(key @ ("parallel" | "ports")) => {
            let what = what.replace("from 0 to 4294967295", &format!("from 1 to {MAX_PARALLEL}"));
            format!("line {line}: {key}: {what}")
        }
        Some(key) => format!("line {line}: {key}: {what}"),
        None => format!("line {line}: {what}"),
    }
}

/// The line of a key of the `number`th table of a list (`case`, `watch`), from 1: its own, that of its default, or else that of the
/// table. `None` if the text has no such table.
pub fn line_of_entry(text: &str, list: &str, number: usize, key: Option<&str>) -> Option<usize> {
    let number = number.to_string();
    let own = key.and_then(|key| line_of(text, &[list, &number, key]));
    let default = || line_of(text, &["defaults", key?]);
    own.or_else(default).or_else(|| line_of(text, &[list, &number]))
}

/// The line of a key by its path: names, and numbers of lists from 1. Names may have `_` for `-`.
pub fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    enum TomlPlace<'a, 'text> {
        Table(&'a DeTable<'text>),
        List(&'a DeArray<'text>),
        Value,
    }
    let document = DeTable::parse(text).ok()?;
    let (mut place, mut start) = (TomlPlace::Table(document.get_ref()), 0);
    for part in path {
        let value = match place {
            TomlPlace::Table(table) => {
                let is_named = |name: &str| name.replace('-', "_") == part.replace('-', "_");
                let (key, value) = table.iter().find(|(key, _)| is_named(key.get_ref()))?;
                start = key.span().start;
                value
            }
            TomlPlace::List(list) => {
                let value = list.get(part.parse::<usize>().ok()?.checked_sub(1)?)?;
                start = value.span().start;
                value
            }
            TomlPlace::Value => return None,
        };
        place = match value.get_ref() {
            DeValue::Table(table) => TomlPlace::Table(table),
            DeValue::Array(list) => TomlPlace::List(list),
            _ => TomlPlace::Value,
        };
    }
    Some(1 + text.get(..start)?.matches('\n').count())
}

/// The key whose value begins or goes on after this text.
fn key_of_value(before: &str) -> Option<&str> {
    let mut line_start = before.len();
    loop {
        let line_end = line_start;
        let until_line = &before[..line_end];
        let earlier = until_line.strip_suffix('\n').unwrap_or(until_line);
        line_start = earlier.rfind('\n').map_or(0, |at| at + 1);
        let line = &before[line_start..line_end];
        if let Some((key, value)) = line.split_once('=').filter(|(key, _)| is_key(key.trim())) {
            // On a later line only an open list goes on.
            let value = format!("{value}{}", &before[line_end..]);
            let is_open = value.matches(['[', '{']).count() > value.matches([']', '}']).count();
            return (line_end == before.len() && !line.ends_with('\n') || is_open).then(|| key.trim());
        }
        if line_start == 0 || line.trim_start().starts_with("[[") {
            return None;
        }
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.\"".contains(c))
}

/// The message of the parser without the names of its types.
pub(crate) fn in_plain_words(message: &str) -> String {
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if message.contains(" as i128") || message.contains(" as u128") {
        return "the number is too large".to_owned();
    }
    let wrong_value =
        message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong_value.and_then(|rest| rest.rsplit_once(", expected ")) {
        let hint = match (found, expected) {
            ("map", "a sequence") => "; for several tables, write the name in double brackets, like [[case]]",
            _ => "",
        };
        return format!("{} does not fit: use {}{hint}", found_value(found), allowed_value(expected));
    }
    message.replace("unknown variant", "unknown value").replace("missing field", "missing key")
}

/// Value in a message of the parser: `integer `3`` → `3`.
fn found_value(found: &str) -> String {
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => match found.split_once(" `").and_then(|(_, value)| value.strip_suffix('`')) {
            Some(value) => value.to_owned(),
            None => found.strip_prefix("string ").unwrap_or(found).to_owned(),
        },
    }
}

fn allowed_value(expected: &str) -> String {
    let number = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "a string" => "text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list in brackets".to_owned(),
        "a map" => "a table".to_owned(),
        "u16" => number(u16::MAX.into()),
        "u32" => number(u32::MAX.into()),
        "u64" | "usize" => number(i64::MAX as u64),
        _ if expected.starts_with("struct ") => "a table".to_owned(),
        _ => match expected.strip_prefix("an array of length ") {
            Some(length) => format!("a list of {length} values"),
            None => expected.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{line_of, line_of_entry};
    use crate::plan::Plan;

    #[test]
    fn a_key_has_its_line() {
        let text = "[defaults]\nrate = 3\n\n[[case]]\nurl = 1\n[[case]]\nwarm-up = 2\n[case.protocol_options]\nsend = 3\n";
        let of = |path: &[&str]| line_of(text, path);
        assert_eq!((of(&["case", "1", "url"]), of(&["case", "2", "warm_up"])), (Some(5), Some(7)));
        assert_eq!((of(&["case", "2"]), of(&["case", "3"]), of(&["case", "0"])), (Some(6), None, None));
        assert_eq!(of(&["case", "2", "protocol_options", "send"]), Some(9));
        assert_eq!((of(&["case", "1", "url", "x"]), of(&["other"])), (None, None));
        assert_eq!(line_of_entry(text, "case", 2, Some("rate")), Some(2), "its default");
        assert_eq!(line_of_entry(text, "case", 2, Some("size")), Some(6));
        assert_eq!(line_of("[[case]\n", &["case"]), None);
    }

    #[test]
    fn a_wrong_value_has_its_line_its_key_and_what_is_allowed() {
        let case = |line: &str| {
            Plan::from_toml(&format!("[[case]]\nurl = \"tcp://a:1\"\n{line}\n")).unwrap_err().to_string()
        };
        let file = |text: &str| Plan::from_toml(text).unwrap_err().to_string();
        // The last character has several bytes.
        assert!(file("Ba\u{108}").contains("line 1"));
        insta::assert_snapshot!([
            file("[[case]]\nurl = 1"),
            case("size = {a = 1}"),
            case("size = [1, \"x\"]"),
            case("size = [\n  1,\n  \"x\",\n]"),
            case("size = true"),
            case("workload = \"latency\"\nsize = []"),
            case("parallel = -1"),
            case("parallel = 99999999999"),
            case("parallel = 99999999999999999999999999"),
            case("parallel = \"two\""),
            case("seed = 99999999999999999999999999"),
            case("time = \"x\""),
            case("time = [1]"),
            case("direction = \"sideways\""),
            case("protocol = 3"),
            case("poisson = 1"),
            case("late = 3"),
            case("probe = \"x\""),
            case("probe = [1]"),
            case("protocol_options = {send = 1.5}"),
            case("protocol_options = 3"),
            case("rate = {}"),
            case("banana = 1").split(", expected").next().unwrap().to_owned(),
            case("= 3"),
            file("title = 3"),
            file("case = 3"),
            file("[case]\nurl = \"tcp://a:1\""),
            file("[[case]\nurl = 3"),
            file("defaults = 3"),
        ].join("\n"), @r#"
        line 2: url: 1 does not fit: use text in quotes
        line 3: size: use a number, or text with a unit in quotes
        line 3: size: 'x' is not a number of bytes (like 14, 3420k, 1Mi)
        line 3: size: 'x' is not a number of bytes (like 14, 3420k, 1Mi)
        line 3: size: use a number, or text with a unit in quotes
        line 4: case 1: size is an empty list: name a value, or leave it out
        line 3: parallel: -1 does not fit: use a whole number from 1 to 16384
        line 3: parallel: 99999999999 does not fit: use a whole number from 1 to 16384
        line 3: parallel: the number is too large
        line 3: parallel: "two" does not fit: use a whole number from 1 to 16384
        line 3: seed: the number is too large
        line 3: time: 'x' is not a duration (like 250ms, 10s, 2min; seconds without a unit)
        line 3: time: use a number, or text with a unit in quotes
        line 3: direction: unknown value `sideways`, expected one of `loop`, `send`, `receive`, `both`
        line 3: protocol: 3 does not fit: use text in quotes
        line 3: poisson: 1 does not fit: use true or false
        line 3: late: 3 does not fit: use a list in brackets
        line 3: probe: a probe is true, false or a rate like 10
        line 3: probe: a probe is true, false or a rate like 10
        line 3: protocol_options: an option is text in quotes, a whole number, true or false
        line 3: protocol_options: 3 does not fit: use a table
        line 3: rate: use a number, or text with a unit in quotes
        line 3: unknown field `banana`
        line 3: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
        line 1: title: 3 does not fit: use text in quotes
        line 1: case: 3 does not fit: use a list in brackets
        line 1: a table does not fit: use a list in brackets; for several tables, write the name in double brackets, like [[case]]
        line 1: unclosed array table, expected `]`
        line 1: defaults: 3 does not fit: use a table
        "#);
    }
}
