//! Words that the glossary replaces stay out of code, documents, messages and pinned output.

use std::path::{Path, PathBuf};

/// One a line: the retired word or phrase, then its replacement.
const RETIRED: &str = include_str!("retired_words.txt");

/// Places that need a retired word: the path, and the phrase.
const ALLOWED: &[(&str, &str)] = &[];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Source text, documents, plans and pinned output.
fn text_files() -> Vec<PathBuf> {
    const FOLDERS: [&str; 8] =
        ["src", "docs", "tests", "fuzz/src", "benches", "examples", "papers", "schema"];
    const ENDINGS: [&str; 9] = ["rs", "md", "toml", "trycmd", "txt", "html", "js", "py", "json"];
    let documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];
    let mut files: Vec<PathBuf> = documents.iter().map(|name| root().join(name)).collect();
    let mut open: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // Documents of earlier versions keep their words.
                open.extend((!path.ends_with("tests/data")).then_some(path));
            } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
                files.push(path);
            }
        }
    }
    files
}

/// The words of a text in lower case, each with its line. Comment markers and the ends of lines separate words, and so
/// do `_` and `-`: a phrase is found in names and across lines, too.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parts =
            line.split(|character: char| !character.is_alphanumeric()).filter(|part| !part.is_empty());
        words.extend(parts.map(|part| (index + 1, part.to_lowercase())));
    }
    words
}

/// The lines at which a phrase begins.
fn places(words: &[(usize, String)], phrase: &str) -> Vec<usize> {
    let phrase: Vec<&str> = phrase.split([' ', '-']).collect();
    let found = words
        .windows(phrase.len())
        .filter(|words| words.iter().zip(&phrase).all(|((_, word), wanted)| word == wanted));
    found.map(|words| words[0].0).collect()
}

#[test]
fn retired_words_stay_out() {
    let mut wrong = Vec::new();
    for file in text_files() {
        let path = file.strip_prefix(root()).unwrap().display().to_string();
        if path == file!() || path == "tests/it/retired_words.txt" {
            continue;
        }
        let words = words(&std::fs::read_to_string(&file).unwrap());
        for (phrase, replacement) in RETIRED.lines().filter_map(|line| line.split_once(": ")) {
            if !ALLOWED.contains(&(path.as_str(), phrase)) {
                let found = places(&words, phrase);
                wrong.extend(
                    found.iter().map(|line| format!("{path}:{line}: '{phrase}': write {replacement}")),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "The glossary of ARCHITECTURE.md has these words:\n{}", wrong.join("\n"));
}

#[test]
fn phrases_are_found_in_names_and_across_lines() {
    let text = "let far_end = 1;\n/// The far\n/// end. A time-out. Farther ends.";
    assert_eq!(places(&words(text), "far end"), [1, 2]);
    assert_eq!(places(&words(text), "time-out"), [3]);
}
