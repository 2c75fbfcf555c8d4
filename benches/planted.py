#!/usr/bin/env python3
"""Causes of latency planted with the lab, and what `linkgauge explain URL` finds: the confusion matrix of docs/explain.md.

    cargo bench --bench planted > virtual.json
    benches/planted.py --virtual virtual.json [--binary target/release/linkgauge] [--repeat 20] [--seconds 20] [--at-once 4]
        [--json FILE] [--runs FILE]… [NAME…]
    benches/planted.py --list

Each plant is a part of the lab with one known cause; each control has none, or only those that belong to its link. Pairs are two
causes of different families. What is exact on the virtual clock runs there (benches/planted.rs), thousands of runs in minutes; --virtual
reads them. What needs the kernel runs here in real time: with --repeat 0 nothing, so that the virtual runs stand alone. NAME restricts
the run to plants whose name contains it. Runs that wait for milliseconds share the host (--at-once); runs of microseconds have it for
themselves. They run in random order, so that a slow hour of the host hits all alike; other programs are causes too (run_queue), so run
it on a host that does nothing else. All runs take hours: --json and --runs split them into parts, each with a --seed of its own.
Prints one row per run while it runs, then the tables in Markdown.
"""
import argparse, concurrent.futures, itertools, json, os, platform, random, socket, statistics, subprocess, sys, tempfile, threading, time

import common

parser = common.flags(__doc__, repeat=20, seconds=20.0)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--at-once", type=int, default=4, help="runs side by side, of plants that do not disturb each other")
parser.add_argument("--virtual", type=argparse.FileType(), help="also count the runs in this file, the output of the bench 'planted'")
parser.add_argument("--list", action="store_true", help="list the plants and end")
parser.add_argument("--json", help="also write every run in real time to this file, earlier ones included")
parser.add_argument("--runs", type=argparse.FileType(), action="append", default=[], metavar="FILE",
                    help="also count the runs in this file, which --json wrote; can be repeated")
parser.add_argument("names", nargs="*", metavar="NAME")
args = parser.parse_args()

# Causes that every link of this host has, and what only names the place; finding them is right everywhere.
EVERYWHERE = {"thread_wake_up", "cpu_sleep_states", "timer_slack", "kernel_tick", "server", "path_delay"}
FOUND = {"proved", "seen", "counted"}


def trouble(*flags, listen="tcp://127.0.0.1:0"):
    return [["lab", "trouble", "--listen", listen, *flags]]


def shaped(*flags, kind="tcp"):
    """A plain echo behind a shaper."""
    return [*trouble(listen=f"{kind}://127.0.0.1:0"),
            ["lab", "shaper", "--listen", f"{kind}://127.0.0.1:0", "--to", "{previous}", *flags]]


def line(*flags, baud=115200):
    return [["lab", "uart", "--link", "{directory}/tty", *flags], f"serial://{{directory}}/tty?baud={baud}"]


def ser2net(baud):
    """Debian's device server with its default settings, before a line of the lab."""
    return [["lab", "uart", "--link", "{directory}/tty"], ["ser2net", str(baud)], f"{{previous}}?baud={baud}"]


def device_server(*flags, baud=115200):
    return [["lab", "device-server", "--plug", "--listen", "tcp://127.0.0.1:0", "--line", str(baud), *flags],
            f"{{previous}}?baud={baud}"]


class Plant:
    """A set-up with its cause, and what the cause costs of the median round trip in ms, where that is known."""

    def __init__(self, name, cause, setup, cost_ms=None, accepted=(), size=64, second=None, cpu=None, alone=False):
        self.name, self.cause, self.setup, self.cost_ms, self.size = name, cause, setup, cost_ms, size
        # Its latency is so short that other runs would show in it.
        self.alone = alone or bool(cpu)
        # The server and what disturbs it share this CPU.
        self.prefix = ["taskset", "-c", cpu] if cpu else []
        self.causes = [known for known in (cause, second) if known]
        self.accepted = EVERYWHERE | set(accepted) | set(self.causes)


