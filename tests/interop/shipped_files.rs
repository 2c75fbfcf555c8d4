//! What `contrib` ships for the hosts of a fleet (units of systemd, a manifest of Kubernetes, a tool of pScheduler), and the action of
//! GitHub.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::free_port;
use crate::program::{Ended, Running, run_within, wait_until};

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib")
}

fn shipped(name: &str) -> String {
    std::fs::read_to_string(contrib().join(name)).unwrap()
}

fn analyze(arguments: &[&str]) -> Ended {
    run_within(Duration::from_secs(60), Command::new("systemd-analyze").args(arguments))
}

#[test]
fn the_units_of_systemd_are_valid_and_confined() {
    for name in ["linkgauge-agent.service", "linkgauge-monitor.service", "linkgauge-serve.service"] {
        // Its program need not be installed here.
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join(name);
        std::fs::write(&copy, shipped(name).replace("/usr/bin/linkgauge", "/bin/true")).unwrap();
        let copy = copy.display().to_string();
        let verified = analyze(&["verify", "--man=no", &copy]);
        assert_eq!(verified.status, Some(0), "{}{}", verified.stdout, verified.stderr);
        assert!(!verified.stderr.contains(name), "{}", verified.stderr);
        // 100 is no protection at all; services without any have 96.
        let confined = analyze(&["security", "--offline=true", "--threshold=30", "--no-pager", &copy]);
        assert_eq!(confined.status, Some(0), "{}{}", confined.stdout, confined.stderr);
    }
}

/// Starts a server with the words of a shipped file, on free ports, and waits until it listens.
fn serve(words: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    std::fs::write(&token, "a secret of the fleet").unwrap();
    let token = token.display().to_string();
    let here = |word: &str| match word {
        "tcp://0.0.0.0" => "tcp://127.0.0.1:0".to_owned(),
        "udp://0.0.0.0" => "udp://127.0.0.1:0".to_owned(),
        path if path.ends_with("/token") => token.clone(),
        word => word.to_owned(),
    };
    let words: Vec<String> = words.iter().map(|word| here(word)).collect();
    let output = place.path().join("output");
    let mut server = Command::new(env!("CARGO_BIN_EXE_linkgauge"));
    server.args(&words).stdin(Stdio::null()).stdout(std::fs::File::create(&output).unwrap());
    let mut server = Running(server.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the server", || {
        assert_eq!(server.0.try_wait().unwrap(), None, "{words:?}");
        let printed = std::fs::read_to_string(&output).unwrap();
        (printed.matches(" on ").count() == 2).then_some(())
    });
}

#[test]
fn the_commands_of_shipped_files_start_servers() {
    let unit = shipped("linkgauge-serve.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/linkgauge ")).unwrap();
    serve(&line.split_whitespace().collect::<Vec<&str>>());
    let manifest = shipped("linkgauge-daemonset.yaml");
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix("args: ")).unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    serve(&words.iter().map(String::as_str).collect::<Vec<&str>>());
}

/// The tool of pScheduler, installed as its methods are called.
struct Tool(tempfile::TempDir);

impl Tool {
    fn new() -> Tool {
        let place = tempfile::tempdir().unwrap();
        let tool = contrib().join("pscheduler/linkgauge-tool");
        for method in ["enumerate", "can-run", "duration", "participant-data", "run", "merged-results"] {
            std::os::unix::fs::symlink(&tool, place.path().join(method)).unwrap();
        }
        Tool(place)
    }

