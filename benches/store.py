#!/usr/bin/env python3
"""The store and the imports with many runs: history over 10 000 runs, a million samples, the cost of saving a run.

    benches/store.py [--binary target/release/linkgauge] [--runs 10000] [--samples 1000000] [--repeat 10]
Prints medians. Everything is in a temporary directory.
"""
import json, os, pathlib, random, statistics, tempfile, time

import common

parser = common.flags(__doc__)
parser.add_argument("--runs", type=int, default=10000)
parser.add_argument("--samples", type=int, default=1_000_000)
args = parser.parse_args()
ROOT = pathlib.Path(__file__).resolve().parent.parent


def timed(arguments):
    begin = time.monotonic()
    common.output([args.binary, *arguments])
    return time.monotonic() - begin


def row(name, arguments, repeat=args.repeat):
    times = [timed(arguments) for _ in range(repeat)]
    print(f"{name:44} {statistics.median(times) * 1e3:9.1f} ms  (worst {max(times) * 1e3:.1f} ms)", flush=True)


with tempfile.TemporaryDirectory() as directory:
    directory = pathlib.Path(directory)
    os.environ["LINKGAUGE_STORE"] = str(directory / "runs.sqlite")
    document = json.loads((ROOT / "tests/data/run-v1-latency.json").read_text())
    random.seed(1)
    files = []
    for number in range(args.runs):
        day, second = divmod(number * 61, 86400)
        document["id"] = f"{20260101 + day % 28}T{number:06}Z-{number:06x}"
        document["started"] = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
        document["cases"][0]["endpoint"] = f"tcp://192.0.2.{number % 40}:7100"
        document["cases"][0]["latency_ns"]["p50"] = int(16000 * random.lognormvariate(0, 0.02))
        path = directory / f"{number}.json"
        path.write_text(json.dumps(document))
        files.append(str(path))
    begin = time.monotonic()
    for at in range(0, len(files), 500):
        timed(["import", "run", "--quiet", *files[at:at + 500]])
    each = (time.monotonic() - begin) / max(len(files), 1)
    print(f"{'saving a run (one transaction each)':44} {each * 1e3:9.2f} ms")
    size = (directory / "runs.sqlite").stat().st_size
    print(f"{'size of the store':44} {size / 1e6:9.1f} MB")
    row("history", ["history"])
    row("history, all of them", ["history", "--limit", "0"])
    row("history --endpoint", ["history", "--endpoint", "192.0.2.7:"])
    row("history --metric p50, all endpoints", ["history", "--metric", "p50"])
    row("history --metric p50, one endpoint", ["history", "--metric", "p50", "--endpoint", "192.0.2.7:"])
    row("show last", ["show", "last"])

    log = directory / "samples.log"
    log.write_text("".join(f"{random.lognormvariate(2, 0.5):.3f}\n" for _ in range(args.samples)))
    row(f"import {args.samples} samples", ["import", "samples", str(log), "--unit", "ms", "--lost", "999", "--no-store"])
