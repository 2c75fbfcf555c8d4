#!/usr/bin/env python3
"""linkgauge beside sockperf and iperf3 on loop-back: interleaved repetitions, same CPUs, default buffers.

Prints the median ratio of each figure with its 95 % interval (bootstrap of the paired ratios).
    benches/against_peers.py [--binary target/release/linkgauge] [--repeat 10] [--cpus 0,1] [--seconds 2] [ROW…]
Needs: sockperf, iperf3, taskset. Ends every program it starts, by process id.
"""
import argparse, json, os, random, re, signal, socket, statistics, subprocess, sys, time

# Nothing of this goes into the store of whoever runs it.
os.environ["LINKGAUGE_STORE"] = ""

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--binary", default="target/release/linkgauge")
args.add_argument("--repeat", type=int, default=10)
args.add_argument("--cpus", default="0,1", help="CPU of the near end, CPU of the far end")
args.add_argument("--seconds", type=float, default=2)
args.add_argument("rows", nargs="*")
args = args.parse_args()
NEAR, FAR = args.cpus.split(",")
PORT = 17311


class Server:
    """A far end of another program, or ours, as long as it is needed."""

    def __init__(self, command, port, connects=True):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
        raise SystemExit(f"{command[0]} did not start")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def ours(arguments):
    document = json.loads(output([args.binary, *arguments, "--json", "-", "--pin", args.cpus]))
    return document["cases"][0]


def our_latency(scheme, spin):
    command = ["latency", f"{scheme}://127.0.0.1:{PORT}", "-s", "14", "-t", f"{args.seconds}s", "--warm-up", "400ms"]
    case = ours(command + (["--spin"] if spin else []))
    if "p50" not in case.get("latency_ns", {}):
        raise SystemExit(f"no median: {json.dumps(case)}")
    return case["latency_ns"]["p50"]


def sockperf_latency(scheme, spin):
    extra = (["--tcp"] if scheme == "tcp" else []) + (["--nonblocked"] if spin else [])
    server = Server(["taskset", "-c", FAR, "sockperf", "sr", "-i", "127.0.0.1", "-p", str(PORT + 1), *extra],
                    PORT + 1, connects=False)
    try:
        text = output(["taskset", "-c", NEAR, "sockperf", "pp", "-i", "127.0.0.1", "-p", str(PORT + 1), "-m", "14",
                       "-t", str(max(1, round(args.seconds))), "--full-rtt", *extra])
    finally:
        server.stop()
    return float(re.search(r"percentile 50.000 =\s*([\d.]+)", text).group(1)) * 1000


def our_throughput(scheme):
    size = [] if scheme == "tcp" else ["-s", "1400"]
    case = ours(["throughput", f"{scheme}://127.0.0.1:{PORT}", "-t", f"{args.seconds}s", "--probe", "off", *size])
    return case["throughput_bps"], case["cpu"]["seconds_per_gigabyte"]


def iperf3_throughput(scheme):
    server = Server(["iperf3", "-s", "-B", "127.0.0.1", "-p", str(PORT + 2)], PORT + 2,
                    connects=False)  # a connection without a test would keep it busy
    try:
        udp = ["-u", "-b", "0", "-l", "1400"] if scheme == "udp" else []
        text = output(["iperf3", "-c", "127.0.0.1", "-p", str(PORT + 2), "-t", str(max(1, round(args.seconds))),
                       "-A", args.cpus, "-J", *udp])
    finally:
        server.stop()
    end = json.loads(text)["end"]
    total = end["sum"] if scheme == "udp" else end["sum_received"]
    lost = total.get("lost_percent", 0.0) if scheme == "udp" else 0.0
    rate = total["bits_per_second"] * (1 - lost / 100)
    cpu = end["cpu_utilization_percent"]
    seconds = (cpu["host_total"] + cpu["remote_total"]) / 100 * total["seconds"]
    return rate, seconds / (rate / 8 * total["seconds"] / 1e9)


def report(name, pairs, better):
    ratios = sorted(a / b for a, b in pairs)
    random.seed(1)
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
    low, high = medians[249], medians[9749]
    middle = [statistics.median(side) for side in zip(*pairs)]
    print(f"{name:24} {statistics.median(ratios):6.3f}  [{low:.3f}, {high:.3f}]  {better:9}"
          f"  ours {middle[0]:.4g}  theirs {middle[1]:.4g}", flush=True)


print(f"{'row':24} {'ratio':>6}  95 % interval   better is")
server = Server([args.binary, "serve", f"tcp://127.0.0.1:{PORT}", f"udp://127.0.0.1:{PORT}"], PORT)
try:
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
finally:
    server.stop()
