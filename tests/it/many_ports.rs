//! Hundreds of serial ports, and of ports of a device server, measured side by side.

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::device_server::{DeviceServer, DeviceServerOptions};
use linkgauge::lab::uart::{DeliveryMode, LabUarts, UartCounters, UartOptions, default_batch_interval};
use linkgauge::link::serial_line::{self, FlowControl, Parity, SerialSettings, StopBits};
use linkgauge::plan::Plan;
use linkgauge::schedule::{self, RunContext};

use crate::many_flows::thread_names;
use crate::program::{Running, wait_until};

/// A program that does not get the CPU for long holds the line, and loses nothing.
const LINE: SerialSettings = SerialSettings {
    baud: 115_200,
    data_bits: 8,
    parity: Parity::None,
    stop_bits: StopBits::One,
    flow_control: FlowControl::RtsCts,
};

/// Payload of each port in the transfer: 26 ms of characters.
const TRANSFER_BYTES: u64 = 300;
const ROUND_TRIPS: u64 = 3;

fn start(ports: usize) -> (LabUarts, Vec<Endpoint>) {
    raise_open_file_limit();
    let delivery = DeliveryMode::Batch(default_batch_interval(ports as u32));
    let uarts = LabUarts::start(&UartOptions { ports, delivery, ..UartOptions::default() }).unwrap();
    let endpoints =
        uarts.paths().iter().map(|path| serial_line::port_endpoint(path, &LINE).unwrap()).collect();
    (uarts, endpoints)
}

/// Latency and throughput over all of them at once; every byte returns.
fn measure_all(endpoints: &[Endpoint]) {
    let ports = endpoints.len() as u64;
    let urls: Vec<String> = endpoints.iter().map(|endpoint| format!("\"{endpoint}\"")).collect();
    let common = "protocol = \"echo\"\ntogether = true\nwarm_up_count = 0\ntimeout = \"60s\"";
    let plan = format!(
        "[[case]]\nurl = [{urls}]\nworkload = \"latency\"\ncount = {ROUND_TRIPS}\n{common}\n\
         [[case]]\nurl = [{urls}]\nworkload = \"throughput\"\nvolume = {TRANSFER_BYTES}\nprobe = false\n{common}",
        urls = urls.join(",")
    );
    let plan = schedule::check(Plan::from_toml(&plan).unwrap(), Registry::standard()).unwrap();
    let run = schedule::run(&plan, &mut RunContext::new(Registry::standard().dialer(Clock::System), &()));
    let [latency, transfer] = &run.cases[..] else { panic!("two cases") };
    for case in [latency, transfer] {
        assert!(run.is_complete(), "{:?}", case.failures.first());
        assert_eq!((u64::from(case.ports), case.per_port.len()), (ports, endpoints.len()));
    }
    let counts = &latency.figures.counts;
    assert_eq!((counts.sent, counts.received), (ROUND_TRIPS * ports, ROUND_TRIPS * ports));
    assert_eq!(transfer.figures.delivery.delivered_bytes, Some(TRANSFER_BYTES * ports));
    // No flow waits for its timeout: both halves of a loop end with its last byte.
    assert!(transfer.elapsed_ns < 50_000_000_000, "{} ns", transfer.elapsed_ns);
    assert!(latency.per_port.iter().all(|port| port.figures.counts.received == ROUND_TRIPS));
}

/// The lab moved these characters, and counted how late it was.
fn assert_characters(uarts: LabUarts, ports: u64) {
    let mut all = UartCounters::default();
    uarts.stop().unwrap().iter().for_each(|counters| all.merge(counters));
    let characters = (ROUND_TRIPS + TRANSFER_BYTES) * ports;
    assert_eq!((all.sent, all.received, all.overruns), (characters, characters, 0));
    assert!(all.lateness.len() >= ROUND_TRIPS * ports && all.lateness.max() > 0);
}

#[test]
fn a_thousand_serial_ports_are_measured_at_once() {
    let (uarts, endpoints) = start(1000);
    measure_all(&endpoints);
    assert_characters(uarts, 1000);
}

#[test]
#[ignore = "long"]
fn a_thousand_ports_of_a_device_server_are_measured_at_once() {
    let (uarts, serial_ports) = start(1000);
    let listen = "tcp://127.0.0.1:0".parse().unwrap();
    let server = DeviceServer::start(&DeviceServerOptions::new(listen, serial_ports)).unwrap();
    measure_all(&server.link_endpoints());
    drop(server);
    assert_characters(uarts, 1000);
}

#[test]
fn ports_of_a_device_server_share_threads() {
    let threads = |ports: &str| {
        let listen = ["--listen", "tcp://127.0.0.1:0"];
        let server = Running::start(
            &[&["lab", "device-server", "--plug", "--ports", ports, "--quiet"], &listen[..]].concat(),
        );
        let pid = server.0.id().to_string();
        // Pseudo-terminals and listeners are open when the last thread starts.
        let names = || thread_names(&pid);
        wait_until("the thread that accepts", || names().iter().any(|name| name == "accept").then_some(()));
        names().len()
    };
    assert_eq!(threads("2"), threads("60"));
}
