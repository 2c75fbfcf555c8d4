//! What the compiler and clippy cannot check, read from the source text: where `unsafe` and the environment live, that no file is
//! forgotten or too long. `ARCHITECTURE.md` gives the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use linkgauge::Registry;
use linkgauge::link::Transport;

mod module_graph;
mod names;
mod signatures;

/// Folders of the tests: the fast lane, what needs programs of other people, and what both share.
const TESTS: [&str; 3] = ["tests/it", "tests/interop", "tests/common"];

/// Maximum length of a file, so that a reader can survey it.
const MOST_LINES: usize = 700;

/// Maximum lines of a function, and maximum parameters besides `self`.
const MOST_FUNCTION_LINES: usize = 60;
const MOST_PARAMETERS: usize = 5;

/// One file of Rust, as written and without its comments and the contents of its strings.
#[derive(Clone)]
struct Source {
    /// From the root of the package.
    path: String,
    text: String,
    code: String,
}

impl Source {
    /// What of the code is compiled into the library; a module's own tests may use what lies above it.
    fn product(&self) -> &str {
        if self.path.ends_with("/tests.rs") {
            return "";
        }
        self.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
    }

    /// Whether it belongs to the program, not to the library.
    fn is_program(&self) -> bool {
        self.path.starts_with("src/")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folders with the source of the program and of each crate, from the root.
fn product_folders() -> Vec<String> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| format!("crates/{}/src", entry.unwrap().file_name().display()));
    [vec!["src".to_owned()], crates.collect()].concat()
}

/// The source of the program and of every crate.
fn product_sources() -> Vec<Source> {
    product_folders().iter().flat_map(|folder| sources(folder)).collect()
}

/// The files of a folder. Each folder is read once for all tests.
fn sources(directory: &str) -> Vec<Source> {
    static READ: Mutex<BTreeMap<String, Vec<Source>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap();
    read.entry(directory.to_owned()).or_insert_with(|| read_sources(directory)).clone()
}

fn read_sources(directory: &str) -> Vec<Source> {
    let mut files = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().display().to_string();
                files.push(Source { path, code: code(&text), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!files.is_empty(), "{directory} holds no source");
    files
}

/// The text with comments and the contents of strings blanked, line for line.
fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |from: usize, to: usize, code: &mut String| {
        code.extend(text[from..to].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    };
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').map_or(text.len(), |end| at + end)
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(text.len(), |end| at + end + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            rest[open..].find(&close).map_or(text.len(), |end| at + open + end + close.len())
        } else if rest.starts_with('"') {
            at + string_end(rest)
        } else if rest.starts_with("'\"'") {
            at + 3
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            code.push_str(&text[at..at + length]);
            at += length;
            continue;
        };
        blank(at, end, &mut code);
        at = end;
    }
    code
}

/// Number of `#` of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// Length of the string literal that begins here.
fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Where `word` stands in the code as a word of its own: `path:line`.
fn places(source: &Source, word: &str) -> Vec<String> {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let found = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let starts =
                word.starts_with(|c: char| !c.is_alphanumeric()) || !in_word(line[..at].chars().next_back());
            let ends = word.ends_with(|c: char| !c.is_alphanumeric())
                || !in_word(line[at + word.len()..].chars().next());
            starts && ends
        })
    };
    let lines = source.code.lines().enumerate().filter(|(_, line)| found(line));
    lines.map(|(index, _)| format!("{}:{}", source.path, index + 1)).collect()
}

/// A function as written.
struct Function {
    name: String,
    lines: usize,
    /// Without `self`.
    parameters: usize,
}

/// The functions of a file, from their indentation.
fn functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "fn") else { continue };
        let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "unsafe"];
        let Some(name) =
            words.get(at + 1).filter(|_| words[..at].iter().all(|word| qualifiers.contains(word)))
        else {
            continue;
        };
        let name = name.split(['(', '<']).next().unwrap_or(name).to_owned();
        let indent = line.len() - line.trim_start().len();
        let ends = |line: &str| {
            let depth = line.len() - line.trim_start().len();
            depth == indent && (line.trim_start().starts_with('}') || line.ends_with(';'))
        };
        let one_line = line.ends_with('}') || line.ends_with(';');
        let last =
            if one_line { 0 } else { lines[start + 1..].iter().take_while(|line| !ends(line)).count() + 1 };
        found.push(Function { name, lines: last + 1, parameters: parameters(&lines[start..].join("\n")) });
    }
    found
}

