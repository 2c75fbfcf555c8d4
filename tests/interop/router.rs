//! `lab router`: ping and tc judge the chain that it builds, as root or in a user namespace.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::program::{Running, run, run_within, wait_until};

/// A running chain and the words that lead to its nodes.
pub struct Lab {
    process: Running,
    pub server: Vec<String>,
    pub client: Vec<String>,
}

impl Lab {
    pub fn start(arguments: &[&str]) -> Lab {
        let mut process = Running::start(&[&["lab", "router"], arguments].concat());
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let lines = lines_until(output, "on the client: ");
        let words = |start: &str| -> Vec<String> {
            let line = lines.iter().find_map(|line| line.strip_prefix(start));
            let line = line.unwrap_or_else(|| panic!("no '{start}' in {lines:?}"));
            line.split(" linkgauge ").next().unwrap().split(' ').map(str::to_owned).collect()
        };
        Lab { server: words("on the server: "), client: words("on the client: "), process }
    }

    /// The output of a command on a node.
    pub fn on(node: &[String], command: &str) -> String {
        let mut entered = Command::new(&node[0]);
        entered.args(&node[1..]).args(["sh", "-c", &format!("PATH=$PATH:/usr/sbin:/sbin; {command}")]);
        run_within(std::time::Duration::from_secs(60), &mut entered).stdout
    }

    /// The namespaces of both ends, as files that vanish with them.
    fn namespaces(&self) -> [PathBuf; 2] {
        [&self.client, &self.server].map(|words| PathBuf::from(format!("/proc/{}/ns/net", words[2])))
    }
}

/// Lines up to the one that starts like this: the process goes on.
fn lines_until(output: impl BufRead, start: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in output.lines().map(Result::unwrap) {
        lines.push(line);
        if lines.last().is_some_and(|line| line.starts_with(start)) {
            break;
        }
    }
    lines
}

#[test]
fn ping_finds_each_router_and_the_server() {
    let lab = Lab::start(&["--routers", "2", "--silent", "2", "--mtu", "2:1400"]);
    let ping = |options: &str| Lab::on(&lab.client, &format!("ping -n -c 1 -W 2 {options}"));
    let first = ping("-t 1 10.77.3.2");
    assert!(first.contains("From 10.77.1.2 icmp_seq=1 Time to live exceeded"), "{first}");
    let first = ping("-t 1 fd77:3::2");
    assert!(first.contains("From fd77:1::2 icmp_seq=1 Time exceeded: Hop limit"), "{first}");
    for silent in ["-t 2 10.77.3.2", "-t 2 fd77:3::2"] {
        let silent = ping(silent);
        assert!(!silent.contains("From ") && silent.contains("0 received"), "{silent}");
    }
    for reached in ["-t 3 10.77.3.2", "-t 3 fd77:3::2", "-M do -s 1372 10.77.3.2"] {
        let reached = ping(reached);
        assert!(reached.contains("1 received"), "{reached}");
    }
    let too_big = ping("-M do -s 1373 10.77.3.2");
    assert!(too_big.contains("From 10.77.1.2 icmp_seq=1 Frag needed and DF set (mtu = 1400)"), "{too_big}");
}

#[test]
fn rates_and_queues_are_those_of_the_kernel() {
    let lab =
        Lab::start(&["-n", "1", "--rate", "1:8Mbit/s", "--queue", "1:64000", "--rate-down", "2:2Mbit/s"]);
    let up = Lab::on(&lab.client, "tc qdisc show dev to-server");
    assert!(up.contains("rate 8Mbit burst 4000b"), "{up}");
    let down = Lab::on(&lab.server, "tc qdisc show dev to-client");
    assert!(down.contains("rate 2Mbit burst 1600b"), "{down}");
    assert!(!Lab::on(&lab.server, "tc qdisc show").contains("rate 8Mbit"), "the client's link");
}

#[test]
fn everything_vanishes_with_the_command() {
    for signal in [Signal::INT, Signal::KILL] {
        let mut lab = Lab::start(&["--routers", "1"]);
        let namespaces = lab.namespaces();
        assert!(namespaces.iter().all(|path| path.symlink_metadata().is_ok()), "{namespaces:?}");
        lab.process.signal(signal);
        lab.process.wait();
        for namespace in namespaces {
            wait_until("the end of a namespace", || std::fs::read_link(&namespace).is_err().then_some(()));
        }
    }
}

#[test]
fn impossible_chains_are_one_line() {
    for (arguments, complaint) in [
        (&["--routers", "31"][..], "31 routers: choose 1 to 30"),
        (&["--rate", "9:1Mbit/s"], "link 9: choose 1 to 4"),
        (&["--silent", "4"], "router 4: choose 1 to 3"),
        (&["--queue", "1:64Ki"], "link 1: a queue needs a rate"),
        (&["--mtu", "1:100"], "link 1: MTU 100: choose 1280 to 65535"),
        (&["--rate", "1Mbit/s"], "write a number and a value, like 2:10Mbit/s"),
    ] {
        let ended = run(&[&["lab", "router"], arguments].concat());
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(complaint), "{}", ended.stderr);
    }
}
