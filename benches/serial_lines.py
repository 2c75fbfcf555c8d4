#!/usr/bin/env python3
"""Overhead of the lab on a serial line: pacing, rates, many ports, redirection, CPU compared with ser2net. Prints one row per bar.

    benches/serial_lines.py [--binary target/release/linkgauge] [--seconds 10] [--repeat 8] [ROW…]
Rows: pacing rates ports latency redirect cpu. Every part of the lab is its own process, ended by process id.
Needs: ser2net (row cpu). Run it on a machine that does nothing else.
"""
import os, socket, statistics, subprocess, sys, tempfile, time

import common

parser = common.flags(__doc__, repeat=8, seconds=10.0)
parser.add_argument("--cpus", default="", help="taskset list for the lab's processes and for the client: LAB/CLIENT")
parser.add_argument("rows", nargs="*")
args = parser.parse_args()
LAB, _, CLIENT = args.cpus.partition("/")
BASE = 17401
RATES = [75, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400, 57600, 115200, 230400, 460800, 500000,
         576000, 921600, 1000000, 1152000, 1500000, 2000000, 2500000, 3000000, 3500000, 4000000]


def pinned(cpus, command):
    return ["taskset", "-c", cpus, *command] if cpus else command


class Process(common.Program):
    """A part of the lab that runs while it is needed."""

    def __init__(self, command, ready):
        super().__init__(pinned(LAB, command), stderr=subprocess.PIPE)
        until = time.monotonic() + 10
        while not ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise SystemExit(f"{' '.join(command)}: {self.process.stderr.read().decode()}")
            time.sleep(0.05)

    def cpu(self):
        """Seconds of CPU used so far, all threads."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listening(port):
    def ready():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    return ready


def bound(port):
    """Whether the port has a listener, without connecting: a device server accepts only one client."""
    wanted = f":{port:04X}"
    return lambda: any(line.split()[1].endswith(wanted) and line.split()[3] == "0A"
                       for line in open("/proc/net/tcp").read().splitlines()[1:])


def uart(directory, name="tty", ports=1, *flags):
    path = f"{directory}/{name}1"
    last = f"{directory}/{name}{ports}"
    return path, Process([args.binary, "lab", "uart", "--plug", "--ports", str(ports), "--link", path, "--quiet", *flags],
                         lambda: os.path.exists(last))


def device_server(path, ports, port=BASE, *flags):
    return Process([args.binary, "lab", "device-server", "--listen", f"tcp://127.0.0.1:{port}", "--ports", str(ports),
                    "--serial", path, "--line", f"{RATE[0]},8N1,rtscts", "--quiet", *flags], bound(port + ports - 1))


RATE = [9600]


def measure(*command):
    return common.document(pinned(CLIENT, [args.binary, *command]))["cases"][0]


def wrong(case):
    return {name: case[name] for name in ("lost", "lost_bytes", "corrupt_bytes", "inserted_bytes") if case.get(name)}


def row_pacing(directory):
    plain, unpaced = uart(directory, "paced"), uart(directory, "unpaced", 1, "--no-pacing")
    with plain[1], unpaced[1]:
        for baud in (9600, 115200):
            ideal = 10e6 / baud
            count = max(200, round(args.seconds * 1e6 / (ideal + 100)))
            excess = {"p50": [], "p99": []}
            for _ in range(args.repeat):
                pair = [measure("latency", f"serial://{path}?baud={baud}", "--count", str(count))["latency_ns"]
                        for path in (plain[0], unpaced[0])]
                for name in excess:
                    excess[name].append((pair[0][name] - pair[1][name]) / 1000 - ideal)
            print(f"pacing {baud}: over {ideal:.1f} µs + the unpaced path: median {statistics.median(excess['p50']):+.1f} µs "
                  f"{rounded(excess['p50'])}, p99 {statistics.median(excess['p99']):+.1f} µs {rounded(excess['p99'])}")


def rounded(values):
    return [round(value, 1) for value in values]


def row_rates(directory):
    path, process = uart(directory)
    with process:
        for baud in RATES:
            case = measure("throughput", f"serial://{path}?baud={baud}", "-d", "loop", "-t", f"{args.seconds}s")
            print(f"rate {baud}: {case['line_rate_percent']:.3f} % in {case['elapsed_ns'] / 1e9:.2f} s {wrong(case)}")


def loop(path, ports, baud, *flags):
    RATE[0] = baud
    with device_server(path, ports) as server:
        before = server.cpu()
        case = measure("throughput", f"tcp://127.0.0.1:{BASE}?baud={baud}&flow=rtscts", "-d", "loop", "--ports", str(ports),
                     "-t", f"{args.seconds}s", *flags)
        return case, server.cpu() - before


def row_ports(directory):
    for ports in (1, 4, 8, 16, 64):
        path, process = uart(directory, f"p{ports}t", ports)
        with process:
            case, cpu = loop(path, ports, 230400)
            each = [part["line_rate_percent"] for part in case.get("per_port", [case])]
            print(f"ports {ports} at 230400: worst {min(each):.2f} %, best {max(each):.2f} %, device server {cpu:.2f} s, "
                  f"uarts {process.cpu():.2f} s CPU {wrong(case)}")


def ping(url, ports):
    return measure("latency", url, "--ports", str(ports), "-t", f"{args.seconds}s")["latency_ns"]["p50"] / 1000


def row_latency(directory):
    path, process = uart(directory, "lat", 16)
    RATE[0] = 9600
    ratios, ones = [], []
    with process, device_server(path, 16):
        for _ in range(args.repeat):
            one, all16 = (ping(f"tcp://127.0.0.1:{BASE}?baud=9600&flow=rtscts", ports) for ports in (1, 16))
            ratios.append(all16 / one)
            ones.append(one)
    print(f"latency 9600: one port {statistics.median(ones):.0f} µs, 16 ports {statistics.median(ratios):.3f} times "
          f"{[round(ratio, 3) for ratio in ratios]}")


def row_redirect(directory):
    path, process = uart(directory, "red", 1)
    RATE[0] = 9600
    com, more = f"{directory}/com1", []
    with process, device_server(path, 1):
        for _ in range(args.repeat):
            raw = ping(f"tcp://127.0.0.1:{BASE}?baud=9600&flow=rtscts", 1)
            with Process([args.binary, "lab", "redirect", "--link", com, f"tcp://127.0.0.1:{BASE}?baud=9600&flow=rtscts"],
                         lambda: os.path.exists(com)):
                time.sleep(0.2)
                more.append(ping(f"serial://{com}?baud=9600&flow=rtscts", 1) - raw)
    print(f"redirect 9600: {statistics.median(more):+.1f} µs over raw TCP {rounded(more)}")


def row_cpu(directory):
    ports, baud = 16, 230400
    path, process = uart(directory, "cpu", ports)
    config = f"{directory}/ser2net.yaml"
    with open(config, "w") as file:
        file.write("%YAML 1.1\n---\n")
        for number in range(1, ports + 1):
            file.write(f"connection: &c{number}\n  accepter: tcp,127.0.0.1,{BASE + 100 + number - 1}\n"
                       f"  connector: serialdev,{path[:-1]}{number},{baud}n81,local,rtscts\n"
                       f"  options:\n    chardelay: false\n")
    ratios = []
    with process:
        for _ in range(args.repeat):
            case, ours = loop(path, ports, baud)
            RATE[0] = baud
            with Process(["ser2net", "-n", "-c", config], bound(BASE + 100 + ports - 1)) as server:
                before = server.cpu()
                other = measure("throughput", f"tcp://127.0.0.1:{BASE + 100}?baud={baud}&flow=rtscts", "-d", "loop", "--ports",
                              str(ports), "-t", f"{args.seconds}s")
                theirs = server.cpu() - before
            ratios.append(ours / theirs)
            rates = [min(part["line_rate_percent"] for part in run["per_port"]) for run in (case, other)]
            print(f"  ours {ours:.2f} s, ser2net {theirs:.2f} s; worst ports {rates[0]:.2f} %, {rates[1]:.2f} %")
    print(f"cpu 16 ports at {baud}: {statistics.median(ratios):.2f} times ser2net's {[round(ratio, 2) for ratio in ratios]}")


ROWS = {name[4:]: function for name, function in list(globals().items()) if name.startswith("row_")}
with tempfile.TemporaryDirectory() as directory:
    for name in args.rows or ROWS:
        ROWS[name](directory)
        sys.stdout.flush()