SPLIT = ["--split-write", "10", "--nagle"]
# A USB adapter delivers 62 characters at once, so its plants send fewer. Requests without a pause between them wait for a whole
# period of a clock. Of each kind that benches/planted.rs plants, one is here as well.
PLANTS = [
    Plant("split-2", "delayed_ack_nagle", trouble("--split-write", "32", "--nagle"), 43.9),
    Plant("split-7", "delayed_ack_nagle", trouble(*SPLIT), 43.9),
    Plant("split-1000", "delayed_ack_nagle", trouble("--split-write", "500", "--nagle"), 43.9, size=1000),
    Plant("tick-10ms-tcp", "remote_clock", trouble("--tick", "10ms"), 10.0),
    Plant("poll-20ms-unix", "remote_clock", trouble("--poll", "20ms", listen="unix://{directory}/socket"), 20.0),
    # No radio is on this host, so its slots are a clock.
    Plant("slot-1.25ms-udp", "remote_clock", shaped("--slot", "1.25ms", kind="udp"), alone=True),
    Plant("pause-50ms-udp", "random_pause", trouble("--pause", "50ms@2%", listen="udp://127.0.0.1:0"), alone=True),
    Plant("stall-50ms-tcp", "periodic_pause", trouble("--stall", "50ms@500ms"), alone=True),
    # Idle for longer than the delay itself, or each delayed request makes the next one late.
    Plant("idle-10ms-udp", "idle_server", trouble("--after-idle", "20ms:10ms", listen="udp://127.0.0.1:0"), alone=True),
    Plant("latency-timer", "usb_latency_timer", line("--latency-timer", "16ms"), accepted=["serial_line", "remote_clock"],
          size=10),
    Plant("latency-timer-9600", "usb_latency_timer", line("--latency-timer", "16ms", baud=9600),
          accepted=["serial_line", "remote_clock"], size=10),
    Plant("uart-fifo", "uart_fifo_timeout", line("--fifo", "14", baud=9600), 4.2, accepted=["serial_line"], size=10),
    Plant("packing-20ms", "device_server_packing", device_server("--inter-character-timeout", "20ms"), 20.0,
          accepted=["serial_line"]),
    Plant("packing-50ms", "device_server_packing", device_server("--inter-character-timeout", "50ms"), 50.0,
          accepted=["serial_line"]),
    Plant("ser2net-9600", "device_server_packing", ser2net(9600), accepted=["serial_line", "remote_clock"], size=1),
    Plant("ser2net-115200", "device_server_packing", ser2net(115200), accepted=["serial_line", "remote_clock"], size=1),
    Plant("poll-20ms-tcp", "remote_clock", trouble("--poll", "20ms"), 20.0),
    Plant("gateway-poll", "remote_clock", device_server("--poll", "20ms"),
          accepted=["serial_line", "device_server_packing"]),
    Plant("line-9600-uart", "serial_line", line(baud=9600), 66.7),
    Plant("rate-1M-tcp", "per_byte_cost", shaped("--rate", "1Mbit/s"), 16.0, size=1000, accepted=["link_rate_reached"]),
    Plant("hog", "run_queue", trouble("--hog", "1"), accepted=["random_pause"], cpu="1"),
]

# Two causes of different families at once: the dearer one must come first.
PAIRS = [
    Plant(f"{one}+{other}", first, trouble(*flags), second=second)
    for (one, other, first, second, flags) in [
        ("split", "tick", "delayed_ack_nagle", "remote_clock", [*SPLIT, "--tick", "10ms"]),
        ("split", "pause", "delayed_ack_nagle", "random_pause", [*SPLIT, "--pause", "300ms@2%"]),
        ("split", "stall", "delayed_ack_nagle", "periodic_pause", [*SPLIT, "--stall", "300ms@1s"]),
        ("split", "idle", "delayed_ack_nagle", "idle_server", [*SPLIT, "--after-idle", "100ms:30ms"]),
    ]
]

CONTROLS = [
    Plant("control-tcp", None, trouble(), alone=True),
    Plant("control-tcp-1400", None, trouble(), size=1400, alone=True),
    Plant("control-udp", None, trouble(listen="udp://127.0.0.1:0"), alone=True),
    Plant("control-unix", None, trouble(listen="unix://{directory}/socket"), alone=True),
    Plant("control-seqpacket", None, trouble(listen="unix://{directory}/socket?type=seqpacket"), alone=True),
    Plant("control-delay-tcp", None, shaped("--delay", "5ms")),
    Plant("control-tail-udp", None, shaped("--delay", "5ms", "--tail", "1ms", kind="udp")),
    Plant("control-line-115200", None, line(), accepted=["serial_line"]),
    # Each write of ten bytes takes its time.
    Plant("control-split-without-nagle", None, trouble("--split-write", "10"), accepted=["per_byte_cost"], alone=True),
]


