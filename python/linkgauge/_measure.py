"""Measurements."""

from __future__ import annotations

import json
from typing import List

from ._document import LinkgaugeError, MeasurementError, Run, error_text
from ._program import Option, call, flags


def measure(workload: str, *urls: str, **options: Option) -> Run:
    """Runs ``linkgauge WORKLOAD URL… --option=value…``. Every flag of the program is a keyword: ``linkgauge.measure("latency",
    "192.0.2.7", rate="100/s", time=10)``.

    A threshold that is not met is no error: see :attr:`Run.passed`.

    Raises :class:`LinkgaugeError` if nothing could be measured, and :class:`MeasurementError` if a part was not, with the rest.
    """
    done = call([workload, *flags(options), "--quiet", "--json=-", "--", *urls])
    if not done.stdout:
        raise LinkgaugeError(error_text(done.stderr))
    run = Run(json.loads(done.stdout))
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        raise MeasurementError(error_text(done.stderr) or "; ".join(_missing(run)), run)
    return run


def _missing(run: Run) -> List[str]:
    """What was not measured, and why."""
    failures = [failure["message"] for case in run.cases for failure in case.document.get("failures", [])]
    unmet = [f"{one['threshold']}: {one['measured']}" for one in run.thresholds if not one["passed"]]
    return failures or unmet or ["a part of the plan was not measured"]


def latency(*urls: str, **options: Option) -> Run:
    """Measures round-trip times, like ``linkgauge latency``: ``linkgauge.latency("192.0.2.7", count=2000)``.

    Common options: ``count``, ``time`` (seconds), ``size`` (bytes), ``rate`` (``"100/s"``), ``udp=True``, ``timeout``,
    ``threshold`` (``"p99 < 2ms"``, or a list), ``store=FILE`` or ``no_store=True``. See :func:`measure`.
    """
    return measure("latency", *urls, **options)


def throughput(*urls: str, **options: Option) -> Run:
    """Measures the rate that gets through, like ``linkgauge throughput``: ``linkgauge.throughput("192.0.2.7", time=5)``.

    Common options: ``time``, ``parallel``, ``reverse=True``, ``bidir=True``, ``udp=True``, ``bit_rate`` (``"10M"``). See
    :func:`measure`.
    """
    return measure("throughput", *urls, **options)


def responsiveness(*urls: str, **options: Option) -> Run:
    """Measures how fast replies are while connections load the link, like ``linkgauge responsiveness``. See :func:`measure`."""
    return measure("responsiveness", *urls, **options)


def connect(*urls: str, **options: Option) -> Run:
    """Measures how long connections take to open, like ``linkgauge connect``. See :func:`measure`."""
    return measure("connect", *urls, **options)
