//! A mesh over a real sshd: agents that ssh starts, and each way in which ssh can fail.
//!
//! The server is Debian's, with a configuration, a port and keys of its own; the account is that of the test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use linkgauge::run::Run;

use crate::client::free_port;
use crate::program::{Ended, Running, command, run_within, wait_until};

/// A server of ssh, and a client that finds it under the names of its configuration.
struct Ssh {
    place: tempfile::TempDir,
    _server: Running,
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}: ./check --all installs openssh-server"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Ssh {
    fn start() -> Ssh {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        for name in ["host_key", "key", "other_key", "limited_key"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]);
        }
        let public = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        let limited = "restrict,command=\"linkgauge agent --stdio --max-rate 4M\"";
        let authorized = format!("{}{limited} {}", public("key.pub"), public("limited_key.pub"));
        std::fs::write(path("authorized_keys"), authorized).unwrap();
        let port = free_port();
        let programs = Path::new(env!("CARGO_BIN_EXE_linkgauge")).parent().unwrap().display();
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nSetEnv PATH={programs}:/usr/bin:/bin LINKGAUGE_STORE=\n",
            path("host_key"),
            path("authorized_keys")
        );
        std::fs::write(path("sshd_config"), server).unwrap();
        let host = |name: &str, port: u16, key: &str| {
            format!("Host {name}\n HostName 127.0.0.1\n Port {port}\n IdentityFile {}\n", path(key))
        };
        let client = format!(
            "{}{}{}{}Host *\n User {}\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n \
             LogLevel ERROR\n",
            host("near", port, "key"),
            host("limited", port, "limited_key"),
            host("locked", port, "other_key"),
            host("closed", free_port(), "key"),
            run("id", &["-un"])
        );
        std::fs::write(path("ssh_config"), client).unwrap();
        // The client reads the configuration of the account; this one is of the test.
        let wrapper = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", path("ssh_config"));
        std::fs::write(path("ssh"), wrapper).unwrap();
        std::fs::set_permissions(path("ssh"), Permissions::from_mode(0o755)).unwrap();
        // As root, the server insists on it.
        let _ = std::fs::create_dir_all("/run/sshd");
        let mut server = Command::new("/usr/sbin/sshd");
        server.args(["-D", "-e", "-f", &path("sshd_config")]).stdin(Stdio::null()).stdout(Stdio::null());
        server.stderr(std::fs::File::create(path("log")).unwrap());
        let server = Running(server.spawn().expect("./check --all installs openssh-server"));
        let ssh = Ssh { place, _server: server };
        wait_until("the ssh server", || {
            ssh.client(&["near", "true"]).status().unwrap().success().then_some(())
        });
        ssh
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut ssh = Command::new(self.path("ssh"));
        ssh.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ssh
    }

    /// The command that measures a mesh of a local host and this one.
    fn mesh(&self, head: &str, host: &str) -> Command {
        let list = format!(
            "{head}\n[[host]]\nname = \"here\"\naddress = \"127.0.0.1\"\nlocal = true\n\
             [[host]]\nname = \"there\"\naddress = \"127.0.0.1\"\n{host}\n"
        );
        let file = self.path("hosts.toml");
        std::fs::write(&file, list).unwrap();
        let json = self.path("mesh.json");
        let mut mesh = command(&["mesh", file.to_str().unwrap(), "--json", json.to_str().unwrap()]);
        let path = std::env::var("PATH").unwrap_or_default();
        mesh.env("PATH", format!("{}:{path}", self.place.path().display()));
        mesh
    }

    fn measure(&self, host: &str) -> (Ended, Run) {
        let ended = run_within(Duration::from_secs(120), &mut self.mesh(SHORT, host));
        (ended, self.document())
    }

    fn document(&self) -> Run {
        Run::from_json(&std::fs::read_to_string(self.path("mesh.json")).unwrap()).unwrap()
    }

    /// Why the host over ssh was lost.
    fn why_lost(&self, host: &str) -> String {
        let (ended, run) = self.measure(host);
        assert_eq!(ended.status, Some(2), "{}{}", ended.stdout, ended.stderr);
        lost(&run)
    }
}

