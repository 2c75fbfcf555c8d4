"""Shared code of the benchmarks: flags, background programs, documents, ratios.

Not a benchmark itself. Their runs are not saved in the user's store; every program that they start is
ended by its process id.
"""
import argparse, json, os, random, signal, statistics, subprocess, threading

os.environ["LINKGAUGE_STORE"] = ""


def flags(text, repeat=10, seconds=None, cpus=None):
    """The common flags of a benchmark with this help text, to which it adds its own."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/linkgauge")
    parser.add_argument("--repeat", type=int, default=repeat)
    if seconds:
        parser.add_argument("--seconds", type=type(seconds), default=seconds)
    if cpus:
        parser.add_argument("--cpus", default=cpus, help="CPU of the client, CPU of the server")
    return parser


class Program:
    """A program that runs beside the measurement while it is needed."""

    def __init__(self, command, **streams):
        self.process = subprocess.Popen(command, **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **streams})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Server(Program):
    """A server of ours, or a part of the lab, on a free port; it prints its endpoint."""

    def __init__(self, command):
        super().__init__(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " on " not in line:
            self.stop()
            raise SystemExit(f"{' '.join(command)}: it did not start")
        self.url = line.strip().rsplit(" on ", 1)[1]
        self.place = self.url.split("://")[1]
        # Further output must not block it.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()


def cpu_seconds(pid):
    """CPU time of a running program so far."""
    with open(f"/proc/{pid}/stat") as stat:
        return sum(map(int, stat.read().rsplit(") ", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid, name="VmRSS"):
    """Memory of a running program: VmRSS now, VmHWM at its peak."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) * 1024 / 1e6


def output(command, timeout=120):
    """The standard output of a program; a failure ends the benchmark."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def document(command, timeout=1800):
    """The run of a command of ours, even if it is incomplete."""
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=timeout)
    try:
        run = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    if done.returncode:
        print(f"  status {done.returncode}: {done.stderr.strip()[:300]}")
    return run


def case(command):
    """The first case of the run of a command of ours."""
    return json.loads(output([*command, "--quiet", "--json", "-"]))["cases"][0]


class Ratio:
    """Median of the ratios of pairs, its 95 % interval (bootstrap of the pairs), and the medians of both sides."""

    def __init__(self, pairs):
        ratios = [one / other for one, other in pairs]
        random.seed(1)
        medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
        self.median, self.low, self.high = statistics.median(ratios), medians[249], medians[9749]
        self.ours, self.theirs = (statistics.median(side) for side in zip(*pairs))

    def __str__(self):
        return f"{self.median:6.3f}  [{self.low:.3f}, {self.high:.3f}]"
