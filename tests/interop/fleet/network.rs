//! A network of namespaces whose links can be cut: one for the hub, with a bridge, and one for each host.

use std::fs::File;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the hub listens.
pub const HUB_ADDRESS: &str = "10.79.0.254";

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

pub struct Network {
    hub: String,
    hosts: Vec<String>,
}

impl Network {
    pub fn new(hosts: usize) -> Network {
        let prefix = format!("lgf{}", std::process::id());
        let hub = format!("{prefix}hub");
        let mut network = Network { hub: hub.clone(), hosts: Vec::new() };
        ip(&format!("netns add {hub}"));
        for command in
            ["set lo up".to_owned(), "add bridge0 type bridge".to_owned(), "set bridge0 up".to_owned()]
        {
            ip(&format!("-n {hub} link {command}"));
        }
        ip(&format!("-n {hub} address add {HUB_ADDRESS}/24 dev bridge0"));
        for host in 0..hosts {
            let name = format!("{prefix}h{host}");
            ip(&format!("netns add {name}"));
            network.hosts.push(name.clone());
            ip(&format!("link add eth0 netns {name} type veth peer name p{host} netns {hub}"));
            ip(&format!("-n {name} address add {}/24 dev eth0", Network::address(host)));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {hub} link set p{host} master bridge0"));
            ip(&format!("-n {hub} link set p{host} up"));
        }
        network
    }

    /// The address of a host.
    pub fn address(host: usize) -> String {
        format!("10.79.0.{}", host + 1)
    }

    /// Begins the command of a program on a host.
    pub fn on_host(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hosts[host]]);
        command
    }

    /// Runs a test where the hub is, in a thread of its own, and what it starts.
    pub fn at_hub<T: Send>(&self, test: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/var/run/netns/{}", self.hub)).unwrap();
        let moved = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            test()
        };
        std::thread::scope(|scope| scope.spawn(moved).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// `down` cuts a host from the hub and from all other hosts; packets vanish, connections stay open. `up` ends that.
    pub fn set_link(&self, host: usize, state: &str) {
        ip(&format!("-n {} link set p{host} {state}", self.hub));
    }

    /// `on`: hosts reach the hub and not each other.
    pub fn set_isolated(&self, state: &str) {
        for host in 0..self.hosts.len() {
            ip(&format!("-n {} link set p{host} type bridge_slave isolated {state}", self.hub));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.hub]) {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}
