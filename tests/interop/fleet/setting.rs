//! A hub with its files, keys and agents, in a folder of its own.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use linkgauge::clock::wall_clock_date;
use linkgauge::fleet::{FleetFile, FleetOrder, Hub, HubOptions, InitialConnect, SecretKey};
use linkgauge::mesh::TestKind;
use linkgauge::run::Run;
use linkgauge::store::{Filter, Store};
use rustix::process::Signal;

use super::network::{HUB_ADDRESS, Network};
use crate::client::free_port;
use crate::program::{Ended, Running, command, run_within, wait_until};

/// Longer than a round of this size takes on a busy machine.
const LONG: Duration = Duration::from_secs(180);

pub fn now_ms() -> u64 {
    wall_clock_date().as_millisecond() as u64
}

const TESTS: &str =
    "[test.latency]\ntime = \"300ms\"\nrate = \"50/s\"\n[test.throughput]\ntime = \"300ms\"\n";

const CERTIFICATE: &str = "[req]\ndistinguished_name = name\nx509_extensions = more\nprompt = no\n[name]\nCN = localhost\n\
                           [more]\nsubjectAltName = IP:127.0.0.1, IP:10.79.0.254\nbasicConstraints = CA:FALSE\n";

/// A certificate of this machine (`hub.pem`) with its key.
pub fn make_certificate(path: impl Fn(&str) -> String) {
    let [settings, key, certificate] = ["openssl.cnf", "hub.key", "hub.pem"].map(path);
    std::fs::write(&settings, CERTIFICATE).unwrap();
    let mut make = Command::new("openssl");
    make.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]);
    make.args(["-config", &settings, "-keyout", &key, "-out", &certificate]);
    let made = run_within(LONG, &mut make);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
}

/// An agent as a process.
pub struct Agent {
    pub process: Running,
    pub host: usize,
}

/// A hub that runs, and what belongs to it.
pub struct Setting<'a> {
    place: tempfile::TempDir,
    port: u16,
    pub hosts: Vec<String>,
    hub: std::cell::RefCell<Option<Running>>,
    /// `None`: everything is on the loopback device.
    network: Option<&'a Network>,
}

/// What `./check --all` has installed, else what is in the path.
fn nats_server() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-bin/nats-server");
    if installed.exists() { installed } else { PathBuf::from("nats-server") }
}

