//! A mesh of network namespaces: hosts on two bridges, whose uplink is a token bucket filter.
//!
//! Agents save nothing, and inherit an empty LINKGAUGE_STORE.

use std::process::Command;

use linkgauge::run::{MeshResult, Run};

use crate::program::{command, cpu_waits, run_within, wait_until};

/// Rates of the kernel's filters, with headers.
const UPLINK_MBIT: f64 = 40.0;
const HOST_MBIT: f64 = 200.0;

/// Payload of a full TCP segment with timestamps, and what the filter counts of it.
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A bucket filter on a device of a namespace.
fn limit(namespace: &str, device: &str, mbit: f64) {
    let words = format!("qdisc add dev {device} root tbf rate {mbit}mbit burst 16kb limit 200kb");
    let output = Command::new("tc").args(["-n", namespace]).args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "tc {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two sites: a namespace with a bridge for each, joined by one link, and a namespace for each host.
struct Sites {
    namespaces: Vec<String>,
    hosts: usize,
}

impl Sites {
    fn new(name: &str, hosts: usize) -> Sites {
        let prefix = format!("lg{name}{}", std::process::id());
        let mut sites = Sites { namespaces: Vec::new(), hosts };
        let bridges = ["x", "y"].map(|site| format!("{prefix}{site}"));
        for bridge in &bridges {
            sites.add(bridge);
            ip(&format!("-n {bridge} link add bridge0 type bridge"));
            ip(&format!("-n {bridge} link set bridge0 up"));
        }
        ip(&format!("link add uplink netns {} type veth peer name uplink netns {}", bridges[0], bridges[1]));
        for bridge in &bridges {
            ip(&format!("-n {bridge} link set uplink master bridge0"));
            ip(&format!("-n {bridge} link set uplink up"));
            limit(bridge, "uplink", UPLINK_MBIT);
        }
        for host in 0..hosts {
            let (namespace, bridge) = (format!("{prefix}h{host}"), &bridges[host % 2]);
            sites.add(&namespace);
            ip(&format!("link add eth0 netns {namespace} type veth peer name p{host} netns {bridge}"));
            ip(&format!("-n {namespace} address add 10.77.0.{}/24 dev eth0", host + 1));
            ip(&format!("-n {namespace} link set eth0 up"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {bridge} link set p{host} master bridge0"));
            ip(&format!("-n {bridge} link set p{host} up"));
            limit(&namespace, "eth0", HOST_MBIT);
        }
        (1..hosts).for_each(|host| sites.await_path_to(host));
        sites
    }

    /// A bridge forwards a moment after its ports are up.
    fn await_path_to(&self, host: usize) {
        let url = format!("icmp://10.77.0.{}", host + 1);
        wait_until("a path between two namespaces", || {
            let mut probe = Command::new("ip");
            probe.args(["netns", "exec", &self.namespaces[2], env!("CARGO_BIN_EXE_linkgauge"), "latency"]);
            probe.args([&url, "-n", "1", "--quiet", "--no-store"]);
            probe.output().unwrap().status.success().then_some(())
        });
    }

    fn add(&mut self, namespace: &str) {
        ip(&format!("netns add {namespace}"));
        self.namespaces.push(namespace.to_owned());
    }

    /// The host list. `head` stands before the hosts.
    fn file(&self, head: &str) -> String {
        let agent = env!("CARGO_BIN_EXE_linkgauge");
        let host = |host: usize| {
            let namespace = &self.namespaces[2 + host];
            let site = ["x", "y"][host % 2];
            format!(
                "[[host]]\nname = \"h{host}\"\naddress = \"10.77.0.{}\"\ngroup = \"{site}\"\n\
                 command = [\"ip\", \"netns\", \"exec\", \"{namespace}\", \"{agent}\", \"agent\", \"--stdio\"]\n",
                host + 1
            )
        };
        let hosts: String = (0..self.hosts).map(host).collect();
        format!("{head}\n{hosts}[[resource]]\nname = \"uplink\"\ngroup = \"x\"\n")
    }

    fn measure(&self, head: &str, flags: &[&str]) -> Run {
        let place = tempfile::tempdir().unwrap();
        let [file, json] =
            ["hosts.toml", "mesh.json"].map(|name| place.path().join(name).display().to_string());
        std::fs::write(&file, self.file(head)).unwrap();
        let mut mesh = command(&[&["mesh", &file, "--json", &json, "--quiet"], flags].concat());
        let ended = run_within(std::time::Duration::from_secs(300), &mut mesh);
        assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
        Run::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap()
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Rates of the pairs between the sites, as shares of what the uplink can carry.
fn uplink_shares(run: &Run) -> Vec<f64> {
    let mesh: &MeshResult = run.mesh.as_ref().unwrap();
    let between = mesh.pairs.iter().filter(|pair| pair.from % 2 != pair.to % 2);
    let share = |case: u32| {
        let rate = run.cases[case as usize - 1].figures.delivery.throughput_bps.unwrap();
        rate / (1e6 * UPLINK_MBIT * PAYLOAD_SHARE)
    };
    between.map(|pair| share(pair.throughput_case.unwrap())).collect()
}

const SHORT: &str = "test.latency.time = \"1s\"\ntest.throughput.time = \"2s\"";

#[test]
fn an_uplink_carries_one_test_at_a_time_and_two_with_overlap() {
    let sites = Sites::new("a", 4);
    let exclusive = sites.measure(SHORT, &[]);
    let shares = uplink_shares(&exclusive);
    assert_eq!(shares.len(), 8);
    assert!(shares.iter().all(|share| *share < 1.02), "{shares:?}");
    let mesh = exclusive.mesh.as_ref().unwrap();
    assert_eq!(served(mesh), (12, 0, 0));
    assert!(mesh.pairs.iter().all(|pair| !pair.is_under_load()));
    assert!(mesh.latency_blame.is_empty(), "{:?}", mesh.latency_blame);
    let overlapping = sites.measure(SHORT, &["--overlap"]);
    let (tests, shared, unlogged) = served(overlapping.mesh.as_ref().unwrap());
    assert!(shared >= 1, "{shared} overlaps");
    assert_eq!((tests, unlogged), (12, 0));
    let shares = uplink_shares(&overlapping);
    assert!(shares.iter().all(|share| *share < 1.02), "{shares:?}");
}

/// Throughput tests in the logs of the servers, those that overlapped, and those in no log.
fn served(mesh: &MeshResult) -> (u32, u32, u32) {
    let served = mesh.served.as_ref().unwrap();
    (served.throughput_tests, served.overlapping, served.unlogged)
}

#[test]
fn twelve_hosts_are_measured_near_the_least_time() {
    let sites = Sites::new("b", 12);
    let head = "test.latency.time = \"4s\"\ntest.throughput.time = \"4s\"\ntest.throughput.bit_rate = \"2M\"";
    let file = sites.file(head);
    // Every host with every other, without the uplink: rates far below it.
    let (hosts, _) = file.split_once("[[resource]]").unwrap();
    let place = tempfile::tempdir().unwrap();
    let [list, json] = ["hosts.toml", "mesh.json"].map(|name| place.path().join(name).display().to_string());
    std::fs::write(&list, hosts).unwrap();
    let mut mesh = command(&["mesh", &list, "--json", &json, "--quiet"]);
    let waits = cpu_waits();
    let ended = run_within(std::time::Duration::from_secs(300), &mut mesh);
    let waited = cpu_waits() - waits;
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let run = Run::from_json(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let mesh = run.mesh.as_ref().unwrap();
    assert_eq!((mesh.pairs.len(), run.cases.len(), mesh.lower_bound_ns), (132, 264, 92_000_000_000));
    assert_eq!(served(mesh), (132, 0, 0));
    let most = mesh.lower_bound_ns as f64 * 1.15 + waited.as_nanos() as f64;
    assert!(mesh.tests_elapsed_ns as f64 <= most, "{} ns", mesh.tests_elapsed_ns);
}