class SetUp:
    """The running parts of a plant; `url` leads to it."""

    def __init__(self, plant, directory):
        self.parts, self.url = [], None
        for part in plant.setup:
            if isinstance(part, str):
                self.url = part.format(directory=directory, previous=self.url)
                continue
            words = [word.format(directory=directory, previous=self.url) for word in part]
            if words[1] in ("trouble", "shaper"):
                # Other delays in each run.
                words += ["--seed", str(random.getrandbits(32))]
            if words[0] == "ser2net":
                self.start_ser2net(directory, words[1])
            elif words[1] == "uart":
                self.parts.append(common.Program([args.binary, *words]))
                wait_for(f"{directory}/tty")
            else:
                self.parts.append(common.Server([*plant.prefix, args.binary, *words]))
                self.url = self.parts[-1].url

    def start_ser2net(self, directory, baud):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = f"{directory}/ser2net.yaml"
        with open(config, "w") as file:
            file.write(f"%YAML 1.1\n---\nconnection: &one\n  accepter: tcp,127.0.0.1,{port}\n"
                       f"  connector: serialdev,{directory}/tty,{baud}n81,local\n")
        self.parts.append(common.Program(["/usr/sbin/ser2net", "-n", "-c", config]))
        self.url = f"tcp://127.0.0.1:{port}"
        wait_for_port(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for part in reversed(self.parts):
            part.stop()


def wait_for(path):
    until = time.monotonic() + 10
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise SystemExit(f"{path} did not appear")
        time.sleep(0.02)


def wait_for_port(port):
    """Without a connection: a device server accepts one client."""
    until = time.monotonic() + 10
    while f"0100007F:{port:04X} 00000000:0000 0A" not in open("/proc/net/tcp").read():
        if time.monotonic() > until:
            raise SystemExit(f"port {port} does not listen")
        time.sleep(0.02)


def explain(plant):
    """The explanation of one run, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as directory, SetUp(plant, directory) as setup:
        command = [args.binary, "explain", setup.url, "--protocol", "echo", "--size", str(plant.size), "--time", f"{args.seconds}s",
                   "--quiet", "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * args.seconds + 60)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.stderr.strip() or f"status {done.returncode} without output"


class Outcome:
    """What one run found, compared with the plant."""

    def __init__(self, plant, explanation):
        found = [cause for cause in explanation["causes"] if cause["verdict"] in FOUND]
        self.verdicts = {cause["id"]: cause["verdict"] for cause in found}
        self.hits = [known for known in plant.causes if known in self.verdicts]
        # The kernel counted these waits: other programs ran. They have a row of their own.
        self.waited = self.verdicts.get("run_queue") == "counted" and "run_queue" not in plant.causes
        self.wrong = [name for name in self.verdicts
                      if name not in plant.accepted and not (name == "run_queue" and self.waited)]
        self.wrongly_proved = [name for name in self.wrong if self.verdicts[name] == "proved"]
        costs = {cause["id"]: cause.get("cost_ns") or 0 for cause in found}
        planted_costs = {name: cost for name, cost in costs.items() if name in plant.causes}
        strongest = max(planted_costs, key=planted_costs.get, default=None)
        listed = [cause["id"] for cause in found if cause["id"] in plant.causes]
        self.strongest_first = bool(listed) and listed[0] == strongest
        self.error = self.covered = None
        cause = next((cause for cause in found if cause["id"] == plant.cause), None)
        if cause and plant.cost_ms and cause.get("cost_ns") is not None:
            planted = plant.cost_ms * 1e6
            self.error = abs(cause["cost_ns"] / planted - 1)
            interval = cause.get("cost_interval_ns") or {}
            low, high = interval.get("low"), interval.get("high")
            self.covered = self.error <= 0.1 or (low is not None and low <= planted <= high)

    def __str__(self):
        words = [f"{name} {verdict}" for name, verdict in self.verdicts.items()]
        return ", ".join(words) or "nothing"


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def table(plants, outcomes):
    print("| plant | cause | runs | found | proved | others found | cost within 10 % or its interval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for plant in plants:
        runs = outcomes.get(plant.name, [])
        if not runs:
            continue
        hits = sum(len(run.hits) == len(plant.causes) for run in runs)
        proved = sum(run.verdicts.get(plant.cause) == "proved" for run in runs)
        others = sorted(itertools.chain.from_iterable(run.wrong for run in runs))
        others = ", ".join(f"`{name}` {len(list(group))}" for name, group in itertools.groupby(others))
        priced = [run.covered for run in runs if run.covered is not None]
        causes = " + ".join(f"`{name}`" for name in plant.causes) or "none"
        found = percent(hits, len(runs)) if plant.causes else "–"
        print(f"| {plant.name} | {causes} | {len(runs)} | {found} | {percent(proved, len(runs)) if plant.causes else '–'} | "
              f"{others or '–'} | {percent(sum(priced), len(priced))} |")


def summary(kinds, outcomes):
    def runs(kind):
        return [(plant, run) for plant in kinds[kind] for run in outcomes.get(plant.name, [])]
    planted, controls, pairs = runs("plant"), runs("control"), runs("pair")
    expected = sum(len(plant.causes) for plant, _ in planted)
    hits = sum(len(run.hits) for _, run in planted)
    wrong = sum(len(run.wrong) for _, run in planted + controls + pairs)
    all_hits = hits + sum(len(run.hits) for _, run in pairs)
    priced = [run.covered for _, run in planted if run.covered is not None]
    errors = [run.error for _, run in planted if run.error is not None]
    rows = [
        ("precision (right causes of all that were found)", percent(all_hits, all_hits + wrong), "≥ 95 %"),
        ("recall (planted causes that were found)", percent(hits, expected), "≥ 90 %"),
        ("controls with any cause", percent(sum(bool(run.wrong) for _, run in controls), len(controls)), ""),
        ("controls with a wrongly proved cause", percent(sum(bool(run.wrongly_proved) for _, run in controls), len(controls)), "≤ 1 %"),
        ("costs within 10 %, or inside the interval", percent(sum(priced), len(priced)), "≥ 90 %"),
        ("median error of the cost", f"{100 * statistics.median(errors):.1f} %" if errors else "–", ""),
        ("runs without a planted load in which the kernel counted waits for a CPU",
         percent(sum(run.waited for _, run in planted + controls + pairs), len(planted + controls + pairs)), ""),
        ("pairs with both causes found", percent(sum(len(run.hits) == 2 for _, run in pairs), len(pairs)), ""),
        ("pairs with the dearer cause first", percent(sum(run.strongest_first for _, run in pairs), len(pairs)), "≥ 95 %"),
    ]
    print("| measure | value | bar |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")


class Matrix:
    """The outcomes of all runs, by plant."""

    def __init__(self):
        self.kinds = {"plant": [], "pair": [], "control": []}
        self.outcomes, self.failures, self.documents = {}, [], []
        self.lock = threading.Lock()
        self.known = {plant.name: (kind, plant) for kind, plants in (("plant", PLANTS), ("pair", PAIRS), ("control", CONTROLS))
                      for plant in plants}

    def add(self, plant, explanation):
        """Counts one run; an explanation that is a text is the reason why there is none."""
        with self.lock:
            if isinstance(explanation, str):
                self.failures.append((plant.name, explanation))
                print(f"{plant.name}: failed: {explanation[:200]}", file=sys.stderr)
                return
            outcome = Outcome(plant, explanation)
            self.outcomes.setdefault(plant.name, []).append(outcome)
            if plant.name in self.known:
                self.documents.append({"plant": plant.name, "explanation": explanation})
            print(f"{plant.name}: {explanation['median_ns'] / 1e6:.3f} ms; {outcome}", file=sys.stderr)

    def read(self, lines):
        """Counts the runs on the virtual clock."""
        plants = {}
        for run in map(json.loads, lines):
            if run["plant"] not in plants:
                causes = [*run["causes"], None, None]
                plants[run["plant"]] = Plant(run["plant"], causes[0], [], run["cost_ms"], run["accepted"], second=causes[1])
                self.kinds[run["kind"]].append(plants[run["plant"]])
            self.add(plants[run["plant"]], run["explanation"] or run["error"])

    def read_earlier(self, file):
        """Counts the runs in real time of an earlier call."""
        for run in json.load(file):
            _, plant = self.known[run["plant"]]
            self.add(plant, run["explanation"])

    def measure(self):
        """Counts runs in real time."""
        order = []
        for name, (kind, plant) in self.known.items():
            is_wanted = not args.names or any(part in name for part in args.names)
            if is_wanted or name in self.outcomes:
                self.kinds[kind].append(plant)
            order += [plant] * args.repeat * is_wanted
        random.seed(args.seed)
        random.shuffle(order)
        for plants, at_once in (([plant for plant in order if not plant.alone], args.at_once),
                                ([plant for plant in order if plant.alone], 1)):
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                list(pool.map(lambda plant: self.add(plant, explain(plant)), plants))

    def print(self):
        runs = sum(map(len, self.outcomes.values()))
        print(f"\n{time.strftime('%Y-%m-%d')}, {platform.release()}, {os.cpu_count()} CPUs, {runs} runs.\n")
        for title, kind in (("Plants", "plant"), ("Two causes", "pair"), ("Controls", "control")):
            print(f"**{title}**\n")
            table(self.kinds[kind], self.outcomes)
            print()
        summary(self.kinds, self.outcomes)
        for name, reason in self.failures:
            print(f"\n{name} failed: {reason}")


def main():
    if args.list:
        for plant in PLANTS + PAIRS + CONTROLS:
            print(f"{plant.name:28} {' + '.join(plant.causes) or 'none'}")
        return
    matrix = Matrix()
    if args.virtual:
        matrix.read(args.virtual)
    for file in args.runs:
        matrix.read_earlier(file)
    matrix.measure()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(matrix.documents, file)
    matrix.print()
    if matrix.failures:
        sys.exit(1)


main()
