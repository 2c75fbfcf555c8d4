//! LINX over Ethernet between two network namespaces, with the program as people run it. Needs root and `ip`.

use std::process::{Command, Stdio};

use super::program::{Running, wait_until};

/// Two namespaces joined by a pair of devices, `far0` and `near0`; gone with the test.
struct Joined {
    names: [String; 2],
}

const FAR: &str = "02:00:00:00:00:01";
const NEAR: &str = "02:00:00:00:00:02";

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Joined {
    fn new() -> Joined {
        let number = fastrand::u32(..);
        let names = ["far", "near"].map(|name| format!("lg-linx-{name}-{number:08x}"));
        let joined = Joined { names };
        let [far, near] = &joined.names;
        ip(&format!("netns add {far}"));
        ip(&format!("netns add {near}"));
        ip(&format!(
            "-n {far} link add far0 address {FAR} type veth peer name near0 address {NEAR} netns {near}"
        ));
        ip(&format!("-n {far} link set far0 up"));
        ip(&format!("-n {near} link set near0 up"));
        joined
    }

    fn linkgauge(&self, side: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[side], env!("CARGO_BIN_EXE_linkgauge")]).args(arguments);
        command.env("LINKGAUGE_STORE", "");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn serve(&self) -> Running {
        let url = format!("linx+eth://far0/{NEAR}/server");
        Running(self.linkgauge(0, &["serve", &url]).spawn().unwrap())
    }

    /// Runs the program to its end: status, output, errors.
    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let url = format!("linx+eth://near0/{FAR}/server");
        let words: Vec<String> = words.split_whitespace().map(|word| word.replace("URL", &url)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.linkgauge(1, &words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn messages_of_all_sizes_pass_between_two_namespaces() {
    let joined = Joined::new();
    let _server = joined.serve();
    wait_until("an answer over Ethernet", || {
        let (status, ..) = joined.run("latency URL -n 1 --quiet --timeout 5s");
        (status == Some(0)).then_some(())
    });
    for size in ["1", "1476", "1477", "20000", "65532"] {
        let (status, out, errors) =
            joined.run(&format!("latency URL -n 100 -s {size} --warm-up 0 --timeout 10s --json -"));
        assert_eq!(status, Some(0), "{size}: {errors}");
        let run: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(run["cases"][0]["received"], 100, "{size}");
        assert!(run["cases"][0]["corrupt_bytes"].as_u64().unwrap_or(0) == 0, "{size}");
    }
    let words = "throughput URL --direction both -s 1000 --volume 2M --timeout 10s --json -";
    let (status, out, errors) = joined.run(words);
    assert_eq!(status, Some(0), "{errors}");
    let run: serde_json::Value = serde_json::from_str(&out).unwrap();
    let case = &run["cases"][0];
    assert_eq!(case["received"], 4000, "{case}");
    assert_eq!(case["lost"].as_u64().unwrap_or(0), 0);
}

#[test]
fn nobody_there_and_no_such_device_are_one_line_each() {
    let joined = Joined::new();
    let (status, _, errors) = joined.run("latency URL -n 1 --quiet --timeout 1s");
    assert_eq!((status, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("nobody answered as a LINX node"), "{errors}");
    let (status, _, errors) = joined.run("latency linx+eth://eth77/02:00:00:00:00:01/server -n 1 --quiet");
    assert_eq!((status, errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("no network device 'eth77'"), "{errors}");
}
