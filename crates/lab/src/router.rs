//! A chain of routers between a client and a server, as network namespaces of this host with the kernel's TCP at both ends.
//!
//! Each namespace belongs to a process that waits for the end of its input, which is a pipe of ours. When this process ends,
//! however it ends, the pipes close, those processes end, and the kernel removes the namespaces with their devices.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use linkgauge_model::units::{format_bit_rate, format_bytes};

use super::LabError;

/// Routers of the longest chain: addresses hold the number of a link, and no path of the Internet is longer.
pub const MAX_ROUTERS: usize = 30;

/// The smallest MTU with IPv6, and the largest of a virtual Ethernet device.
const MTU_BYTES: std::ops::RangeInclusive<u64> = 1280..=65_535;

/// Interval of ICMP errors of a router that sends none: days.
const SILENT_INTERVAL: Duration = Duration::from_secs(300_000);

/// Default size of a queue, as time at the rate of the link.
const DEFAULT_QUEUE_SECONDS: f64 = 0.1;

/// One link of the chain. The default is a link without limits.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkLimits {
    /// Bit/s towards the server, with headers; `None` without a limit.
    pub up: Option<f64>,
    /// Bit/s towards the client.
    pub down: Option<f64>,
    /// Size of the queue in front of a limited direction; `None` for 100 ms.
    pub queue_bytes: Option<u64>,
    /// Largest packet.
    pub mtu_bytes: u64,
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits { up: None, down: None, queue_bytes: None, mtu_bytes: 1500 }
    }
}

/// Replies of a router to packets whose TTL has run out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replies {
    /// Replies of the kernel by default.
    #[default]
    Default,
    /// One error for each interval to each client, after a burst of 6.
    Every(Duration),
    /// No replies, but packets that are too big are still reported.
    Silent,
}

/// The chain: link `k` leads from node `k - 1` to node `k`; node 0 is the client, the last one the server.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// One for each router, in order.
    pub routers: Vec<Replies>,
    /// One more than routers.
    pub links: Vec<LinkLimits>,
}

impl Chain {
    /// A chain of this number of routers, without limits.
    ///
    /// # Errors
    ///
    /// Fails if the number is 0 or above [`MAX_ROUTERS`].
    pub fn of(routers: usize) -> Result<Chain, LabError> {
        if !(1..=MAX_ROUTERS).contains(&routers) {
            return Err(LabError::Invalid(format!("{routers} routers: choose 1 to {MAX_ROUTERS}")));
        }
        Ok(Chain {
            routers: vec![Replies::default(); routers],
            links: vec![LinkLimits::default(); routers + 1],
        })
    }

    /// The commands for node `node`; `next` is the process that holds the next namespace.
    fn script(&self, node: usize, next: Option<u32>) -> String {
        let mut script = "ip link set lo up\n".to_owned();
        if let Some(next) = next {
            let link = node + 1;
            let mtu = self.links[node].mtu_bytes;
            let _ = writeln!(
                script,
                "ip link add to-server mtu {mtu} type veth peer name to-client mtu {mtu} netns {next}"
            );
            script += &device("to-server", &format!("{link}"), 1, self.links[node].up, &self.links[node]);
        }
        if let Some(link) = node.checked_sub(1).map(|index| &self.links[index]) {
            script += &device("to-client", &format!("{node}"), 2, link.down, link);
            for earlier in 1..node {
                let _ = writeln!(script, "ip route add 10.77.{earlier}.0/24 via 10.77.{node}.1");
                let _ = writeln!(script, "ip route add fd77:{earlier}::/64 via fd77:{node}::1");
            }
        }
        if let Some(replies) = node.checked_sub(1).and_then(|index| self.routers.get(index)) {
            script +=
                "echo 1 >/proc/sys/net/ipv4/ip_forward\necho 1 >/proc/sys/net/ipv6/conf/all/forwarding\n";
            let interval = match replies {
                Replies::Default => None,
                Replies::Every(interval) => Some(*interval),
                Replies::Silent => Some(SILENT_INTERVAL),
            };
            if let Some(interval) = interval.map(|interval| interval.as_millis()) {
                let _ = writeln!(script, "echo {interval} >/proc/sys/net/ipv4/icmp_ratelimit");
                let _ = writeln!(script, "echo {interval} >/proc/sys/net/ipv6/icmp/ratelimit");
            }
        }
        script
    }

