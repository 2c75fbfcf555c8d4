//! The licences of all compiled dependencies, compared with the list of `deny.toml`: the check of `cargo deny check
//! licenses` without that tool.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

#[test]
fn every_licence_is_allowed() {
    let allowed = allowed();
    assert!(allowed.contains(&"MIT".to_owned()), "{allowed:?}");
    let mut wrong = Vec::new();
    let packages = packages();
    let has = |name: &str| packages.iter().any(|package| text(package, "name") == name);
    assert!(has("async-nats") && has("tokio-postgres") && has("h2"), "a crate is missing");
    for package in packages {
        let (name, version) = (text(&package, "name"), text(&package, "version"));
        let licence = text(&package, "license");
        if !fits(licence, &allowed) {
            wrong.push(format!("{name} {version}: '{licence}'"));
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{}\nNone of their licences is allowed by deny.toml: choose another crate, or add a permissive licence there \
         with its reason.\n",
        wrong.join("\n")
    );
}

/// Maximum packages of others that a program gets with the library alone.
const MAX_LIBRARY_PACKAGES: usize = 50;

#[test]
fn the_library_alone_has_few_dependencies() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--no-default-features", "--target", &platform()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let packages: BTreeSet<&str> =
        packages.into_iter().filter(|package| !package.starts_with("linkgauge")).collect();
    assert!(packages.len() <= MAX_LIBRARY_PACKAGES, "{} packages: {packages:#?}", packages.len());
    for heavy in ["clap", "indicatif", "minijinja", "rusqlite"] {
        assert!(!packages.iter().any(|package| package.starts_with(&format!("{heavy} "))), "{heavy}");
    }
}

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<String> {
    let path = format!("{}/deny.toml", env!("CARGO_MANIFEST_DIR"));
    let policy: toml::Table = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let list = policy["licenses"]["allow"].as_array().expect("[licenses] allow is a list");
    list.iter().map(|name| name.as_str().expect("of names").to_owned()).collect()
}

/// All packages that the crates need on this machine, development included; nothing is fetched.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", &platform()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 20, "only {} packages: the list is not whole", packages.len());
    packages
}

fn platform() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host").to_owned()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// Whether an SPDX expression can be met with `allowed` alone: any side of an OR, every side of an AND.
fn fits(expression: &str, allowed: &[String]) -> bool {
    // Old manifests write a slash where they mean OR.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && either(&words, &mut at, allowed) && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fits = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= both(words, at, allowed);
    }
    fits
}

fn both(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fits = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= one(words, at, allowed);
    }
    fits
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let fits = either(words, at, allowed);
        *at += 1;
        return fits;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&name)
}

#[test]
fn expressions_are_read_as_spdx_does() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
    for good in ["MIT", "GPL-3.0 OR MIT", "MPL-2.0/MIT", "(MIT OR MPL-2.0) AND Unicode-3.0"] {
        assert!(fits(good, &allowed), "{good}");
    }
    assert!(fits("Apache-2.0 WITH LLVM-exception", &allowed));
    for bad in ["", "MPL-2.0", "MIT AND MPL-2.0", "Apache-2.0", "(MIT OR MPL-2.0) AND GPL-3.0", "MIT MIT"] {
        assert!(!fits(bad, &allowed), "{bad}");
    }
}
