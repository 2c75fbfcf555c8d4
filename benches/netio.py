#!/usr/bin/env python3
"""Blocks of 32 KB as NETIO has them beside our own session's messages of that size, TCP on loop-back: interleaved pairs.

Prints the median ratio of the delivered rates (netio / linkgauge) with its 95 % interval (bootstrap). The bar is 0.95.
    benches/netio.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2]
Needs: taskset. Ends every program it starts, by process id.
"""
import argparse, json, os, random, signal, statistics, subprocess

# Nothing of this goes into the store of whoever runs it.
os.environ["LINKGAUGE_STORE"] = ""

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--binary", default="target/release/linkgauge")
args.add_argument("--repeat", type=int, default=10)
args.add_argument("--cpus", default="0,1", help="CPU of the near end, CPU of the far end")
args.add_argument("--seconds", type=float, default=2)
args = args.parse_args()
NEAR, FAR = args.cpus.split(",")
SIZE = "32768"


class Server:
    """A far end of ours on a port of its own, as long as it is needed."""

    def __init__(self, peer):
        command = ["taskset", "-c", FAR, args.binary, "serve", "--peer", peer, "tcp://127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split(" on ")[-1].strip()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def rate(peer, server):
    command = ["taskset", "-c", NEAR, args.binary, "throughput", server.url, "--peer", peer, "--size", SIZE,
               "--time", f"{args.seconds}s", "--probe", "off", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)["cases"][0]["throughput_bps"]


servers = {peer: Server(peer) for peer in ("netio", "linkgauge")}
try:
    pairs = [tuple(rate(peer, servers[peer]) for peer in servers) for _ in range(args.repeat)]
finally:
    for server in servers.values():
        server.stop()
ratios = [a / b for a, b in pairs]
random.seed(1)
medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
middle = [statistics.median(side) / 1e9 for side in zip(*pairs)]
print(f"tcp 32 KB, netio / linkgauge: {statistics.median(ratios):.3f}  [{medians[249]:.3f}, {medians[9749]:.3f}]"
      f"  netio {middle[0]:.2f} Gbit/s, linkgauge {middle[1]:.2f} Gbit/s")
