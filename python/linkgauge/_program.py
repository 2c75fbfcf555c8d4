"""Finds and calls the program."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sysconfig
from typing import List, Mapping, Sequence, Union

#: The value of a flag. ``True`` is the flag alone, ``None`` and ``False`` leave it out, a list repeats it.
Option = Union[None, bool, int, float, str, "os.PathLike[str]", datetime.timedelta, Sequence[Union[int, float, str]]]

#: An environment variable with the path of another program.
PROGRAM_VARIABLE = "LINKGAUGE_PROGRAM"


def find_program() -> str:
    """The path of the program: that of ``LINKGAUGE_PROGRAM``, else the one installed with this package, else that of the search path.

    Raises ``FileNotFoundError`` if there is none.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return named
    name = "linkgauge" + (sysconfig.get_config_var("EXE") or "")
    user = sysconfig.get_preferred_scheme("user")
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user)]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"the program {name} is not in {' or '.join(folders)}: install it with: pip install linkgauge")
    return found


def _text(value: object) -> str:
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():.9f}s"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def flags(options: Mapping[str, Option]) -> List[str]:
    """The flags of keyword arguments: ``bit_rate="10M"`` is ``--bit-rate=10M``."""
    found = []
    for name, value in options.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        found.extend(f"{flag}={_text(one)}" for one in values)
    return found


def call(arguments: List[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end. An interrupt reaches it as well: it ends with what it has, then ``KeyboardInterrupt`` is raised."""
    process = subprocess.Popen(
        [find_program(), *arguments],
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        try:
            out, err = process.communicate(given)
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
