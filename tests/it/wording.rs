//! Words that the glossary replaces stay out of code, documents, messages and pinned output.

use std::path::{Path, PathBuf};

/// One a line: the retired word or phrase, then its replacement.
const RETIRED: &str = include_str!("retired_words.txt");

/// Places that need a retired word: the path, the phrase, and a text of the line that shows the right sense.
const ALLOWED: &[(&str, &str, &str)] = &[
    // A row of a published table.
    ("crates/analysis/src/report/chart/study.rs", "time-out", "\"time-out\""),
    ("crates/studies/src/study/tests.rs", "time-out", "row(\"time-out\")"),
    ("papers/wireless/items.toml", "time-out", "row = \"time-out\""),
    // A generation of Wi-Fi.
    ("crates/engine/src/host/radio/nl80211.rs", "he", "RATE_INFO_HE_MCS"),
    ("crates/engine/src/host/radio/nl80211.rs", "he", "    He,"),
    ("crates/engine/src/host/radio/nl80211.rs", "he", "WifiGeneration::He"),
    // A method of the standard library.
    ("crates/engine/src/transport/linx/node_connection.rs", "exchange", "compare_exchange"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Source text, documents, plans and pinned output.
fn text_files() -> Vec<PathBuf> {
    const FOLDERS: [&str; 10] = [
        "src",
        "crates",
        "docs",
        "tests",
        "fuzz/src",
        "fuzz/fuzz_targets",
        "benches",
        "examples",
        "papers",
        "schema",
    ];
    const ENDINGS: [&str; 10] = ["rs", "md", "toml", "trycmd", "txt", "html", "js", "py", "json", "sh"];
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

/// A word in lower case.
struct Word {
    line: usize,
    text: String,
    /// What separates it from the previous word.
    gap: String,
}

/// The words of a text.
fn words(text: &str) -> Vec<Word> {
    let (mut words, mut gap) = (Vec::new(), String::new());
    for (index, line) in text.lines().enumerate() {
        for part in line.split_inclusive(|character: char| !character.is_alphanumeric()) {
            let word = part.trim_end_matches(|character: char| !character.is_alphanumeric());
            if !word.is_empty() {
                let gap = std::mem::take(&mut gap);
                words.push(Word { line: index + 1, text: word.to_lowercase(), gap });
            }
            gap += &part[word.len()..];
        }
        gap.push('\n');
    }
    words
}

/// True if two words with this between them can belong to a phrase. Comment markers and the ends of lines separate the
/// words of a phrase, and so do `_` and `-`: it is found in names and across lines, too.
fn joins(gap: &str, has_hyphen: bool) -> bool {
    match has_hyphen {
        true => gap == "-" || gap == "_",
        false => gap.chars().all(|character| character.is_whitespace() || "_-/!#*".contains(character)),
    }
}

/// The lines at which a phrase begins.
fn places(words: &[Word], phrase: &str) -> Vec<usize> {
    let has_hyphen = phrase.contains('-');
    let phrase: Vec<&str> = phrase.split([' ', '-']).collect();
    let found = words.windows(phrase.len()).filter(|words| {
        words.iter().zip(&phrase).all(|(word, wanted)| word.text == *wanted)
            && words[1..].iter().all(|word| joins(&word.gap, has_hyphen))
    });
    found.map(|words| words[0].line).collect()
}

fn is_allowed(path: &str, phrase: &str, line: &str) -> bool {
    let allows =
        |(file, word, sense): &(&str, &str, &str)| (*file, *word) == (path, phrase) && line.contains(sense);
    ALLOWED.iter().any(allows)
}

#[test]
#[ignore = "long"]
fn retired_words_stay_out() {
    let mut wrong = Vec::new();
    for file in text_files() {
        let path = file.strip_prefix(root()).unwrap().display().to_string();
        if path == file!() || path == "tests/it/retired_words.txt" {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let (words, lines) = (words(&text), text.lines().collect::<Vec<_>>());
        for (phrase, replacement) in RETIRED.lines().filter_map(|line| line.split_once(": ")) {
            let is_wrong = |line: &usize| !is_allowed(&path, phrase, lines[line - 1]);
            let found = places(&words, phrase).into_iter().filter(is_wrong);
            wrong.extend(found.map(|line| format!("{path}:{line}: '{phrase}': write {replacement}")));
        }
    }
    assert!(wrong.is_empty(), "The glossary of ARCHITECTURE.md has these words:\n{}", wrong.join("\n"));
}

#[test]
fn phrases_are_found_in_names_and_across_lines() {
    let text = "let far_end = 1;\n/// The far\n/// end. A time-out. Farther ends.";
    assert_eq!(places(&words(text), "far end"), [1, 2]);
    assert_eq!(places(&words(text), "time-out"), [3]);
    assert_eq!(places(&words("receivers time out; `Time, out`; TIME_OUT"), "time-out"), [1]);
    assert!(places(&words("far: &End"), "far end").is_empty());
}
