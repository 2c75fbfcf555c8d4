//! Numbers and texts that no honest file holds: each is refused with one line, or does no harm. Nothing panics, nothing allocates
//! as much as a number says, and no status is that of a success.

use std::fs::File;
use std::io::Write;

use linkgauge::Registry;
use linkgauge::mesh::HostList;
use linkgauge::monitor::Config;
use linkgauge::plan::Plan;
use linkgauge::schedule::{self, RunContext};
use linkgauge::store::{Filter, Store};

use crate::program::run;
use crate::virtual_net::VirtualNet;

/// At both ends of every kind of number, as text and as TOML numbers.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "1e308",
    "-1e308",
    "5e-324",
    "nan",
    "inf",
    "9007199254740991",
    "9223372036854775807",
    "0.000000001",
    "'36500d'",
    "'99999999h'",
    "'1ns'",
    "'1000G/s'",
    "'1001G/s'",
    "'0.0000000009/s'",
    "'100T'",
    "'1e400'",
    "'8Ti'",
    "'99999999999999999999999999'",
    "'max'",
    "''",
    "[]",
];

/// The keys of a case that are numbers.
const KEYS: [&str; 20] = [
    "ports",
    "size",
    "parallel",
    "threads",
    "rate",
    "bit_rate",
    "seed",
    "count",
    "time",
    "volume",
    "warm_up_count",
    "warm_up_time",
    "timeout",
    "pin",
    "probe",
    "idle",
    "interval",
    "late",
    "poisson",
    "repeat",
];

/// Runs the plan on the virtual clock if it is accepted, unless it is a long one.
fn try_plan(net: &VirtualNet, text: &str) {
    let Ok(plan) = Plan::from_toml(text) else { return };
    let Ok(checked) = schedule::check(plan.clone(), Registry::standard()) else { return };
    let _ = schedule::estimate_duration(&checked);
    let is_short = plan.cases.iter().all(|case| {
        let ends = case.stop.count.is_some_and(|count| count < 100);
        let warm_up = case.warm_up.is_none_or(|warm_up| {
            warm_up.count.is_none_or(|count| count < 1000) && warm_up.time_ns.is_none()
        });
        ends && warm_up && case.endpoints.len() * (case.parallel as usize) < 100
    });
    if is_short && plan.repeat < 10 {
        let run = schedule::run(&checked, &mut RunContext::new(net.dialer.clone(), &()));
        assert_eq!(run.cases.len(), plan.cases.len(), "{text}");
    }
}

#[test]
fn any_number_in_a_plan_is_refused_or_runs() {
    let net = VirtualNet::serving("echo");
    for workload in ["latency", "throughput", "responsiveness", "connect", "capacity"] {
        for key in KEYS {
            for number in NUMBERS {
                let line = format!("{key} = {number}");
                let (first, own) = if key == "repeat" { (line.as_str(), "") } else { ("", line.as_str()) };
                let count = if key == "count" { "" } else { "count = 3" };
                let more = if own.contains("poisson") { "rate = 5" } else { "" };
                try_plan(
                    &net,
                    &format!(
                        "{first}\n[[case]]\nurl = 'mem://far?delay=1ms'\nprotocol = 'echo'\nworkload = '{workload}'\n{count}\n{own}\n{more}"
                    ),
                );
            }
        }
    }
}

