#!/usr/bin/env python3
"""What `linkgauge mesh` costs its hosts and its coordinator: CPU, memory, and bytes of each test.

    benches/mesh_cost.py [--binary target/release/linkgauge] [--hosts 4,12] [--rate 100] [--seconds 10]
All agents run on this machine and measure each other over loopback. Prints one line per figure, and what follows for larger meshes.
"""
import json, os, subprocess, tempfile, time

import common

parser = common.flags(__doc__, repeat=1, seconds=10.0)
parser.add_argument("--hosts", default="4,12", help="numbers of hosts")
parser.add_argument("--rate", type=float, default=100.0, help="requests per second of each pair")
args = parser.parse_args()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as names:
        return [int(name) for name in names.read().split()]


def hosts_file(folder, hosts, head):
    entries = [f'[[host]]\nname = "h{host}"\naddress = "127.0.0.1"\nlocal = true\n' for host in range(hosts)]
    path = os.path.join(folder, "hosts.toml")
    with open(path, "w") as out:
        out.write(head + "\n" + "".join(entries))
    return path


def measure(hosts, head):
    """Runs a mesh. Returns CPU and memory of the agents and of the coordinator, the bytes of the answers, and the document."""
    with tempfile.TemporaryDirectory() as folder:
        document = os.path.join(folder, "run.json")
        file = hosts_file(folder, hosts, head)
        mesh = subprocess.Popen([args.binary, "mesh", file, "--json", document, "--quiet"], stdout=subprocess.DEVNULL)
        agents, own, answers = {}, (0.0, 0.0), {}
        while mesh.poll() is None:
            try:
                for pid in children(mesh.pid):
                    agents[pid] = (common.cpu_seconds(pid), common.memory_mb(pid, "VmHWM"))
                    # Payload is sent, not written.
                    with open(f"/proc/{pid}/io") as io:
                        answers[pid] = int(next(line for line in io if line.startswith("wchar")).split()[1])
                own = (common.cpu_seconds(mesh.pid), common.memory_mb(mesh.pid, "VmHWM"))
            except (FileNotFoundError, ProcessLookupError, StopIteration):
                pass
            time.sleep(0.05)
        with open(document) as text:
            content = text.read()
        run = json.loads(content)
        assert mesh.returncode == 0 and len(agents) >= hosts, (mesh.returncode, len(agents))
        return agents, own, sum(answers.values()), len(content), run


def report(name, value):
    print(f"{name}: {value}", flush=True)


for hosts in map(int, args.hosts.split(",")):
    pairs = hosts * (hosts - 1)
    quiet = f'test.throughput.off = true\ntest.latency.time = "{args.seconds}s"\n'
    loads = 'test.latency.off = true\ntest.throughput.time = "200ms"\ntest.throughput.bit_rate = "8M"\n'
    slow = measure(hosts, quiet + 'test.latency.rate = "1/s"')
    fast = measure(hosts, quiet + f'test.latency.rate = "{args.rate}/s"')
    probes = (args.rate - 1) * args.seconds * pairs
    cpu = [sum(used for used, _ in run[0].values()) for run in (slow, fast)]
    report(f"{hosts} hosts, CPU of a round trip, both ends", f"{(cpu[1] - cpu[0]) / probes * 1e6:.1f} µs")
    report(f"{hosts} hosts, CPU of an agent besides", f"{cpu[0] / hosts:.2f} s for {2 * (hosts - 1)} tests")
    report(f"{hosts} hosts, memory of an agent", f"{max(peak for _, peak in fast[0].values()):.1f} MB")
    report(f"{hosts} hosts, memory of the coordinator", f"{fast[1][1]:.1f} MB")
    rates = measure(hosts, loads)
    for what, run in (("latency", fast), ("throughput", rates)):
        own, answers, written = run[1], run[2], run[3]
        report(f"{hosts} hosts, {what}: CPU of the coordinator", f"{own[0] / pairs * 1e3:.2f} ms a test")
        report(f"{hosts} hosts, {what}: answers of the agents", f"{answers / pairs / 1e3:.1f} kB a test")
        report(f"{hosts} hosts, {what}: document", f"{written / pairs / 1e3:.1f} kB a test")
    mesh = rates[4]["mesh"]
    slots = 2 * (hosts - 1 + hosts % 2)
    beyond = (mesh["tests_elapsed_ns"] - mesh["lower_bound_ns"]) / slots / 1e6
    report(f"{hosts} hosts, time of a throughput test beyond its length", f"{beyond:.0f} ms")
