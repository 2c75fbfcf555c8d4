"""Servers for the time of a block."""

from __future__ import annotations

import re
import subprocess
import threading
from types import TracebackType
from typing import List, Optional, Type

from ._document import LinkgaugeError, error_text
from ._program import Option, find_program, flags

_SERVED = re.compile(r"^serving (?P<protocol>\S+) on (?P<url>\S+)$")


class Server:
    """A running ``linkgauge serve``, made by :func:`server`. Ends with its ``with`` block, or by :meth:`stop`."""

    def __init__(self, process: "subprocess.Popen[str]", urls: List[str]) -> None:
        self._process = process
        #: Where it listens, with the ports that the system gave.
        self.urls = urls

    @property
    def url(self) -> str:
        """The first of :attr:`urls`."""
        return self.urls[0]

    def stop(self) -> None:
        """Ends the server. May be called again."""
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<linkgauge.Server {' '.join(self.urls)}>"


def server(*urls: str, **options: Option) -> Server:
    """Starts ``linkgauge serve`` and waits until it listens. Without URLs on a free TCP port of this host.

    Every flag of the command is a keyword, like ``protocol="iperf3"``, ``max_rate="100M"``, ``token_file=…``.

    Raises :class:`LinkgaugeError` if it cannot listen.
    """
    places = urls or ("tcp://127.0.0.1:0",)
    process = subprocess.Popen(
        [find_program(), "serve", *flags(options), "--", *places],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None and process.stderr is not None
    found: List[str] = []
    for line in process.stdout:
        served = _SERVED.match(line.strip())
        found += [served["url"]] if served else []
        if len(found) == len(places):
            break
    if len(found) < len(places):
        text = process.stderr.read()
        process.terminate()
        process.wait()
        raise LinkgaugeError(error_text(text) or "the server does not start")
    # A server that prints more must never wait for a reader.
    for stream in (process.stdout, process.stderr):
        threading.Thread(target=_drop, args=(stream,), daemon=True).start()
    return Server(process, found)


def _drop(stream) -> None:  # type: ignore[no-untyped-def]
    for _ in stream:
        pass
