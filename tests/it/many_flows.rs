//! More flows than threads: they share threads at both ends, and each is measured as with a thread of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use linkgauge::Registry;
use linkgauge::host::raise_open_file_limit;
use linkgauge::protocol::ServerLimits;

use crate::client::linkgauge;
use crate::memory::status_kib;
use crate::program::{Ended, Running, Serving, ServingOn, wait_until};
use crate::server::{measure, serve};

#[test]
fn connections_share_threads_and_all_are_measured() {
    let server = serve(ServerLimits::default(), None);
    for (endpoint, case) in [
        (0, "parallel = 40"),
        (0, "parallel = 40\nthreads = 1"),
        (0, "parallel = 40\nthreads = 3\nbusy_poll = true"),
        (1, "parallel = 40\nrate = \"8000\""),
    ] {
        let case =
            format!("workload = \"latency\"\n{case}\ncount = 20\nwarm_up_count = 2\ntimeout = \"20s\"");
        let run = measure(&server.endpoints()[endpoint], &case, None);
        assert!(run.is_complete(), "{case}: {:?}", run.cases[0].failures);
        let counts = &run.cases[0].figures.counts;
        assert_eq!((counts.sent, counts.received, counts.lost), (800, 800, 0), "{case}");
        let cpu = run.cases[0].cpu.as_ref().unwrap();
        let client_seconds = cpu.client_seconds + cpu.client_busy_poll_seconds.unwrap_or(0.0);
        assert!(client_seconds > 0.0 && cpu.server_seconds.unwrap() > 0.0, "{cpu:?}");
    }
}

#[test]
fn both_directions_of_many_connections_arrive() {
    let server = serve(ServerLimits::default(), None);
    for direction in ["send", "receive", "both"] {
        let case = format!(
            "workload = \"throughput\"\ndirection = \"{direction}\"\nparallel = 20\nsize = \"10k\"\nvolume = \"100k\"\n\
             warm_up_time = \"0s\"\ntimeout = \"20s\""
        );
        let run = measure(&server.endpoints()[0], &case, None);
        assert!(run.is_complete(), "{direction}: {:?}", run.cases[0].failures);
        let delivery = &run.cases[0].figures.delivery;
        assert_eq!(delivery.delivered_bytes, Some(2_000_000), "{direction}");
        assert_eq!(delivery.delivered_reverse_bytes, (direction == "both").then_some(2_000_000));
    }
}

/// One of the connections closes after its first reply.
#[test]
fn a_failed_connection_leaves_the_results_of_the_others() {
    const CONNECTIONS: usize = 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for number in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().unwrap();
                scope.spawn(move || {
                    let mut request = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut request) {
                        stream.write_all(&request[..length]).unwrap();
                        if number == 7 {
                            return;
                        }
                    }
                });
            }
        });
    });
    let case = format!(
        "protocol = \"echo\"\nworkload = \"latency\"\nparallel = {CONNECTIONS}\nsize = 8\ncount = 50\nwarm_up_count = 0\n\
         timeout = \"20s\""
    );
    let run = measure(&url, &case, None);
    server.join().unwrap();
    assert!(!run.is_complete());
    assert_eq!(run.cases[0].failures.len(), 1, "{:?}", run.cases[0].failures);
    assert_eq!(run.cases[0].figures.counts.received, 19 * 50 + 1);
}

/// A relay in front of the server closes one connection before it is attached.
#[test]
fn a_connection_that_is_not_attached_fails_alone_and_is_named() {
    const CONNECTIONS: usize = 20;
    // The control connection is the first one, and detects the protocol.
    const REFUSED: usize = 8;
    let server = serve(ServerLimits::default(), None);
    let upstream = server.endpoints()[0].address().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let relay = std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for number in 0..=CONNECTIONS {
                let (client, _) = listener.accept().unwrap();
                if number == REFUSED {
                    continue;
                }
                let server = TcpStream::connect(&upstream).unwrap();
                for (mut from, mut to) in [&client, &server]
                    .map(|from| from.try_clone().unwrap())
                    .into_iter()
                    .zip([&server, &client].map(|to| to.try_clone().unwrap()))
                {
                    scope.spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
    });
    let case = format!(
        "workload = \"latency\"\nparallel = {CONNECTIONS}\ncount = 50\nwarm_up_count = 0\ntimeout = \"20s\""
    );
    let run = measure(&url, &case, None);
    relay.join().unwrap();
    let failures: Vec<&str> = run.cases[0].failures.iter().map(|failure| failure.message.as_str()).collect();
    let [failure] = failures[..] else { panic!("{failures:?}") };
    assert!(failure.starts_with("connection 8 of 20: ") && failure.contains("refused another"), "{failure}");
    assert_eq!(run.cases[0].figures.counts.received, 19 * 50);
}

/// Neither end has a thread for each flow.
#[test]
fn few_threads_run_many_flows() {
    let server = Serving::start(&[]);
    let flows = 300;
    let measured = std::sync::atomic::AtomicBool::new(false);
    let threads = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !measured.load(std::sync::atomic::Ordering::Relaxed) {
                most = status_kib(&server.pid(), "Threads").max(most);
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let end = Finally(&measured);
        run_many(&server, flows);
        drop(end);
        watch.join().unwrap()
    });
    assert!(threads < 50, "{threads} threads of the server");
}

