//! Links whose kernel modules this host may lack, in a guest that has them: the contract, and every protocol over
//! them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::guest::CACHE;
use super::program::{Ended, Running};
use super::shared_guests::{MODULES, NETWORKS, RADIOS};
use super::trials::{IN_THE_GUEST, OF_MODULES};

/// The schemes that a guest with modules for networks tests, and those of a guest with Bluetooth.
pub const SCHEMES: [&str; 2] = ["sctp,vsock,tipc", "rfcomm,l2cap"];

/// Two virtual controllers that find each other, and no radio.
pub const CONTROLLERS: &str = "
    btvirt -l2 >/dev/null 2>&1 &
    for moment in 1 2 3 4 5 6 7 8 9; do [ -e /sys/class/bluetooth/hci1 ] && break; sleep 0.3; done
    for adapter in hci0 hci1; do hciconfig $adapter up && hciconfig $adapter piscan || exit 9; done";

/// The run documents that a script wrote one after the other.
pub fn runs(documents: &str, message: &str) -> Vec<Value> {
    let documents = serde_json::Deserializer::from_str(documents).into_iter::<Value>();
    documents.map(|run| run.unwrap_or_else(|error| panic!("{error}\n{message}"))).collect()
}

/// The script that runs the tests of every link for these transports.
pub fn contract(schemes: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let name = tests.file_name().unwrap().to_str().unwrap();
    format!("{IN_THE_GUEST}={schemes} {name} --exact in_guest::contract --nocapture 2>&1")
}

fn assert_met(ended: &Ended) {
    assert!(ended.status == Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(" trials passed"), "nothing was tried: {}", ended.stdout);
}

#[test]
fn transports_that_this_host_lacks_are_tested_in_a_guest() {
    assert_eq!(SCHEMES.join(",").split(',').collect::<Vec<_>>(), OF_MODULES);
}

#[test]
fn they_meet_the_contract() {
    assert_met(MODULES.ended("contract"));
}

#[test]
fn bluetooth_meets_the_contract() {
    assert_met(RADIOS.ended("contract"));
}

/// The linkgauge protocol and an echo on each of these links, and many flows in few threads; no sent data may be missing or
/// changed.
pub const PEERS: &str = "
    for where in sctp://127.0.0.1:PORT?rcvbuf=200k vsock://local:PORT tipc://PORT:1 tipc://PORT:2?type=rdm; do
        own=\"$own $(echo $where | sed s/PORT/7100/)\" echo=\"$echo $(echo $where | sed s/PORT/7007/)\"
    done
    linkgauge serve -q $own & own_server=$!
    linkgauge serve -q --protocol echo $echo & echoes=$!
    sleep 1
    json='-q --json -'
    linkgauge latency $own --size 65536 --count 50 $json
    linkgauge throughput $own --direction both --size 1400 --time 50ms --probe off $json
    linkgauge throughput $echo --protocol echo --direction loop --size 65536 --volume 1M $json
    linkgauge latency $own --parallel 200 --threads 2 --count 5 --warm-up 0 --repeat 1 --timeout 30s $json & client=$!
    most=0
    while kill -0 $client 2>/dev/null; do
        for process in $client $own_server; do
            threads=$(ls /proc/$process/task 2>/dev/null | wc -l)
            [ $threads -gt $most ] && most=$threads
        done
        usleep 50000
    done
    echo most threads: $most >&2
    wait $client
    kill -INT $own_server $echoes && wait $own_server && wait $echoes";

#[test]
fn protocols_work_over_them() {
    let ended = MODULES.ended("peers");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 4, "{}", ended.stderr);
    for (run, replies) in runs.iter().zip([50, 0, 0, 200 * 5]) {
        let cases = run["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4, "{run}");
        for case in cases {
            let count = |name: &str| case[name].as_u64().unwrap_or(0);
            assert_eq!(case["complete"], true, "{case}\n{}", ended.stderr);
            assert!(count("received") > 0 && count("corrupt_bytes") == 0, "{case}");
            // A receiver of this type drops messages when its queue is full.
            let may_lose = case["endpoint"].as_str().unwrap().ends_with("type=rdm");
            if case["workload"] == "latency" {
                assert_eq!(count("received"), replies, "{case}");
            } else if !may_lose {
                assert_eq!(count("lost"), 0, "{case}");
            }
        }
    }
    let threads =
        ended.stderr.lines().find_map(|line| line.strip_prefix("most threads: ")?.parse::<u32>().ok());
    assert!(threads.is_some_and(|threads| threads < 40), "{threads:?}");
}

