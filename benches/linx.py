#!/usr/bin/env python3
"""The two bars of LINX: round trips compared with raw TCP in the same run, and one-way messages per second. One row per bar.

    benches/linx.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2]
It ends every program that it starts, by process id.
"""
import statistics, time

import common

args = common.flags(__doc__, seconds=2.0, cpus="0,1").parse_args()
PORT = 17351
URLS = {"tcp": f"tcp://127.0.0.1:{PORT}", "linx": f"linx://127.0.0.1:{PORT + 1}/server", "local": "linx:///bench"}


def case(*arguments):
    return common.case([args.binary, *arguments, "--pin", args.cpus])


def round_trip(url):
    return case("latency", url, "-s", "64", "-t", f"{args.seconds}s", "--warm-up", "200ms")["latency_ns"]["p50"]


def messages(url):
    return case("throughput", url, "-s", "64", "-t", f"{args.seconds}s", "--probe", "off")["messages_per_second"]


with common.Program([args.binary, "serve", *URLS.values()]):
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
