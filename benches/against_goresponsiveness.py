#!/usr/bin/env python3
"""Responsiveness over HTTP/2 beside goresponsiveness, on our server behind a slow link. Prints rows for each rate and direction.

    benches/against_goresponsiveness.py NETWORK_QUALITY [--binary target/release/linkgauge] [--repeat 5] [--seconds 12] [--rate 50,100]
NETWORK_QUALITY is the program: 'go build networkQuality.go' in its repository. Bar: the medians differ by at most 10 %. Each
repetition measures with both, one after the other, in an order that alternates; both send 20 probes of each kind a second. The RPM
compared is the one that goresponsiveness prints as trimmed mean: 60 s by the mean of the times of both kinds of probes. Its --rpm.tmp
is the share of the probes that it keeps, the fastest ones: 5 % by default, so that it hides what a load adds. Here it keeps 95 %, as the
draft demands. The document of ours has the RPM of each kind (draft 09 takes the mean of these instead), from which the same is
computed here.
goresponsiveness adds a connection each second until its end, ours until the goodput is stable, so both are limited to --connections.
The link is the kernel's token bucket (tc tbf) between three network namespaces, with a queue of 100 ms, without a delay, and with cubic
at both ends. Sockets of both hosts hold at most 16 KiB unsent: ours asks for that, goresponsiveness does not, so the namespaces do.
In an upload the own probes of goresponsiveness wait in its HTTP/2 library before the kernel gets them. That time is printed, too.
Needs root. Run it on a machine that does nothing else.
"""
import os, re, statistics, subprocess

import common

parser = common.flags(__doc__, repeat=5, seconds=12)
parser.add_argument("network_quality")
parser.add_argument("--rate", default="50,100", help="Mbit/s, list")
parser.add_argument("--connections", default="4", help="connections of the load, at most, of both programs")
args = parser.parse_args()

DIRECTIONS = ("download", "upload")
PROBES = "20"


def ours(place, within):
    """RPM of both kinds of probes together, of each kind, and goodput in Mbit/s, by direction."""
    url = f"https://{place}?insecure=1"
    run = common.document([*within, args.binary, "responsiveness", url, "-d", ",".join(DIRECTIONS), "--probe", PROBES + "/s",
                           "--parallel", args.connections, "--time", f"{args.seconds}s", "--timeout", "20s"], 60 + 3 * args.seconds)
    found = {}
    for direction, case in zip(DIRECTIONS, run["cases"]):
        foreign, own = case.get("foreign_rpm"), case.get("own_rpm")
        both = 2 / (1 / foreign + 1 / own) if foreign and own else None
        found[direction] = both, foreign, own, case.get("goodput_bps", 0) / 1e6
    return found


def theirs(place, within):
    host, port = place.rsplit(":", 1)
    command = [*within, args.network_quality, "--config", host, "--port", port, "--path", ".well-known/nq", "--rpm.mps", PROBES,
               "--rpm.mnp", args.connections, "--rpm.tmp", "95", "--rpm.timeout", str(args.seconds), "--debug"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60 + 4 * args.seconds)
    found = {"wait": wait_before_kernel(ended.stdout)}
    for direction in DIRECTIONS:
        part = ended.stdout.partition("Results:")[2].partition(direction.capitalize() + ":")[2].partition("========")[0]
        number = lambda pattern: next((float(text) for text in re.findall(pattern, part)[-1:]), None)
        mean = number(r"RPM: (\S+) \(Single-Sided")
        own, foreign = number(r"Trimmed Mean Self RTT:\s+(\S+)"), number(r"Trimmed Mean Foreign RTT:\s+(\S+)")
        # Without a probe it prints +Inf.
        rpm = lambda seconds: 60 / seconds if seconds else None
        usable = mean if mean and own and foreign and mean < 1e9 else None
        found[direction] = usable, rpm(foreign), rpm(own), number(r"Throughput: (\S+) Mbps") or 0.0
    return found


