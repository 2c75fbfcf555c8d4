//! Prometheus as the judge of the metrics of `monitor`: its linter, and a server that scrapes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::client::free_port;
use crate::program::{Running, Serving, run_within, wait_until};

/// The body of the response to a GET, as soon as there is one.
pub fn get(address: &str, path: &str) -> Option<String> {
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

/// Fails if the linter of Prometheus has any remark about metrics.
pub fn lint(metrics: &str) {
    let mut linter = Command::new("promtool");
    linter.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut linter = linter.spawn().expect("promtool is needed for this test: apt-get install prometheus");
    linter.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let ended = linter.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.is_empty(), "{said}\n{metrics}");
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

    lint(&metrics);

    let (server, _prometheus) = start_prometheus(address, place.path(), &[]);
    assert_eq!(wait_until("a scrape", || query(&server, "linkgauge_up")), 1.0);
    assert_eq!(query(&server, "linkgauge_alarm"), Some(0.0));
    let median = query(&server, "histogram_quantile(0.5,linkgauge_latency_seconds_bucket)").unwrap();
    let exact = query(&server, "linkgauge_minute_latency_seconds%7Bpercentile=%2250%22%7D").unwrap();
    assert!(median > 0.0 && exact > 0.0 && (0.2..5.0).contains(&(median / exact)), "{median} {exact}");
    every_panel_has_data(&server);

    // It reads native histograms from protobuf. Both figures are of the same scrape; the minute holds all probes so far.
    let folder = place.path().join("native");
    std::fs::create_dir(&folder).unwrap();
    let (server, _prometheus) = start_prometheus(address, &folder, &["--enable-feature=native-histograms"]);
    for (share, percentile) in [("0.5", 50), ("0.9", 90)] {
        let native = format!("histogram_quantile({share},linkgauge_latency_seconds)");
        let exact = format!("on()linkgauge_minute_latency_seconds{{percentile=\"{percentile}\"}}");
        let ratio = quoted(&format!("{native}/{exact}"));
        let ratio = wait_until("a native histogram", || query(&server, &ratio));
        // A bucket is 4.4 % wide, and a bin of the document 1 %.
        assert!((0.94..1.06).contains(&ratio), "{share}: {ratio}");
    }
    for panel in panel_queries().iter().filter(|panel| panel.contains("histogram_quantile")) {
        wait_until(panel, || query(&server, &quoted(panel)));
    }
    let replies = wait_until("its count", || query(&server, "histogram_count(linkgauge_latency_seconds)"));
    let counted = query(&server, "linkgauge_probes_total%7Bresult=%22replied%22%7D").unwrap();
    assert!(replies > 0.0 && counted >= replies, "{replies} {counted}");
}

/// Prometheus with the alert rules, which scrapes a monitor at this address every second; its own address.
fn start_prometheus(monitor: &str, place: &Path, flags: &[&str]) -> (String, Running) {
    let rules = contrib("prometheus-rules.yml");
    let text = format!(
        "global:\n  evaluation_interval: 1s\nrule_files: ['{rules}']\nscrape_configs:\n  - job_name: links\n    scrape_interval: 1s\n    \
         static_configs:\n      - targets: ['{monitor}']\n"
    );
    start_prometheus_with(&text, place, flags)
}

