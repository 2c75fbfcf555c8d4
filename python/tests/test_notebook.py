"""The cells of the notebook, in their order."""

import json
import pathlib
import webbrowser

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "python.ipynb"


def test_every_cell_runs(monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    (page,) = shown
    assert "<svg" in pathlib.Path(page.removeprefix("file://")).read_text()
    with pytest.raises(names["linkgauge"].LinkgaugeError):
        names["linkgauge"].latency(names["server"].url, count=1, no_store=True)
