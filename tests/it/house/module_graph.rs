//! Which file of a crate uses which, from the paths in its code, and the circles among them.
//!
//! A name that a module re-exports counts as a use of the file that defines it. A module and its submodules are one unit:
//! what a child takes from its parents is not counted, because `mod.rs` lists its children.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// The path of a module from the root of the crate.
type Module = Vec<String>;

/// Files of the crate in `folder` that use each other in a circle, each group sorted.
pub fn circles(folder: &str, sources: &[Source]) -> Vec<Vec<String>> {
    let files: BTreeMap<Module, &Source> = sources
        .iter()
        .filter(|source| !source.path.ends_with("/main.rs") && !source.path.ends_with("/tests.rs"))
        .map(|source| (module_of(folder, &source.path), source))
        .collect();
    let graph = Graph::new(&files);
    let uses: BTreeMap<&Module, BTreeSet<Module>> =
        files.keys().map(|module| (module, graph.used_by(module))).collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        files.keys().map(|module| (module, reachable(&uses, module))).collect();
    let mut circles = BTreeSet::new();
    for module in files.keys().filter(|module| reached[module].contains(module)) {
        let circle =
            files.keys().filter(|other| reached[module].contains(other) && reached[other].contains(module));
        circles.insert(circle.map(|module| files[module].path.clone()).collect());
    }
    circles.into_iter().collect()
}

fn module_of(folder: &str, path: &str) -> Module {
    let inner = path.trim_start_matches(folder).trim_start_matches('/').trim_end_matches(".rs");
    let mut module: Module = inner.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

fn reachable<'a>(uses: &'a BTreeMap<&Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = uses[from].iter().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(uses.get(module).into_iter().flatten());
        }
    }
    reached
}

/// A `use` with its path from the root, and the name by which the file knows it.
struct Import {
    path: Module,
    name: String,
    is_public: bool,
}

struct Graph {
    imports: BTreeMap<Module, Vec<Import>>,
    /// The code of each module without its `use` lines.
    bodies: BTreeMap<Module, String>,
}

impl Graph {
    fn new(files: &BTreeMap<Module, &Source>) -> Graph {
        let mut graph = Graph { imports: BTreeMap::new(), bodies: BTreeMap::new() };
        for (module, source) in files {
            let (lines, body) = split_uses(source.product());
            graph.bodies.insert(module.clone(), body);
            graph.imports.insert(module.clone(), Vec::new());
            for (is_public, tree) in lines {
                let mut paths = Vec::new();
                expand(&tree, &[], &mut paths);
                let imports = paths.into_iter().filter_map(|(path, name)| {
                    let path = absolute(files, module, &path)?;
                    Some(Import { path, name, is_public })
                });
                graph.imports.get_mut(module).expect("inserted above").extend(imports);
            }
        }
        graph
    }

    /// The modules that this one uses, without itself and its parents.
    fn used_by(&self, module: &Module) -> BTreeSet<Module> {
        let mut used = BTreeSet::new();
        for import in &self.imports[module] {
            used.insert(self.resolve(&import.path, 0));
        }
        for path in paths(&self.bodies[module]) {
            let (first, rest) = (&path[0], &path[1..]);
            let imported = self.imports[module].iter().find(|import| import.name == *first);
            let full = match imported {
                Some(import) => [&import.path[..], rest].concat(),
                None => match absolute(&self.bodies, module, &path) {
                    Some(path) => path,
                    None => continue,
                },
            };
            used.insert(self.resolve(&full, 0));
        }
        used.retain(|used| !module.starts_with(used));
        used
    }

    /// The module that defines what this path names.
    fn resolve(&self, path: &[String], depth: usize) -> Module {
        let longest = (0..=path.len()).rev().find(|&length| self.bodies.contains_key(&path[..length]));
        let (module, rest) = path.split_at(longest.unwrap_or(0));
        if let (Some(first), Some(imports), true) = (rest.first(), self.imports.get(module), depth < 8)
            && let Some(import) = imports.iter().find(|import| import.is_public && import.name == *first)
            && import.path != path
        {
            return self.resolve(&[&import.path[..], &rest[1..]].concat(), depth + 1);
        }
        module.to_vec()
    }
}

/// A path from the root of the crate; `None` if it leads to another crate.
fn absolute<T>(files: &BTreeMap<Module, T>, module: &Module, path: &[String]) -> Option<Module> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&[][..], &path[1..]),
        "self" => (&module[..], &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        first => {
            let child = [&module[..], &[first.to_owned()]].concat();
            files.contains_key(&child).then_some((&module[..], path))?
        }
    };
    Some([base, rest].concat())
}

/// The `use` trees of a file, whether each is public, and the rest of the code.
fn split_uses(code: &str) -> (Vec<(bool, String)>, String) {
    let (mut trees, mut body) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let words = line.trim_start();
        let (is_public, rest) = match words.split_once("use ") {
            Some(("", rest)) => (false, rest),
            Some((before, rest)) if before.starts_with("pub") && !before.trim_end().contains(' ') => {
                (true, rest)
            }
            _ => {
                body.push_str(line);
                body.push('\n');
                continue;
            }
        };
        let mut tree = rest.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap_or(";"));
        }
        trees.push((is_public, tree.split(';').next().unwrap_or_default().to_owned()));
    }
    (trees, body)
}

/// Each path of a `use` tree, with the name that it introduces.
fn expand(tree: &str, before: &[String], paths: &mut Vec<(Module, String)>) {
    let mut depth = 0;
    let items = tree.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for item in items.map(str::trim).filter(|item| !item.is_empty()) {
        let parts = |text: &str| {
            let parts = text.split("::").map(|part| part.trim().to_owned());
            [before.to_vec(), parts.filter(|part| !part.is_empty()).collect()].concat()
        };
        if let Some((prefix, group)) = item.split_once('{') {
            expand(group.trim_end().trim_end_matches('}'), &parts(prefix), paths);
            continue;
        }
        let (path, alias) = item.split_once(" as ").map_or((item, None), |(path, alias)| (path, Some(alias)));
        let mut path: Module = parts(path);
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map(|alias| alias.trim().to_owned()).or(path.last().cloned()).unwrap_or_default();
        paths.push((path, name));
    }
}

/// The paths of several parts in the code.
fn paths(body: &str) -> Vec<Module> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = body.split(|c: char| !is_word(c)).filter(|word| word.contains("::"));
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Module>());
    paths.filter(|path| !path[0].is_empty()).collect()
}