def wait_before_kernel(output):
    """Mean time in ms that an own probe of an upload waits before the kernel gets it, from the output of goresponsiveness. None: no probe."""
    moments = lambda event: dict(re.findall(rf"\(SelfUp Probe\) {event} for Probe (\d+) at .*?m=\+([\d.]+)", output))
    began, written = moments("Got a reused connection"), moments("Http finished writing request")
    waits = [1e3 * (float(time) - float(began[probe])) for probe, time in written.items() if probe in began]
    return statistics.mean(waits) if waits else None


def text(values):
    known = [value for value in values if value]
    return f"{statistics.median(known):.0f}" if known else "–"


class Router:
    """Namespaces of a client, of a router with a queue in each direction, and of a server of ours."""

    def __init__(self, rate):
        self.names = [f"lg-{name}-{os.getpid()}" for name in ("client", "router", "server")]
        client, router, server = self.names
        rate = float(rate) * 1e6
        queue = f"tbf rate {rate:.0f}bit burst {max(3000, rate / 8 / 1000):.0f} limit {rate / 8 / 10:.0f}"
        for line in (*(f"netns add {name}" for name in self.names),
                     f"link add a0 netns {client} type veth peer name a1 netns {router}",
                     f"link add b0 netns {server} type veth peer name b1 netns {router}",
                     f"-n {client} address add 10.71.0.2/24 dev a0", f"-n {router} address add 10.71.0.1/24 dev a1",
                     f"-n {server} address add 10.72.0.2/24 dev b0", f"-n {router} address add 10.72.0.1/24 dev b1",
                     f"-n {client} link set a0 up", f"-n {router} link set a1 up", f"-n {server} link set b0 up",
                     f"-n {router} link set b1 up",
                     # BBR keeps its queue short for some of the time, so that two measurements in a row find two links.
                     f"-n {client} route add default via 10.71.0.1 congctl cubic",
                     f"-n {server} route add default via 10.72.0.1 congctl cubic",
                     f"netns exec {router} sysctl -qw net.ipv4.ip_forward=1",
                     *(f"netns exec {host} sysctl -qw net.ipv4.tcp_notsent_lowat={16 << 10}" for host in (client, server)),
                     f"netns exec {router} tc qdisc add dev a1 root {queue}",
                     f"netns exec {router} tc qdisc add dev b1 root {queue}"):
            subprocess.run(["ip", *line.split()], check=True)
        self.server = common.Server(["ip", "netns", "exec", server, args.binary, "serve", "https://10.72.0.2:4043"])
        self.place, self.within = "10.72.0.2:4043", ["ip", "netns", "exec", client]

    def stop(self):
        self.server.stop()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=True)


def measure(rate):
    results = {name: [] for name in ("ours", "theirs")}
    for repetition in range(args.repeat):
        both = [("ours", ours), ("theirs", theirs)]
        for name, run in both if repetition % 2 == 0 else reversed(both):
            # What a program leaves in the queues ends with its link.
            link = Router(rate)
            try:
                results[name].append(run(link.place, link.within))
            finally:
                link.stop()
    for direction in DIRECTIONS:
        of = lambda name, index: [result[direction][index] for result in results[name]]
        medians = {name: [value for value in of(name, 0) if value] for name in results}
        ratio = "no result"
        if all(medians.values()):
            share = statistics.median(medians["ours"]) / statistics.median(medians["theirs"])
            ratio = f"{share:.3f}, bar 0.9 to 1.1: {'kept' if 0.9 <= share <= 1.1 else 'MISSED'}"
        print(f"{rate} Mbit/s, {direction}: ours ÷ theirs {ratio}", flush=True)
        for name in results:
            print(f"  {name}: RPM {text(of(name, 0))} {[round(value) if value else None for value in of(name, 0)]}, beside "
                  f"{text(of(name, 1))}, in load {text(of(name, 2))}, {statistics.median(of(name, 3)):.1f} Mbit/s", flush=True)
    waits = text([result["wait"] for result in results["theirs"]])
    print(f"  theirs, upload: an own probe waits {waits} ms before the kernel gets it", flush=True)


for rate in args.rate.split(","):
    measure(rate)
