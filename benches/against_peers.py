#!/usr/bin/env python3
"""Compares linkgauge with sockperf and iperf3 on loopback: interleaved repetitions, same CPUs, default buffers.

Prints the median ratio of each figure with its 95 % interval (bootstrap of the paired ratios).
    benches/against_peers.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2] [ROW…]
Needs: sockperf, iperf3, taskset. It ends every program that it starts, by process id.
"""
import json, re, socket, time

import common

parser = common.flags(__doc__, seconds=2.0, cpus="0,1")
parser.add_argument("rows", nargs="*")
args = parser.parse_args()
NEAR, FAR = args.cpus.split(",")
PORT = 17311


class Server(common.Program):
    """A server of another program, or ours."""

    def __init__(self, command, port, connects=True):
        super().__init__(command)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            time.sleep(0.05)
            if not connects:
                time.sleep(0.3)
                return
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                pass
        self.stop()
        raise SystemExit(f"{command[0]} did not start")


def ours(arguments):
    return common.case([args.binary, *arguments, "--pin", args.cpus])


def our_latency(scheme, spin):
    command = ["latency", f"{scheme}://127.0.0.1:{PORT}", "-s", "14", "-t", f"{args.seconds}s", "--warm-up", "400ms"]
    case = ours(command + (["--busy-poll"] if spin else []))
    if "p50" not in case.get("latency_ns", {}):
        raise SystemExit(f"no median: {json.dumps(case)}")
    return case["latency_ns"]["p50"]


def sockperf_latency(scheme, spin):
    extra = (["--tcp"] if scheme == "tcp" else []) + (["--nonblocked"] if spin else [])
    server = ["taskset", "-c", FAR, "sockperf", "sr", "-i", "127.0.0.1", "-p", str(PORT + 1), *extra]
    with Server(server, PORT + 1, connects=False):
        text = common.output(["taskset", "-c", NEAR, "sockperf", "pp", "-i", "127.0.0.1", "-p", str(PORT + 1), "-m", "14",
                              "-t", str(max(1, round(args.seconds))), "--full-rtt", *extra])
    median = re.search(r"percentile 50.000 =\s*([\d.]+)", text)
    if not median:
        raise SystemExit(f"sockperf printed no median: {text}")
    return float(median.group(1)) * 1000


def our_throughput(scheme):
    size = [] if scheme == "tcp" else ["-s", "1400"]
    case = ours(["throughput", f"{scheme}://127.0.0.1:{PORT}", "-t", f"{args.seconds}s", "--probe", "off", *size])
    return case["throughput_bps"], case["cpu"]["seconds_per_gigabyte"]


def iperf3_throughput(scheme):
    server = ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(PORT + 2)]
    udp = ["-u", "-b", "0", "-l", "1400"] if scheme == "udp" else []
    # A connection without a test would occupy it.
    with Server(server, PORT + 2, connects=False):
        text = common.output(["iperf3", "-c", "127.0.0.1", "-p", str(PORT + 2), "-t", str(max(1, round(args.seconds))),
                              "-A", args.cpus, "-J", *udp])
    end = json.loads(text)["end"]
    total = end["sum"] if scheme == "udp" else end["sum_received"]
    lost = total.get("lost_percent", 0.0) if scheme == "udp" else 0.0
    rate = total["bits_per_second"] * (1 - lost / 100)
    cpu = end["cpu_utilization_percent"]
    seconds = (cpu["host_total"] + cpu["remote_total"]) / 100 * total["seconds"]
    return rate, seconds / (rate / 8 * total["seconds"] / 1e9)


def report(name, pairs, better):
    ratio = common.Ratio(pairs)
    print(f"{name:24} {ratio}  {better:9}  ours {ratio.ours:.4g}  theirs {ratio.theirs:.4g}", flush=True)


print(f"{'row':24} {'ratio':>6}  95 % interval   better is")
with Server([args.binary, "serve", f"tcp://127.0.0.1:{PORT}", f"udp://127.0.0.1:{PORT}"], PORT):
    for scheme in ("tcp", "udp"):
        for spin in (False, True):
            name = f"{scheme} latency {'spin' if spin else 'block'}"
            if args.rows and name not in args.rows:
                continue
            pairs = [(our_latency(scheme, spin), sockperf_latency(scheme, spin)) for _ in range(args.repeat)]
            report(name, pairs, "smaller")
    for scheme in ("tcp", "udp"):
        name = f"{scheme} throughput"
        if args.rows and name not in args.rows:
            continue
        pairs = [(our_throughput(scheme), iperf3_throughput(scheme)) for _ in range(args.repeat)]
        report(name, [(a[0], b[0]) for a, b in pairs], "larger")
        report(f"{scheme} CPU s/GB", [(a[1], b[1]) for a, b in pairs], "smaller")
