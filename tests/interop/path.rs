//! `path` in a chain of routers: traceroute, mtr and tracepath are the judges of its hops and sizes, tc of the queue.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::program::Running;
use crate::router::Lab;

/// The path of a run on the client.
fn path_of(lab: &Lab, arguments: &str) -> Value {
    let program = env!("CARGO_BIN_EXE_linkgauge");
    let output = Lab::on(&lab.client, &format!("LINKGAUGE_STORE= {program} {arguments} --json - -q"));
    let document: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
    document["cases"][0]["path"].clone()
}

/// The address of each hop; empty where no router answers.
fn addresses(path: &Value) -> Vec<String> {
    let address = |hop: &Value| hop["hosts"][0]["address"].as_str().unwrap_or_default().to_owned();
    path["hops"].as_array().unwrap().iter().map(address).collect()
}

#[test]
fn hops_are_those_of_traceroute_and_mtr() {
    let lab = Lab::start(&["--routers", "4", "--silent", "2"]);
    // The probes of the judges must not use up the replies of the host.
    let limits = "/proc/sys/net/ipv4/icmp_ratelimit /proc/sys/net/ipv6/icmp/ratelimit";
    let set = Lab::on(&lab.server, &format!("for limit in {limits}; do echo 0 > $limit; cat $limit; done"));
    assert_eq!(set, "0\n0\n");
    for host in ["10.77.5.2", "fd77:5::2"] {
        let traced = Lab::on(&lab.client, &format!("traceroute -n -q 1 -w 2 {host}"));
        let traced: Vec<String> = traced
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().nth(1).unwrap_or_default().replace('*', ""))
            .collect();
        let mtr = Lab::on(&lab.client, &format!("mtr -n -r -c 2 -i 1 --json {host}"));
        let mtr: Value = serde_json::from_str(&mtr).unwrap_or_else(|error| panic!("{error}: {mtr}"));
        let mtr: Vec<String> = mtr["report"]["hubs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hub| hub["host"].as_str().unwrap_or_default().replace("???", ""))
            .collect();
        assert_eq!(traced, mtr, "the judges");
        let url = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        for target in [url.clone(), format!("icmp://{url}"), format!("tcp://{url}:7100")] {
            let path = path_of(&lab, &format!("path '{target}' -n -c 3"));
            assert_eq!(addresses(&path), traced, "{target}");
            assert_eq!(path["end"], "reached");
            let answers: Vec<u64> = path["hops"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hop| hop["answered"].as_u64().unwrap())
                .collect();
            assert_eq!(answers, [3, 0, 3, 3, 3], "{target}");
            assert!(path.get("loss").is_none(), "a silent router loses nothing");
        }
    }
}

#[test]
fn an_unprivileged_user_sees_the_same_hops() {
    let lab = Lab::start(&["--routers", "2"]);
    let program = env!("CARGO_BIN_EXE_linkgauge");
    let copy = std::env::temp_dir().join(format!("linkgauge-unprivileged-{}", std::process::id()));
    std::fs::copy(program, &copy).unwrap();
    let shown = copy.display();
    // In a user namespace there is no other user: there the program runs as it is.
    let command = format!(
        "chmod 755 {shown}; LINKGAUGE_STORE=; export LINKGAUGE_STORE; \
         other='setpriv --reuid 65534 --clear-groups --regid 65534'; $other true || other=; \
         $other {shown} path 10.77.3.2 -n -c 2 --json - -q"
    );
    let output = Lab::on(&lab.client, &command);
    std::fs::remove_file(copy).unwrap();
    let document: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
    assert_eq!(addresses(&document["cases"][0]["path"]), ["10.77.1.2", "10.77.2.2", "10.77.3.2"]);
}

#[test]
fn the_size_that_fits_is_that_of_tracepath() {
    let lab = Lab::start(&["--routers", "3", "--mtu", "3:1400"]);
    let traced = Lab::on(&lab.client, "tracepath -n 10.77.4.2");
    assert!(traced.contains("pmtu 1400"), "{traced}");
    for target in ["10.77.4.2", "icmp://10.77.4.2", "[fd77:4::2]"] {
        let mtu = path_of(&lab, &format!("path '{target}' -n -c 1 --mtu"))["mtu"].clone();
        assert_eq!((&mtu["bytes"], &mtu["is_black_hole"]), (&1400.into(), &false.into()), "{target}: {mtu}");
        let router = if target.contains(':') && target.starts_with('[') { "fd77:2::2" } else { "10.77.2.2" };
        assert_eq!((&mtu["reported_by"], &mtu["last_hop"]), (&router.into(), &2.into()), "{target}: {mtu}");
    }
}

#[test]
fn the_queue_of_an_upload_is_at_the_link_with_the_rate() {
    let expected: BTreeMap<u8, (u64, u64)> = [(1, (0, 1)), (3, (2, 3))].into();
    for (link, (after, before)) in expected {
        let lab = Lab::start(&[
            "--routers",
            "3",
            "--rate-up",
            &format!("{link}:10Mbit/s"),
            "--queue",
            &format!("{link}:80000"),
        ]);
        let mut server = std::process::Command::new(&lab.server[0]);
        server.args(&lab.server[1..]).args([env!("CARGO_BIN_EXE_linkgauge"), "serve", "tcp://0.0.0.0", "-q"]);
        // The idle phase is longer than its start.
        let _server = Running(server.spawn().unwrap());
        let path = path_of(&lab, "throughput 10.77.4.2 --path -t 6");
        let queue = &path["queue"];
        assert_eq!(queue["verdict"], "found", "{path:#}");
        assert_eq!(
            (queue["after_hop"].as_u64(), queue["before_hop"].as_u64()),
            (Some(after), Some(before)),
            "{path:#}"
        );
        assert!(queue["delay_ns"].as_f64().unwrap() > 3e6, "{queue}");
    }
}

#[test]
fn a_host_that_is_not_reached_is_a_failure_with_its_place() {
    let lab = Lab::start(&["--routers", "2"]);
    let program = env!("CARGO_BIN_EXE_linkgauge");
    Lab::on(&lab.server, "ip route add blackhole 10.99.0.1");
    let path = |host: &str| {
        Lab::on(&lab.client, &format!("LINKGAUGE_STORE= {program} path {host} -n -c 2 -m 5; echo status $?"))
    };
    let unrouted = path("10.77.9.9");
    assert!(
        unrouted.starts_with("10.77.9.9 is not reached: nothing replies behind hop 2 (10.77."),
        "{unrouted}"
    );
    assert!(unrouted.contains("status 2"), "{unrouted}");
    // The last router drops everything to the host.
    Lab::on(&lab.server, "ip addr del 10.77.3.2/24 dev to-client; echo done");
    let silent = path("10.77.3.2");
    assert!(silent.contains(" is not reached: ") && silent.contains("status 2"), "{silent}");
}