fn lost(run: &Run) -> String {
    let mesh = run.mesh.as_ref().unwrap();
    assert_eq!(mesh.hosts[0].lost, None);
    mesh.hosts[1].lost.clone().expect("the host was lost")
}

const SHORT: &str =
    "test.latency.time = \"300ms\"\ntest.throughput.time = \"300ms\"\ntest.throughput.bit_rate = \"20M\"";

#[test]
fn an_agent_is_started_over_ssh_and_ends_with_the_mesh() {
    let ssh = Ssh::start();
    let (ended, run) = ssh.measure("ssh = \"near\"");
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(run.is_complete() && run.cases.len() == 4);
    assert_eq!(run.mesh.unwrap().served.unwrap().overlapping, 0);
}

#[test]
fn a_login_that_prints_lines_does_no_harm_and_one_that_prints_without_end_is_reported() {
    let ssh = Ssh::start();
    let through = |words: &str| format!("command = [\"ssh\", \"near\", \"{words} linkgauge agent --stdio\"]");
    let (ended, run) = ssh.measure(&through("echo 'Welcome to there.'; echo;"));
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(run.is_complete());
    let why = ssh.why_lost(&through("yes Welcome | head -n 500;"));
    assert_eq!(
        why,
        "it printed more than 100 lines before its agent started: make its login silent for commands without a terminal"
    );
}

#[test]
fn a_forced_command_limits_what_a_key_can_measure() {
    let ssh = Ssh::start();
    let (ended, run) = ssh.measure("ssh = \"limited\"");
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let rates: Vec<f64> = run.cases.iter().filter_map(|case| case.figures.delivery.throughput_bps).collect();
    assert_eq!(rates.len(), 2);
    assert!(rates.iter().all(|rate| *rate < 6e6), "{rates:?}");
}

#[test]
fn each_failure_of_ssh_is_one_line() {
    let ssh = Ssh::start();
    let user = run("id", &["-un"]);
    let why = ssh.why_lost("ssh = \"locked\"");
    assert_eq!(why, format!("its agent ended: {user}@127.0.0.1: Permission denied (publickey)."));
    let why = ssh.why_lost("ssh = \"closed\"");
    assert!(why.starts_with("its agent ended: ssh: connect to host 127.0.0.1 port "), "{why}");
    assert!(why.ends_with(": Connection refused") && !why.contains('\n'), "{why}");
    let why = ssh.why_lost("command = [\"ssh\", \"near\", \"linkgauges\", \"agent\", \"--stdio\"]");
    assert!(why.contains("linkgauges") && why.contains("not found"), "{why}");
}

/// The time of CPUs that the children of a process have taken.
fn cpu_time_of_children(pid: &str) -> Duration {
    let of_threads = |pid: &str, file: &str| -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join(file)).ok()).collect()
    };
    let children = of_threads(pid, "children").join(" ");
    let taken = children.split_whitespace().flat_map(|child| of_threads(child, "schedstat"));
    taken.filter_map(|text| text.split(' ').next()?.parse().ok().map(Duration::from_nanos)).sum()
}

#[test]
fn an_ssh_that_vanishes_costs_the_pairs_of_its_host() {
    let ssh = Ssh::start();
    let long =
        "test.latency.time = \"100ms\"\ntest.throughput.time = \"60s\"\ntest.throughput.bit_rate = \"5G\"";
    let pids = ssh.path("pids");
    // The process that is killed is that of the ssh client.
    let host = format!(
        "command = [\"sh\", \"-c\", \"echo $$ > {}; exec ssh -T near linkgauge agent --stdio\"]",
        pids.display()
    );
    let mut mesh =
        Running(ssh.mesh(long, &host).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let pid: i32 = wait_until("the ssh client", || std::fs::read_to_string(&pids).ok()?.trim().parse().ok());
    // The round trips are short and cost little; only the rates take as much time of a CPU.
    wait_until("the rates", || {
        (cpu_time_of_children(&mesh.0.id().to_string()) > Duration::from_secs(1)).then_some(())
    });
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(mesh.wait().code(), Some(2));
    let run = ssh.document();
    assert!(lost(&run).starts_with("its agent ended"), "{}", lost(&run));
    assert!(run.mesh.as_ref().unwrap().pairs.iter().all(|pair| pair.latency_case.is_some()));
}
