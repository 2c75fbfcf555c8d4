//! ICMP echo with replies of kernels: compared with Debian's ping, with both kinds of sockets, and the errors without
//! a reply. Tests that need permissions or routes run in namespaces that end with the process.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::client::linkgauge;
use crate::program::{Ended, run_within};

/// Runs a script as root in its own network; `$LG` is the program, loopback is up. The script redirects the output of what it leaves
/// running, since the run ends with the output.
pub fn in_a_network(script: &str) -> Ended {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "5", "60", "unshare", "--map-root-user", "--net", "--mount", "sh", "-ec"]);
    command.arg(format!("ip link set lo up\n{script}"));
    command.env("LG", env!("CARGO_BIN_EXE_linkgauge")).env("LINKGAUGE_STORE", "");
    run_within(Duration::from_secs(75), &mut command)
}

/// The number of replies that `ping` reports.
fn received(printed: &str) -> u64 {
    let summary = printed.lines().find(|line| line.contains("packets transmitted")).expect(printed);
    let part = summary.split(", ").find(|part| part.ends_with("received")).expect(summary);
    part.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn counts_are_those_of_ping() {
    for (url, host) in [("icmp://127.0.0.1", "127.0.0.1"), ("icmp://[::1]", "::1")] {
        let ping = Command::new("ping").args(["-n", "-c", "40", "-i", "0.01", "-s", "56", host]).output();
        let ping = ping.expect("ping is needed for this test: apt-get install iputils-ping");
        assert_eq!(received(&String::from_utf8(ping.stdout).unwrap()), 40);
        linkgauge(&format!("latency {url} -n 40 --rate 100/s --size 56 --timeout 20s")).got_all_replies(40);
        for size in [1, 8, 1472, 65_507] {
            linkgauge(&format!("latency {url} -n 50 --warm-up 5 --rate max --size {size} --timeout 20s"))
                .got_all_replies(50);
        }
    }
    let measured =
        linkgauge("throughput icmp://127.0.0.1 --volume 140k --size 1400 --bit-rate 10Mbit/s").clean();
    assert_eq!((measured.count("sent"), measured.case()["direction"].as_str()), (100, Some("loop")));
}

#[test]
fn the_counters_of_the_kernel_match() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    // A fresh network namespace has zero counters, and allows no ping sockets until they are enabled.
    let ended = in_a_network(&format!(
        "cd {}\n\
         $LG latency icmp://127.0.0.1 -n 30 --rate max --warm-up 0 -q --json raw.json\n\
         echo '0 0' > /proc/sys/net/ipv4/ping_group_range\n\
         $LG latency icmp://127.0.0.1 'icmp://[::1]?socket=raw' 'icmp://[::1]?socket=ping' -n 30 --rate max --warm-up 0 -q --json ping.json\n\
         ping -n -q -c 30 -i 0.01 127.0.0.1\n\
         grep Icmp: /proc/net/snmp\n\
         grep -E 'Icmp6(InEchos|OutEchoReplies) ' /proc/net/snmp6",
        directory.path().display()
    ));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(received(&ended.stdout), 30);
    let mut tables =
        ended.stdout.lines().filter_map(|line| line.strip_prefix("Icmp: ")).map(str::split_whitespace);
    let (names, values) = (tables.next().unwrap(), tables.next().unwrap());
    let of_v4: Vec<_> =
        names.zip(values).filter(|(name, _)| ["InEchos", "OutEchoReps"].contains(name)).collect();
    assert_eq!(of_v4, [("InEchos", "90"), ("OutEchoReps", "90")], "ours, ours and ping's");
    let of_v6: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("Icmp6")).collect();
    assert!(of_v6.iter().all(|line| line.split_whitespace().last() == Some("60")), "{of_v6:?}");
    let sockets = |name: &str| -> Vec<String> {
        let run: Value = serde_json::from_slice(&fs::read(file(name)).unwrap()).unwrap();
        let cases = run["cases"].as_array().unwrap().iter();
        cases
            .map(|case| {
                assert_eq!((&case["received"], &case["protocol"]), (&Value::from(30), &Value::from("echo")));
                case["effective"]["socket"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    assert_eq!(
        (sockets("raw.json"), sockets("ping.json")),
        (vec!["raw".to_owned()], ["ping", "raw", "ping"].map(str::to_owned).to_vec())
    );
}

#[test]
fn errors_of_routers_are_one_line() {
    // Beyond `remote0` there is only a router.
    let ended = in_a_network(
        r#"
        unshare --net sleep 50 & router=$!
        trap 'kill $router' EXIT
        until [ "$(readlink /proc/$router/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
        ip link add name local0 type veth peer name remote0 netns $router
        ip link set local0 up
        ip addr add 10.9.0.1/24 dev local0
        ip addr add fd09::1/64 dev local0 nodad
        nsenter -t $router -n sh -ec '
            ip link set lo up
            ip link set remote0 up
            ip addr add 10.9.0.2/24 dev remote0
            ip addr add fd09::2/64 dev remote0 nodad
            # Otherwise errors that other tests provoke leave none for this one: the limit is of all namespaces.
            echo 0 > /proc/sys/net/ipv4/icmp_ratemask
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
            ip link add name beyond type veth peer name end
            ip link set end up
            ip link set beyond up
            ip route add 198.51.100.0/24 dev beyond
            ip route add 2001:db8::/32 dev beyond
            ip route add prohibit 203.0.113.0/24'
        ip route add default via 10.9.0.2
        ip -6 route add default via fd09::2
        for url in '198.51.100.9?ttl=1' '[2001:db8::9]?ttl=1' 192.0.2.1 203.0.113.1 10.9.0.77; do
            if $LG latency "icmp://$url" -n 10 --timeout 10s; then exit 7; fi
        done
        $LG latency icmp://10.9.0.2 'icmp://[fd09::2]' -n 100 --rate max -q >&2"#,
    );
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    insta::assert_snapshot!(ended.stderr.trim_end(), @r"
    error: icmp://198.51.100.9?ttl=1: time exceeded: the route has more routers than the ttl allows, reported by 10.9.0.2: raise ttl, or look for a loop of routers
    error: icmp://[2001:db8::9]?ttl=1: time exceeded: the route has more routers than the ttl allows, reported by fd09::2: raise ttl, or look for a loop of routers
    error: icmp://192.0.2.1: no route to the host, reported by 10.9.0.2: check the address and the routes there
    error: icmp://203.0.113.1: prohibited on the route, reported by 10.9.0.2: a firewall refuses it: contact its administrator
    error: icmp://10.9.0.77: host unreachable: nothing on this network has its address. Check the address, the cable, and that the host is on
    ");
}

#[test]
fn a_missing_permission_has_a_remedy() {
    let ended = in_a_network("setpriv --bounding-set -net_raw $LG latency icmp://127.0.0.1");
    assert_eq!(ended.status, Some(2));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    for words in
        ["neither open ping sockets nor raw ones", "sysctl net.ipv4.ping_group_range=", "cap_net_raw"]
    {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn silence_does_not_suggest_a_plug() {
    // 192.0.2.1 gets no reply in a network namespace with loopback only.
    let ended = in_a_network(
        "ip route add 192.0.2.0/24 dev lo\n$LG latency icmp://192.0.2.1 -n 3 --warm-up 0 --timeout 200ms",
    );
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("none of 3 messages arrived: the host is down, or a firewall drops the packets"),
        "{}",
        ended.stderr
    );
}
