"""How often the interval that one run prints holds the middle of many runs of the same command.

For every setting the same command runs REPEAT times on loopback, quiet and with one CPU kept half busy by
another program. Printed for each figure: in how many runs the 95 % interval held the median of all runs,
how many had none, the median width of the interval in proportion to the range of the central 95 % of all
runs, its share of the figure, and that range.

--path shaper and --path tbf measure transfers of 2 s in each direction, quiet, behind `lab shaper`, and behind
a token bucket of the kernel (tbf) on the loopback device of a network namespace of its own.

Each setting has a store of its own, so the first runs know nothing of others, as after an installation.
Without one (--no-history) an interval knows its own run only. The median of 60 runs is itself uncertain by
about 1.25 / sqrt(60) of their deviation.
"""
import contextlib, json, os, statistics, sys, tempfile

import common

FIGURES = {
    "latency": (("latency_ns", "p50"), ("latency_ns", "p90")),
    "throughput": (("throughput_bps", None), ("added_p50_ns", None)),
}
SHAPE = ["--rate", "20Mbit/s", "--delay", "10ms"]
TBF = "ip link set lo up mtu 1500 && tc qdisc add dev lo root tbf rate 20mbit burst 16kb latency 50ms"
IN_NAMESPACE = "LINKGAUGE_BENCH_NAMESPACE"
HALF_BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end: pass
    time.sleep(0.005)
"""


def figure(case, group, name):
    value = case.get(group)
    return value if name is None or value is None else value.get(name)


def interval(case, group, name):
    return (case.get("intervals") or {}).get(f"{group}.{name}" if name else group)


def unit(group):
    return {"latency_ns": (1e3, "µs"), "added_p50_ns": (1e6, "ms")}.get(group, (1e6, "Mbit/s"))


def summary(label, cases, group, name):
    what = name or {"added_p50_ns": "added latency"}.get(group, "rate")
    values = [figure(case, group, name) for case in cases]
    pairs = [(value, interval(case, group, name)) for value, case in zip(values, cases) if value is not None]
    if not pairs:
        print(f"| {label} | {what} | no figure |")
        return
    ordered = sorted(value for value, _ in pairs)
    middle = statistics.median(ordered)
    at = lambda share: ordered[round(share * (len(ordered) - 1))]
    low, high = at(0.025), at(0.975)
    found = [one for _, one in pairs if one]
    held = sum(one["low"] <= middle <= one["high"] for one in found)
    widths = [one["high"] - one["low"] for one in found]
    width = statistics.median(widths) / (high - low) if widths and high > low else float("nan")
    share = f"{100 * statistics.median(widths) / middle:.1f} %" if widths and middle else "–"
    scale, text = unit(group)
    spread = f"{low / scale:.1f} … {high / scale:.1f} {text}"
    print(f"| {label} | {what} | {held} of {len(found)} | {len(pairs) - len(found)} | {width:.2f} | {share} | {spread} |", flush=True)


def cases_of(options, command, label):
    """The first cases of the runs of a command. `--keep` writes them, one document a line."""
    with tempfile.TemporaryDirectory() as place:
        store = [] if options.no_history else ["--store", os.path.join(place, "runs.sqlite")]
        cases = [common.case([*command, *store]) for _ in range(options.repeat)]
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
        with open(os.path.join(options.keep, label.replace(" ", "_").replace(",", "-") + ".jsonl"), "w") as file:
            file.writelines(json.dumps(case) + "\n" for case in cases)
    return cases


def settings_of(options):
    """Whether another program uses a CPU, and the command with its flags."""
    if options.path != "loopback":
        return [(False, ["throughput", "--time", "2s", "--direction", way]) for way in ("upload", "download")]
    return [
        (busy, [command, *time, *pin])
        for busy in (False, True)
        for command in ("latency", "throughput")
        for time in ((), ("--time", "2s"))
        for pin in ((), ("--pin", options.cpus))
    ]


def enter_namespace():
    """Runs this program again behind a token bucket in a network namespace of its own."""
    os.environ[IN_NAMESPACE] = "1"
    again = [sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
    script = TBF + ' && exec "$@"'
    os.execvp("unshare", ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh", *again])


def main():
    parser = common.flags(__doc__, repeat=60, cpus="0,1")
    parser.add_argument("--only", default="", help="settings whose name holds all of these words, with commas between them")
    parser.add_argument("--keep", default="", help="directory for the measured cases")
    parser.add_argument("--path", choices=("loopback", "shaper", "tbf"), default="loopback", help="what the transfers pass")
    parser.add_argument("--no-history", action="store_true", help="measure without a store")
    options = parser.parse_args()
    if options.path == "tbf" and IN_NAMESPACE not in os.environ:
        enter_namespace()
    print("| command | figure | held | no interval | width ÷ spread | width ÷ figure | 95 % of the runs |\n|---|---|---|---|---|---|---|")
    half_busy = [sys.executable, "-c", HALF_BUSY, options.cpus.split(",")[-1], str(os.getpid())]
    with contextlib.ExitStack() as programs:
        server = programs.enter_context(common.Server([options.binary, "serve", "tcp://127.0.0.1:0"]))
        if options.path == "shaper":
            shaper = [options.binary, "lab", "shaper", "--listen", "tcp://127.0.0.1:0", "--to", server.url, *SHAPE]
            server = programs.enter_context(common.Server(shaper))
        for busy, (command, *flags) in settings_of(options):
            path = [] if options.path == "loopback" else [options.path]
            label = " ".join([command, *flags, *path, "half busy" if busy else "quiet"])
            if not all(word in label.split() for word in options.only.split(",") if word):
                continue
            background = common.Program(half_busy) if busy else None
            try:
                cases = cases_of(options, [options.binary, command, server.url, *flags], label)
            finally:
                if background:
                    background.stop()
            for group, name in FIGURES[command]:
                summary(label, cases, group, name)


main()
