//! Two network namespaces, joined as two hosts by a cable: the first serves, the second is the client. Well-known ports are
//! free there. Needs root and `ip`.

use std::fs::File;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub const ADDRESSES: [&str; 2] = ["10.83.0.1", "10.83.0.2"];

/// Gone with the test.
pub struct TwoHosts {
    names: [String; 2],
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

impl TwoHosts {
    pub fn new() -> TwoHosts {
        let number = fastrand::u32(..);
        let hosts =
            TwoHosts { names: ["server", "client"].map(|name| format!("lg-two-{name}-{number:08x}")) };
        let [server, client] = &hosts.names;
        hosts.names.iter().for_each(|name| ip(&format!("netns add {name}")));
        ip(&format!("-n {server} link add eth0 type veth peer name eth0 netns {client}"));
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev eth0"));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set eth0 up"));
        }
        hosts
    }

    /// The program on a host, with its output in pipes.
    pub fn linkgauge(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], env!("CARGO_BIN_EXE_linkgauge")]).args(arguments);
        command.env("LINKGAUGE_STORE", "").env_remove("LINKGAUGE_TOKEN");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a part of a test on a host, in a thread of its own.
    pub fn on<T: Send>(&self, host: usize, part: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/var/run/netns/{}", self.names[host])).unwrap();
        let moved = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            part()
        };
        std::thread::scope(|scope| scope.spawn(moved).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}