/// Number of parameters of the function that begins here, without `self`.
fn parameters(text: &str) -> usize {
    // The parameters follow the name, or the type parameters behind it.
    let Some(open) = text.find(['(', '<']) else { return 0 };
    let mut at = open;
    if text[open..].starts_with('<') {
        let mut depth = 0;
        let close = text[open..].char_indices().find(|&(index, c)| {
            let is_arrow = text[..open + index].ends_with('-');
            depth += i32::from(c == '<') - i32::from(c == '>' && !is_arrow);
            depth == 0
        });
        at += close.map_or(0, |(index, _)| index);
    }
    let Some(first) = text[at..].find('(') else { return 0 };
    let (mut depth, mut count, mut item) = (0, 0, String::new());
    for c in text[at + first..].chars() {
        let is_end = depth == 1 && (c == ')' || c == ',');
        if is_end {
            let item = std::mem::take(&mut item);
            let item = item.trim().trim_start_matches("mut ").trim_start_matches('&');
            let is_self = item.ends_with("self");
            count += usize::from(!item.is_empty() && !is_self);
        } else if depth > 0 && !(c == '>' && item.ends_with('-')) {
            item.push(c);
        }
        match c {
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if !item.ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    count
}

/// Fails with all of `found`, and what to do about them.
fn none(found: Vec<String>, remedy: &str) {
    assert!(found.is_empty(), "\n{}\n{remedy}\n", found.join("\n"));
}

/// `unsafe` is forbidden outside of it by the lints of the workspace.
#[test]
fn only_one_crate_knows_the_system() {
    const SYSTEM: &str = "crates/system";
    let mut wrong = Vec::new();
    for source in product_sources().iter().filter(|source| !source.path.starts_with(SYSTEM)) {
        for word in ["target_os", "cfg(unix)", "cfg(windows)"] {
            wrong.extend(places(source, word).iter().map(|place| format!("{place}: {word}")));
        }
    }
    none(wrong, "What differs between systems has one function in crates/system, which every system has.");
}

#[test]
fn only_the_program_prints_exits_and_reads_the_environment() {
    const ITS_OWN: [&str; 8] =
        ["println!", "eprintln!", "print!", "eprint!", "dbg!", "std::env", "env::var", "process::exit"];
    let mut wrong = Vec::new();
    for source in product_sources().iter().filter(|source| !source.is_program()) {
        for word in ITS_OWN {
            wrong.extend(places(source, word).iter().map(|place| format!("{place}: {word}")));
        }
    }
    none(
        wrong,
        "The library never prints, exits or reads the environment: send an Event to the Observer, return an error, \
         take the value as an argument.",
    );
}

/// Code that starts the program sets the place of the store, so that no test writes to the user's store.
#[test]
fn no_test_writes_to_the_users_store() {
    let mut wrong = Vec::new();
    for source in TESTS.iter().flat_map(|folder| sources(folder)) {
        let starts =
            source.text.contains("CARGO_BIN_EXE_linkgauge") || source.text.contains("TestCases::new");
        if starts && !source.text.contains("LINKGAUGE_STORE") {
            wrong.push(source.path);
        }
    }
    none(
        wrong,
        "Start the program with `program::command`, or with the variable LINKGAUGE_STORE set to nothing.",
    );
}

/// The fast lane installs nothing, so its tests start nothing that a Linux host may lack.
#[test]
fn the_fast_lane_needs_no_other_programs() {
    // Of the shell, coreutils and util-linux, ourselves, and what builds us.
    const EVERYWHERE: [&str; 8] = [
        "\"sh\"",
        "\"timeout\"",
        "\"stty\"",
        "\"setpriv\"",
        "\"rustc\"",
        "env!(\"CARGO\")",
        "env!(\"CARGO_BIN_EXE_linkgauge\")",
        "std::env::current_exe()",
    ];
    let mut wrong = Vec::new();
    for source in ["tests/it", "tests/common"].iter().flat_map(|folder| sources(folder)) {
        // Strings are blanked in `code`, line for line; the program stands in the text.
        for (index, line) in source.text.lines().enumerate() {
            for started in line.split("Command::new(").skip(1) {
                if !EVERYWHERE.iter().any(|program| started.starts_with(program)) && source.path != file!() {
                    wrong.push(format!("{}:{}: {line}", source.path, index + 1));
                }
            }
        }
    }
    none(wrong, "A test that needs a program of other people belongs to tests/interop.");
}

/// A test that is ignored runs with `./check --all`, and only its time is a reason.
#[test]
fn only_long_tests_are_ignored() {
    let mut wrong = Vec::new();
    for source in product_sources().into_iter().chain(sources("tests")) {
        let is_long =
            |line: &str| line.trim() == "#[ignore = \"long\"]" && source.path.starts_with("tests/it/");
        for (index, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("#[ignore") && !is_long(line) {
                wrong.push(format!("{}:{}: {line}", source.path, index + 1));
            }
        }
    }
    none(wrong, "Write #[ignore = \"long\"] at a test in tests/it that takes 5 s or more, nowhere else.");
}

#[test]
fn no_upper_layer_asks_for_the_transport() {
    let mut wrong = Vec::new();
    let schemes: Vec<String> = Registry::standard()
        .transports
        .0
        .iter()
        .flat_map(|Transport { scheme, .. }| {
            [format!("\"{scheme}\""), format!("starts_with(\"{scheme}"), format!("_prefix(\"{scheme}")]
        })
        .collect();
    let above = |source: &&Source| {
        !["link/", "transport/"].iter().any(|folder| source.path.contains(&format!("engine/src/{folder}")))
            && !source.path.ends_with("/tests.rs")
    };
    for source in product_sources().iter().filter(above) {
        let product = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (index, line) in product.lines().enumerate() {
            let line = line.trim_start();
            // A protocol's own ports stand in its line of the list, and a study may be named after a protocol.
            let study = source.path.ends_with("/study.rs") && line.starts_with("study_files!(");
            if line.starts_with("//") || line.starts_with("default_ports:") || study {
                continue;
            }
            if schemes.iter().any(|scheme| line.contains(scheme)) {
                wrong.push(format!("{}:{}: {line}", source.path, index + 1));
            }
        }
    }
    none(
        wrong,
        "Ask what a link can do (Caps), never who it is: what is missing there becomes a field of Caps.",
    );
}

#[test]
fn no_function_is_too_long_to_survey() {
    let mut long = Vec::new();
    for source in product_sources() {
        for function in functions(source.product()) {
            if function.lines > MOST_FUNCTION_LINES || function.parameters > MOST_PARAMETERS {
                long.push(format!("{}: {}", source.path, function.name));
            }
        }
    }
    none(
        long,
        "At most 60 lines and 5 parameters: split the function, or group values that belong together.",
    );
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let circles =
        product_folders().into_iter().flat_map(|folder| module_graph::circles(&folder, &sources(&folder)));
    none(
        circles.map(|circle| circle.join(", ")).collect(),
        "These files use each other in a circle. Move what both need to a file below them, or make one the child of \
         the other.",
    );
}

#[test]
fn every_file_opens_with_its_purpose() {
    let mut wrong = Vec::new();
    let others = ["fuzz/src"].iter().chain(&TESTS).flat_map(|folder| sources(folder));
    for source in product_sources().into_iter().chain(others) {
        let first = source.text.lines().next().unwrap_or_default();
        if !first.starts_with("//! ") || first.len() < 10 {
            wrong.push(source.path.clone());
        }
    }
    none(wrong, "Every module opens with `//!`: what it is for, and what it is not for.");
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut wrong = Vec::new();
    for source in product_sources().into_iter().chain(TESTS.iter().flat_map(|folder| sources(folder))) {
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{}: {lines} lines", source.path));
        }
    }
    none(wrong, "No file above 700 lines: find the second subject in it and give it a file of its own.");
}

#[test]
fn no_file_is_forgotten() {
    let mut wrong = Vec::new();
    for directory in product_folders().into_iter().chain(TESTS.map(str::to_owned)) {
        let sources = sources(&directory);
        let roots = ["lib.rs", "main.rs", "mod.rs"].map(|name| format!("{directory}/{name}"));
        let mut reached = BTreeSet::new();
        let mut open: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        while let Some(path) = open.pop() {
            let Some(source) = sources.iter().find(|source| Path::new(&source.path) == path) else {
                continue;
            };
            if reached.insert(source.path.clone()) {
                open.extend(modules(&path, &source.code, &roots));
            }
        }
        let forgotten = sources.into_iter().filter(|source| !reached.contains(&source.path));
        wrong.extend(forgotten.map(|source| source.path));
    }
    none(wrong, "No `mod` line leads to these files: they are neither compiled nor run.");
}

/// Where the modules that a file declares may lie.
fn modules(path: &Path, code: &str, roots: &[String]) -> Vec<PathBuf> {
    let parent = path.parent().unwrap();
    let is_folder = path.ends_with("mod.rs") || roots.iter().any(|root| Path::new(root) == path);
    let folder = if is_folder { parent.to_owned() } else { path.with_extension("") };
    let declared = code.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    declared.flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]).collect()
}

#[test]
fn this_file_reads_rust_as_rust_does() {
    let blanked = code("a // b\n\"c\\\"d\" e /* f */ r#\"g\"h\"# '\"' i");
    assert_eq!(blanked.split_whitespace().collect::<Vec<_>>(), ["a", "e", "i"]);
    let code = "    pub fn a<T: Fn(u8) -> u8>(&mut self, b: Vec<(u8, u8)>, c: impl Fn(u8, u8) -> u8) -> u8 {\n        b\n    }\n";
    let [function] = &functions(code)[..] else { panic!("one function") };
    assert_eq!((function.name.as_str(), function.lines, function.parameters), ("a", 3, 2));
}
