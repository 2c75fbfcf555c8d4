//! The documents compared with the program: tables of the lists, keys of a plan, names of the run document, links.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use linkgauge::Registry;
use linkgauge::explain::causes::{self, Knob, Plant};
use linkgauge::lab::shaper::{PROFILES, describe_impairments};
use linkgauge::link::Transport;
use linkgauge::lists::{IMPORT_FORMATS, REPORT_FORMATS};
use linkgauge::mesh::HostList;
use linkgauge::metric::list_metrics;
use linkgauge::monitor::Config;
use linkgauge::plan::Plan;
use linkgauge::report::{RUN_SCHEMA, csv_tables};
use linkgauge::run::{NUMBERS, Number, ReadNumber, WarningCode};
use linkgauge::schedule;
use linkgauge::units::{format_bit_rate, format_duration};
use serde_json::Value;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A Markdown table.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line =
        |cells: [String; N]| format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    let mut table = line(head.map(str::to_owned));
    table += &line([const { String::new() }; N].map(|_| "---".to_owned()));
    rows.into_iter().for_each(|row| table += &line(row));
    table
}

/// Fails unless the document holds `wanted` between `<!-- name -->` and `<!-- end -->`, and prints the expected text;
/// with `UPDATE_DOCS=1` writes it there.
fn holds(path: &str, name: &str, wanted: &str) {
    static ONE_WRITER: Mutex<()> = Mutex::new(());
    let _one = ONE_WRITER.lock();
    let text = document(path);
    let begin = format!("<!-- {name} -->\n");
    let parts =
        text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once("<!-- end -->")?)));
    let (before, (found, after)) =
        parts.unwrap_or_else(|| panic!("{path} has no {} and <!-- end --> behind it", begin.trim()));
    if found.trim() == wanted.trim() {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}{begin}{}\n<!-- end -->{after}", wanted.trim_end());
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), text).unwrap();
        return;
    }
    panic!(
        "\n{path}: between {} and <!-- end --> belongs what the list holds now (UPDATE_DOCS=1 writes it):\n\n{wanted}",
        begin.trim()
    );
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_causes_are_listed() {
    let mut text = String::new();
    for family in causes::FAMILIES {
        let rows = family.causes.iter().map(|cause| {
            let knob = match cause.knob {
                Knob::UrlOption { name, value } => format!("`?{name}={value}`"),
                Knob::DeviceSetting { name, value } => format!("`--allow-change {name}={value}`"),
                Knob::BusyPoll => "waiting by polling".to_owned(),
                Knob::Pin => "threads bound to the CPU with the least load (the mean)".to_owned(),
                Knob::CpuWakeLatency => "`/dev/cpu_dma_latency` held at 0".to_owned(),
                Knob::MessageSize => "larger messages".to_owned(),
                Knob::Rate(knob) => format!("{} (`--workload throughput`)", knob.summary()),
                Knob::Missing(why) => format!("– ({why})"),
            };
            let plant = match cause.plant {
                Plant::Lab(how) => how.to_owned(),
                Plant::NotHere(why) => format!("– ({why})"),
            };
            let counter = cause.counter.unwrap_or("–").to_owned();
            [format!("{} (`{}`)", cause.name, cause.id), counter, knob, cause.remedy.to_owned(), plant]
        });
        let summary = family.summary;
        writeln!(text, "**{}**: {summary}.\n", family.name).unwrap();
        text += &table(["cause", "counted by", "proved by", "fix", "planted by"], rows);
        text.push('\n');
    }
    holds("docs/explain.md", "causes", &text);
}

#[test]
fn readme_lists_the_names() {
    fn list<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> [String; 2] {
        [kind.to_owned(), names.map(code).collect::<Vec<_>>().join(", ")]
    }
    let rows = [
        list("links", Registry::standard().transports.0.iter().map(|transport| transport.scheme)),
        list("protocols", Registry::standard().protocols.iter().map(|protocol| protocol.name)),
        list("workloads", Registry::standard().workloads.iter().map(|workload| workload.name)),
        list("reports", REPORT_FORMATS.iter().map(|format| format.name)),
        list("imports", IMPORT_FORMATS.iter().map(|format| format.name)),
    ];
    holds("README.md", "speaks", &table(["what", "names"], rows));
}

#[test]
fn transports_are_listed() {
    let rows = Registry::standard()
        .transports
        .0
        .iter()
        .map(|t| [code(t.scheme), t.summary.to_owned(), code(t.example)]);
    holds("docs/transports.md", "schemes", &table(["scheme", "link", "example"], rows));
}

#[test]
fn transports_whose_flows_have_a_thread_each_are_named() {
    let keeps_thread = |transport: &&Transport| {
        let example = transport.example.parse().unwrap();
        !Registry::standard().transports.caps(&example).unwrap().descriptor.can_share_thread()
    };
    let schemes =
        Registry::standard().transports.0.iter().filter(keeps_thread).map(|transport| code(transport.scheme));
    let named =
        format!("A link without a descriptor of its own ({})", schemes.collect::<Vec<_>>().join(", "));
    assert!(document("docs/limits.md").contains(&named), "{named}");
}

