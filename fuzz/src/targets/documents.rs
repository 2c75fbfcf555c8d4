//! Documents from an untrusted source: two runs compared, a run in the store, the output of a guest; and the text of
//! thresholds and units.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use linkgauge::clock::Time;
use linkgauge::mesh::{self, Coordinator, HostList, MeshFacts, MeshOptions, Sharing};
use linkgauge::metric::{Metric, Threshold};
use linkgauge::monitor;
use linkgauge::report::{self, ReportOptions, RunGroup};
use linkgauge::run::Run;
use linkgauge::store::document;
use linkgauge::units::{self, BitRate, Bytes, Count, MessageRate, Span};
use linkgauge::verdict::{self, CompareOptions};

/// Two documents with a zero between them, compared by every metric and in every form.
pub fn compare(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let runs: Option<Vec<Run>> = [parts.next(), parts.next().or(Some(data))]
        .into_iter()
        .map(|part| Run::from_json(str::from_utf8(part?).ok()?).ok())
        .collect();
    let Some(runs) = runs else { return };
    let (a, b) = (&runs[..1], &runs[1..]);
    let metrics: Vec<Metric> =
        a[0].cases.iter().flat_map(Metric::all_of_case).map(|(metric, _)| metric).collect();
    let sides = [RunGroup { name: "a", runs: a }, RunGroup { name: "b", runs: b }];
    assert!(report::write_overlay(&sides, None, &mut std::io::sink()).is_ok(), "only a sink may fail");
    for metrics in [Vec::new(), metrics] {
        let options = CompareOptions { metrics, force: true, ..CompareOptions::default() };
        let Ok(comparison) = verdict::compare(a, b, &options) else { return };
        for case in &comparison.cases {
            assert!(case.p.is_none_or(|p| (0.0..=1.0).contains(&p)), "{case:?}");
        }
        let json = serde_json::to_string(&comparison);
        assert!(json.is_ok(), "{json:?}");
        assert!(report::write_overlay(&sides, Some(&comparison), &mut std::io::sink()).is_ok());
        let _ = report::render_comparison(&comparison, &ReportOptions::default());
    }
}

/// A document as stored; and the text of one, which the store returns unchanged.
pub fn store_document(data: &[u8]) {
    if let Some(text) = document::inflate(data) {
        assert!(text.len() as u64 <= linkgauge::run::MAX_DOCUMENT_BYTES);
        let _ = Run::from_json(&text);
    }
    let Ok(text) = str::from_utf8(data) else { return };
    assert_eq!(document::inflate(&document::deflate(text)).as_deref(), Some(text));
    let Ok(run) = Run::from_json(text) else { return };
    let again = document::to_json(&run);
    assert_eq!(document::to_json(&Run::from_json(&again).expect("it reads back")), again);
}

/// Documents in sequence, as a guest prints them.
pub fn guest_output(data: &[u8]) {
    let read: Vec<Run> = Run::read_stream(data).collect();
    if let Ok(text) = str::from_utf8(data)
        && let Ok(run) = Run::from_json(text)
    {
        assert_eq!(read.len(), 1);
        assert_eq!(document::to_json(&read[0]), document::to_json(&run));
    }
    let written: String = read.iter().map(document::to_json).collect();
    assert_eq!(Run::read_stream(written.as_bytes()).count(), read.len());
}

/// A request to the pages of a monitor; its file, a rule of an alarm and quiet hours.
pub fn monitor_input(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    if let Some(monitor::Lookup::Run { id }) = monitor::Lookup::parse(path, query, text) {
        assert!(!id.is_empty() && !id.contains(['/', '.', '%']), "{id}");
    }
    let access = monitor::Access::new(Ipv4Addr::LOCALHOST.into(), Some("secret".to_owned())).unwrap();
    if access.check(None, Some(text)).is_ok() {
        assert!(text.contains("secret") || text.trim_start().to_ascii_lowercase().starts_with("basic"));
    }
    let _ = access.check(Some(text), None);
    let _ = (monitor::Config::from_toml(text), text.parse::<monitor::QuietHours>());
    probe_request(query);
    if let Ok(rule) = text.parse::<monitor::Rule>() {
        assert_eq!(rule.text, text);
    }
}