    /// The route to the server. It is set last: a device is up only when both of its ends are.
    fn route_script(&self, node: usize) -> String {
        let link = node + 1;
        format!("ip route add default via 10.77.{link}.2\nip route add default via fd77:{link}::2\n")
    }

    fn check(&self) -> Result<(), LabError> {
        for (index, link) in self.links.iter().enumerate() {
            if !MTU_BYTES.contains(&link.mtu_bytes) {
                let [low, high] = [MTU_BYTES.start(), MTU_BYTES.end()];
                let mtu = link.mtu_bytes;
                return Err(LabError::Invalid(format!(
                    "link {}: MTU {mtu}: choose {low} to {high}",
                    index + 1
                )));
            }
            if link.queue_bytes.is_some() && link.up.or(link.down).is_none() {
                return Err(LabError::Invalid(format!("link {}: a queue needs a rate", index + 1)));
            }
        }
        Ok(())
    }
}

/// Commands that give a device its addresses and its queue.
fn device(name: &str, link: &str, host: u8, rate: Option<f64>, limits: &LinkLimits) -> String {
    let mut script = format!(
        "ip address add 10.77.{link}.{host}/24 dev {name}\nip address add fd77:{link}::{host}/64 dev {name} nodad\n\
         ip link set {name} up\n"
    );
    if let Some(rate) = rate {
        // The kernel refills the bucket at its ticks, and a packet must fit in.
        let burst = (rate / 8.0 / 250.0).max(limits.mtu_bytes as f64 + 100.0);
        let default = (rate / 8.0 * DEFAULT_QUEUE_SECONDS).max(2.0 * burst) as u64;
        let queue = limits.queue_bytes.unwrap_or(default);
        let _ = writeln!(
            script,
            "tc qdisc add dev {name} root tbf rate {rate:.0}bit burst {burst:.0} limit {queue}"
        );
    }
    script
}

/// A running chain. Dropping it removes everything.
#[derive(Debug)]
pub struct Routers {
    chain: Chain,
    nodes: Vec<NamespaceHolder>,
    /// Arguments of `nsenter` that lead into the namespaces.
    entrance: &'static [&'static str],
}

/// The process that holds a namespace until its input ends.
#[derive(Debug)]
struct NamespaceHolder {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

impl Routers {
    /// Starts a chain: as root, or in a user namespace.
    ///
    /// # Errors
    ///
    /// Fails if the chain is impossible, a program is missing, or the system permits no namespaces.
    pub fn start(chain: Chain) -> Result<Routers, LabError> {
        chain.check()?;
        let (first, entrance): (NamespaceHolder, &[&str]) = match hold(&["unshare", "--net"]) {
            Ok(node) => (node, &["--net"]),
            Err(_) => (
                hold(&["unshare", "--user", "--map-root-user", "--net"]).map_err(|error| {
                    LabError::Program(format!(
                        "network namespaces are not permitted: {error}: run as root, or permit user namespaces (sysctl \
                         user.max_user_namespaces)"
                    ))
                })?,
                &["--net", "--user", "--preserve-credentials"],
            ),
        };
        let mut routers = Routers { chain, nodes: vec![first], entrance };
        for _ in &routers.chain.links {
            let mut words = vec!["unshare".to_owned(), "--net".to_owned()];
            if entrance.len() > 1 {
                // All are in the user namespace of the first one, or no device could lead from one to another.
                words.splice(
                    0..0,
                    format!("nsenter --target {} --user --preserve-credentials", routers.pid(0))
                        .split(' ')
                        .map(str::to_owned),
                );
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            routers.nodes.push(hold(&words)?);
        }
        let last = routers.nodes.len() - 1;
        for node in 0..=last {
            let next = (node < last).then(|| routers.pid(node + 1));
            routers.run(node, &routers.chain.script(node, next))?;
        }
        for node in 0..last {
            routers.run(node, &routers.chain.route_script(node))?;
        }
        Ok(routers)
    }

    fn pid(&self, node: usize) -> u32 {
        self.nodes[node].child.id()
    }

    /// The words that run a command on a node, followed by the command.
    #[must_use]
    pub fn enter(&self, node: usize) -> Vec<String> {
        let words = ["nsenter".to_owned(), "--target".to_owned(), self.pid(node).to_string()];
        words.into_iter().chain(self.entrance.iter().map(|&word| word.to_owned())).collect()
    }

    /// The number of the server's node; the client is node 0.
    #[must_use]
    pub fn server(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The chain as started.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Runs a script on a node.
    fn run(&self, node: usize, script: &str) -> Result<(), LabError> {
        let words = self.enter(node);
        // Where the system's programs are is not in the PATH of every user.
        let script = format!("PATH=$PATH:/usr/sbin:/sbin\n{script}");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-ec", &script]).stdin(Stdio::null());
        let output = linkgauge_system::in_own_group(&mut command)
            .output()
            .map_err(LabError::system("nsenter (apt-get install util-linux)"))?;
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(LabError::Program(format!("node {node}: {complaint}{}", remedy(&complaint))))
    }
}

/// Suggests a remedy.
fn remedy(complaint: &str) -> &'static str {
    const REMEDIES: [(&str, &str); 3] = [
        ("ip: not found", ": apt-get install iproute2"),
        ("tc: not found", ": apt-get install iproute2"),
        ("qdisc kind is unknown", ": this kernel has no tbf: try 'modprobe sch_tbf'"),
    ];
    REMEDIES.iter().find(|(words, _)| complaint.contains(words)).map_or("", |(_, remedy)| remedy)
}

/// Starts a process that holds a namespace, and waits until the namespace exists.
fn hold(words: &[&str]) -> Result<NamespaceHolder, LabError> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["sh", "-c", "echo; exec cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        linkgauge_system::in_own_group(&mut command).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                LabError::Program(format!("{} is not installed: apt-get install util-linux", words[0]))
            }
            _ => LabError::Program(format!("{}: {error}", words[0])),
        })?;
    let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let node = NamespaceHolder { child, input };
    let mut line = String::new();
    let is_ready = output
        .is_some_and(|output| BufReader::new(output).read_line(&mut line).is_ok_and(|length| length > 0));
    if is_ready {
        return Ok(node);
    }
    let mut complaint = String::new();
    if let Some(mut complaints) = complaints {
        let _ = complaints.read_to_string(&mut complaint);
    }
    Err(LabError::Program(complaint.trim().replace('\n', "; ")))
}

