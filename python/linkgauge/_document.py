"""Run documents: what was measured. ``schema/run.v1.json`` describes them."""

from __future__ import annotations

import html
import io
import json
import os
import tempfile
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from ._program import Option, call, flags

if TYPE_CHECKING:
    import pandas

_SECOND = 1e9


class LinkgaugeError(Exception):
    """The program refused or failed. The text is its own: what failed, on what, what to try."""


class MeasurementError(LinkgaugeError):
    """A part of the plan was not measured. :attr:`run` has the rest."""

    def __init__(self, message: str, run: "Run") -> None:
        super().__init__(message)
        self.run = run


def error_text(printed: str) -> str:
    """The text of an error of the program."""
    return printed.strip().removeprefix("error: ")


@dataclass(frozen=True)
class Warning:
    """Something that makes a figure doubtful."""

    #: Stable short name.
    code: str
    #: What was observed.
    text: str
    #: What to do about it.
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}. Try: {self.remedy}"


class Distribution:
    """Times in seconds. A lost request ranks slowest, so a percentile may be ``None``: not reached, or too few requests."""

    def __init__(self, figures: Dict[str, Any]) -> None:
        self._figures = figures

    @property
    def count(self) -> int:
        """Requests with a reply."""
        return self._figures["count"]

    @property
    def min(self) -> float:
        return self._figures["min"] / _SECOND

    @property
    def mean(self) -> float:
        """Of the requests with a reply."""
        return self._figures["mean"] / _SECOND

    @property
    def max(self) -> float:
        """The slowest reply."""
        return self._figures["max"] / _SECOND

    @property
    def standard_deviation(self) -> Optional[float]:
        return _seconds(self._figures.get("standard_deviation"))

    def percentile(self, percent: float) -> Optional[float]:
        """A percentile that the document holds: 10, 20 … 90, 95, 99, and further nines as far as the number of requests allows."""
        return _seconds(self._figures.get(f"p{percent:g}"))

    @property
    def p50(self) -> Optional[float]:
        return self.percentile(50)

    @property
    def p90(self) -> Optional[float]:
        return self.percentile(90)

    @property
    def p99(self) -> Optional[float]:
        return self.percentile(99)

    def __repr__(self) -> str:
        shown = [f"{name}={value:.3g} s" for name in ("min", "p50", "p99", "max") if (value := getattr(self, name)) is not None]
        return f"<{self.count} times: {', '.join(shown)}>"


class Case:
    """One combination of endpoint, protocol, workload, direction and size. What was not measured is ``None``."""

    def __init__(self, document: Dict[str, Any]) -> None:
        #: The case as in the document, with all its figures.
        self.document = document

    @property
    def endpoint(self) -> str:
        return self.document["endpoint"]

    @property
    def workload(self) -> str:
        return self.document["workload"]

    @property
    def complete(self) -> bool:
        """Whether all that was planned was measured."""
        return self.document["complete"]

    @property
    def latency(self) -> Optional[Distribution]:
        """Round-trip times: from a request to its reply. Of a case of :func:`connect`, how long connections took to open."""
        return self._distribution("latency_ns")

    @property
    def response(self) -> Optional[Distribution]:
        """Response times: from when a request was due by its schedule."""
        return self._distribution("response_ns")

    @property
    def connect_time(self) -> Optional[Distribution]:
        """How long connections took to open, where requests used several (``reconnect_every``)."""
        return self._distribution("connect_ns")

    @property
    def throughput(self) -> Optional[float]:
        """Delivered payload in bit/s, by the receiver's clock."""
        return self.document.get("throughput_bps")

    @property
    def reverse_throughput(self) -> Optional[float]:
        """The same of the other direction, where both were loaded."""
        return self.document.get("throughput_reverse_bps")

    @property
    def added_latency(self) -> Optional[float]:
        """Median of what the load added to a round trip, in seconds."""
        return _seconds(self.document.get("added_p50_ns"))

    @property
    def sent(self) -> Optional[int]:
        return self.document.get("sent")

    @property
    def lost(self) -> Optional[int]:
        """Messages; ``None`` if nobody could count them."""
        return None if self.document.get("losses_unknown") else self.document.get("lost")

    @property
    def warnings(self) -> List[Warning]:
        return _warnings(self.document)

    def figure(self, name: str) -> Any:
        """A figure by its name in the document, like ``"jitter_ns"``."""
        return self.document.get(name)

    def interval(self, name: str) -> Optional[Tuple[float, float]]:
        """The 95 % interval of a figure, in its unit, like that of ``"latency_ns.p50"``."""
        found = self.document.get("intervals", {}).get(name)
        return found and (found["low"], found["high"])

    def _distribution(self, name: str) -> Optional[Distribution]:
        figures = self.document.get(name)
        return figures and Distribution(figures)

    def __repr__(self) -> str:
        figures = [f"latency {self.latency}"] if self.latency else []
        figures += [f"{self.throughput / 1e6:.4g} Mbit/s"] if self.throughput is not None else []
        return f"<{self.workload} {self.endpoint}: {', '.join(figures) or 'nothing measured'}>"


