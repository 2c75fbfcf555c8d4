#!/usr/bin/env python3
"""The two bars of LINX: round trips beside raw TCP in the same run, and one-way messages a second. One row a bar.

    benches/linx.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2]
Ends every program it starts, by process id.
"""
import argparse, json, os, signal, statistics, subprocess, time

# Nothing of this goes into the store of whoever runs it.
os.environ["LINKGAUGE_STORE"] = ""

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--binary", default="target/release/linkgauge")
args.add_argument("--repeat", type=int, default=10)
args.add_argument("--cpus", default="0,1", help="CPU of the near end, CPU of the far end")
args.add_argument("--seconds", type=float, default=2)
args = args.parse_args()
PORT = 17351
URLS = {"tcp": f"tcp://127.0.0.1:{PORT}", "linx": f"linx://127.0.0.1:{PORT + 1}/server", "local": "linx:///bench"}


def case(*arguments):
    command = [args.binary, *arguments, "--pin", args.cpus, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)["cases"][0]


def round_trip(url):
    return case("latency", url, "-s", "64", "-t", f"{args.seconds}s", "--warm-up", "200ms")["latency_ns"]["p50"]


def messages(url):
    return case("throughput", url, "-s", "64", "-t", f"{args.seconds}s", "--probe", "off")["messages_per_second"]


server = subprocess.Popen([args.binary, "serve", *URLS.values()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    time.sleep(0.5)
    ratios = {"linx": [], "local": []}
    for _ in range(args.repeat):
        raw = round_trip(URLS["tcp"])
        for name, row in ratios.items():
            row.append(round_trip(URLS[name]) / raw)
    for name, row in ratios.items():
        print(f"{URLS[name]}: round trip of 64 bytes, to raw TCP: {statistics.median(row):.3f}  (bar for TCP: 1.15)")
    for name in ratios:
        rate = statistics.median(messages(URLS[name]) for _ in range(args.repeat))
        print(f"{URLS[name]}: one-way 64-byte messages a second: {rate:,.0f}  (bar for TCP: 500,000)")
finally:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(3)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