#[test]
fn protocols_are_listed() {
    let rows = Registry::standard().protocols.iter().map(|protocol| {
        let workloads = Registry::standard().workloads_of(protocol).map(|(workload, directions)| {
            let names: Vec<&str> = directions.iter().map(|direction| direction.name()).collect();
            format!("{} ({})", workload.name, names.join(", "))
        });
        let serves = if protocol.serve.is_some() { "yes" } else { "no" };
        [
            code(protocol.name),
            protocol.summary.to_owned(),
            workloads.collect::<Vec<_>>().join("; "),
            serves.to_owned(),
        ]
    });
    holds(
        "docs/protocols.md",
        "peers",
        &table(["protocol", "what the remote does", "measures", "`serve` supports it"], rows),
    );
}

#[test]
fn workloads_are_listed() {
    let rows = Registry::standard()
        .workloads
        .iter()
        .map(|workload| [code(workload.name), workload.summary.to_owned()]);
    holds("docs/guide.md", "workloads", &table(["workload", "what is measured"], rows));
}

#[test]
fn report_formats_are_listed() {
    let rows = REPORT_FORMATS.iter().map(|format| [code(format.name), format.summary.to_owned()]);
    holds("docs/guide.md", "formats", &table(["format", "what it is"], rows));
}

#[test]
fn columns_of_csv_are_listed() {
    let mut text = String::new();
    for (flags, columns) in csv_tables() {
        let rows = columns.into_iter().map(|(name, meaning)| [code(name), meaning.to_owned()]);
        let _ = write!(text, "{}:\n\n{}\n", code(flags), table(["column", "what it is"], rows));
    }
    holds("docs/metrics.md", "csv columns", text.trim_end());
}

#[test]
fn the_formats_that_are_read_are_listed() {
    let rows = IMPORT_FORMATS.iter().map(|format| [code(format.name), format.summary.to_owned()]);
    holds("docs/import.md", "formats in", &table(["format", "what is in the file"], rows));
    let text = document("docs/import.md");
    for format in IMPORT_FORMATS {
        assert!(text.contains(&format!("\n## `{}`\n", format.name)), "docs/import.md: {}?", format.name);
    }
}

#[test]
fn metrics_are_listed_by_their_names() {
    let rows = list_metrics().map(|(name, meaning)| {
        let number = NUMBERS.iter().find(|number| number.metric == name && number.field != name);
        let field = number.map_or(String::new(), |number| code(number.field));
        [code(name), field, meaning.to_owned()]
    });
    let titles = ["name", "field, if it has another name", "what it is"];
    holds("docs/metrics.md", "metrics", &table(titles, rows));
}

#[test]
fn the_lab_lists_the_profiles() {
    let rows = PROFILES.iter().map(|profile| {
        let [up, down] = [profile.rate_up, profile.rate_down].map(format_bit_rate);
        let besides = describe_impairments(&profile.shape).join(", ");
        [
            code(profile.name),
            profile.summary.to_owned(),
            format_duration(profile.shape.delay),
            up,
            down,
            besides,
        ]
    });
    let titles = ["profile", "link", "delay", "rate up", "rate down", "besides"];
    holds("docs/lab.md", "profiles", &table(titles, rows));
}

#[test]
fn transports_are_described_with_their_options() {
    let mut wanted = String::new();
    for transport in Registry::standard().transports.0 {
        let (scheme, summary, example) = (transport.scheme, transport.summary, transport.example);
        writeln!(wanted, "## `{scheme}`\n\n{summary}. Example: `{example}`\n").unwrap();
        let rows = transport.options.iter().map(|(name, meaning)| [code(name), (*meaning).to_owned()]);
        writeln!(wanted, "{}", table(["option", "meaning (default)"], rows)).unwrap();
    }
    holds("docs/transports.md", "transports", &wanted);
}

