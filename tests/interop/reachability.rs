//! Hosts that cannot be reached, and hosts of which one address is dead: a network of three namespaces with a router.

use crate::icmp::in_a_network;
use crate::program::Ended;

/// Runs a script in the network of a client: 10.9.1.2 and fd09:1::2, a router, and a server at 10.9.2.2 and fd09:2::2. `on_server` runs a
/// command there.
fn behind_a_router(script: &str) -> Ended {
    in_a_network(&format!(
        r#"
        unshare --net sleep 50 & router=$!
        unshare --net sleep 50 & server=$!
        trap 'kill $router $server $programs' EXIT
        for other in $router $server; do
            until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
        done
        on_router() {{ nsenter -t $router -n "$@"; }}
        on_server() {{ nsenter -t $server -n "$@"; }}
        ip link add name near type veth peer name side0 netns $router
        ip link set near up
        ip addr add 10.9.1.2/24 dev near
        ip addr add fd09:1::2/64 dev near nodad
        on_router sh -ec '
            ip link set lo up
            ip link add name side1 type veth peer name far
            for end in side0 side1; do ip link set $end up; done
            ip addr add 10.9.1.1/24 dev side0
            ip addr add fd09:1::1/64 dev side0 nodad
            ip addr add 10.9.2.1/24 dev side1
            ip addr add fd09:2::1/64 dev side1 nodad
            # Otherwise errors that other tests provoke leave none for this one: the limit is of all namespaces.
            echo 0 > /proc/sys/net/ipv4/icmp_ratemask
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
            ip route add prohibit 203.0.113.0/24
            ip link set far netns '$server
        on_server sh -ec '
            ip link set lo up
            ip link set far up
            ip addr add 10.9.2.2/24 dev far
            ip addr add fd09:2::2/64 dev far nodad
            ip route add default via 10.9.2.1
            ip -6 route add default via fd09:2::1'
        ip route add default via 10.9.1.1
        ip -6 route add default via fd09:1::1
        ip route add unreachable 10.99.0.0/16
        {script}"#
    ))
}

/// The messages of the failed commands of a script that succeeded.
fn sentences(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let error = |line: &str| line.strip_prefix("error: ").map(str::to_owned);
    ended.stderr.lines().filter_map(error).collect()
}