/// The benchmark of tipcutils at every size that it has, with both of its ends ours.
pub const BENCHMARK: &str = "
    linkgauge serve -q --protocol tipc-bench tipc://18888:0?type=stream &
    sleep 1
    common='tipc://18888:0?type=stream --protocol tipc-bench --size 64,256,1024,4096,16384,65536 -q --json -'
    linkgauge latency $common --count 20 --warm-up 3
    linkgauge throughput $common --volume 500k --parallel 2
    linkgauge latency 'tipc://18888:0?type=stream' --protocol tipc-bench --time 1s
    kill $!; wait
    linkgauge serve -q --protocol tipc-bench tipc://17777:0 &
    sleep 1
    linkgauge latency tipc://17777:0 --protocol tipc-bench --size 64,256,1024,4096,16384,65536 --parallel 8 \
        --count 20 --warm-up 3 -q --json -
    kill $!; wait
    linkgauge serve -q --protocol echo tipc://17777:0 & sleep 1
    linkgauge latency tipc://17777:0 --protocol tipc-bench -n 1
    kill $!; wait";

#[test]
fn the_benchmark_of_tipcutils_runs_at_all_its_sizes() {
    let ended = MODULES.ended("benchmark");
    let runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 3, "{}", ended.stderr);
    for (run, clients) in runs.iter().zip([1, 2, 8]) {
        let cases = run["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            assert_eq!(case["complete"], true, "{case}\n{}", ended.stderr);
            let size = case["message_bytes"].as_u64().unwrap();
            if case["workload"] == "latency" {
                assert_eq!(case["received"], 20 * clients, "{case}");
                continue;
            }
            let bytes = 2 * 500_000u64.div_ceil(size) * size;
            assert_eq!((&case["delivered_bytes"], &case["lost"]), (&bytes.into(), &0.into()), "{case}");
            let rates = ["throughput_bps", "messages_per_second"].map(|rate| case[rate].as_f64().unwrap());
            assert!((rates[0] / (rates[1] * 8.0 * size as f64) - 1.0).abs() < 1e-9, "{case}");
        }
    }
    for line in ["use --count or --volume, no time", "no benchmark of before 2014 replied"] {
        assert!(ended.stderr.contains(line), "{line} is not in: {}", ended.stderr);
    }
}

