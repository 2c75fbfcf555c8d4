//! Prometheus as the judge of the metrics of `monitor`: its linter, and a server that scrapes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::free_port;
use crate::program::{Running, Serving, wait_until};

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

    let port = free_port();
    let config = place.path().join("prometheus.yml");
    let targets = format!(
        "scrape_configs:\n  - job_name: links\n    scrape_interval: 1s\n    static_configs:\n      - targets: ['{address}']\n"
    );
    std::fs::write(&config, targets).unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", place.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _prometheus = Running(prometheus.spawn().unwrap());
    let server = format!("127.0.0.1:{port}");
    assert_eq!(wait_until("a scrape", || query(&server, "linkgauge_up")), 1.0);
    assert_eq!(query(&server, "linkgauge_alarm"), Some(0.0));
    let median = query(&server, "histogram_quantile(0.5,linkgauge_latency_seconds_bucket)").unwrap();
    let exact = query(&server, "linkgauge_minute_latency_seconds%7Bpercentile=%2250%22%7D").unwrap();
    assert!(median > 0.0 && exact > 0.0 && (0.2..5.0).contains(&(median / exact)), "{median} {exact}");
}
