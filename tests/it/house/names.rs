//! One name, one meaning: a type name is defined once in all crates.

use std::collections::BTreeMap;

use super::{none, product_sources};

/// Names that many modules define, each for itself, and why.
const OF_A_MODULE: [(&str, &str); 2] = [
    ("Flags", "the flags of the command that the module implements (src/cmd)"),
    (
        "Options",
        "the options in the URL of the transport that the module implements (crates/engine/src/link)",
    ),
];

/// The types that a text defines. Associated types of traits belong to their trait.
fn defined_types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let item = line.trim_start();
        let is_inner = item.len() < line.len();
        let item = match item.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.trim_start(),
            None => item,
        };
        let (keyword, rest) = item.split_once(' ')?;
        let is_type =
            matches!(keyword, "struct" | "enum" | "trait" | "union") || keyword == "type" && !is_inner;
        is_type.then(|| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
    })
}

/// Where a type is defined: each operating system has a folder with the same types.
fn place(path: &str) -> String {
    const SYSTEMS: [&str; 5] = ["unix", "linux", "other_unix", "windows", "elsewhere"];
    let of_system = path.strip_prefix("crates/system/src/").and_then(|path| path.split_once('/'));
    match of_system {
        Some((folder, _)) if SYSTEMS.contains(&folder) => "crates/system/src".to_owned(),
        _ => path.to_owned(),
    }
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sources = product_sources();
    for source in &sources {
        for name in defined_types(source.product()) {
            let paths = definitions.entry(name.to_owned()).or_default();
            let place = place(&source.path);
            if !paths.contains(&place) || place == source.path {
                paths.push(place);
            }
        }
    }
    for (name, why) in OF_A_MODULE {
        assert!(definitions[name].len() > 1, "{name} is defined once, so it is no exception: {why}");
    }
    let twice = definitions.iter().filter(|(name, paths)| {
        paths.len() > 1 && !OF_A_MODULE.iter().any(|(exception, _)| exception == name)
    });
    none(
        twice.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect(),
        "Several types have this name. Give each the name of what it means (glossary of ARCHITECTURE.md).",
    );
}

#[test]
fn definitions_are_found() {
    let code = "pub struct A<T>(T);\npub(in crate::x) enum B {\n    type Item = C;\n}\n    trait D: E {}\ntype F = G;\n";
    assert_eq!(defined_types(code).collect::<Vec<_>>(), ["A", "B", "D", "F"]);
}
