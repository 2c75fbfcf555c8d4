#!/usr/bin/env python3
"""Accuracy of the shaper, and downloads from an emulated logger behind it. Prints one row per bar.

    benches/shaped_links.py [--binary target/release/linkgauge] [--seconds 5] [--repeat 5] [--full] [ROW…]
Rows: delay rate connections download frames. Bars: added delay exact to 0.2 ms above the unshaped forwarder (median); rate to 1 %
from 1 kB/s to 100 MB/s; 200 connections, no byte changed or lost; a download one chunk at a time within 3 % of its
prediction; with the window that the fit names 90 % of the link's rate (--full: 600 kB as the bar requires, 15 min; else 60 kB);
of 60 datagrams a second with 2 % loss and 300 ms spikes the reported loss is that of the shaper's log, and every missed frame
that is not in the log is named with its sample.
Every part of the lab is its own process, ended by process id. Run it on a machine that does nothing else.
"""
import csv, hashlib, os, socket, statistics, sys, tempfile, threading, time

import common

parser = common.flags(__doc__, repeat=5, seconds=5.0)
parser.add_argument("--full", action="store_true")
parser.add_argument("rows", nargs="*")
args = parser.parse_args()


def start(*command):
    return common.Server([args.binary, *command])


def shaper(to, *flags, scheme="tcp"):
    return start("lab", "shaper", "--listen", f"{scheme}://127.0.0.1:0", "--to", to, *flags)


def measure(*command):
    return common.document([args.binary, *command])


def connect(place):
    host, port = place.rsplit(":", 1)
    stream = socket.create_connection((host, int(port)), 30)
    stream.settimeout(120)
    return stream


def row_delay():
    with start("serve", "tcp://127.0.0.1:0") as far, shaper(far.url) as plain:
        for delay in (1, 5, 20, 50, 200, 500):
            with shaper(far.url, "--delay", f"{delay}ms") as shaped:
                count = str(max(12, min(500, round(args.seconds * 500 / delay))))
                added = []
                for _ in range(args.repeat):
                    p50 = [measure("latency", way.url, "--protocol", "echo", "--count", count, "--warm-up", "2", "--timeout",
                                 "10s")["cases"][0]["latency_ns"]["p50"] / 1e6 for way in (plain, shaped)]
                    added.append(p50[1] - p50[0] - 2 * delay)
                print(f"one-way delay {delay} ms: {statistics.median(added):+.3f} ms over twice that above the unshaped "
                      f"forwarder {[round(value, 3) for value in added]}")


def received(place, seconds):
    """Bytes per second at the receiver of a connection, from the first receipt to the last, for this time."""
    stream = connect(place)
    first = len(stream.recv(1 << 18))
    began = time.monotonic()
    total, last = 0, began
    while last - began < seconds:
        total += len(stream.recv(1 << 18))
        last = time.monotonic()
    stream.close()
    return total / (last - began), first