#[test]
fn any_number_in_a_url_is_refused_or_runs() {
    let net = VirtualNet::serving("echo");
    let values = NUMBERS.map(|number| number.trim_matches('\'')).into_iter();
    let values: Vec<String> =
        values.flat_map(|value| [value.to_owned(), format!("{value}@50%"), format!("{value}%")]).collect();
    for transport in Registry::standard().transports.0 {
        for (name, _) in transport.options {
            for value in &values {
                let base = transport.example.split('?').next().unwrap();
                let Ok(endpoint) = format!("{base}?{name}={value}").parse() else { continue };
                let _ = Registry::standard().transports.caps(&endpoint);
                if transport.scheme == "mem" {
                    for of in ["far?", "far-messages?type=message&", "far?delay=1s&"] {
                        let url = format!("mem://{of}{name}={value}");
                        try_plan(
                            &net,
                            &format!(
                                "[[case]]\nurl = '{url}'\nprotocol = 'echo'\nworkload = 'latency'\ncount = 2"
                            ),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn lists_that_multiply_are_refused() {
    let list = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    let case = "[[case]]\nurl = 'tcp://a'\nworkload = 'latency'\n";
    let wide = format!("{case}size = {0}\nparallel = {0}\nports = {0}\n", list(600));
    let many = format!("{}\n", format!("{case}size = {}\n", list(9000)).repeat(2));
    let connections = format!("{case}ports = 16384\nparallel = 16384\n");
    let endpoints = format!("{case}ports = [{}]\n", vec!["16384"; 100].join(","));
    let late = format!("{case}late = {}\n", list(101));
    let options = format!("{case}protocol_options = {{ send = '{}' }}\n", "x".repeat(70_000));
    for (text, why) in [
        (wide, "case 1: 216000000 combinations of the lists: use at most 10000 cases"),
        (many.clone(), "the plan has more than 10 000 cases"),
        (connections, "case 1: 268435456 connections in one case: use at most 65536"),
        (endpoints, "case 1: 1638400 endpoints of all cases: use at most 65536"),
        (late, "case 1: a case has at most 100 late limits"),
        (options, "case 1: 70000 bytes of options: use at most 16384"),
        (format!("repeat = 4294967295\n{case}"), "case 1: repeat = 4294967295: use 1 to 100000"),
    ] {
        let error = Plan::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains(why) && (error.starts_with("line ") || text == many), "{error}");
    }
    let rules = format!("[[watch]]\nurl = 'tcp://a'\nquiet = [{}]", vec!["'02:00-03:00'"; 101].join(","));
    let error = Config::from_toml(&rules).unwrap_err().to_string();
    assert_eq!(error, "line 1: watch 1: use at most 100 alerts and 100 quiet hours");
    // Nor can a file of a few kilobytes watch millions of links.
    let watch = format!("[[watch]]\nurl = 'tcp://a'\nsize = {}\n", list(2000));
    let error = Config::from_toml(&watch.repeat(40)).unwrap_err().to_string();
    assert!(error.starts_with("line 3: watch 1: a watch measures one combination"), "{error}");
}

#[test]
fn any_number_in_a_monitor_or_a_mesh_is_refused_or_accepted() {
    for number in NUMBERS {
        for key in
            ["rate", "every", "timeout", "size", "bytes-per-day", "explain", "interval", "count", "time"]
        {
            let text = format!(
                "[[watch]]\nurl = 'tcp://192.0.2.1'\n{key} = {number}\nalert = ['loss > 5 % (normal 0.5 %)']"
            );
            if let Ok(config) = Config::from_toml(&text) {
                config.watches.iter().for_each(|watch| drop((watch.promises(), watch.describe())));
            }
        }
        for rule in ["loss > N", "p99 > N", "late 50ms > N", "loss > 5 % (normal N)"] {
            let rule = rule.replace('N', number.trim_matches('\''));
            let _ = Config::from_toml(&format!("[[watch]]\nurl = 'tcp://192.0.2.1'\nalert = [\"{rule}\"]"));
        }
        let hosts = "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\nlocal = true\n";
        for test in ["latency", "throughput"] {
            for key in ["time", "rate", "size", "parallel", "bit_rate"] {
                let _ = HostList::from_toml(&format!("{hosts}[test.{test}]\n{key} = {number}"));
            }
        }
        let _ = HostList::from_toml(&format!("representatives = {number}\n{hosts}"));
        let _ = HostList::from_toml(&format!(
            "{hosts}[[resource]]\nname = 'r'\nhosts = ['a']\ncapacity = {number}"
        ));
    }
}

#[test]
fn a_rate_that_ends_threads_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("watch.toml");
    for rate in ["1e308", "\"900G/s\"", "\"20k/s\""] {
        std::fs::write(&file, format!("[[watch]]\nurl = \"tcp://127.0.0.1:9\"\nrate = {rate}\n")).unwrap();
        let ended = run(&["monitor", file.to_str().unwrap(), "--time", "1s"]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{rate}");
        assert!(
            ended.stderr.starts_with("error: ") && !ended.stderr.contains("panicked"),
            "{}",
            ended.stderr
        );
    }
}

const DOCUMENT: &str = include_str!("../../fuzz/corpus-seed/run_document/latency.json");

#[test]
fn an_imported_run_always_has_the_name_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let id = linkgauge::run::Run::from_json(DOCUMENT).unwrap().id;
    let (file, store) = (path("run.json"), path("runs.sqlite"));
    let long = "x".repeat(201);
    for bad in [
        "../../x",
        "/etc/x",
        "",
        ".x",
        "..",
        "a/b",
        "a\\\\b",
        "a b",
        "a\\u0000b",
        "\\u001b[2J",
        "\\u202ex",
        "é",
        &long,
    ] {
        std::fs::write(&file, DOCUMENT.replace(&format!("\"{id}\""), &format!("\"{bad}\""))).unwrap();
        let ended = run(&["import", "run", &file, "--store", &store]);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{bad}");
        assert!(ended.stderr.contains("is not that of a run: it has letters, digits"), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    std::fs::write(&file, DOCUMENT).unwrap();
    assert_eq!(run(&["import", "run", &file, "--store", &store]).status, Some(0));
    let ended = run(&["export", &path("out"), "--store", &store]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(directory.path().join("out").join(format!("{id}.json")).is_file());
    let saved = Store::open_existing(store.as_ref()).unwrap().ids(&Filter::default()).unwrap();
    assert_eq!(saved, [id]);
}

/// Bytes of a sparse file, which takes no place on the disk.
const TOO_MANY_BYTES: u64 = 3 << 30;

#[test]
fn a_document_that_is_too_large_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (sparse, dense) = (path("sparse.json"), path("dense.json"));
    File::create(&sparse).unwrap().set_len(TOO_MANY_BYTES).unwrap();
    let mut file = File::create(&dense).unwrap();
    file.write_all(b"{\"environment\":[0").unwrap();
    (0..900).for_each(|_| file.write_all(&b",0".repeat(10_000)).unwrap());
    for (name, most) in [(&sparse, "128 MiB"), (&dense, "8 million values")] {
        for command in [&["show"][..], &["import", "run"], &["explain"], &["compare", name]] {
            let ended = run(&[command, &[name]].concat());
            let line = format!(
                "error: {name}: larger than a run document can be ({most}): remove what linkgauge did not write\n"
            );
            assert_eq!(
                (ended.status, ended.stdout.as_str(), ended.stderr),
                (Some(2), "", line),
                "{command:?}"
            );
        }
    }
    for command in ["run", "mesh"] {
        let ended = run(&[command, &sparse]);
        assert!(
            ended.stderr.ends_with("is larger than 16 MiB, which no such file is: name another\n"),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.status, Some(2));
    }
}

#[test]
fn tables_in_a_pipe_hold_no_control_characters() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let mut run_document = linkgauge::run::Run::from_json(DOCUMENT).unwrap();
    run_document.title = Some("\u{1b}[2Jtitle\u{9b}31m\u{202e}\r\u{7}".to_owned());
    run_document.tool = "\u{1b}]0;tool\u{7}".to_owned();
    for case in &mut run_document.cases {
        case.endpoint = "tcp://\u{1b}[2J\u{9b}x\r\n=1".to_owned();
        case.protocol = "\u{8}\u{7f}echo\u{2028}".to_owned();
    }
    std::fs::write(&file, serde_json::to_string(&run_document).unwrap()).unwrap();
    for format in ["text", "csv", "json", "html", "junit", "netio"] {
        let ended = run(&["show", file.to_str().unwrap(), "--format", format]);
        let found = ended.stdout.chars().find(|&c| c != '\n' && linkgauge::report::is_unprintable(c));
        assert_eq!((ended.status, found), (Some(0), None), "{format}");
    }
}