class Run:
    """A measurement, as the program saves it."""

    def __init__(self, document: Dict[str, Any]) -> None:
        #: The whole document.
        self.document = document

    @property
    def id(self) -> str:
        return self.document["id"]

    @property
    def cases(self) -> List[Case]:
        return [Case(case) for case in self.document["cases"]]

    @property
    def case(self) -> Case:
        """The only case. Raises ``ValueError`` if there are several, or none."""
        (case,) = self.cases
        return case

    @property
    def warnings(self) -> List[Warning]:
        """Those of the run and of its cases."""
        return [warning for place in (self.document, *self.document["cases"]) for warning in _warnings(place)]

    @property
    def passed(self) -> bool:
        """Whether every threshold was met."""
        return all(outcome["passed"] for outcome in self.thresholds)

    @property
    def thresholds(self) -> List[Dict[str, Any]]:
        """The outcomes of the thresholds: ``threshold``, ``measured``, ``passed``."""
        return [outcome for case in self.document["cases"] for outcome in case.get("thresholds", [])]

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the document to a file, which ``linkgauge show`` and :func:`load` read."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.document, file, indent=1)

    def format(self, name: str) -> str:
        """The report in a format of ``linkgauge show --format``: text, html, csv, csv-repetitions, csv-series, junit …"""
        done = call(["show", "-", f"--format={name}"], json.dumps(self.document))
        if not done.stdout:
            raise LinkgaugeError(error_text(done.stderr))
        return done.stdout

    def to_pandas(self, rows: str = "csv") -> "pandas.DataFrame":
        """A table with one row per case; per repetition with ``"csv-repetitions"``, per interval of the time series with
        ``"csv-series"``. Its columns are those of docs/csv.md. Needs ``pip install linkgauge[pandas]``.
        """
        import pandas

        return pandas.read_csv(io.StringIO(self.format(rows)), comment="#")

    def show(self) -> None:
        """The page with its charts: in the notebook, else in the browser."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            get_ipython = None
        if get_ipython is not None and get_ipython() is not None:
            display(self)
            return
        with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="linkgauge-", delete=False, encoding="utf-8") as page:
            page.write(self.format("html"))
        webbrowser.open(f"file://{page.name}")

    def _repr_html_(self) -> str:
        page = html.escape(self.format("html"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0" sandbox="allow-scripts"></iframe>'

    def __str__(self) -> str:
        return self.format("text")

    def __repr__(self) -> str:
        return f"<linkgauge.Run {self.id}: {self.cases}>"


def load(run: Union[str, "os.PathLike[str]"] = "last", **options: Option) -> Run:
    """A saved run: a file, an id (its beginning or end suffices), ``"last"``, or the name of one run. ``store=FILE`` names the file of
    saved runs.

    Raises :class:`LinkgaugeError` if there is none.
    """
    done = call(["show", *flags(options), "--format=json", "--", os.fspath(run)])
    if done.returncode != 0 and not done.stdout:
        raise LinkgaugeError(error_text(done.stderr))
    return Run(json.loads(done.stdout))


def _seconds(ns: Optional[float]) -> Optional[float]:
    return None if ns is None else ns / _SECOND


def _warnings(document: Dict[str, Any]) -> List[Warning]:
    return [Warning(one["code"], one["text"], one["remedy"]) for one in document.get("warnings", [])]
