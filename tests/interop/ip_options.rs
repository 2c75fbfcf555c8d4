//! Options of IP: a socket that receives every packet of its own network verifies the sent packets.

use serde_json::Value;

use super::icmp::in_a_network;

/// Runs the program with each line of arguments on its input (`$LG` is its name), and prints the packets sent
/// meanwhile: for each interface, kind of packet and end the values of the service field. Kinds are those of the first
/// number in the header: the next protocol.
const JUDGE: &str = r#"
import os, re, socket, struct, subprocess, sys

def packets(judge, port):
    while True:
        try:
            frame, (device, kind, direction, *_) = judge.recvfrom(65536)
        except BlockingIOError:
            return
        # On loopback every packet is seen twice: as sent and as received.
        if direction != socket.PACKET_OUTGOING:
            continue
        packet = frame[14:]
        if kind == 0x0800:
            protocol, field, payload = packet[9], packet[1], packet[(packet[0] & 15) * 4:]
        elif kind == 0x86dd:
            protocol, field, payload = packet[6], (packet[0] & 15) << 4 | packet[1] >> 4, packet[40:]
        else:
            continue
        names = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
        if protocol in (1, 58):
            # Requests of echo alone.
            end = "request" if payload[0] in (8, 128) else None
        else:
            source, destination = struct.unpack(">HH", payload[:4])
            end = "client" if destination == port else "server" if source == port else None
        if end and protocol in names:
            yield f"{device} {names[protocol]} {end} {field:#04x}"

for number, line in enumerate(sys.stdin.read().splitlines()):
    judge = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    judge.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    judge.setblocking(False)
    port = re.search(r":(\d+)(\?|$)", line.split()[1])
    port = port and int(port[1])
    subprocess.run([os.environ["LG"], *line.split(), "--quiet"], stderr=subprocess.DEVNULL)
    print(line.split()[1], *sorted(set(packets(judge, port))), sep="\n  ")
"#;

/// The packets sent for each line of arguments, after `prepare`.
fn judged(prepare: &str, lines: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("judge.py"), JUDGE).unwrap();
    std::fs::write(directory.path().join("lines"), lines).unwrap();
    let place = directory.path().display();
    let ended = in_a_network(&format!("{prepare}\npython3 {place}/judge.py < {place}/lines"));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    ended.stdout
}

/// A server in the network, ready before the script continues, ended with the script.
fn serving(arguments: &str) -> String {
    format!(
        "ready=$(mktemp -u)\nmkfifo $ready\n$LG serve {arguments} > $ready 2> /dev/null &\ntrap \"kill $!\" EXIT\n\
         exec 9< $ready\nread -r line <&9\nrm $ready"
    )
}

