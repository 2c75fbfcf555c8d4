#!/usr/bin/env python3
"""Many TCP connections on loopback: linkgauge beside a small epoll program (many_flows_peer.c), and the growth of its
memory and wall time with the number of connections. Both have the same number of threads at each end.

Prints the median ratio of requests/s and of the p99, for each number of connections, and the CPU time per request of all four
programs, which hardly depends on other programs of the host. It includes opening and closing the connections.
    benches/many_flows.py [--binary target/release/linkgauge] [--repeat 5] [--seconds 2] [--threads 1] [--flows 1,100,1000,10000]
Needs: cc. It ends every program that it starts, by process id.
"""
import json, os, resource, statistics, subprocess, tempfile, time

import common

parser = common.flags(__doc__, repeat=5, seconds=2.0)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--flows", default="1,100,1000,10000")
args = parser.parse_args()
PORT = 17411
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def ours(server, workload, flows):
    """The case of one run of ours, its wall time and CPU time in seconds, and the peak of its memory in MB."""
    extra = ["-R"] if workload == "download" else []
    command = [args.binary, "throughput" if extra or workload == "throughput" else workload, server.url, "--parallel", str(flows),
               "--threads", str(args.threads), "--time", f"{args.seconds}s", "--warm-up", "0", "--repeat", "1", "--timeout", "30s",
               "--quiet", "--json", "-", *extra]
    if workload != "latency":
        command += ["--probe", "off"]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        wall = time.monotonic() - began
        out.seek(0)
        text = out.read()
    if not text:
        raise SystemExit(f"{' '.join(command)}: {errors}")
    case = json.loads(text)["cases"][0]
    if not case["complete"]:
        print("  incomplete:", errors.strip()[:300])
    return case, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def median(values):
    return statistics.median(values) if values else float("nan")


def compare(server, peer, peer_server, flows):
    rates, tails, walls, peaks, others, costs = [], [], [], [], [], []
    for _ in range(args.repeat):
        before = [common.cpu_seconds(program.process.pid) for program in (server, peer_server)]
        case, wall, cpu, peak = ours(server, "latency", flows)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = common.output([peer, "rr", str(PORT), str(args.threads), str(flows), str(args.seconds)])
        rate, tail = (float(word) for word in text.split())
        after = [common.cpu_seconds(program.process.pid) for program in (server, peer_server)]
        peer_cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        peer_cpu = peer_cpu.ru_utime + peer_cpu.ru_stime - children.ru_utime - children.ru_stime
        ours_done, peer_done = max(case.get("received", 1), 1), max(rate * args.seconds, 1)
        costs.append([1e6 * cpu / ours_done, 1e6 * peer_cpu / peer_done, 1e6 * (after[0] - before[0]) / ours_done, 1e6 * (after[1] - before[1]) / peer_done])
        rates.append(case.get("messages_per_second", 0) / rate)
        tails.append(case["latency_ns"].get("p99", 0) / 1000 / max(tail, 1))
        walls.append(wall), peaks.append(peak), others.append(rate)
    print(f"tcp_rr {flows:6} connections: {median(rates):5.2f} x the requests/s ({median(others):8.0f}/s), {median(tails):5.2f} x the p99; "
          f"wall {median(walls):5.1f} s, client {median(peaks):6.1f} MB, server {common.memory_mb(server.process.pid):6.1f} MB", flush=True)
    client, peer_client, own_server, other_server = (median(column) for column in zip(*costs))
    print(f"  CPU per request, ours / peer: client {client:.1f} / {peer_client:.1f} us, server {own_server:.1f} / {other_server:.1f} us", flush=True)
    rates = []
    for _ in range(args.repeat if flows <= 1000 else 0):
        case, *_ = ours(server, "throughput", flows)
        text = common.output([peer, "stream", str(PORT), str(args.threads), str(flows), str(args.seconds)])
        rates.append(case.get("throughput_bps", 0) / 8 / float(text.split()[0]))
    if rates:
        print(f"tcp_stream {flows:6} connections: {median(rates):5.2f} x the bytes/s", flush=True)


with tempfile.TemporaryDirectory() as folder:
    peer = os.path.join(folder, "peer")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "many_flows_peer.c")
    subprocess.run(["cc", "-O2", "-pthread", "-o", peer, source], check=True)
    with common.Program([peer, "serve", str(PORT), str(args.threads)]) as peer_server, common.Server([args.binary, "serve", "tcp://127.0.0.1:0", "--threads", str(args.threads)]) as server:
        time.sleep(0.3)
        for flows in map(int, args.flows.split(",")):
            if flows + 50 > HARD:
                print(f"{flows} connections: the limit of open files is {HARD}")
                continue
            compare(server, peer, peer_server, flows)
