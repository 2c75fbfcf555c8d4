"""The pytest plugin: fixtures for test benches of devices and networks."""

from __future__ import annotations

from typing import Iterator, Protocol

import pytest

from ._document import Run
from ._measure import measure
from ._program import Option
from ._server import Server, server


class AssertLatency(Protocol):
    def __call__(self, url: str, **limits_and_options: Option) -> Run: ...


#: Names of limits, beside those of percentiles.
_LIMITS = ("min", "mean", "max", "loss", "jitter")


def _is_limit(name: str) -> bool:
    return name in _LIMITS or (name[0] == "p" and name[1:].replace("_", "", 1).isdigit())


@pytest.fixture
def linkgauge_server() -> Iterator[Server]:
    """A server on a free TCP port of this host, for one test."""
    with server() as running:
        yield running


@pytest.fixture
def assert_latency() -> AssertLatency:
    """Measures round trips and fails the test if a limit is exceeded: ``assert_latency(url, p99="5ms", loss="0%", count=1000)``.

    Limits: percentiles (``p50``, ``p99``, ``p99_9``), ``min``, ``mean``, ``max``, ``loss``, ``jitter``, each with its unit. Everything
    else is an option of :func:`linkgauge.latency`. Returns the run.
    """

    def check(url: str, **limits_and_options: Option) -> Run:
        __tracebackhide__ = True
        given = limits_and_options.items()
        limits = [f"{name.replace('_', '.')} <= {value}" for name, value in given if _is_limit(name)]
        if not limits:
            raise ValueError('name a limit, like p99="5ms"')
        options = {name: value for name, value in given if not _is_limit(name)}
        run = measure("latency", url, threshold=limits, **options)
        missed = [f"{one['threshold']}: measured {one['measured']}" for one in run.thresholds if not one["passed"]]
        if missed:
            pytest.fail(f"{url}: " + "; ".join(missed), pytrace=False)
        return run

    return check