#[test]
fn every_protocol_is_described_with_its_options() {
    let text = document("docs/protocols.md");
    for peer in Registry::standard().protocols {
        let heading = format!("\n## `{}`\n", peer.name);
        let (_, section) =
            text.split_once(&heading).unwrap_or_else(|| panic!("docs/protocols.md has no {heading}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        for (name, meaning) in peer.options {
            let row = format!("| `{name}` | {meaning} |");
            assert!(section.contains(&row), "docs/protocols.md, {}: this row is missing:\n{row}", peer.name);
        }
        for (kind, _) in peer.traffic {
            let mut of_kind =
                Registry::standard().workloads_of(peer).filter(|(workload, _)| workload.traffic == *kind);
            assert!(
                of_kind.any(|(workload, _)| section.to_lowercase().contains(workload.name)),
                "docs/protocols.md, {}: {kind:?}?",
                peer.name
            );
        }
    }
    assert!(text.contains("\n## `auto`\n"));
}

/// The plan files that the documents quote between `<!-- examples/NAME -->` and `<!-- end -->`, or name.
#[test]
fn examples_are_plans_and_in_the_documents() {
    let documents: Vec<(String, String)> = markdown()
        .iter()
        .map(|path| path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string())
        .map(|path| (document(&path), path))
        .map(|(text, path)| (path, text))
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let paths = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = format!("examples/{}", path.file_name().unwrap().display());
        if text.contains("[[watch]]") || text.contains("[probe]") {
            Config::from_toml_in(&text, &folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        } else if text.contains("[[host]]") {
            HostList::from_toml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        } else {
            let plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            schedule::check(plan, Registry::standard()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let quotes = documents.iter().filter(|(_, document)| document.contains(&format!("<!-- {name} -->")));
        quotes.for_each(|(document, _)| holds(document, &name, &format!("```toml\n{text}```")));
        assert!(documents.iter().any(|(_, document)| document.contains(&name)), "no document names {name}");
    }
    // Cells of a study are no plan.
    for (path, text) in documents.iter().filter(|(path, _)| path != "docs/studies.md") {
        let plans = text.match_indices("```toml").filter(|(at, _)| !text[..*at].ends_with(".toml -->\n"));
        assert_eq!(plans.count(), 0, "{path} shows a plan that is no file of examples");
    }
}

#[test]
fn every_key_of_a_plan_is_described() {
    let text = document("docs/plan.md");
    // The reader names all keys that it knows when it meets one that it does not.
    for defect in ["banana = 1", "[defaults]\nbanana = 1"] {
        let error = Plan::from_toml(defect).unwrap_err().to_string();
        let (_, known) = error.split_once("expected one of").unwrap_or_else(|| panic!("{error}"));
        let keys: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        assert!(keys.len() >= 5, "{error}");
        let missing: Vec<&str> =
            keys.into_iter().filter(|key| !text.contains(&format!("| `{key}` |"))).collect();
        assert!(missing.is_empty(), "docs/plan.md has no row for {missing:?}");
    }
}

#[test]
fn every_name_of_the_run_document_is_defined() {
    fn names(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                if let Some(Value::Object(properties)) = map.get("properties") {
                    found.extend(properties.keys().cloned());
                }
                map.values().for_each(|value| names(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| names(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    names(&serde_json::from_str(RUN_SCHEMA).unwrap(), &mut found);
    found.sort();
    found.dedup();
    assert!(found.len() > 50, "{found:?}");
    let text = document("docs/metrics.md");
    let missing: Vec<&String> = found.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not define {missing:?}");
}

/// Clock figures describe the clocks, not the link.
#[test]
fn the_numbers_of_the_schema_are_metrics_and_columns() {
    let schema: Value = serde_json::from_str(RUN_SCHEMA).unwrap();
    let mut found = BTreeMap::new();
    for group in ["figures", "one_way"] {
        let properties = schema["$defs"][group]["properties"].as_object().unwrap();
        for (name, field) in properties.iter().filter(|(name, _)| !name.starts_with("clock_")) {
            match field["type"].as_str() {
                Some("integer") => found.insert(name.as_str(), true),
                Some("number") => found.insert(name.as_str(), false),
                _ => None,
            };
        }
    }
    let is_count = |number: &Number| matches!(number.read, ReadNumber::Count(_));
    let numbers = NUMBERS.iter().map(|number| (number.field, is_count(number)));
    assert_eq!(numbers.collect::<BTreeMap<_, _>>(), found);
}

#[test]
fn every_warning_is_explained() {
    let text = document("docs/metrics.md");
    let codes = WarningCode::ALL.iter().map(WarningCode::name);
    let missing: Vec<&str> = codes.filter(|code| !text.contains(&format!("`{code}`"))).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not explain the warnings {missing:?}");
}

/// The Markdown files of the root and of `docs`.
fn markdown() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries =
        [root.to_owned(), root.join("docs")].into_iter().flat_map(|folder| folder.read_dir().unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn readme_is_short_and_links_every_document_once() {
    let readme = document("README.md");
    assert!(readme.lines().count() <= 120, "README.md has {} lines", readme.lines().count());
    let (_, more) = readme.split_once("\n## More\n").unwrap();
    for path in markdown().into_iter().filter(|path| path.parent().unwrap().ends_with("docs")) {
        let link = format!("](docs/{})", path.file_name().unwrap().display());
        assert_eq!(more.matches(&link).count(), 1, "{link}");
    }
}

#[test]
fn links_have_targets() {
    let mut wrong = Vec::new();
    for path in markdown() {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !link.contains("://") && !file.is_empty() && !path.parent().unwrap().join(file).exists() {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}
