#!/usr/bin/env python3
"""What `linkgauge monitor` costs: CPU, memory, missed sends with many links, and the latency of its probes beside `linkgauge latency`.

    benches/monitor.py [--binary target/release/linkgauge] [--links 1000] [--rate 1/s] [--seconds 60] [--settle 30] [--repeat 3]
Everything is on loopback; the server is counted separately. Prints one line per figure. The bars: 25 % of one CPU, 150 MB, 0.1 % missed
sends, and 5 µs at the median.
"""
import json, os, re, statistics, subprocess, tempfile, time, urllib.request

import common

parser = common.flags(__doc__, repeat=3, seconds=60.0)
parser.add_argument("--links", type=int, default=1000)
parser.add_argument("--rate", default="1/s")
parser.add_argument("--settle", type=float, default=30.0, help="seconds before the measurement begins")
args = parser.parse_args()


class Monitor(common.Program):
    """A monitor of these watches in TOML, and the address of its metrics."""

    def __init__(self, folder, text):
        file = os.path.join(folder, "links.toml")
        with open(file, "w") as out:
            out.write(text)
        super().__init__([args.binary, "monitor", file, "--store", os.path.join(folder, "runs.sqlite"), "--listen", "127.0.0.1:0"],
                         stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            self.stop()
            raise SystemExit(f"the monitor did not start: {line}")
        self.url = found.group().rstrip("/").removesuffix("/metrics") + "/metrics"

    def metrics(self):
        with urllib.request.urlopen(self.url, timeout=30) as page:
            return page.read().decode()


def total(text, name, part=""):
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{") and part in line)


def watch(name, url, rate):
    return f'[[watch]]\nname = "{name}"\nurl = "{url}"\nrate = "{rate}"\n'


with tempfile.TemporaryDirectory() as folder, common.Server([args.binary, "serve", "tcp://127.0.0.1:0"]) as server:
    text = "".join(watch(f"link {number}", server.url, args.rate) for number in range(args.links))
    with Monitor(folder, text) as monitor:
        pid = monitor.process.pid
        time.sleep(args.settle)
        began, before, server_before, first = time.monotonic(), common.cpu_seconds(pid), common.cpu_seconds(server.process.pid), monitor.metrics()
        time.sleep(args.seconds)
        wall, last = time.monotonic() - began, monitor.metrics()
        share = (common.cpu_seconds(pid) - before) / wall
        server_share = (common.cpu_seconds(server.process.pid) - server_before) / wall
        sent, missed, lost = (total(last, name, part) - total(first, name, part) for name, part in (
            ("linkgauge_probes_total", ""), ("linkgauge_missed_sends_total", ""), ("linkgauge_probes_total", 'result="lost"')))
        print(f"{args.links} links at {args.rate} for {wall:.0f} s: {sent:.0f} probes ({sent / wall:.1f}/s), {lost:.0f} lost")
        print(f"CPU of the monitor          {100 * share:8.1f} % of one CPU (server {100 * server_share:.1f} %)")
        print(f"memory of the monitor       {common.memory_mb(pid, 'VmRSS'):8.1f} MB (peak {common.memory_mb(pid, 'VmHWM'):.1f} MB)")
        print(f"missed sends                {100 * missed / max(sent, 1):8.3f} %")

    differences = []
    for _ in range(args.repeat):
        # Both run at the same time, because the latency of the host drifts. Their probes are few and at random moments, so they seldom meet.
        seconds = max(int(args.seconds / 3), 12)
        with tempfile.TemporaryDirectory() as other, Monitor(other, watch("one", server.url, "50/s")) as monitor:
            time.sleep(2)
            case = common.case([args.binary, "latency", server.url, "--rate", "50/s", "--poisson", "--repeat", "1", "--time", f"{seconds}s"])
            time.sleep(8)  # until the monitor's last slice is in its figures
            found = re.search(r'linkgauge_minute_latency_seconds\{[^}]*percentile="50"\} (\S+)', monitor.metrics())
            probe = float(found.group(1)) * 1e6
        latency = case["latency_ns"]["p50"] / 1e3
        response = case.get("response_ns", {}).get("p50", float("nan")) / 1e3
        differences.append(probe - response)
        print(f"p50 of a probe {probe:.1f} µs; of latency at the same rate {latency:.1f} µs, from its due time {response:.1f} µs", flush=True)
    print(f"probe - latency, both from the due time: {statistics.median(differences):+.1f} µs (median of {args.repeat})")
