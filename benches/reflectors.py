#!/usr/bin/env python3
"""STAMP compared with the linkgauge protocol over UDP on loopback: interleaved repetitions, same CPUs, same message size.

Prints the median ratio of the round trips' medians with its 95 % interval (bootstrap of the paired ratios), and what the
reflector took of them. The bar is a ratio of 1.1 for open packets.
    benches/reflectors.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 1]
Needs: taskset. It ends every program that it starts, by process id.
"""
import contextlib, statistics, tempfile

import common

args = common.flags(__doc__, seconds=1.0, cpus="0,1").parse_args()
NEAR, FAR = args.cpus.split(",")


def measure(url, *more):
    return common.case(["taskset", "-c", NEAR, args.binary, "latency", url, "-t", f"{args.seconds}s", *more])


with contextlib.ExitStack() as servers, tempfile.NamedTemporaryFile("w") as key:

    def serve(*more):
        """Starts a server on a free port; returns its URL."""
        server = common.Server(["taskset", "-c", FAR, args.binary, "serve", "udp://127.0.0.1:0", *more])
        return servers.enter_context(server).url

    key.write("a key for the benchmark")
    key.flush()
    signed = ["--token-file", key.name]
    own = serve()
    rows = [
        ("stamp", serve("--protocol", "stamp"), 44, ["--protocol", "stamp"]),
        ("signed", serve("--protocol", "stamp", *signed), 112, ["--protocol", "stamp", "--authenticated", *signed]),
        ("twamp-light", serve("--protocol", "twamp-light"), 41, ["--protocol", "twamp-light"]),
    ]
    print(f"{'row':12} {'ratio':>6}  95 % interval")
    for name, url, size, flags in rows:
        pairs, turnarounds = [], []
        for _ in range(args.repeat):
            case = measure(url, *flags)
            turnarounds.append(case["one_way"]["turnaround_ns"]["p50"])
            plain = measure(own, "--protocol", "linkgauge", "--size", str(size))
            pairs.append((case["latency_ns"]["p50"], plain["latency_ns"]["p50"]))
        ratio = common.Ratio(pairs)
        print(f"{name:12} {ratio}  {name} {ratio.ours / 1e3:.2f} µs  own peer {ratio.theirs / 1e3:.2f} µs"
              f"  turn-around {statistics.median(turnarounds) / 1e3:.2f} µs", flush=True)
