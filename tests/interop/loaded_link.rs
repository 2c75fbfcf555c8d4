//! Links with a router, netem and queues of the kernel, in a guest with a virtual clock: latency under load, one-way delays and
//! stamps. Programs of other people and the settings of the kernel are the judges.

use serde_json::Value;

use super::modules::runs;
use super::shared_guests::NETWORKS;

/// A client and a server with 5 ms of delay each, and a router between them whose queues hold what the line sends in 200 ms:
/// 5 Mbit/s from the client and 20 Mbit/s to it.
pub const ROUTER: &str = "
    for name in c r s; do ip netns add $name; ip -n $name link set lo up; done
    ip link add c0 netns c type veth peer name r0 netns r
    ip link add s0 netns s type veth peer name r1 netns r
    ip -n c address add 10.1.0.2/24 dev c0; ip -n r address add 10.1.0.1/24 dev r0
    ip -n s address add 10.2.0.2/24 dev s0; ip -n r address add 10.2.0.1/24 dev r1
    for device in c:c0 r:r0 r:r1 s:s0; do ip -n ${device%:*} link set ${device#*:} up; done
    ip -n c route add default via 10.1.0.1; ip -n s route add default via 10.2.0.1
    ip netns exec r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    tc -n c qdisc add dev c0 root netem delay 5ms limit 100000
    tc -n s qdisc add dev s0 root netem delay 5ms limit 100000
    tc -n r qdisc add dev r1 root handle 1: tbf rate 5mbit burst 3000 limit 125000
    tc -n r qdisc add dev r0 root handle 1: tbf rate 20mbit burst 3000 limit 500000
    client() { ip netns exec c \"$@\"; }
    server() { ip netns exec s \"$@\"; }
    load() { client linkgauge throughput tcp://10.2.0.2 -d $1 --time $2 --probe 50/s --repeat 1 -q --json -; }";

fn p50_ns(figures: &Value) -> f64 {
    figures["latency_ns"]["p50"].as_f64().unwrap_or_else(|| panic!("{figures:#}"))
}

/// Our measurement in each direction, then that of iperf3 with irtt beside it.
pub const REFERENCE: &str = "
    server linkgauge serve tcp://0.0.0.0 -q &
    server iperf3 -s >/dev/null &
    server irtt server >/dev/null &
    sleep 2
    for direction in upload download; do
        load $direction 10s
        sleep 2
        reverse=; [ $direction = download ] && reverse=-R
        client irtt client -i 20ms -d 10s -Q -o /tmp/irtt.json 10.2.0.2 & other=$!
        client iperf3 -c 10.2.0.2 -t 10 $reverse -J >/tmp/iperf3.json
        wait $other
        cat /tmp/irtt.json /tmp/iperf3.json
        sleep 2
    done";

#[test]
fn rate_and_latency_under_load_are_those_of_iperf3_and_irtt() {
    let ended = NETWORKS.ended("reference");
    let documents = runs(&ended.stdout, &ended.stderr);
    let [upload, upload_irtt, upload_iperf3, download, download_irtt, download_iperf3] = &documents[..]
    else {
        panic!("{} documents: {}", documents.len(), ended.stderr)
    };
    for (ours, irtt, iperf3, rate) in
        [(upload, upload_irtt, upload_iperf3, 5e6), (download, download_irtt, download_iperf3, 20e6)]
    {
        let case = &ours["cases"][0];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} {}", ended.stderr));
        let loaded = p50_ns(&case["under_load"]) / number(&irtt["stats"]["rtt"]["median"]);
        let goodput =
            number(&case["throughput_bps"]) / number(&iperf3["end"]["sum_received"]["bits_per_second"]);
        println!("{rate}: RTT under load {loaded}, goodput {goodput} of the others");
        assert!((loaded - 1.0).abs() < 0.05, "{rate}: {loaded} of irtt");
        assert!((goodput - 1.0).abs() < 0.05, "{rate}: {goodput} of iperf3");
        // The load fills the queue, and payload is all but headers.
        assert!(number(&case["added_p50_ns"]) > 100e6, "{rate}: {}", case["added_p50_ns"]);
        assert!((0.93..0.97).contains(&(number(&case["throughput_bps"]) / rate)), "{rate}");
        assert!((p50_ns(&case["idle"]) / 10e6 - 1.0).abs() < 0.1, "{rate}: {}", p50_ns(&case["idle"]));
    }
}

/// The same line with the kernel's fq_codel, and as a model of the lab with CoDel.
pub const FQ_CODEL: &str = "
    for device in r0 r1; do tc -n r qdisc add dev $device parent 1:1 fq_codel; done
    server linkgauge serve tcp://0.0.0.0 -q &
    server linkgauge lab shaper --listen tcp://127.0.0.1:7200 --to tcp://127.0.0.1:7100 --delay 5ms --rate-up 5M \\
        --rate-down 20M --aqm codel -q &
    sleep 1
    for direction in upload download; do
        load $direction 5s
        server linkgauge throughput tcp://127.0.0.1:7200 -d $direction --time 5s --probe 50/s --repeat 1 -q --json -
    done";

#[test]
fn a_managed_queue_adds_little_latency() {
    let ended = NETWORKS.ended("fq_codel");
    let documents = runs(&ended.stdout, &ended.stderr);
    assert_eq!(documents.len(), 4, "{}", ended.stderr);
    for (index, run) in documents.iter().enumerate() {
        let (case, rate) = (&run["cases"][0], if index < 2 { 5e6 } else { 20e6 });
        let added_ns = case["added_p50_ns"].as_f64().unwrap_or_else(|| panic!("{case:#}"));
        println!("{index}: {added_ns} ns added");
        assert!(added_ns < 10e6, "{index}: {added_ns} ns added");
        let share = case["throughput_bps"].as_f64().unwrap() / rate;
        assert!((0.85..1.01).contains(&share), "{index}: {share} of the rate");
    }
}

/// 10 ms to the server and 30 ms back. Its clock is ahead by 5 s.
pub const ASYMMETRIC: &str = "
    for name in c s; do ip netns add $name; ip -n $name link set lo up; done
    ip link add c0 netns c type veth peer name s0 netns s
    ip -n c address add 10.1.0.2/24 dev c0; ip -n s address add 10.1.0.1/24 dev s0
    ip -n c link set c0 up; ip -n s link set s0 up
    ip netns exec s unshare --time --monotonic 5 --fork linkgauge serve udp://0.0.0.0 tcp://0.0.0.0 -q &
    sleep 1
    ip netns exec c linkgauge latency udp://10.1.0.1 tcp://10.1.0.1 --stamps -n 300 --repeat 1 -q --json -
    tc -n c qdisc add dev c0 root netem delay 10ms
    tc -n s qdisc add dev s0 root netem delay 30ms
    for run in 1 2 3 4 5 6 7 8 9 10; do
        ip netns exec c linkgauge latency udp://10.1.0.1 --one-way -n 25 --warm-up 2 --repeat 1 -q --json -
    done";

#[test]
fn one_way_delays_and_stages_hold_between_two_clocks() {
    let ended = NETWORKS.ended("asymmetric");
    let documents = runs(&ended.stdout, &ended.stderr);
    assert_eq!(documents.len(), 11, "{}", ended.stderr);
    for case in documents[0]["cases"].as_array().unwrap() {
        let stages = &case["stages"];
        println!("{}: {} {}", case["endpoint"], stages["stamped"], stages["sum_error_ns"]);
        assert!(stages["stamped"].as_u64() >= Some(285), "{stages:#}");
        assert!(stages["sum_error_ns"]["p50"].as_f64().unwrap() <= 2_000.0, "{stages:#}");
        assert!(stages["network_ns"]["count"] == stages["stamped"], "{stages:#}");
    }
    // Timers of the guest's kernel, and the path without netem.
    const TOLERANCE_NS: f64 = 500e3;
    for run in &documents[1..] {
        let ways = &run["cases"][0]["one_way"];
        let number = |name: &str| ways[name].as_f64().unwrap_or_else(|| panic!("{name}: {ways:#}"));
        let bound_ns = number("one_way_error_bound_ns");
        for (name, true_ns) in [("forward_p50_ns", 10e6), ("reverse_p50_ns", 30e6), ("clock_offset_ns", 5e9)]
        {
            let error_ns = (number(name) - true_ns).abs();
            assert!(error_ns <= bound_ns + TOLERANCE_NS, "{name}: {error_ns} ns, bound {bound_ns} ns");
        }
        assert!(bound_ns <= 20e6 + TOLERANCE_NS, "half of the path: {bound_ns}");
    }
}

/// LINX over Ethernet with a queue of 10 ms at the client and one of 30 ms at the server. Then the CPU time of the server, in ticks
/// of 10 ms, in 3 s without a client: stamps that come after a measurement do not keep it busy.
pub const QUEUES_OF_BOTH_ENDS: &str = "
    for name in c s; do ip netns add $name; ip -n $name link set lo up; done
    ip link add c0 address 02:00:00:00:00:02 netns c type veth peer name s0 address 02:00:00:00:00:01 netns s
    ip -n c link set c0 up; ip -n s link set s0 up
    tc -n c qdisc add dev c0 root netem delay 10ms
    tc -n s qdisc add dev s0 root netem delay 30ms
    ip netns exec s linkgauge serve linx+eth://s0/02:00:00:00:00:02/server -q & server=$!
    sleep 1
    ip netns exec c linkgauge latency linx+eth://c0/02:00:00:00:00:01/server --stamps -n 50 --warm-up 2 --repeat 1 \\
        --timeout 10s -q --json -
    sleep 1
    ticks() { set -- $(cat /proc/$server/stat); echo $((${14} + ${15})); }
    before=$(ticks); sleep 3; after=$(ticks)
    echo \"{\\\"ticks\\\": $((after - before))}\"";

#[test]
fn the_queues_of_both_ends_are_stages_of_a_round_trip_over_ethernet() {
    let ended = NETWORKS.ended("queues of both ends");
    let documents = runs(&ended.stdout, &ended.stderr);
    let [run, idle] = &documents[..] else { panic!("{} documents: {}", documents.len(), ended.stderr) };
    let stages = &run["cases"][0]["stages"];
    // The last reply but one leaves its queue after the server has looked for its stamps for the last time.
    assert_eq!((&stages["stamped"], &stages["unstamped"]), (&48.into(), &2.into()), "{stages:#}");
    assert!(stages["sum_error_ns"]["p50"].as_u64() <= Some(2_000), "{stages:#}");
    let p50_ns = |name: &str| stages[name]["p50"].as_f64().unwrap_or_else(|| panic!("{name}: {stages:#}"));
    for (name, true_ns) in [("local_queue_ns", 10e6), ("remote_queue_ns", 30e6), ("network_ns", 0.0)] {
        println!("{name}: {}", p50_ns(name));
        assert!((p50_ns(name) - true_ns).abs() < 500e3, "{name}: {}", p50_ns(name));
    }
    assert!(idle["ticks"].as_u64() < Some(50), "{idle}");
}