#[test]
fn requested_options_are_in_every_packet() {
    let server = "--protocol echo udp://127.0.0.1:7007 udp://[::1]:7007 tcp://127.0.0.1:7007 tcp://[::1]:7009 \
                  udp://[::]:7008?dscp=CS1&ecn=ect1 tcp://[::]:7008?dscp=CS1";
    let server = server.replace('&', "\\&");
    let seen = judged(
        &serving(&server),
        "latency udp://127.0.0.1:7007?dscp=EF&ecn=ect0 -n 3 --warm-up 1\n\
         latency udp://[::1]:7007 --dscp af41 --ecn 3 -n 3 --warm-up 1\n\
         latency tcp://127.0.0.1:7007?dscp=CS5 -n 3 --warm-up 1\n\
         latency tcp://[::1]:7009 --dscp 1 -n 3 --warm-up 1\n\
         latency icmp://127.0.0.1?dscp=EF&ecn=ect1 -n 3 --warm-up 1\n\
         latency icmp://127.0.0.1?dscp=EF&ecn=ect1&socket=raw -n 3 --warm-up 1\n\
         latency icmp://[::1]?dscp=EF&ecn=ect1 -n 3 --warm-up 1\n\
         latency udp://127.0.0.1:7008 -n 3 --warm-up 1\n\
         latency tcp://[::1]:7008 -n 3 --warm-up 1\n",
    );
    insta::assert_snapshot!(seen, @r"
    udp://127.0.0.1:7007?dscp=EF&ecn=ect0
      lo udp client 0xba
      lo udp server 0x00
    udp://[::1]:7007
      lo udp client 0x8b
      lo udp server 0x00
    tcp://127.0.0.1:7007?dscp=CS5
      lo tcp client 0xa0
      lo tcp server 0x00
    tcp://[::1]:7009
      lo tcp client 0x04
      lo tcp server 0x00
    icmp://127.0.0.1?dscp=EF&ecn=ect1
      lo icmp request 0xb9
    icmp://127.0.0.1?dscp=EF&ecn=ect1&socket=raw
      lo icmp request 0xb9
    icmp://[::1]?dscp=EF&ecn=ect1
      lo icmp6 request 0xb9
    udp://127.0.0.1:7008
      lo udp client 0x00
      lo udp server 0x21
    tcp://[::1]:7008
      lo tcp client 0x00
      lo tcp server 0x20
    ");
}

#[test]
fn interfaces_are_those_of_this_process_network() {
    // The host's /sys is still there.
    let ended = in_a_network(
        r#"ip link add veth8 type veth peer name veth9
        ip -o link | sed 's/^[0-9]*: //; s/[@:].*//' | LC_ALL=C sort | paste -sd, | sed 's/,/, /g'
        "$LG" latency udp://127.0.0.1:7007 --device eth77 -n 1 2>&1 || :"#,
    );
    let (names, printed) = ended.stdout.split_once('\n').unwrap();
    assert!(names.contains("lo, veth8, veth9"), "{names}");
    assert!(
        printed.ends_with(&format!("this host has no interface 'eth77'. Its interfaces: {names}\n")),
        "{printed}"
    );
}

#[test]
fn packets_leave_by_the_named_interface() {
    let interface = |name: &str, address: &str| {
        format!(
            "ip link add {name} type veth peer name peer-{name}\nip addr add {address}/24 dev {name}\n\
             ip link set {name} up\nip link set peer-{name} up\n\
             ip neigh add 10.9.9.77 lladdr 02:00:00:00:00:77 dev {name}\n"
        )
    };
    let seen = judged(
        &(interface("first", "10.9.9.1") + &interface("second", "10.9.9.2")),
        "latency udp://10.9.9.77:7007 --protocol echo -n 1 --warm-up 0 --timeout 100ms\n\
         latency udp://10.9.9.77:7007?device=second --protocol echo -n 1 --warm-up 0 --timeout 100ms\n\
         latency icmp://10.9.9.77 --device second -n 1 --warm-up 0 --timeout 100ms\n\
         latency tcp://10.9.9.77:7007?device=second --protocol echo -n 1 --warm-up 0 --timeout 100ms\n",
    );
    insta::assert_snapshot!(seen, @r"
    udp://10.9.9.77:7007
      first udp client 0x00
    udp://10.9.9.77:7007?device=second
      second udp client 0x00
    icmp://10.9.9.77
      second icmp request 0x00
    tcp://10.9.9.77:7007?device=second
      second tcp client 0x00
    ");
}

/// A name with addresses of both families in its own network; the result of each line, or its error.
#[test]
fn families_and_addresses_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, "::1 both six\n127.0.0.1 both four\n").unwrap();
    let server = serving(
        "--protocol echo udp://127.0.0.1:7007 udp://[::1]:7007 tcp://127.0.0.1:7007 tcp://[::1]:7007",
    );
    let lines = [
        "-4 udp://both:7007",
        "-6 udp://both:7007",
        "tcp://both:7007?family=4",
        "-4 tcp://both:7007?family=6",
        "--bind 127.0.0.9 tcp://both:7007",
        "--bind [::1]:7300 udp://both:7007",
        "-4 icmp://both",
        "--bind 127.0.0.9 icmp://both",
        "--device lo --dscp AF11 --ecn ect0 udp://[::1]:7007",
        "-6 udp://four:7007",
        "-4 tcp://[::1]:7007",
        "-6 --bind 127.0.0.9 udp://six:7007",
        "--bind 10.1.2.3 udp://four:7007",
        "--device eth77 tcp://four:7007",
        "--ecn ect0 tcp://four:7007",
        "--bind 127.0.0.9:7 icmp://four",
        "-4 unix:///tmp/there",
        "--dscp EF2 udp://four:7007",
    ];
    let mut script = format!("mount --bind {} /etc/hosts\n{server}\n", hosts.display());
    for line in lines {
        script += &format!(
            "$LG latency '{}' -n 2 --warm-up 1 --quiet --json - 2>&1 || true; echo; echo ---\n",
            line.split(' ').collect::<Vec<_>>().join("' '")
        );
    }
    let ended = in_a_network(&script);
    let printed = ended.stdout.split("\n---\n").zip(lines).map(|(printed, line)| {
        if let Some(error) = printed.lines().find(|line| line.starts_with("error: ")) {
            // The rest of the line depends on the host.
            let error = [". Its interfaces: ", " (known"]
                .iter()
                .fold(error, |error, end| error.split(end).next().unwrap());
            return format!("{line}\n  {error}");
        }
        let run: Value = serde_json::from_str(printed).expect(printed);
        let got = &run["cases"][0]["effective"];
        let names = ["local", "remote", "bound_device", "dscp", "ecn"];
        let facts = names.iter().filter(|name| !got[name].is_null()).map(|name| {
            let fact = got[name].to_string();
            // The kernel chooses a port.
            let port = fact.trim_matches('"').rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            let chosen = port.filter(|port| *port > 8000);
            chosen.map_or(format!("{name} {fact}"), |port| {
                format!("{name} {}", fact.replace(&port.to_string(), "…"))
            })
        });
        format!("{line}\n  {}", facts.collect::<Vec<_>>().join(", "))
    });
    insta::assert_snapshot!(printed.collect::<Vec<_>>().join("\n"), @r#"
    -4 udp://both:7007
      local "127.0.0.1:…", remote "127.0.0.1:7007"
    -6 udp://both:7007
      local "[::1]:…", remote "[::1]:7007"
    tcp://both:7007?family=4
      local "127.0.0.1:…", remote "127.0.0.1:7007"
    -4 tcp://both:7007?family=6
      local "[::1]:…", remote "[::1]:7007"
    --bind 127.0.0.9 tcp://both:7007
      local "127.0.0.9:…", remote "127.0.0.1:7007"
    --bind [::1]:7300 udp://both:7007
      local "[::1]:7300", remote "[::1]:7007"
    -4 icmp://both
      local "127.0.0.1", remote "127.0.0.1"
    --bind 127.0.0.9 icmp://both
      local "127.0.0.9", remote "127.0.0.1"
    --device lo --dscp AF11 --ecn ect0 udp://[::1]:7007
      local "[::1]:…", remote "[::1]:7007", bound_device "lo", dscp 10, ecn 2
    -6 udp://four:7007
      error: udp://four:7007?family=6: 'four' has no IPv6 address, which family=6 needs
    -4 tcp://[::1]:7007
      error: tcp://[::1]:7007?family=4: ::1 is an IPv6 address, but family=4 needs IPv4
    -6 --bind 127.0.0.9 udp://six:7007
      error: udp://six:7007?family=6&bind=127.0.0.9: bind=127.0.0.9 is an IPv4 address, but the link uses IPv6
    --bind 10.1.2.3 udp://four:7007
      error: udp://four:7007?bind=10.1.2.3: this host does not have the address 10.1.2.3: 'ip address' lists its addresses
    --device eth77 tcp://four:7007
      error: tcp://four:7007?device=eth77: this host has no interface 'eth77'
    --ecn ect0 tcp://four:7007
      error: tcp://four:7007?ecn=ect0: unknown option 'ecn'
    --bind 127.0.0.9:7 icmp://four
      error: icmp://four?bind=127.0.0.9:7: 'bind=127.0.0.9:7' is not an address of this host
    -4 unix:///tmp/there
      error: unix:///tmp/there?family=4: unknown option 'family'
    --dscp EF2 udp://four:7007
      error: udp://four:7007?dscp=EF2: 'dscp=EF2' is not a class like EF, CS1 or AF41, or a number from 0 to 63
    "#);
}
