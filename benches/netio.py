#!/usr/bin/env python3
"""NETIO's blocks of 32 KB compared with messages of that size in the linkgauge protocol, TCP on loopback: interleaved pairs.

Prints the median ratio of the delivered rates (netio / linkgauge) with its 95 % interval (bootstrap). The bar is 0.95.
    benches/netio.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2]
Needs: taskset. It ends every program that it starts, by process id.
"""
import common

args = common.flags(__doc__, seconds=2.0, cpus="0,1").parse_args()
NEAR, FAR = args.cpus.split(",")
SIZE = "32768"


def server(peer):
    return common.Server(["taskset", "-c", FAR, args.binary, "serve", "--protocol", peer, "tcp://127.0.0.1:0"])


def rate(peer, server):
    return common.case(["taskset", "-c", NEAR, args.binary, "throughput", server.url, "--protocol", peer, "--size", SIZE,
                        "--time", f"{args.seconds}s", "--probe", "off"])["throughput_bps"]


with server("netio") as netio, server("linkgauge") as own:
    ratio = common.Ratio([(rate("netio", netio), rate("linkgauge", own)) for _ in range(args.repeat)])
print(f"tcp 32 KB, netio / linkgauge: {ratio}  netio {ratio.ours / 1e9:.2f} Gbit/s, linkgauge {ratio.theirs / 1e9:.2f} Gbit/s")
