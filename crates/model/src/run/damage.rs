//! Describes the fault of a text that should be a run document, in one line: its place, and what is allowed there. The messages
//! of the parser name types of Rust.

use serde_json::Error;
use serde_json::error::Category;

use crate::plan::toml_text::in_plain_words;

/// Fault of the text, by the error of its parser.
pub(super) fn describe(error: &Error, text: &str) -> String {
    let Some(first) = text.trim_start().chars().next() else { return "the file is empty".to_owned() };
    if first != '{' {
        return "not a run document: it does not begin with '{'".to_owned();
    }
    let line = error.line();
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    match error.classify() {
        Category::Eof => format!("the document is cut off after line {line}"),
        // A number that ends inside, like `1.`, is no syntax.
        Category::Syntax if is_at_end(text, line, error.column()) => {
            format!("the document is cut off after line {line}")
        }
        Category::Syntax | Category::Io => {
            format!("the document is damaged in line {line}, column {}: {what}", error.column())
        }
        Category::Data => {
            let what = match what.starts_with("failed to parse") {
                true => "no date like 2026-01-31T12:00:00Z".to_owned(),
                false => in_plain_words(what),
            };
            let place = path_to(text, line, error.column());
            let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
            format!("the document is damaged in line {line}{place}: {what}")
        }
    }
}

/// The offset of a place in a text.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    (before + column).min(text.len())
}

fn is_at_end(text: &str, line: usize, column: usize) -> bool {
    offset_of(text, line, column) >= text.trim_end().len()
}

/// The path of the value that ends or goes on at this place, like `cases[2].direction`; empty: the whole document. Indexes
/// count from 0, as in JSON. The text is valid JSON up to there.
fn path_to(text: &str, line: usize, column: usize) -> String {
    let end = offset_of(text, line, column);
    let (mut path, mut at): (Vec<PathPart>, usize) = (Vec::new(), 0);
    let bytes = &text.as_bytes()[..end];
    while at < bytes.len() {
        match bytes[at] {
            b'{' => path.push(PathPart::Key(String::new())),
            b'[' => path.push(PathPart::Index(0)),
            b'}' | b']' => drop(path.pop()),
            b',' => {
                if let Some(PathPart::Index(index)) = path.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                let is_key = text.get(at + 1..).is_some_and(|rest| rest.trim_start().starts_with(':'));
                if let (true, Some(PathPart::Key(key))) = (is_key, path.last_mut()) {
                    let name = String::from_utf8_lossy(&bytes[start..at.min(bytes.len())]);
                    *key = name.chars().take(40).collect();
                }
            }
            _ => {}
        }
        at += 1;
    }
    path.iter().fold(String::new(), |path, step| match step {
        PathPart::Key(key) if path.is_empty() || key.is_empty() => path + key,
        PathPart::Key(key) => format!("{path}.{key}"),
        PathPart::Index(index) => format!("{path}[{index}]"),
    })
}

/// A part of a path into a document.
enum PathPart {
    Key(String),
    Index(usize),
}

#[cfg(test)]
mod tests {
    use crate::run::Run;

    #[test]
    fn a_damaged_document_says_what_is_damaged_and_where() {
        let whole = include_str!("sample_runs/minimal.json");
        let wrong = |text: &str| Run::from_json(text).unwrap_err().to_string();
        let with = |from: &str, to: &str| {
            assert!(whole.contains(from), "{from}");
            wrong(&whole.replacen(from, to, 1))
        };
        assert!(Run::from_json(whole).is_ok());
        insta::assert_snapshot!([
            wrong(""),
            wrong("hello"),
            wrong("{\"a\": 1}"),
            wrong(&whole[..whole.len() / 2]),
            with("\"cases\":", "\"cases\" x"),
            with("\"direction\": \"loop\"", "\"direction\": \"up\""),
            with("\"elapsed_ns\": ", "\"elapsed_ns\": -"),
            with("\"endpoint\"", "\"endpoints\""),
            with("\"started\": \"", "\"started\": \"x"),
        ].join("\n"), @r#"
        the file is empty: name a whole file that --json or 'linkgauge export' wrote
        not a run document: it does not begin with '{': name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 1: missing key `schema`: name a whole file that --json or 'linkgauge export' wrote
        the document is cut off after line 15: name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 7, column 11: expected `:`: name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 12 (cases[0].direction): unknown value `up`, expected one of `loop`, `send`, `receive`, `both`: name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 6 (elapsed_ns): -42100000000 does not fit: use a whole number from 0 to 9223372036854775807: name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 27 (cases[0]): missing key `endpoint`: name a whole file that --json or 'linkgauge export' wrote
        the document is damaged in line 5 (started): no date like 2026-01-31T12:00:00Z: name a whole file that --json or 'linkgauge export' wrote
        "#);
        for end in (0..whole.trim_end().len()).filter(|end| whole.is_char_boundary(*end)) {
            assert!(Run::from_json(&whole[..end]).is_err());
        }
    }
}
