//! Rules about signatures: errors have kinds that a program can match, and a call names what a boolean would hide.

use super::{none, product_sources};

/// Files whose functions may return a text as their error, and why.
const TEXT_ERRORS: [(&str, &str); 2] = [
    (
        "crates/analysis/src/explain/live/findings.rs",
        "the reason why a cause cannot be tested is a cell of the report",
    ),
    ("crates/analysis/src/explain/live/rate/trials.rs", "the same for a setting"),
];

/// The parts of a list between its brackets. `text` begins behind the opening one.
fn split_list(text: &str, has_types: bool) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        let is_arrow = text[..at].ends_with(['-', '=']);
        match c {
            ')' | ']' | '}' | '>' if depth == 0 && (c != '>' || has_types && !is_arrow) => {
                parts.push(&text[start..at]);
                break;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '<' if has_types => depth += 1,
            '>' if has_types && !is_arrow => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].lines().count()
}

#[test]
fn errors_have_kinds() {
    let mut wrong = Vec::new();
    for source in product_sources() {
        let code = source.product();
        if TEXT_ERRORS.iter().any(|(path, _)| *path == source.path) {
            continue;
        }
        for (at, name) in code.match_indices("Result<") {
            if split_list(&code[at + name.len()..], true).get(1) == Some(&"String") {
                wrong.push(format!("{}:{}", source.path, line_of(code, at)));
            }
        }
        wrong.extend(
            code.match_indices("type Err = String")
                .map(|(at, _)| format!("{}:{}", source.path, line_of(code, at))),
        );
    }
    none(
        wrong,
        "An error is an enum with kinds, or a type that names the input (in the program: anyhow). A text alone cannot be \
         matched.",
    );
}

/// A function with boolean parameters.
struct Switched {
    /// The type of a function that belongs to one.
    owner: String,
    name: String,
    /// For each parameter besides `self`: whether it is a boolean.
    are_boolean: Vec<bool>,
}

/// The type behind `impl`.
fn implemented_type(header: &str) -> &str {
    let subject = match (header.rsplit_once(" for "), header.strip_prefix('<')) {
        (Some((_, subject)), _) => subject,
        (None, Some(rest)) => {
            let generics: usize = split_list(rest, true).iter().map(|part| part.len()).sum();
            rest[generics..].split_once("> ").map_or(rest, |(_, subject)| subject)
        }
        (None, None) => header,
    };
    subject.trim().split(['<', ' ']).next().unwrap_or_default()
}

/// The functions of a file that take booleans, except setters of one.
fn switched_functions(code: &str) -> Vec<Switched> {
    let mut found = Vec::new();
    let mut owner = "";
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        if let Some(header) = line.strip_prefix("impl") {
            owner = implemented_type(header);
        } else if line.starts_with('}') {
            owner = "";
        }
        if let Some((before, rest)) = line.split_once("fn ")
            && !before.contains(['(', '|'])
        {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            let text = &code[start + (line.len() - rest.len()) + name.len()..];
            let open = text.find('(').map_or(0, |open| open + 1);
            let parameters = split_list(&text[open..], true);
            let parameters = parameters.iter().filter(|parameter| !parameter.ends_with("self"));
            let are_boolean: Vec<bool> = parameters.map(|parameter| parameter.ends_with(": bool")).collect();
            if are_boolean.contains(&true) && !name.starts_with("set_") {
                found.push(Switched { owner: owner.to_owned(), name: name.to_owned(), are_boolean });
            }
        }
        start += line.len();
    }
    found
}

/// Calls of these functions with a literal boolean, as lines.
fn literal_booleans(code: &str, functions: &[Switched]) -> Vec<usize> {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices('(') {
        let before = &code[..at];
        let name_at = before.rfind(|c| !in_name(c)).map_or(0, |last| last + 1);
        let (path, name) = before.split_at(name_at);
        if path.ends_with("fn ") {
            continue;
        }
        let qualifier =
            path.strip_suffix("::").map(|path| path.rsplit(|c| !in_name(c)).next().unwrap_or_default());
        let qualifier = qualifier.filter(|word| word.starts_with(char::is_uppercase) && *word != "Self");
        let arguments = split_list(&code[at + 1..], false);
        let is_hidden = |function: &&Switched| {
            function.name == name
                && qualifier.is_none_or(|word| word == function.owner)
                && function.are_boolean.len() == arguments.len()
                && function
                    .are_boolean
                    .iter()
                    .zip(&arguments)
                    .any(|(is_boolean, argument)| *is_boolean && ["true", "false"].contains(argument))
        };
        if functions.iter().any(|function| is_hidden(&function)) {
            found.push(line_of(code, at));
        }
    }
    found
}

#[test]
fn calls_name_what_a_boolean_would_hide() {
    let sources = product_sources();
    let functions: Vec<Switched> =
        sources.iter().flat_map(|source| switched_functions(source.product())).collect();
    let mut found = Vec::new();
    for source in &sources {
        let lines = literal_booleans(source.product(), &functions);
        found.extend(lines.into_iter().map(|line| format!("{}:{line}", source.path)));
    }
    none(found, "A literal boolean does not say what it switches: use an enum, or two functions.");
}

#[test]
fn these_rules_read_signatures_as_rust_does() {
    let code = "impl<T: Fn(u8) -> u8> Show for Outer<T> {\n    fn show(&self, items: &[(u8, bool)], all: bool) -> Result<u8, String> {\n        self.show(items, true)\n    }\n}\nfn set_all(all: bool) {}\nfn free() {\n    Outer::show(items, false);\n    Other::show(items, false);\n    set_all(true);\n    show(items, all == true);\n}\n";
    let functions = switched_functions(code);
    let [show] = &functions[..] else { panic!("one function") };
    assert_eq!(implemented_type("<'a, T: Into<u8>> Inner<'a, T> {"), "Inner");
    assert_eq!(
        (show.owner.as_str(), show.name.as_str(), &show.are_boolean[..]),
        ("Outer", "show", &[false, true][..])
    );
    assert_eq!(literal_booleans(code, &functions), [3, 8]);
    let at = code.find("Result<").unwrap() + "Result<".len();
    assert_eq!(split_list(&code[at..], true), ["u8", "String"]);
}