def source():
    """A server that sends endlessly to every client."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send(stream):
        block = os.urandom(1 << 18)
        try:
            while True:
                stream.sendall(block)
        except OSError:
            stream.close()

    def accept():
        while True:
            try:
                stream = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=send, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def row_rate():
    listener = source()
    to = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    for rate in (1e3, 10e3, 100e3, 1e6, 10e6, 100e6):
        with shaper(to, "--rate-down", f"{rate:.0f}Bps") as shaped:
            off = [100 * (received(shaped.place, args.seconds)[0] / rate - 1) for _ in range(args.repeat)]
            print(f"rate {rate:.0f} B/s: {statistics.median(off):+.2f} % {[round(value, 2) for value in off]}")
    listener.close()


def echo_server():
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def echo(stream):
        while block := stream.recv(1 << 16):
            stream.sendall(block)
        stream.close()

    def accept():
        while True:
            try:
                stream = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=echo, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def row_connections():
    count, size = 200, 200_000
    listener = echo_server()
    right = []

    def client(place):
        sent = os.urandom(size)
        stream = connect(place)
        sender = threading.Thread(target=lambda: (stream.sendall(sent), stream.shutdown(socket.SHUT_WR)), daemon=True)
        sender.start()
        back = hashlib.sha256()
        while block := stream.recv(1 << 16):
            back.update(block)
        right.append(back.digest() == hashlib.sha256(sent).digest())

    with shaper(f"tcp://127.0.0.1:{listener.getsockname()[1]}", "--delay", "20ms", "--rate", "10MBps") as shaped:
        began = time.monotonic()
        threads = [threading.Thread(target=client, args=(shaped.place,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0, began + 120 - time.monotonic()))
        took = time.monotonic() - began
    listener.close()
    print(f"connections: {sum(right)} of {count} received the bytes that they sent, {size} each, in {took:.1f} s "
          f"({count * size / 10e6:.1f} s at the rate)")


def row_download():
    document = measure("reproduce", "loggernet", *([] if args.full else ["--quick"]))
    for table in document["paper"]["tables"]:
        for row in table["rows"]:
            if "measured" not in row:
                print(f"download {row['row']}: {row.get('reason')}")
                continue
            measured, predicted, unit = row["measured"], row["predicted"], row["unit"]
            print(f"download {row['row']}, emulated logger: {measured:.1f} {unit}, predicted {predicted:.1f} "
                  f"({100 * (measured / predicted - 1):+.2f} %), published {row['published']}")


def by_log(path):
    """The delay of each round trip by the shaper's log, in ns: the sum of both delays, None if one of the two was lost."""
    ways = {"up": [], "down": []}
    with open(path, newline="") as log:
        for line in csv.DictReader(log):
            ways[line["direction"]].append((int(line["came_ns"]), int(line["delay_ns"] or -1)))
    up, down = ways["up"], ways["down"]
    # The server replies in the order in which requests arrive.
    out = sorted((number for number, (_, delay) in enumerate(up) if delay >= 0), key=lambda number: sum(up[number]))
    if len(out) != len(down):
        raise SystemExit(f"frames: {len(out)} requests arrived, {len(down)} replies came: the server lost some")
    responses = [None] * len(up)
    for number, (_, back) in zip(out, down):
        responses[number] = None if back < 0 else up[number][1] + back
    return responses


def row_frames():
    count = round(max(5, 4 * args.seconds) * 60)
    with tempfile.TemporaryDirectory() as directory, start("serve", "udp://127.0.0.1:0", "--protocol", "echo") as far:
        log = f"{directory}/log.csv"
        with shaper(far.url, "--delay", "2ms", "--loss", "2%", "--spike", "300ms@2%", "--log", log, scheme="udp") as shaped:
            figures = measure("latency", shaped.url, "--protocol", "echo", "--size", "32", "--rate", "60/s", "--count", str(count),
                            "--warm-up", "0", "--timeout", "5s")["cases"][0]
        logged = by_log(log)
    lost = sum(response is None for response in logged)
    print(f"frames: {figures['sent']} sent, {figures['lost']} reported lost, {lost} by the shaper's log: "
          f"{'equal' if figures['lost'] == lost else 'DIFFERENT'}")
    missed = figures["missed_frames"]
    for limit, reported in sorted(missed["count_later_than_ms"].items(), key=lambda item: float(item[0])):
        late = lambda response: response is None or response > float(limit) * 1e6
        differ = [frame for frame in missed["first"]
                  if late(frame.get("response_ns")) and not late(logged[frame["sequence"]])]
        expected = sum(map(late, logged))
        print(f"  over {limit} ms: {reported} reported, {expected} by the log, {len(differ)} listed that came late on this "
              f"machine: {'all explained' if reported == expected + len(differ) else 'NOT explained'}")
        for frame in differ:
            response, shaped_ns = frame["response_ns"], logged[frame["sequence"]]
            print(f"    number {frame['sequence']}, due at {frame['due_ns'] / 1e9:.3f} s: {response / 1e6:.3f} ms, by the log "
                  f"{shaped_ns / 1e6:.3f} ms, late by {(response - shaped_ns) / 1e6:.3f} ms")


ROWS = {name[4:]: function for name, function in list(globals().items()) if name.startswith("row_")}
for name in args.rows or ROWS:
    ROWS[name]()
    sys.stdout.flush()