#[test]
fn all_transports_say_the_same_about_a_host() {
    let ended = behind_a_router(
        r#"
        on_server iptables -A INPUT -d 10.9.2.2 -p tcp --dport 7200 -j REJECT
        for host in 10.99.0.1 10.9.1.77 10.9.2.77 203.0.113.1; do
            for url in tcp://$host:7100 udp://$host:7100 icmp://$host; do
                if $LG latency $url -n 1 --warm-up 0; then exit 7; fi
            done
        done
        for url in tcp://10.9.2.2:7100 udp://10.9.2.2:7100 tcp://10.9.2.2:7200; do
            if $LG throughput $url -t 1; then exit 7; fi
        done"#,
    );
    insta::assert_snapshot!(sentences(&ended).join("\n"), @r"
    tcp://10.99.0.1:7100: a route of this host refuses the address (type unreachable): 'ip route list type unreachable' shows it
    udp://10.99.0.1:7100: a route of this host refuses the address (type unreachable): 'ip route list type unreachable' shows it
    icmp://10.99.0.1: a route of this host refuses the address (type unreachable): 'ip route list type unreachable' shows it
    tcp://10.9.1.77:7100: host unreachable: nothing on this network has its address. Check the address, the cable, and that the host is on
    udp://10.9.1.77:7100: host unreachable: nothing on this network has its address. Check the address, the cable, and that the host is on
    icmp://10.9.1.77: host unreachable: nothing on this network has its address. Check the address, the cable, and that the host is on
    tcp://10.9.2.77:7100: host unreachable, reported by 10.9.1.1: check the address, the cable, and that the host is on
    udp://10.9.2.77:7100: host unreachable, reported by 10.9.1.1: check the address, the cable, and that the host is on
    icmp://10.9.2.77: host unreachable, reported by 10.9.1.1: check the address, the cable, and that the host is on
    tcp://203.0.113.1:7100: prohibited on the route, reported by 10.9.1.1: a firewall refuses it: contact its administrator
    udp://203.0.113.1:7100: prohibited on the route, reported by 10.9.1.1: a firewall refuses it: contact its administrator
    icmp://203.0.113.1: prohibited on the route, reported by 10.9.1.1: a firewall refuses it: contact its administrator
    tcp://10.9.2.2:7100: connection refused: no server listens on this port. Start one there, like 'linkgauge serve tcp://0.0.0.0:7100', or name another port
    udp://10.9.2.2:7100: connection refused: no server listens on this port. Start one there, like 'linkgauge serve udp://0.0.0.0:7100', or name another port
    tcp://10.9.2.2:7200: prohibited on the route, reported by 10.9.2.2: a firewall refuses it: contact its administrator
    ");
}

#[test]
fn the_one_who_refuses_is_named() {
    let ended = behind_a_router(
        r#"
        try() {
            for url in "$@"; do if $LG latency $url -n 1 --warm-up 0 --timeout 1; then exit 7; fi; done
        }
        ip route add prohibit 10.9.2.2
        try udp://10.9.2.2 icmp://10.9.2.2
        ip route del prohibit 10.9.2.2
        ip -6 route add blackhole fd09:2::2
        try tcp://[fd09:2::2] udp://[fd09:2::2]
        ip -6 route del blackhole fd09:2::2
        try tcp://10.9.1.255 udp://10.9.1.255 icmp://10.9.1.255
        iptables -A OUTPUT -d 10.9.2.2 -j DROP
        try udp://10.9.2.2 icmp://10.9.2.2 tcp://10.9.2.2
        for n in 4 20; do
            if $LG latency tcp://10.9.2.2 -P $n --protocol echo -n 1 --warm-up 0 --timeout 1; then exit 7; fi
        done
        iptables -F
        on_router iptables -A FORWARD -d 10.9.2.2 -j REJECT
        on_router ip6tables -A FORWARD -d fd09:2::2 -j REJECT
        try udp://10.9.2.2 udp://[fd09:2::2]"#,
    );
    insta::assert_snapshot!(sentences(&ended).join("\n"), @r"
    udp://10.9.2.2: a route of this host refuses the address (type prohibit): 'ip route list type prohibit' shows it
    icmp://10.9.2.2: a route of this host refuses the address (type prohibit): 'ip route list type prohibit' shows it
    tcp://[fd09:2::2]: a route of this host refuses the address (type blackhole): 'ip -6 route list type blackhole' shows it
    udp://[fd09:2::2]: a route of this host refuses the address (type blackhole): 'ip -6 route list type blackhole' shows it
    tcp://10.9.1.255: 10.9.1.255 is the broadcast address of a network. Use that of a host
    udp://10.9.1.255: 10.9.1.255 is the broadcast address of a network. Use that of a host
    icmp://10.9.1.255: 10.9.1.255 is the broadcast address of a network. Use that of a host
    udp://10.9.2.2: a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
    icmp://10.9.2.2: a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
    tcp://10.9.2.2: a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
    tcp://10.9.2.2: a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
    tcp://10.9.2.2: a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
    udp://10.9.2.2: prohibited on the route, reported by 10.9.1.1: a firewall refuses it: contact its administrator
    udp://[fd09:2::2]: prohibited on the route, reported by fd09:1::1: a firewall refuses it: contact its administrator
    ");
}

#[test]
fn a_smaller_path_is_measured_and_named_and_a_black_hole_suggests_the_size() {
    let ended = behind_a_router(
        r#"
        on_router ip link set side1 mtu 1300
        on_server ip link set far mtu 1300
        nsenter -t $server -n $LG serve tcp://0.0.0.0 udp://0.0.0.0 -q >/dev/null 2>&1 & programs=$!
        until $LG connect 10.9.2.2 -n 1 -q; do sleep 0.1; done
        $LG throughput udp://10.9.2.2 -b 5M -t 1 --no-store
        ip route flush cache
        on_router iptables -A OUTPUT -p icmp -j DROP
        if $LG latency udp://10.9.2.2 -s 1400 -n 5 --timeout 1 --no-store; then exit 7; fi"#,
    );
    let text = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("messages of 1400 B exceed the packets of the path (1300 B"), "{}", ended.stdout);
    assert!(text.contains("Try: -s 1272 fits one packet"), "{}", ended.stdout);
    let error = sentences(&ended).pop().unwrap();
    assert!(
        error.contains("no reply to messages of 1400 B, though the server has answered smaller"),
        "{error}"
    );
}

#[test]
fn a_firewall_that_drops_is_silence() {
    let ended = behind_a_router(
        r#"
        on_server iptables -A INPUT -j DROP
        for url in tcp://10.9.2.2 udp://10.9.2.2 icmp://10.9.2.2; do
            if $LG latency $url -n 1 --warm-up 0; then exit 7; fi
        done
        if $LG connect 10.9.2.2 -n 1; then exit 7; fi
        if $LG explain tcp://10.9.2.2; then exit 7; fi"#,
    );
    insta::assert_snapshot!(sentences(&ended).join("\n"), @r"
    tcp://10.9.2.2: no reply: the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout
    udp://10.9.2.2: no reply: the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout. If it speaks another protocol, choose that with --protocol
    icmp://10.9.2.2: none of 1 message arrived: the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout
    tcp://10.9.2.2: no reply: the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout
    tcp://10.9.2.2: no reply: the host is down, or a firewall drops the packets. Check the address, the cable, firewalls and --timeout
    ");
}

#[test]
fn a_dead_address_is_no_part_of_a_measurement() {
    let ended = behind_a_router(
        r#"
        mount -t tmpfs none /mnt
        printf 'fd09:2::2 server\n10.9.2.2 server\n' > /mnt/hosts
        mount --bind /mnt/hosts /etc/hosts
        on_server ip6tables -A INPUT -d fd09:2::2 -j DROP
        nsenter -t $server -n $LG serve tcp://0.0.0.0 udp://0.0.0.0 -q >/dev/null 2>&1 & programs=$!
        sleep 1
        for url in tcp://server udp://server icmp://server; do
            $LG latency $url -n 20 --warm-up 0 --threshold 'max < 200ms'
        done
        $LG connect server -n 20 --warm-up 0 --threshold 'max < 200ms'"#,
    );
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.matches("(10.9.2.2").count(), 4, "{}", ended.stdout);
}

#[test]
fn ping_falls_back_to_icmp() {
    let ended = behind_a_router("$LG ping 10.9.2.2 -n 3 --warm-up 0 -q");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("10.9.2.2: no linkgauge server on port 7100; measured by ICMP"),
        "{}",
        ended.stderr
    );
}
