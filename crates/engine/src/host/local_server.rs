//! Servers on this host: how long the threads of the programs that listen on a port waited for a CPU.
//!
//! The kernel counts this wait for each thread, so a server that waits differs from one that is slow. Programs of other
//! users hide their sockets from users without rights; then nothing is known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::evidence::ThreadCounters;
use super::read;

/// The tables of sockets, and the state of those that wait for clients: `TCP_LISTEN`, and that of unconnected datagrams.
const SOCKET_TABLES: [(&str, &str); 4] =
    [("/proc/net/tcp", "0A"), ("/proc/net/tcp6", "0A"), ("/proc/net/udp", "07"), ("/proc/net/udp6", "07")];

/// Time between readings: a thread that lives only for one connection is read before it ends.
const READING_INTERVAL: Duration = Duration::from_millis(100);

/// The other programs of this host that listen on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    processes: Vec<u32>,
}

impl LocalServer {
    /// `None` if no other program listens there, or its sockets are hidden.
    pub fn on_port(port: u16) -> Option<LocalServer> {
        let tables = SOCKET_TABLES.iter().filter_map(|(path, state)| Some((read::text(path)?, state)));
        let inodes: BTreeSet<u64> =
            tables.flat_map(|(table, state)| listening_inodes(&table, port, state)).collect();
        let is_other = |process: &u32| *process != std::process::id();
        let has_socket = |process: &u32| !inodes.is_disjoint(&socket_inodes(*process));
        let all = read::file_names("/proc").into_iter().filter_map(|name| name.parse().ok());
        let processes: Vec<u32> = match inodes.is_empty() {
            true => Vec::new(),
            false => all.filter(is_other).filter(has_socket).collect(),
        };
        (!processes.is_empty()).then_some(LocalServer { processes })
    }

    /// Time that each thread has waited for a CPU, in ns, by its number.
    fn thread_waits(&self) -> BTreeMap<u32, u64> {
        let threads = self.processes.iter().flat_map(|process| {
            let tasks = format!("/proc/{process}/task");
            let numbers = read::file_names(&tasks).into_iter();
            numbers.filter_map(move |thread| {
                let schedule = read::text(Path::new(&tasks).join(&thread).join("schedstat"))?;
                let wait = ThreadCounters::parse(&schedule, "").run_queue_wait_ns?;
                Some((thread.parse().ok()?, wait))
            })
        });
        threads.collect()
    }

    /// Reads the waits ten times a second from now on, in a separate thread.
    pub fn watch(&self) -> Option<ServerWatch> {
        let (server, stop) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = Builder::new().name("server-watch".to_owned()).spawn(move || {
            let before = server.thread_waits();
            let mut last = before.clone();
            while !stopped.load(Relaxed) {
                std::thread::park_timeout(READING_INTERVAL);
                last.extend(server.thread_waits());
            }
            added_waits(&before, &last)
        });
        Some(ServerWatch { stop, thread: thread.ok()? })
    }
}

/// The sum of what was added to each thread. A thread that began meanwhile had waited for no time before.
fn added_waits(before: &BTreeMap<u32, u64>, last: &BTreeMap<u32, u64>) -> u64 {
    let added =
        last.iter().map(|(thread, wait)| wait.saturating_sub(before.get(thread).copied().unwrap_or(0)));
    added.sum()
}

/// Readings of the waits of a server.
pub struct ServerWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl ServerWatch {
    /// Time that its threads waited for a CPU since the start, in ns.
    pub fn finish(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(0)
    }
}

/// The inodes of sockets in this state on this port, of a table like `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16, state: &str) -> Vec<u64> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, own_port) = fields.get(1)?.rsplit_once(':')?;
        let is_here = u16::from_str_radix(own_port, 16) == Ok(port) && fields.get(3) == Some(&state);
        fields.get(9).filter(|_| is_here)?.parse().ok()
    };
    table.lines().filter_map(inode).collect()
}

/// The inodes of the sockets that a process has open, as far as they are visible.
fn socket_inodes(process: u32) -> BTreeSet<u64> {
    let folder = format!("/proc/{process}/fd");
    let names = read::file_names(&folder).into_iter();
    let inode = |name: String| {
        let target = read::link_name(Path::new(&folder).join(name))?;
        target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    names.filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_that_listen_are_found_in_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1CA5 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 x\n\
            1: 0100007F:1CA5 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 222 1 x\n\
            2: 0100007F:1CA6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 x\n\
            3: broken\n";
        assert_eq!(listening_inodes(table, 7333, "0A"), [111]);
        assert_eq!(listening_inodes(table, 7334, "0A"), [333]);
        assert!(listening_inodes("", 7333, "0A").is_empty());
    }

    #[test]
    fn own_sockets_are_visible_but_the_measuring_program_is_no_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inodes = listening_inodes(&read::text("/proc/net/tcp").unwrap(), port, "0A");
        assert!(!inodes.is_empty() && socket_inodes(std::process::id()).contains(&inodes[0]));
        assert_eq!(LocalServer::on_port(port), None);
    }

    #[test]
    fn threads_that_begin_meanwhile_count_from_zero() {
        let (before, last) =
            (BTreeMap::from([(1, 100), (2, 50)]), BTreeMap::from([(1, 150), (2, 50), (3, 7)]));
        assert_eq!(added_waits(&before, &last), 57);
        let own = LocalServer { processes: vec![std::process::id()] };
        assert!(!own.thread_waits().is_empty());
        let watch = own.watch().unwrap();
        assert!(watch.finish() < 10_000_000_000);
    }
}