impl<'a> Setting<'a> {
    /// Hosts `h0`, `h1`, …, on this machine. `limits` is more for the file of their limits.
    pub fn new(hosts: usize, limits: &str) -> Setting<'a> {
        Setting::start(hosts, limits, None)
    }

    /// The same, each in its namespace. The caller is in that of the hub.
    pub fn in_network(network: &'a Network, hosts: usize) -> Setting<'a> {
        Setting::start(hosts, "", Some(network))
    }

    fn start(hosts: usize, limits: &str, network: Option<&'a Network>) -> Setting<'a> {
        let hosts: Vec<String> = (0..hosts).map(|host| format!("h{host}")).collect();
        let place = tempfile::tempdir().unwrap();
        let setting = Setting { place, port: free_port(), hosts, hub: Default::default(), network };
        make_certificate(|name| setting.path(name));
        let keys: Vec<String> = setting.hosts.iter().map(|host| setting.make_key(host)).collect();
        let operator = setting.make_key("operator");
        setting.secret("fleet.key", "a secret of the agents\n");
        let (range, listen) = network.map_or(("127.0.0.0/8", "127.0.0.1"), |_| ("10.79.0.0/24", "0.0.0.0"));
        let policy = format!("allow = [\"{range}\"]\nlisten = \"{listen}\"\nfleet_key = \"fleet.key\"\n");
        setting.write("limits.toml", &format!("operator = \"{operator}\"\n{policy}{limits}"));
        let address = |host: usize| network.map_or("127.0.0.1".to_owned(), |_| Network::address(host));
        let entries =
            setting.hosts.iter().enumerate().map(|(host, name)| {
                format!("[[host]]\nname = \"{name}\"\naddress = \"{}\"\n", address(host))
            });
        let entries: String = entries.collect();
        let pairs = setting.hosts.iter().zip(&keys);
        let keys: String = pairs.map(|(host, key)| format!("{host} = \"{key}\"\n")).collect();
        let (hub, ca) = (setting.url(), setting.path("hub.pem"));
        setting.write(
            "fleet.toml",
            &format!("{TESTS}[fleet]\nhub = \"{hub}\"\nca = \"{ca}\"\n[fleet.keys]\n{keys}{entries}"),
        );
        let account = setting.fleet(&["apply", "--account"], &[]);
        assert_eq!(account.status, Some(0), "{}", account.stderr);
        let (port, store) = (setting.port, setting.path("jetstream"));
        let tls = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", timeout: 30 }}\nauthorization {{ timeout: 30 }}\n",
            ca,
            setting.path("hub.key")
        );
        let listen = setting.hub_address();
        let server = format!("listen: \"{listen}:{port}\"\njetstream {{ store_dir: \"{store}\" }}\n{tls}");
        setting.write("nats.conf", &(server + &account.stdout));
        setting.start_hub();
        let applied = setting.fleet(&["apply"], &[]);
        assert_eq!(applied.status, Some(0), "{}", applied.stderr);
        setting
    }

    pub fn path(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn url(&self) -> String {
        format!("tls://{}:{}", self.hub_address(), self.port)
    }

    fn hub_address(&self) -> &'static str {
        self.network.map_or("127.0.0.1", |_| HUB_ADDRESS)
    }

    /// A file that only its owner can read.
    pub fn secret(&self, name: &str, text: &str) -> String {
        self.write(name, text);
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o600)).unwrap();
        self.path(name)
    }

    fn make_key(&self, name: &str) -> String {
        let made = run_within(LONG, &mut command(&["fleet", "key", &self.path(&format!("{name}.seed"))]));
        assert_eq!(made.status, Some(0), "{}", made.stderr);
        made.stdout.trim().to_owned()
    }

    pub fn start_hub(&self) {
        let mut server = Command::new(nats_server());
        server.args(["-c", &self.path("nats.conf"), "-l", &self.path("nats.log")]).stdin(Stdio::null());
        let started = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let started = started.expect("nats-server is needed for this test: see tests/packages.txt");
        *self.hub.borrow_mut() = Some(Running(started));
        wait_until("the hub", || self.try_connect("operator").ok().map(drop));
    }

    /// As SIGKILL ends it.
    pub fn kill_hub(&self) {
        drop(self.hub.borrow_mut().take());
    }

    /// Stops the hub for a while, without closing its connections.
    pub fn freeze_hub(&self, time: Duration) {
        let hub = self.hub.borrow();
        let hub = hub.as_ref().unwrap();
        hub.signal(Signal::STOP);
        std::thread::sleep(time);
        hub.signal(Signal::CONT);
    }

    pub fn seed(&self, name: &str) -> SecretKey {
        SecretKey::read(&std::fs::read_to_string(self.path(&format!("{name}.seed"))).unwrap()).unwrap()
    }

    pub fn try_connect(&self, name: &str) -> Result<Hub, linkgauge::fleet::HubError> {
        self.connect_with(name, self.seed(name))
    }

    pub fn connect_with(&self, name: &str, seed: SecretKey) -> Result<Hub, linkgauge::fleet::HubError> {
        let initial = InitialConnect::Required;
        let ca = Some(self.path("hub.pem").into());
        Hub::connect(&HubOptions { url: self.url(), seed, ca, name: name.to_owned(), initial })
    }

    pub fn operator(&self) -> Hub {
        self.try_connect("operator").unwrap()
    }

    /// `linkgauge fleet` with this file, and the key of the operator where it is needed.
    pub fn fleet(&self, words: &[&str], flags: &[&str]) -> Ended {
        run_within(LONG, &mut self.fleet_command(words, flags))
    }

    pub fn fleet_command(&self, words: &[&str], flags: &[&str]) -> Command {
        let (file, seed) = (self.path("fleet.toml"), self.path("operator.seed"));
        let with_seed = if words[0] == "report" { vec![] } else { vec!["--seed", seed.as_str()] };
        command(&[&["fleet"], &words[..1], &[file.as_str()], &words[1..], &with_seed, flags].concat())
    }

    pub fn start_agent(&self, host: usize) -> Agent {
        let name = self.hosts[host].as_str();
        let [seed, limits] = [format!("{name}.seed"), "limits.toml".to_owned()].map(|file| self.path(&file));
        let outbox = self.path(&format!("{name}.sqlite"));
        let program = command(&["agent", "--hub", &self.url(), "--name", name, "--seed", &seed]);
        let mut agent = match self.network {
            None => program,
            Some(network) => {
                let mut agent = network.on_host(host);
                agent.arg(program.get_program()).args(program.get_args()).env("LINKGAUGE_STORE", "");
                agent
            }
        };
        agent
            .args(["--limits", &limits, "--outbox", &outbox, "--ca", &self.path("hub.pem")])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{name}.log")));
        let process = Running(agent.stderr(log.unwrap()).spawn().unwrap());
        Agent { process, host }
    }

    pub fn start_agents(&self) -> Vec<Agent> {
        (0..self.hosts.len()).map(|host| self.start_agent(host)).collect()
    }

    /// What an agent has printed.
    pub fn log(&self, host: usize) -> String {
        std::fs::read_to_string(self.path(&format!("h{host}.log"))).unwrap_or_default()
    }

    pub fn await_agents(&self) {
        wait_until("all agents", || {
            let status = self.fleet(&["status"], &[]);
            (status.status == Some(0) && !status.stdout.contains("without a valid list")).then_some(())
        });
    }

    /// An order for the first host to measure the second one, now.
    pub fn order(&self, id: &str, test: TestKind) -> FleetOrder {
        let text = std::fs::read_to_string(self.path("fleet.toml")).unwrap();
        FleetOrder {
            id: id.to_owned(),
            list: FleetFile::from_toml(&text).unwrap().list_id(),
            from: "h0".to_owned(),
            to: "h1".to_owned(),
            test,
            not_before_ms: now_ms() - 1000,
            not_after_ms: now_ms() + 60_000,
        }
    }

    pub fn store(&self) -> String {
        self.path("collected.sqlite")
    }

    /// Collects until this number of results is saved.
    pub fn collect_all(&self, expected: usize) {
        let began = std::time::Instant::now();
        loop {
            let collected = self.fleet(&["collect", "--once"], &["--store", &self.store()]);
            assert_eq!(collected.status, Some(0), "{}", collected.stderr);
            let count = self.saved().len();
            if count >= expected {
                return;
            }
            let logs: String = (0..self.hosts.len()).map(|host| self.log(host)).collect();
            assert!(began.elapsed() < LONG, "{count} of {expected} results\n{}\n{logs}", collected.stderr);
        }
    }

    /// The collected runs.
    pub fn saved(&self) -> Vec<Run> {
        let store = Store::open(Path::new(&self.store())).unwrap();
        store.ids(&Filter::default()).unwrap().iter().map(|id| store.load(id).unwrap()).collect()
    }

    /// How often each test of each pair was collected.
    pub fn saved_tests(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for run in self.saved() {
            *counts.entry((run.cases[0].endpoint.clone(), run.cases[0].workload.clone())).or_default() += 1;
        }
        counts
    }

    /// Pairs of throughput tests that ran at the same time on a common host.
    pub fn overlapping_rates(&self) -> usize {
        let rates: Vec<Run> =
            self.saved().into_iter().filter(|run| run.cases[0].workload == "throughput").collect();
        let interval = |run: &Run| {
            let began = run.started.as_nanosecond();
            (began, began + i128::from(run.elapsed_ns))
        };
        let hosts =
            |run: &Run| -> Vec<String> { run.cases[0].endpoint.split(" → ").map(str::to_owned).collect() };
        let collide = |a: &Run, b: &Run| {
            let ((a_began, a_ended), (b_began, b_ended)) = (interval(a), interval(b));
            a_began < b_ended && b_began < a_ended && hosts(a).iter().any(|host| hosts(b).contains(host))
        };
        rates
            .iter()
            .enumerate()
            .map(|(index, a)| rates[..index].iter().filter(|b| collide(a, b)).count())
            .sum()
    }

    pub fn results_on_hub(&self) -> u64 {
        let info = self.operator().api("STREAM.INFO.RESULTS", &serde_json::Value::Null).unwrap();
        info["state"]["messages"].as_u64().unwrap()
    }

    pub fn report(&self) -> Ended {
        self.fleet(&["report"], &["--store", &self.store(), "--json", &self.path("mesh.json"), "--all"])
    }

    pub fn reported_run(&self) -> Run {
        Run::from_json(&std::fs::read_to_string(self.path("mesh.json")).unwrap()).unwrap()
    }
}

/// Memory that a process has for itself. The pages of the program do not count: a debug build has several times those of a release.
pub fn own_memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}