/// Prometheus with this file; its address.
fn start_prometheus_with(text: &str, place: &Path, flags: &[&str]) -> (String, Running) {
    let port = free_port();
    let config = place.join("prometheus.yml");
    std::fs::write(&config, text).unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", place.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(flags)
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
fn prometheus_names_the_targets_of_probes() {
    let place = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/probe.toml");
    let arguments = ["monitor", &example.display().to_string(), "--listen", "127.0.0.1:0", "--no-store"];
    let mut monitor = Running::start(&arguments);
    let mut message = String::new();
    BufReader::new(monitor.0.stderr.take().unwrap()).read_line(&mut message).unwrap();
    let address = message.trim().strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    lint(&get(address, "/probe?target=localhost&module=icmp").unwrap());
    let jobs = std::fs::read_to_string(contrib("prometheus-probe.yml")).unwrap();
    let jobs = jobs.replace("127.0.0.1:9464", address).replace("[localhost]", "[localhost, 203.0.113.7]");
    let config = format!("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n{jobs}");
    let flags = ["--enable-feature=native-histograms"];
    let (server, _prometheus) = start_prometheus_with(&config, place.path(), &flags);
    let of_target = |metric: &str, target: &str| quoted(&format!("{metric}{{instance=\"{target}\"}}"));
    assert_eq!(wait_until("a probe", || query(&server, &of_target("probe_success", "localhost"))), 1.0);
    let up = wait_until("a refused target", || query(&server, &of_target("up", "203.0.113.7")));
    assert_eq!(up, 0.0, "it is not in the list");
    let p99 = quoted("histogram_quantile(0.99, rate(linkgauge_probe_latency_seconds[30s]))");
    let p99 = wait_until("a rate of the histogram", || query(&server, &p99).filter(|time| *time > 0.0));
    assert!(p99 < 1.0, "{p99}");
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

/// VictoriaMetrics with the data of this folder, on this port.
fn start_victoria_metrics(folder: &Path, port: u16) -> Running {
    let mut command = Command::new("victoria-metrics");
    command
        .arg(format!("-storageDataPath={}", folder.display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        // Otherwise the last 30 s cannot be queried.
        .arg("-search.latencyOffset=1s")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = command.spawn();
    Running(started.expect("this test needs VictoriaMetrics: apt-get install victoria-metrics"))
}

#[test]
fn pushed_metrics_arrive_also_after_the_receiver_was_away() {
    let place = tempfile::tempdir().unwrap();
    let serving = Serving::start(&[]);
    let port = free_port();
    let (data, server) = (place.path().join("data"), format!("127.0.0.1:{port}"));
    let file = place.path().join("links.toml");
    let text = format!(
        "[push]\nurl = \"http://{server}/api/v1/write\"\nevery = \"1s\"\n[[watch]]\nname = \"link\"\nurl = \"{}\"\nrate = \"100/s\"\n",
        serving.tcp
    );
    std::fs::write(&file, text).unwrap();
    let receiver = start_victoria_metrics(&data, port);
    let arguments = ["monitor", &file.display().to_string(), "--listen", "off", "--no-store"];
    let mut monitor = Running::start(&arguments);
    let mut log = BufReader::new(monitor.0.stdout.take().unwrap());
    let mut wait_for_log = |text: &str| {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ends before it says: {text}");
        }
        line
    };
    wait_for_log(&format!("metrics are pushed to http://{server}/api/v1/write every 1 s"));
    let replied = quoted("linkgauge_probes_total{result=\"replied\"}");
    let before = wait_until("a push", || query(&server, &replied));
    assert!(before > 0.0);
    let median = quoted("histogram_quantile(0.5, linkgauge_latency_seconds_bucket)");
    assert!(wait_until("a histogram", || query(&server, &median)) > 0.0);

    // While it is away the monitor measures, and points wait.
    drop(receiver);
    wait_for_log("the metrics were not received: ");
    let gone = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    std::thread::sleep(Duration::from_secs(6));
    let _receiver = start_victoria_metrics(&data, port);
    assert!(wait_for_log("the metrics are received again").ends_with("again\n"), "no point was dropped");
    wait_until("later probes", || query(&server, &replied).filter(|now| *now > before));
    // A point each second of its absence.
    let waited = format!("{}&time={}", quoted("count_over_time(linkgauge_up[4s])"), gone + 5);
    wait_until("the points that waited", || query(&server, &waited).filter(|points| *points >= 3.0));
    monitor.signal(Signal::INT);
    assert_eq!(monitor.wait().code(), Some(0));
}