/// The highest number of threads of client and server while the client runs, and how the client ended.
fn most_threads(mut client: Running, server: &Running) -> ([u64; 2], Ended) {
    let mut most = [0; 2];
    while client.0.try_wait().unwrap().is_none() {
        for (most, process) in most.iter_mut().zip([&client, server]) {
            let threads = thread_names(&process.0.id().to_string()).len() as u64;
            *most = threads.max(*most);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (most, client.ended())
}

/// The endpoints of a LINX node share its connection, and datagram sockets have none.
#[test]
fn few_threads_run_many_flows_on_links_without_a_connection_each() {
    let place = tempfile::tempdir().unwrap();
    let unix = format!("unix://{}/socket?type=dgram", place.path().display());
    let server = ServingOn::start(&["linx://127.0.0.1:0/many", &unix]);
    for url in &server.endpoints {
        for load in ["latency --count 20 --warm-up 0", "throughput --volume 100k --size 1k --warm-up 0"] {
            let document = place.path().join("run.json");
            let line = format!(
                "{load} {url} --parallel 300 --threads 2 --repeat 1 --timeout 30s --quiet --json {}",
                document.display()
            );
            let client = Running::start(&line.split_whitespace().collect::<Vec<_>>());
            let (threads, ended) = most_threads(client, &server.process);
            assert_eq!(ended.status, Some(0), "{line}: {}", ended.stderr);
            assert!(threads.iter().all(|threads| *threads < 60), "{line}: {threads:?}");
            let run: serde_json::Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
            let case = &run["cases"][0];
            match load.starts_with("latency") {
                true => assert_eq!((&case["received"], &case["lost"]), (&6000.into(), &0.into()), "{line}"),
                false => assert_eq!(case["delivered_bytes"], 30_000_000, "{line}"),
            }
        }
    }
}

/// The names of the threads of a process, none once it has ended.
pub fn thread_names(pid: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).map(|name| name.trim_end().to_owned()).collect()
}

#[test]
fn a_server_has_as_many_shared_threads_as_requested() {
    let server = Serving::start(&["--threads", "3"]);
    // A thread sets its name when it begins.
    let shared = || thread_names(&server.pid()).into_iter().filter(|name| name == "serve clients").count();
    wait_until("the threads of the server", || (shared() >= 3).then_some(()));
    assert_eq!(shared(), 3);
    run_many(&server, 20);
}

/// The peak memory of client and server of a run with this number of connections on a slow schedule, in KiB.
fn peaks_kib(flows: u64) -> [u64; 2] {
    let server = Serving::start(&[]);
    let flows = flows.to_string();
    let arguments = [
        "latency",
        server.tcp.as_str(),
        "--parallel",
        &flows,
        "--threads",
        "2",
        "--rate",
        "100/s",
        "--time",
        "1s",
        "--warm-up",
        "0",
        "--repeat",
        "1",
        "--timeout",
        "30s",
        "--quiet",
    ];
    let mut client = Running::start(&arguments);
    let pid = client.0.id().to_string();
    let mut peak = 0;
    while client.0.try_wait().unwrap().is_none() {
        // The fields are absent once it has ended.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = field.map_or(0, |text| text.trim().trim_end_matches(" kB").parse().unwrap()).max(peak);
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = client.ended();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    [peak, status_kib(&server.pid(), "VmHWM")]
}

/// Besides the buffers of the kernel.
#[test]
fn an_idle_connection_takes_at_most_16_kilobytes_at_each_end() {
    raise_open_file_limit();
    let (few, many) = (200, 2200);
    let [before, after] = [few, many].map(peaks_kib);
    let of_one = |end: usize| (after[end] as f64 - before[end] as f64) / (many - few) as f64;
    let [client, server] = [of_one(0), of_one(1)];
    println!("{client:.1} KiB for a connection at the client, {server:.1} KiB at the server");
    assert!(client < 16.0 && server < 16.0, "{client} KiB, {server} KiB");
}

/// Sets the flag even if the test fails.
struct Finally<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn run_many(server: &Serving, flows: u64) {
    let outcome = linkgauge(&format!(
        "latency {} --parallel {flows} --threads 2 --count 20 --warm-up 0 --repeat 1 --timeout 30s",
        server.tcp
    ));
    outcome.got_all_replies(20 * flows);
}

/// No thread of a flow waits for the others: an interrupt ends them all, and the results so far remain.
#[test]
fn an_interrupt_ends_flows_that_share_threads() {
    let server = serve(ServerLimits::default(), None);
    let endpoint = server.endpoints()[0].clone();
    let plan = linkgauge::plan::Plan::from_toml(&format!(
        "[[case]]\nurl = \"{endpoint}\"\nworkload = \"latency\"\nparallel = 30\ntime = \"100s\"\nwarm_up_count = 0"
    ));
    let dialer = Registry::standard().dialer(linkgauge::clock::Clock::System);
    let cancel = dialer.cancel.clone();
    let interrupt = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let mut context = linkgauge::schedule::RunContext::new(dialer, &());
    let run = linkgauge::schedule::run(
        &linkgauge::schedule::check(plan.unwrap(), Registry::standard()).unwrap(),
        &mut context,
    );
    interrupt.join().unwrap();
    assert!(run.interrupted && run.cases[0].failures.is_empty(), "{:?}", run.cases[0].failures);
    assert!(run.cases[0].figures.counts.received > 0);
}