    fn call(&self, method: &str, input: &Value) -> Value {
        let mut tool = Command::new(self.0.path().join(method));
        tool.env("LINKGAUGE", env!("CARGO_BIN_EXE_linkgauge")).env("LINKGAUGE_STORE", "");
        let mut child = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{method}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn pscheduler_can_use_linkgauge_as_a_tool() {
    let tool = Tool::new();
    assert_eq!(tool.call("enumerate", &Value::Null)["tests"], json!(["rtt"]));
    let spec = json!({
        "schema": 1, "count": 5, "dest": "127.0.0.1", "source": "127.0.0.1", "interval": "PT0.2S",
        "timeout": "PT1S", "ip-version": 4, "length": 100,
    });
    let test = json!({ "type": "rtt", "spec": spec });
    assert_eq!(tool.call("can-run", &test), json!({ "can-run": true }));
    assert_eq!(tool.call("duration", &test), json!({ "duration": "PT6.8S" }));
    assert_eq!(tool.call("participant-data", &test), json!({}));
    let schedule = json!({ "start": "2026-01-01T00:00:00Z", "duration": "PT10S" });
    let ran = tool.call("run", &json!({ "participant": 0, "test": test, "schedule": schedule }));
    assert_eq!(ran["succeeded"], true, "{ran}");
    let merged = tool.call("merged-results", &json!({ "test": test, "results": [ran] }));
    assert_eq!((&merged["sent"], &merged["received"], &merged["loss"]), (&json!(5), &json!(5), &json!(0.0)));
    let round_trips = merged["roundtrips"].as_array().unwrap();
    assert_eq!(round_trips.len(), 5);
    assert_eq!((&round_trips[0]["seq"], &round_trips[0]["length"]), (&json!(1), &json!(100)));
    let seconds = |text: &Value| -> f64 {
        let text = text.as_str().unwrap_or_else(|| panic!("{merged}"));
        text.strip_prefix("PT").and_then(|text| text.strip_suffix('S')).unwrap().parse().unwrap()
    };
    let times: Vec<f64> = round_trips.iter().map(|trip| seconds(&trip["rtt"])).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > 0.0 && (seconds(&merged["min"]) - least).abs() < 1e-9, "{merged}");
}

#[test]
fn what_the_tool_of_pscheduler_cannot_do_is_said_before_it_runs() {
    let tool = Tool::new();
    for (test, why) in [
        (json!({ "type": "trace", "spec": { "dest": "127.0.0.1" } }), "type rtt"),
        (json!({ "type": "rtt", "spec": {} }), "no destination"),
        (json!({ "type": "rtt", "spec": { "dest": "127.0.0.1", "protocol": "twamp" } }), "protocol icmp"),
        (json!({ "type": "rtt", "spec": { "dest": "127.0.0.1", "interval": "soon" } }), "'soon' is not"),
    ] {
        let reply = tool.call("can-run", &test);
        assert_eq!(reply["can-run"], false);
        assert!(reply["reasons"].to_string().contains(why), "{reply}");
    }
    let failed = json!({ "results": [{ "succeeded": false, "result": null, "error": "no route" }] });
    assert_eq!(tool.call("merged-results", &failed)["succeeded"], false);
}

/// The step of the action, with these inputs, in a runner at `place`.
fn act(place: &Path, inputs: &[(&str, &str)]) -> Ended {
    let mut step = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("action/measure"));
    step.env("PROGRAM", env!("CARGO_BIN_EXE_linkgauge")).env("RUNNER_TEMP", place);
    step.env("GITHUB_OUTPUT", place.join("output")).env("GITHUB_STEP_SUMMARY", place.join("summary"));
    step.envs(inputs.iter().copied());
    run_within(Duration::from_secs(60), &mut step)
}

#[test]
fn the_action_measures_and_compares() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let url = format!("tcp://127.0.0.1:{}", free_port());
    let (command, serve) = (format!("latency {url} -n 500"), ("SERVE", url.as_str()));
    let measured = act(place, &[("COMMAND", &format!("{command} --threshold 'p50 < 10s'")), serve]);
    assert_eq!(measured.status, Some(0), "{}{}", measured.stdout, measured.stderr);
    let summary = std::fs::read_to_string(place.join("summary")).unwrap();
    assert!(summary.starts_with("### linkgauge latency\n\n```text\nTCP round trip to "), "{summary}");
    let outputs = std::fs::read_to_string(place.join("output")).unwrap();
    let output = |name: &str| outputs.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    assert!(std::fs::read_to_string(output("page=")).unwrap().contains("<svg"));

    let (command, baseline) = (("COMMAND", command.as_str()), output("document="));
    let compared =
        act(place, &[command, serve, ("BASELINE", &baseline), ("COMPARE", "--metric p50 --margin 90%")]);
    assert!(compared.stdout.contains("p50"), "{}", compared.stdout);
    let compared = act(place, &[command, serve, ("BASELINE", "/nowhere.json")]);
    assert_eq!(compared.status, Some(0), "{}", compared.stderr);
    assert!(compared.stdout.contains("no baseline at /nowhere.json"), "{}", compared.stdout);
    for (command, status) in [
        (format!("latency {url} -n 500 --threshold 'p50 < 1ns'"), 1),
        (format!("latency {url} 'open"), 2),
        ("latency $(touch /tmp/expanded)".to_owned(), 2),
    ] {
        assert_eq!(act(place, &[("COMMAND", &command), serve]).status, Some(status), "{command}");
    }
    // The server has not started.
    assert_eq!(act(place, &[command, ("SERVE", "tcp://192.0.2.1:1")]).status, Some(2));
}
