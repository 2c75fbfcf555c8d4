#!/usr/bin/env python3
"""Speed of our iperf3 server and client on loopback, with Debian's iperf3 at the other end.

rates: median ratio of a pair with one of ours to the pair of two iperf3, with its 95 % interval (bootstrap of the paired
ratios); byte counts of both ends must be those that the protocol lets be equal. killed: one of 20 clients is killed
(SIGKILL) each second for 20 s, a new one takes its place, and each time a further client has to be served at once.
    benches/iperf3_peer.py [--binary target/release/linkgauge] [--repeat 10] [--seconds 2] [rates] [killed]
Needs: iperf3. It ends every program that it starts, by process id.
"""
import json, socket, statistics, subprocess, time

import common

parser = common.flags(__doc__, seconds=2)
parser.add_argument("--clients", type=int, default=20)
parser.add_argument("--kills", type=int, default=20)
parser.add_argument("parts", nargs="*", default=["rates", "killed"])
args = parser.parse_args()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def listens(port):
    entry = f":{port:04X} 00000000:0000 0A"
    until = time.monotonic() + 10
    while entry not in open("/proc/net/tcp").read():
        if time.monotonic() > until:
            raise SystemExit("the server did not start")
        time.sleep(0.02)


class Server(common.Program):
    def __init__(self, ours):
        self.port = free_port()
        place = f"127.0.0.1:{self.port}"
        super().__init__([args.binary, "serve", "--protocol", "iperf3", f"tcp://{place}", f"udp://{place}"] if ours
                         else ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(self.port)])
        listens(self.port)


def client(port, flags):
    return ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-J", *flags]


def theirs(port, flags, exact):
    done = subprocess.run(client(port, flags), capture_output=True, text=True, timeout=60)
    document = json.loads(done.stdout)
    if "error" in document:
        raise SystemExit(f"iperf3 {' '.join(flags)}: {document['error']}")
    sent, received = document["end"]["sum_sent"], document["end"]["sum_received"]
    if exact and sent["bytes"] != received["bytes"]:
        raise SystemExit(f"iperf3 {' '.join(flags)}: sent {sent['bytes']}, received {received['bytes']}")
    return received["bits_per_second"]


def ours(port, flags):
    return common.case([args.binary, "throughput", f"tcp://127.0.0.1:{port}", "--protocol", "iperf3", "--size", "128Ki",
                        *flags])["throughput_bps"]


def report(name, pairs):
    ratio = common.Ratio(pairs)
    print(f"{name:34} {ratio}  ours {ratio.ours:.4g}  theirs {ratio.theirs:.4g}", flush=True)


def rates():
    print(f"{'pair':34} {'ratio':>6}  95 % interval   (to two iperf3; larger is better)")
    with Server(True) as our_server, Server(False) as their_server:
        for name, flags, mine in [("send", [], ["-d", "send"]), ("receive", ["-R"], ["-d", "receive"]),
                                  ("send -P 4", ["-P", "4"], ["-d", "send", "-P", "4"])]:
            flags = [*flags, "-t", str(args.seconds)]
            mine = [*mine, "-t", f"{args.seconds}s"]
            served, asked = [], []
            for _ in range(args.repeat):
                pair = theirs(their_server.port, flags, False)
                served.append((theirs(our_server.port, flags, "-R" not in flags), pair))
                asked.append((ours(their_server.port, mine), pair))
            report(f"iperf3 client, our server: {name}", served)
            report(f"our client, iperf3 server: {name}", asked)


def killed():
    kinds = [[], ["-R"], ["-P", "2"], ["-u", "-b", "1M", "-l", "1000"], ["-u", "-b", "1M", "-l", "1000", "-R"]]
    with Server(True) as server:
        def start(number):
            flags = ["-t", "600", *kinds[number % len(kinds)]]
            if "-u" not in flags:
                flags += ["-b", "10M"]
            return subprocess.Popen(client(server.port, flags), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        clients = [start(number) for number in range(args.clients)]
        waits = []
        try:
            time.sleep(1)
            for kill in range(args.kills):
                victim = kill % len(clients)
                clients[victim].kill()
                clients[victim].wait()
                began = time.monotonic()
                theirs(server.port, ["-n", "100K", *kinds[kill % len(kinds)]], False)
                waits.append(time.monotonic() - began)
                clients[victim] = start(victim)
                time.sleep(max(0, 1 - waits[-1]))
            alive = sum(process.poll() is None for process in clients)
        finally:
            for process in clients:
                process.kill()
                process.wait()
    print(f"killed {args.kills} of {args.clients} clients: the next was served each time, whole test in "
          f"{statistics.median(waits):.3f} s (median), {max(waits):.3f} s (longest); {alive} others still run")


for part in args.parts:
    {"rates": rates, "killed": killed}[part]()
