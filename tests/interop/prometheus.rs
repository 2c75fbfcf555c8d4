//! Prometheus as the judge of the metrics of `monitor`: its linter, and a server that scrapes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::client::free_port;
use crate::program::{Running, Serving, run_within, wait_until};

/// The body of the response to a GET, as soon as there is one.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.").then(|| body.to_owned())
}

/// The value of a query to Prometheus, as soon as it has one.
fn query(prometheus: &str, expression: &str) -> Option<f64> {
    let body = get(prometheus, &format!("/api/v1/query?query={expression}"))?;
    let found: Value = serde_json::from_str(&body).ok()?;
    found["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// The format that the linter reads: there a family of counters is named as its samples, an info is a gauge, and no line ends
/// the text.
fn in_older_format(metrics: &str) -> String {
    let mut older = metrics.replace("# EOF\n", "");
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, suffix) = match line.split_once(' ') {
            Some((family, "counter")) => (family, "total"),
            Some((family, "info")) => (family, "info"),
            _ => continue,
        };
        for word in ["HELP", "TYPE"] {
            older = older.replace(&format!("# {word} {family} "), &format!("# {word} {family}_{suffix} "));
        }
    }
    older.replace(" info\n", " gauge\n")
}

#[test]
fn prometheus_reads_the_metrics_of_a_monitor() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let arguments = ["monitor", serving.tcp.as_str(), "--rate", "100/s", "--alert", "loss > 5 %"];
    let mut monitor = Running::start(&[&arguments[..], &["--listen", "127.0.0.1:0", "--no-store"]].concat());
    let mut message = String::new();
    BufReader::new(monitor.0.stderr.take().unwrap()).read_line(&mut message).unwrap();
    let address = message.trim().strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let metrics = wait_until("the first slice", || {
        get(address, "/metrics").filter(|text| text.contains("linkgauge_latency_seconds_count"))
    });

    let mut linter = Command::new("promtool");
    linter.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut linter = linter.spawn().expect("promtool is needed for this test: apt-get install prometheus");
    linter.stdin.take().unwrap().write_all(in_older_format(&metrics).as_bytes()).unwrap();
    let ended = linter.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.is_empty(), "{said}\n{metrics}");

    let (server, _prometheus) = start_prometheus(address, place.path());
    assert_eq!(wait_until("a scrape", || query(&server, "linkgauge_up")), 1.0);
    assert_eq!(query(&server, "linkgauge_alarm"), Some(0.0));
    let median = query(&server, "histogram_quantile(0.5,linkgauge_latency_seconds_bucket)").unwrap();
    let exact = query(&server, "linkgauge_minute_latency_seconds%7Bpercentile=%2250%22%7D").unwrap();
    assert!(median > 0.0 && exact > 0.0 && (0.2..5.0).contains(&(median / exact)), "{median} {exact}");
    every_panel_has_data(&server);
}

/// Prometheus with the alert rules, which scrapes a monitor at this address every second; its own address.
fn start_prometheus(monitor: &str, place: &Path) -> (String, Running) {
    let port = free_port();
    let config = place.join("prometheus.yml");
    let rules = contrib("prometheus-rules.yml");
    let text = format!(
        "global:\n  evaluation_interval: 1s\nrule_files: ['{rules}']\nscrape_configs:\n  - job_name: links\n    scrape_interval: 1s\n    \
         static_configs:\n      - targets: ['{monitor}']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", place.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    (format!("127.0.0.1:{port}"), Running(prometheus.spawn().unwrap()))
}

fn contrib(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(name).display().to_string()
}

/// Text as a part of a URL.
fn quoted(text: &str) -> String {
    let quote = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(quote).collect()
}

/// The queries of the dashboard, with its variables as Grafana sets them at first.
fn panel_queries() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(contrib("grafana-dashboard.json")).unwrap()).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let set =
        |query: String| query.replace("$host", ".*").replace("$link", ".*").replace("$__rate_interval", "1m");
    queries.map(set).collect()
}

fn every_panel_has_data(server: &str) {
    let queries = panel_queries();
    assert!(queries.len() >= 10, "{queries:?}");
    for expression in queries {
        // Only tests have a throughput.
        if expression.contains("throughput") {
            let body = get(server, &format!("/api/v1/query?query={}", quoted(&expression))).unwrap();
            assert!(body.contains("\"status\":\"success\""), "{expression}: {body}");
            continue;
        }
        wait_until(&expression, || query(server, &quoted(&expression)));
    }
}

#[test]
fn the_alert_rules_and_their_tests_are_valid() {
    let files = [("check", "prometheus-rules.yml"), ("test", "prometheus-rules-test.yml")];
    for (verb, file) in files {
        let mut promtool = Command::new("promtool");
        promtool.args([verb, "rules", &contrib(file)]);
        let ended = run_within(Duration::from_secs(60), &mut promtool);
        assert_eq!(ended.status, Some(0), "{file}: {}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn the_unit_of_systemd_is_valid_and_confined() {
    let unit = contrib("linkgauge-monitor.service");
    // Its program need not be installed here.
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("linkgauge-monitor.service");
    let text = std::fs::read_to_string(unit).unwrap();
    std::fs::write(&copy, text.replace("/usr/bin/linkgauge", "/bin/true")).unwrap();
    let copy = copy.display().to_string();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        run_within(Duration::from_secs(60), command.args(arguments))
    };
    let verified = analyze(&["verify", "--man=no", &copy]);
    assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(!verified.stderr.contains("linkgauge-monitor.service"), "{}", verified.stderr);
    // 100 is no protection at all; services without any have 96.
    let confined = analyze(&["security", "--offline=true", "--threshold=30", "--no-pager", &copy]);
    assert_eq!(confined.status, Some(0), "{}{}", confined.stdout, confined.stderr);
}