/// Two namespaces as two nodes. Namespaces of one kernel recognise each other by a field of the discovery messages,
/// and then bypass the bearer. A filter sets this field to zero.
pub const NODES: &str = "
    on() { node=$1; shift; ip netns exec $node \"$@\"; }
    ip netns add a; ip netns add b
    ip link add va netns a type veth peer name vb netns b
    on a ip address add 10.9.0.1/24 dev va; on b ip address add 10.9.0.2/24 dev vb
    for node in a b; do
        on $node ip link set lo up; on $node ip link set v$node up
        on $node tipc node set identity node$node
        on $node tc qdisc add dev v$node clsact
        on $node tc filter add dev v$node egress protocol 0x88ca u32 match u8 0x5a 0xfe at 0 \
            action pedit munge offset 52 u32 set 0
        on $node tc filter add dev v$node egress protocol ip u32 match ip protocol 17 0xff \
            match ip dport 6118 0xffff match u8 0x5a 0xfe at 28 action pedit munge offset 80 u32 set 0 pipe csum udp
    done
    links='tipc://7100:1 tipc://7100:2?type=rdm'
    on b linkgauge serve -q $links &
    measure() {
        for second in 1 2 3 4 5 6 7 8 9; do
            on a tipc link list | grep -v broadcast | grep -q ': up' && break
            sleep 1
        done
        on a linkgauge latency $links --protocol linkgauge --size 65536 --count 20 --warm-up 0 -q --json -
        on a tipc link stat show >&2
    }
    for node in a b; do on $node tipc bearer enable media eth device v$node; done
    measure
    for node in a b; do on $node tipc bearer disable media eth device v$node; done
    on a tipc bearer enable media udp name u localip 10.9.0.1 remoteip 10.9.0.2
    on b tipc bearer enable media udp name u localip 10.9.0.2 remoteip 10.9.0.1
    measure
    on a linkgauge latency tipc://7100:99 --count 5
    on a linkgauge latency tipc://7100:1 --protocol linkgauge -n 1M --rate 100/s --warm-up 0 --timeout 5s -q --json - & run=$!
    sleep 4; on a tipc bearer disable media udp name u; wait $run; echo down: $? >&2
    echo ====; linkgauge doctor --all";

/// The fragments that went over a link, from its statistics.
fn fragments_and_messages(statistics: &str) -> [u64; 2] {
    let sent = statistics.lines().find_map(|line| line.trim().strip_prefix("TX packets:"));
    let sent = sent.unwrap_or_else(|| panic!("{statistics}"));
    let fragments =
        sent.split_once("fragments:").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap();
    let (fragments, messages) = fragments.split_once('/').unwrap();
    [fragments, messages].map(|number| number.parse().unwrap())
}

#[test]
fn nodes_reach_each_other_over_bearers() {
    let ended = MODULES.ended("nodes");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let (documents, doctor) = ended.stdout.split_once("====").unwrap_or_else(|| panic!("{}", ended.stderr));
    // The namespace in which all this began has no bearer.
    assert!(doctor.contains("try: sudo tipc bearer enable media eth device eth0"), "{doctor}");
    let runs = runs(documents, &ended.stderr);
    assert_eq!(runs.len(), 3, "{}", ended.stderr);
    // A bearer that goes down during a run leaves the results so far.
    let cut = &runs[2]["cases"][0];
    assert!(cut["complete"] == false && cut["received"].as_u64().unwrap() > 0, "{cut}");
    assert!(ended.stderr.contains("down: 2"), "{}", ended.stderr);
    for run in &runs[..2] {
        for case in run["cases"].as_array().unwrap() {
            assert_eq!((&case["complete"], &case["received"]), (&true.into(), &20.into()), "{case}");
        }
    }
    // All data of both links used the bearer, in fragments of an Ethernet frame or a datagram (14000).
    for (link, least) in [("nodea:va-nodeb:vb", 65_536 / 1500), ("nodea:u-nodeb:u", 65_536 / 14_000)] {
        let (_, statistics) = ended.stderr.split_once(&format!("Link <{link}>")).unwrap_or_default();
        let [fragments, messages] = fragments_and_messages(statistics);
        assert_eq!(messages, 40, "{link}");
        assert!(fragments > 40 * least, "{link}: {fragments}");
    }
    let never =
        "error: tipc://7100:99: the name 7100:99 did not appear within 1s: check that its server runs.";
    assert!(ended.stderr.contains(never), "{}", ended.stderr);
}

/// One of two guests on an Ethernet; runs its command after its bearer is enabled.
fn node(sockets: [&str; 2], does: &str) -> Running {
    let script = format!("ip link set eth0 up && tipc bearer enable media eth device eth0 && {does}");
    let fixed = ["lab", "vm", "--limit", "5min", "--cache", CACHE, "--modules", "tipc", "--tools", "tipc"];
    Running::start(&[&fixed[..], &["--join", sockets[0], sockets[1], "--", "sh", "-c", &script]].concat())
}

#[test]
fn nodes_in_two_guests_reach_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let [remote, local] =
        ["remote", "local"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    let links = "tipc://7100:1 'tipc://7100:2?type=rdm'";
    let mut server = node([&remote, &local], &format!("linkgauge serve -q {links}"));
    let client = node(
        [&local, &remote],
        &format!(
            "linkgauge latency {links} --protocol linkgauge --size 65536 -n 20 --warm-up 0 --timeout 2min -q --json - && \
             tipc link stat show >&2"
        ),
    );
    let ended = client.ended_within(Duration::from_secs(300));
    server.signal(Signal::INT);
    server.wait();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for case in runs(&ended.stdout, &ended.stderr)[0]["cases"].as_array().unwrap() {
        assert_eq!((&case["complete"], &case["received"]), (&true.into(), &20.into()), "{case}");
    }
    let link = ended.stderr.split("Link <").find(|link| link.contains("eth0-")).unwrap_or_default();
    let [fragments, messages] = fragments_and_messages(link);
    assert!(messages == 40 && fragments > 40 * (65_536 / 1500), "{}", ended.stderr);
}

/// URLs whose modules a guest lacks, and these modules.
const WITHOUT_MODULE: [(&str, &str); 6] = [
    ("sctp://127.0.0.1", "sctp"),
    ("vsock://local", "vsock_loopback"),
    ("tipc://7100:1", "tipc"),
    ("rfcomm://00:1A:7D:DA:71:13/1", "rfcomm"),
    ("rfcomm://00:1A:7D:DA:71:13", "rfcomm"),
    ("l2cap://00:1A:7D:DA:71:13/4097", "bluetooth"),
];

pub fn without_modules() -> String {
    let measure = |(url, _): (&str, &str)| format!("linkgauge latency {url} --count 1; ");
    WITHOUT_MODULE.map(measure).concat() + "linkgauge doctor --all; exit 0"
}

#[test]
fn a_missing_module_is_reported_with_its_remedy() {
    let ended = NETWORKS.ended("missing modules");
    for (url, module) in WITHOUT_MODULE {
        let line = ended.stderr.lines().find(|line| line.starts_with(&format!("error: {url}: ")));
        assert!(line.is_some_and(|line| line.contains(&format!("modprobe {module}"))), "{}", ended.stderr);
        assert!(ended.stdout.contains(&format!("try: sudo modprobe {module}")), "{}", ended.stdout);
    }
}

/// Protocols over Bluetooth, refusals, and an adapter that goes down during a run.
pub const RADIOLESS: &str = "
    remote=$(hciconfig hci0 | grep -o '..:..:..:..:..:..' | head -1)
    linkgauge serve -q rfcomm://any/5 l2cap://any/4097?mode=ertm\\&mtu=16Ki & own=$!
    linkgauge serve -q --protocol echo rfcomm://any/7 l2cap://any/4099 & echoes=$!
    sleep 1
    json='-q --json -' local_adapter='adapter=hci1'
    linkgauge latency l2cap://$remote/4097?mode=ertm\\&mtu=16Ki\\&$local_adapter --protocol linkgauge --size 600 -n 50 $json
    linkgauge latency rfcomm://$remote/5?$local_adapter l2cap://$remote/4099?$local_adapter --protocol echo --size 32 -n 50 $json
    linkgauge throughput rfcomm://$remote/7?$local_adapter --direction loop --volume 200k $json
    linkgauge throughput l2cap://$remote/4097?mode=ertm\\&mtu=16Ki\\&$local_adapter --protocol linkgauge --size 600 --time 1s $json
    linkgauge latency rfcomm://$remote/5?$local_adapter --protocol linkgauge -n 1
    linkgauge latency l2cap://$remote/4099?$local_adapter --protocol linkgauge -n 1
    linkgauge latency rfcomm://$remote/9?$local_adapter -n 1; echo refused: $? >&2
    linkgauge latency l2cap://$remote/4321?$local_adapter -n 1; echo refused: $? >&2
    linkgauge latency rfcomm://00:11:22:33:44:55/1?adapter=hci7 -n 1; echo refused: $? >&2
    linkgauge latency rfcomm://$remote/7?$local_adapter --protocol echo -n 1M --timeout 2s $json & run=$!
    sleep 3; hciconfig hci1 down; wait $run; echo down: $? >&2
    linkgauge latency rfcomm://$remote/7?$local_adapter -n 1; echo refused: $? >&2
    linkgauge doctor --all >&2
    kill -INT $own $echoes && wait $own && wait $echoes";

#[test]
fn bluetooth_is_measured() {
    let ended = RADIOS.ended("bluetooth");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let mut runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 5, "{}", ended.stderr);
    let cut = runs.pop().unwrap();
    for case in runs.iter().flat_map(|run| run["cases"].as_array().unwrap()) {
        assert_eq!((&case["complete"], &case["lost"]), (&true.into(), &0.into()), "{case}\n{}", ended.stderr);
        assert!(case["received"].as_u64().unwrap() > 0 && case["corrupt_bytes"] == 0, "{case}");
    }
    let case = &cut["cases"][0];
    assert_eq!(case["complete"], false);
    assert!(case["received"].as_u64().unwrap() > 50, "{case}");
    // Until the adapter went down, and a timeout.
    let elapsed = case["elapsed_ns"].as_u64().unwrap();
    assert!(elapsed < 7_000_000_000, "{elapsed} ns");
    for line in [
        "connect: no server uses channel 9 there",
        "connect: no server uses PSM 4321 there. Check that the server runs",
        "a session needs two connections, and this link allows one at a time: use --protocol echo",
        "a session needs messages of 16.38 kB and more, and this link allows 672 bytes",
        "this host has no adapter hci7: 'bluetoothctl list'",
        "the device does not reply. Check that it is on and in reach, and that the adapter is up",
        "no device is paired",
        "down: 2",
    ] {
        assert!(ended.stderr.contains(line), "{line} is not in: {}", ended.stderr);
    }
    assert_eq!(ended.stderr.matches("refused: 2").count(), 4, "{}", ended.stderr);
}
