#!/usr/bin/env python3
"""STAMP beside our own UDP peer on loop-back: interleaved repetitions, same CPUs, messages of the same size.

Prints the median ratio of the round trips' medians with its 95 % interval (bootstrap of the paired ratios), and what the
reflector took of them. The bar is a ratio of 1.1 for open packets.
    benches/reflectors.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 1]
Needs: taskset. Ends every program it starts, by process id.
"""
import argparse, json, os, random, signal, statistics, subprocess, tempfile

# Nothing of this goes into the store of whoever runs it.
os.environ["LINKGAUGE_STORE"] = ""

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--binary", default="target/release/linkgauge")
args.add_argument("--repeat", type=int, default=10)
args.add_argument("--cpus", default="0,1", help="CPU of the near end, CPU of the far end")
args.add_argument("--seconds", type=float, default=1)
args = args.parse_args()
NEAR, FAR = args.cpus.split(",")
servers = []


def serve(*more):
    """A far end on a free port; its URL."""
    command = ["taskset", "-c", FAR, args.binary, "serve", "udp://127.0.0.1:0", *more]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    servers.append(server)
    return server.stdout.readline().split(" on ")[1].strip()


def measure(url, *more):
    command = ["taskset", "-c", NEAR, args.binary, "latency", url, "-t", f"{args.seconds}s", "--quiet", "--json", "-", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["cases"][0]


def report(name, pairs, turnaround):
    ratios = [a / b for a, b in pairs]
    random.seed(1)
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
    ours, theirs = (statistics.median(side) / 1e3 for side in zip(*pairs))
    print(f"{name:12} {statistics.median(ratios):6.3f}  [{medians[249]:.3f}, {medians[9749]:.3f}]"
          f"  {name} {ours:.2f} µs  own peer {theirs:.2f} µs  turn-around {turnaround / 1e3:.2f} µs", flush=True)


try:
    with tempfile.NamedTemporaryFile("w") as key:
        key.write("a key for the benchmark")
        key.flush()
        signed = ["--token-file", key.name]
        own = serve()
        rows = [
            ("stamp", serve("--peer", "stamp"), 44, ["--peer", "stamp"]),
            ("signed", serve("--peer", "stamp", *signed), 112, ["--peer", "stamp", "--authenticated", *signed]),
            ("twamp-light", serve("--peer", "twamp-light"), 41, ["--peer", "twamp-light"]),
        ]
        print(f"{'row':12} {'ratio':>6}  95 % interval")
        for name, url, size, flags in rows:
            pairs, turnarounds = [], []
            for _ in range(args.repeat):
                case = measure(url, *flags)
                turnarounds.append(case["ways"]["turnaround_ns"]["p50"])
                plain = measure(own, "--peer", "linkgauge", "--size", str(size))
                pairs.append((case["latency_ns"]["p50"], plain["latency_ns"]["p50"]))
            report(name, pairs, statistics.median(turnarounds))
finally:
    for server in servers:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(3)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
