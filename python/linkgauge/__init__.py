"""Measures latency and throughput over any link.

    import linkgauge

    with linkgauge.server() as server:
        run = linkgauge.latency(server.url, count=2000)
    print(run.case.latency.p50)  # seconds

Each function runs the program ``linkgauge`` that this package brings, and returns its document.
docs/python.md explains all of it.
"""

from ._document import Case, Distribution, LinkgaugeError, MeasurementError, Run, Warning, load
from ._measure import connect, latency, measure, responsiveness, throughput
from ._program import find_program
from ._server import Server, server

__all__ = [
    "Case",
    "Distribution",
    "LinkgaugeError",
    "MeasurementError",
    "Run",
    "Server",
    "Warning",
    "connect",
    "find_program",
    "latency",
    "load",
    "measure",
    "responsiveness",
    "server",
    "throughput",
]
