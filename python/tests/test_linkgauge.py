"""The package against servers of this host. tests/interop/python.rs runs it from a wheel."""

import datetime
import subprocess
import sys

import pytest

import linkgauge
from linkgauge._program import flags


def test_flags_are_those_of_the_program():
    options = {"bit_rate": "10M", "udp": True, "quiet": False, "timeout": None, "time": datetime.timedelta(milliseconds=5)}
    assert flags(options) == ["--bit-rate=10M", "--udp", "--time=0.005000000s"]
    assert flags({"threshold": ["p99 < 1s", "loss <= 0%"]}) == ["--threshold=p99 < 1s", "--threshold=loss <= 0%"]


def test_round_trips_are_seconds(linkgauge_server):
    run = linkgauge.latency(linkgauge_server.url, count=1000, no_store=True)
    latency = run.case.latency
    assert latency.count == 1000 and run.case.lost == 0 and run.case.complete
    assert 0 < latency.min <= latency.p50 <= latency.p99 <= latency.max < 10
    assert latency.percentile(99.9) is None or latency.p99 <= latency.percentile(99.9)
    assert latency.p50 == run.document["cases"][0]["latency_ns"]["p50"] / 1e9
    low, high = run.case.interval("latency_ns.p50") or (0, 0)
    assert low <= high
    assert run.case.throughput is None and run.case.connect_time is None
    assert "round trip" in str(run) and run.id in repr(run)


def test_loads_have_rates(linkgauge_server):
    both = linkgauge.throughput(linkgauge_server.url, time=0.2, bidir=True, no_store=True).case
    assert both.throughput > 1e6 and both.reverse_throughput > 1e6 and both.latency is None
    assert linkgauge.connect(linkgauge_server.url, count=20, no_store=True).case.latency.count == 20


def test_several_cases_are_apart(linkgauge_server):
    run = linkgauge.latency(linkgauge_server.url, size="1,64", count=100, no_store=True)
    assert [case.document["message_bytes"] for case in run.cases] == [1, 64]
    with pytest.raises(ValueError):
        run.case


def test_thresholds_are_no_errors(linkgauge_server):
    run = linkgauge.latency(linkgauge_server.url, count=100, threshold=["p50 < 1ns", "loss <= 0%"], no_store=True)
    assert not run.passed and [outcome["passed"] for outcome in run.thresholds] == [False, True]


def test_documents_are_saved_and_loaded(linkgauge_server, tmp_path):
    store = tmp_path / "runs.db"
    run = linkgauge.latency(linkgauge_server.url, count=100, store=store)
    run.save(tmp_path / "run.json")
    assert linkgauge.load(tmp_path / "run.json").document == run.document
    assert linkgauge.load(store=store).id == run.id
    with pytest.raises(linkgauge.LinkgaugeError, match="no run or tag 'nothing'"):
        linkgauge.load("nothing", store=store)


def test_tables_and_pages(linkgauge_server):
    run = linkgauge.latency(linkgauge_server.url, size="1,64", count=100, no_store=True)
    table = run.to_pandas()
    assert list(table["message_bytes"]) == [1, 64]
    assert list(table["latency_p50_ns"]) == [case.document["latency_ns"]["p50"] for case in run.cases]
    assert len(run.to_pandas("csv-series")) == sum(len(case.document["series"]) for case in run.cases)
    assert "<svg" in run.format("html") and "<iframe" in run._repr_html_()


def test_errors_are_those_of_the_program(linkgauge_server):
    with pytest.raises(linkgauge.LinkgaugeError, match="unknown flag '--bananas'"):
        linkgauge.latency(linkgauge_server.url, bananas=3)
    with pytest.raises(linkgauge.LinkgaugeError, match="does not have that address"):
        linkgauge.server("tcp://192.0.2.1:0")
    with linkgauge.server() as gone:
        url = gone.url
    with pytest.raises(linkgauge.MeasurementError, match="connection refused") as caught:
        linkgauge.latency(url, count=10, no_store=True)
    assert not caught.value.run.case.complete and caught.value.run.case.latency is None


def test_a_server_has_every_option(linkgauge_server):
    with linkgauge.server("tcp://127.0.0.1:0", "udp://127.0.0.1:0", protocol="echo") as echo:
        assert [url.partition(":")[0] for url in echo.urls] == ["tcp", "udp"]
        run = linkgauge.latency(*echo.urls, count=50, no_store=True)
        assert [case.document["protocol"] for case in run.cases] == ["echo", "echo"]
    echo.stop()


def test_the_module_is_the_program():
    printed = subprocess.run([sys.executable, "-m", "linkgauge", "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("linkgauge ")


def test_assertions(linkgauge_server, assert_latency):
    run = assert_latency(linkgauge_server.url, p99="10s", loss="0%", count=1000, no_store=True)
    assert run.passed
    with pytest.raises(linkgauge.MeasurementError, match="not measured"):
        assert_latency(linkgauge_server.url, p99_9="10s", count=100, no_store=True)
    with pytest.raises(pytest.fail.Exception, match=r"p50 .* measured"):
        assert_latency(linkgauge_server.url, p50="1ns", count=100, no_store=True)
    with pytest.raises(ValueError, match="name a limit"):
        assert_latency(linkgauge_server.url, count=100)
