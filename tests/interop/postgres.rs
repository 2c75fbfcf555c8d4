//! PostgreSQL of Debian as a process of a test: made in a temporary folder, started, killed and started again.

use std::cell::RefCell;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getuid};

use crate::client::free_port;
use crate::program::{Ended, Running, run_within, wait_until};

/// Longer than a database takes to be made on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// The password of its user `postgres`.
pub const PASSWORD: &str = "a password of a test";

/// Where a small disk is mounted, for the server alone.
pub const SMALL: &str = "small";

/// A server with its files.
pub struct Postgres {
    place: tempfile::TempDir,
    port: u16,
    /// The command that starts the program of the server.
    prefix: Vec<String>,
    server: RefCell<Option<Running>>,
}

/// Debian keeps the programs of each version in a folder of its own.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists());
    found.max().unwrap_or_else(|| PathBuf::from(name))
}

/// The user and the group of `postgres`: the server refuses to run as root.
fn unprivileged() -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields = users.lines().find_map(|line| line.strip_prefix("postgres:")).map(|rest| rest.split(':'));
    let numbers: Vec<u32> = fields.into_iter().flatten().filter_map(|field| field.parse().ok()).collect();
    let numbers = numbers.first().copied().zip(numbers.get(1).copied());
    getuid().is_root().then(|| numbers.expect("a user postgres is needed: see tests/packages.txt"))
}

impl Postgres {
    pub fn start() -> Postgres {
        let postgres = Postgres::make();
        postgres.start_server();
        postgres
    }

    /// With a disk of 64 MB at [`SMALL`], which is gone when the server ends. Needs root.
    pub fn with_small_disk() -> Postgres {
        let mut postgres = Postgres::make();
        let (user, group) = unprivileged().expect("mounting a disk needs root");
        let small = postgres.path(SMALL);
        std::fs::create_dir(&small).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=64m,uid={user},gid={group},mode=700 none {small} && \
             exec setpriv --reuid {user} --regid {group} --clear-groups \"$@\""
        );
        postgres.prefix = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
        postgres.start_server();
        postgres
    }

    fn make() -> Postgres {
        let postgres = Postgres {
            place: tempfile::tempdir().unwrap(),
            port: free_port(),
            prefix: Vec::new(),
            server: RefCell::default(),
        };
        std::fs::write(postgres.path("password"), PASSWORD).unwrap();
        postgres.give("password");
        postgres.give("");
        let mut make = postgres.unprivileged_command(&program("initdb"));
        make.args([
            "--no-sync",
            "--encoding",
            "UTF8",
            "--locale",
            "C.UTF-8",
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
        ]);
        make.args(["--pwfile", &postgres.path("password"), "-D", &postgres.path("data")]);
        let made = run_within(LONG, &mut make);
        assert_eq!(made.status, Some(0), "{}{}", made.stdout, made.stderr);
        postgres
    }

    pub fn path(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    /// Gives a file to the user of the server.
    pub fn give(&self, name: &str) {
        let path = self.path(name);
        if let Some((user, group)) = unprivileged() {
            chown(&path, Some(user), Some(group)).unwrap();
        }
        let mode = if Path::new(&path).is_dir() { 0o700 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.place.path()).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
        command
    }

    fn unprivileged_command(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        if let Some((user, group)) = unprivileged() {
            command.uid(user).gid(group);
        }
        command
    }

    fn server_command(&self) -> Command {
        let server = program("postgres");
        let Some((first, others)) = self.prefix.split_first() else {
            return self.unprivileged_command(&server);
        };
        let mut command = self.command(Path::new(first));
        command.args(others).arg(server);
        command
    }

    /// Starts the server, also when the processes of a killed one have not ended yet.
    pub fn start_server(&self) {
        wait_until("the database", || {
            let mut server = self.server.borrow_mut();
            let is_running = server.as_mut().is_some_and(|server| server.0.try_wait().unwrap().is_none());
            if !is_running {
                let log =
                    std::fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
                let mut start = self.server_command();
                let port = self.port.to_string();
                start.args(["-D", &self.path("data"), "-p", &port, "-k", &self.path("")]);
                start.args(["-c", "listen_addresses=127.0.0.1"]).stdout(Stdio::null()).stderr(log);
                let started =
                    start.spawn().expect("PostgreSQL is needed for this test: see tests/packages.txt");
                *server = Some(Running(started));
            }
            (self.try_query("SELECT 1")? == "1").then_some(())
        });
    }

    /// As SIGKILL ends it. Its other processes end when they notice it.
    pub fn kill(&self) {
        drop(self.server.borrow_mut().take());
    }

    /// Ends it and all sessions in order.
    pub fn stop(&self) {
        self.end(Signal::INT);
    }

    fn end(&self, signal: Signal) {
        if let Some(mut server) = self.server.borrow_mut().take() {
            server.signal(signal);
            server.wait();
        }
    }

    /// Where it is, for this user and database.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgresql://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// What psql prints, without heads; `None`: it fails.
    pub fn try_query(&self, sql: &str) -> Option<String> {
        let ended = self.psql("postgres", sql);
        (ended.status == Some(0)).then(|| ended.stdout.trim_end().to_owned())
    }

    /// The same; it does not fail.
    pub fn query(&self, sql: &str) -> String {
        self.query_in("postgres", sql)
    }

    /// The same in another database.
    pub fn query_in(&self, database: &str, sql: &str) -> String {
        let ended = self.psql(database, sql);
        assert_eq!(ended.status, Some(0), "{sql}\n{}", ended.stderr);
        ended.stdout.trim_end().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> Ended {
        let mut psql = Command::new(program("psql"));
        psql.args(["--no-psqlrc", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-d", &self.url("postgres", database), "-c", sql]);
        psql.env("PGPASSWORD", PASSWORD).env("PGTZ", "UTC").stdin(Stdio::null());
        run_within(LONG, &mut psql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, with all its processes.
        self.end(Signal::QUIT);
    }
}
