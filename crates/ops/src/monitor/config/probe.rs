//! The entries of a file for probes on request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::probe::{AllowedTarget, DEFAULT_CONCURRENT, MAX_SAMPLES, ProbeModule, ProbeSettings};
use super::ConfigError;
use linkgauge_engine::Registry;
use linkgauge_engine::schedule;
use linkgauge_engine::workload::{connect, latency};
use linkgauge_model::plan::{CaseSpec, CaseSpecError, OneOrMany, Plan, toml_text};
use linkgauge_model::units::{Count, MessageRate, RateTarget, Span};

/// Requests of a probe and their rate, unless the module says otherwise.
const DEFAULT_COUNT: u64 = 5;
const DEFAULT_RATE: f64 = 100.0;

/// Time for a reply.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of probes at the same time. More threads would measure each other.
const MAX_CONCURRENT: usize = 250;

/// Table `[probe]` of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeEntry {
    allow: Vec<String>,
    concurrent: Option<usize>,
}

/// The settings of a file, with `[module.NAME]` tables.
pub(super) fn settings(
    entry: Option<ProbeEntry>,
    modules: Option<Spanned<DeValue>>,
    text: &str,
) -> Result<Option<ProbeSettings>, ConfigError> {
    let located = |path: &[&str], why: String| located(text, path, why);
    let tables = match modules.map(Spanned::into_inner) {
        Some(DeValue::Table(tables)) => tables,
        Some(_) => return Err(located(&["module"], "write each module as [module.NAME]".to_owned())),
        None => DeTable::new(),
    };
    let Some(entry) = entry else {
        return match tables.is_empty() {
            true => Ok(None),
            false => Err(located(
                &["module"],
                "modules need the targets they may probe: add [probe] with 'allow'".to_owned(),
            )),
        };
    };
    let named = named_modules(tables, text)?;
    if named.is_empty() {
        return Err(located(
            &["probe"],
            "a probe needs a module: add [module.NAME] with 'scheme'".to_owned(),
        ));
    }
    let allow = entry.allow.iter().map(|text| {
        AllowedTarget::parse(text).ok_or_else(|| {
            located(
                &["probe", "allow"],
                format!("'{text}' names no targets: write them like 192.0.2.0/24 or *.example.net"),
            )
        })
    });
    let allowed = allow.collect::<Result<_, _>>()?;
    let concurrent = entry.concurrent.unwrap_or(DEFAULT_CONCURRENT);
    if !(1..=MAX_CONCURRENT).contains(&concurrent) {
        let why = format!("{concurrent} probes at the same time are not possible: use 1 to {MAX_CONCURRENT}");
        return Err(located(&["probe", "concurrent"], why));
    }
    Ok(Some(ProbeSettings { modules: named, allowed, concurrent }))
}

/// An error about a table or a key, with its line.
fn located(text: &str, path: &[&str], why: String) -> ConfigError {
    let error = ConfigError::Probe { place: path.join("."), why };
    match toml_text::line_of(text, path) {
        Some(line) => ConfigError::At { line, error: Box::new(error) },
        None => error,
    }
}

fn named_modules(tables: DeTable, text: &str) -> Result<BTreeMap<String, ProbeModule>, ConfigError> {
    let mut named = BTreeMap::new();
    for (name, table) in tables {
        let name = name.into_inner().into_owned();
        let of_module = |error: ConfigError| match error {
            ConfigError::Toml(why) => ConfigError::Toml(why),
            other => located(text, &["module", &name], other.to_string()),
        };
        let DeValue::Table(table) = table.into_inner() else {
            return Err(located(text, &["module", &name], "write it as [module.NAME]".to_owned()));
        };
        let module = module(table, text).map_err(of_module)?;
        named.insert(name, module);
    }
    Ok(named)
}

fn module(mut table: DeTable, text: &str) -> Result<ProbeModule, ConfigError> {
    let scheme = table.remove("scheme").and_then(|scheme| scheme.get_ref().as_str().map(str::to_owned));
    let deserializer = toml::de::Deserializer::from(Spanned::new(0..0, table));
    let spec = CaseSpec::deserialize(deserializer);
    let mut spec = spec.map_err(|error| ConfigError::Toml(toml_text::describe(&error, text)))?;
    let wrong = |field, why: &str| ConfigError::Case {
        watch: "of the module".to_owned(),
        error: CaseSpecError::new(field, why),
    };
    let scheme = scheme
        .ok_or_else(|| wrong("scheme", "it needs the scheme of its targets, like scheme = \"icmp\""))?;
    if spec.url.is_some() || spec.together.is_some() || spec.ports.is_some() {
        return Err(wrong("url", "its target is in the request: remove 'url', 'together' and 'ports'"));
    }
    let workload = spec.workload.get_or_insert_with(|| latency::WORKLOAD.name.to_owned()).clone();
    if ![latency::WORKLOAD.name, connect::WORKLOAD.name].contains(&workload.as_str()) {
        return Err(wrong(
            "workload",
            "a module measures latency or connect: test others with 'every' of a watch",
        ));
    }
    if spec.time.is_none() {
        spec.count.get_or_insert(Count(DEFAULT_COUNT));
    }
    if workload == latency::WORKLOAD.name {
        spec.rate.get_or_insert(RateTarget::Fixed(MessageRate(DEFAULT_RATE)));
    }
    spec.timeout.get_or_insert(Span(DEFAULT_TIMEOUT));
    spec.warm_up_count.get_or_insert(Count(0));
    if spec.count.is_none_or(|count| count.0 > MAX_SAMPLES) {
        return Err(wrong("count", "a probe has 1 to 10000 requests: set 'count'"));
    }
    let module = ProbeModule { scheme, spec };
    let example = module
        .endpoint("127.0.0.1")
        .ok_or_else(|| wrong("scheme", "it is no scheme of a host: use one like tcp, udp or icmp"))?;
    let spec = CaseSpec { url: Some(OneOrMany::One(example)), ..module.spec.clone() };
    let cases =
        spec.expand().map_err(|error| ConfigError::Case { watch: "of the module".to_owned(), error })?;
    let [case] = &cases[..] else {
        return Err(wrong("size", "a module measures one combination: use one value for each key"));
    };
    let plan = Plan { title: None, repeat: 1, keep_going: false, cases: vec![case.clone()] };
    schedule::check(plan, Registry::standard()).map_err(|error| wrong("protocol", &error.to_string()))?;
    Ok(module)
}