/// One line for each link, as `lab router` prints it.
#[must_use]
pub fn describe_link(limits: &LinkLimits) -> String {
    let rate = |rate: Option<f64>| rate.map_or("no limit".to_owned(), format_bit_rate);
    let mut text = match (limits.up, limits.down) {
        (None, None) => "no limit".to_owned(),
        (up, down) if up == down => rate(up),
        (up, down) => format!("up {}, down {}", rate(up), rate(down)),
    };
    if let Some(queue) = limits.queue_bytes {
        text += &format!(", queue {}", format_bytes(queue));
    }
    text + &format!(", MTU {}", limits.mtu_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_hold_the_limits_of_their_link() {
        let mut chain = Chain::of(2).unwrap();
        chain.links[1] = LinkLimits { up: Some(1e7), mtu_bytes: 1400, ..LinkLimits::default() };
        chain.routers[0] = Replies::Every(Duration::from_secs(2));
        let script = chain.script(1, Some(7));
        assert!(
            script
                .contains("ip link add to-server mtu 1400 type veth peer name to-client mtu 1400 netns 7\n"),
            "{script}"
        );
        assert!(
            script.contains("tc qdisc add dev to-server root tbf rate 10000000bit burst 5000 limit 125000\n"),
            "{script}"
        );
        assert!(script.contains("echo 2000 >/proc/sys/net/ipv4/icmp_ratelimit\n"), "{script}");
        assert!(!script.contains("dev to-client root"), "{script}");
        let server = chain.script(3, None);
        assert!(server.contains("ip route add 10.77.2.0/24 via 10.77.3.1\n"), "{server}");
        assert!(!server.contains("forward"), "{server}");
    }

    #[test]
    fn impossible_chains_are_refused() {
        assert_eq!(Chain::of(0).unwrap_err().to_string(), "0 routers: choose 1 to 30");
        let mut chain = Chain::of(1).unwrap();
        chain.links[1].mtu_bytes = 68;
        assert_eq!(
            Routers::start(chain.clone()).unwrap_err().to_string(),
            "link 2: MTU 68: choose 1280 to 65535"
        );
        chain.links[1] = LinkLimits { queue_bytes: Some(9000), ..LinkLimits::default() };
        assert_eq!(Routers::start(chain).unwrap_err().to_string(), "link 2: a queue needs a rate");
    }
}