/// A client of a monitor gets no further than the allowed targets.
fn probe_request(query: &str) {
    let file = "[probe]\nallow = [\"192.0.2.0/24\", \"*.example.net\"]\n[module.a]\nscheme = \"tcp\"\n";
    let settings = monitor::Config::from_toml(file).unwrap().probe.unwrap();
    let Ok(request) = monitor::ProbeRequest::parse(query) else { return };
    if let Ok((module, endpoint)) = settings.check(&request) {
        let (host, _) = endpoint.host_port().unwrap();
        let is_allowed = host.starts_with("192.0.2.") || host.to_ascii_lowercase().ends_with(".example.net");
        assert!(module == "a" && endpoint.scheme() == "tcp" && is_allowed, "{endpoint}");
    }
}

/// A host list; the orders that an agent reads; and the answers that a coordinator of two hosts gets from the first one.
pub fn mesh(data: &[u8]) {
    if let Ok(list) = HostList::from_toml(str::from_utf8(data).unwrap_or_default()) {
        assert!(list.pairs.iter().flatten().all(|host| *host < list.hosts.len()));
    }
    if let Ok(order) = mesh::parse_order(data) {
        let line = mesh::to_line(&order);
        assert_eq!(mesh::parse_order(line.trim_ascii_end()).ok(), Some(order));
    }
    let list = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\nserver = \"tcp://192.0.2.1:7100\"\n";
    let Ok(list) = HostList::from_toml(list) else { return };
    let options = MeshOptions { sharing: Sharing::Exclusive, mesh_token: "m".to_owned(), server_token: None };
    let mut coordinator = Coordinator::new(list, options, BTreeMap::new(), Time(0));
    let mut input = data;
    let mut now = 0;
    while let Ok(Some(line)) = mesh::read_line(&mut input, mesh::MAX_ANSWER_BYTES) {
        now += 10_000_000_000;
        if let Ok(answer) = mesh::parse_answer(&line) {
            coordinator.on_answer(0, answer, Time(now));
        }
        while coordinator.next_action().is_some() {}
    }
    coordinator.on_end(0, "it ended".to_owned(), Time(now));
    assert!(coordinator.is_over(), "without its only agent, nothing is left");
    let facts = MeshFacts {
        started: Default::default(),
        elapsed: Default::default(),
        interrupted: false,
        environment: Default::default(),
        resumed_from: None,
    };
    let run = mesh::mesh_run(coordinator.into_parts(), facts);
    let text = document::to_json(&run);
    assert!(Run::from_json(&text).is_ok(), "{text}");
    for format in linkgauge::lists::REPORT_FORMATS {
        let written = (format.write)(&run, &report::ReportOptions::default(), &mut std::io::sink());
        assert!(written.is_ok(), "{}", format.name);
    }
}

/// The input of a duration, a size, a rate, a share or a threshold; and its printed form.
pub fn quantities(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(time) = units::parse_duration(text) {
        let _ =
            (units::format_duration(time), units::format_milliseconds(time), text.parse::<Span>().is_ok());
    }
    if let Ok(bytes) = units::parse_bytes(text) {
        let _ = (units::format_bytes(bytes), text.parse::<Bytes>().is_ok());
    }
    if let Ok(count) = units::parse_count(text) {
        let _ = (units::format_count(count), text.parse::<Count>().is_ok());
    }
    for rate in [units::parse_message_rate(text), units::parse_bit_rate(text), units::parse_share(text)]
        .into_iter()
        .flatten()
    {
        assert!(rate.is_finite() && rate >= 0.0, "{text}: {rate}");
        let _ =
            (units::format_bit_rate(rate), units::format_byte_rate(rate), units::format_four_digits(rate));
        let _ = units::format_nanoseconds(rate);
    }
    let _ = (text.parse::<MessageRate>(), text.parse::<BitRate>());
    if let Ok(threshold) = text.parse::<Threshold>() {
        let printed = threshold.to_string();
        let again = printed.parse::<Threshold>().map(|threshold| threshold.to_string());
        assert_eq!(again.as_deref().ok(), Some(printed.as_str()), "{text}");
    }
}
