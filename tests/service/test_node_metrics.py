"""The processes of a node count together: nothing that was counted is lost with a process, nothing is told twice."""

from __future__ import annotations

from pathlib import Path

import prometheus_client.values
import pytest
from prometheus_client.mmap_dict import MmapedDict

from service.cells import FILE_BYTES, SharedCells
from service.metrics import Metrics
from service.node_metrics import SUPERVISOR, Node, leave, write_pid
from tests.service.test_metrics import samples


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's folder; what joining changes in the library is as before when the test is over."""
    monkeypatch.setattr(prometheus_client.values, "ValueClass", prometheus_client.values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    return tmp_path


def test_each_process_tells_the_sums_of_all(folder: Path) -> None:
    one, two = Metrics(Node(folder, "worker1")), Metrics(Node(folder, "worker2"))
    for metrics, seconds in ((one, 0.0001), (two, 3.0)):
        metrics.request_timer("page")(200, seconds)
        metrics.read("page", "count", 7)
        metrics.posts_settled("applied", 3)
        metrics.group_written(posts=3, rows=2, seconds=seconds)
        metrics.queue_depth(4)
    two.request_timer("page")(404, 0.0001)
    for metrics in (one, two):
        found = samples(metrics)
        assert found["rankcurve_requests_total", (("route", "page"), ("status", "200"))] == 2
        assert found["rankcurve_requests_total", (("route", "page"), ("status", "404"))] == 1
        assert found["rankcurve_request_seconds_count", (("route", "page"),)] == 3
        assert found["rankcurve_request_seconds_bucket", (("le", "0.0002"), ("route", "page"))] == 2
        assert found["rankcurve_request_seconds_bucket", (("le", "5.0"), ("route", "page"))] == 3
        assert found["rankcurve_request_seconds_sum", (("route", "page"),)] == pytest.approx(3.0002)
        assert found["rankcurve_reads_total", (("method", "count"), ("view", "page"))] == 14
        assert found["rankcurve_posts_total", (("outcome", "applied"),)] == 6
        assert found["rankcurve_write_seconds_count", ()] == 2
        assert found["rankcurve_write_rows_total", ()] == 4
        assert found["rankcurve_write_queue_posts", ()] == 8


def test_a_node_tells_the_same_families_as_a_process_alone(folder: Path) -> None:
    alone, node = Metrics(), Metrics(Node(folder, "worker1"))
    for metrics in (alone, node):
        metrics.request_timer("page")(200, 0.1)
        metrics.read("page", "count")
        metrics.connection_waited("default", "read", 0.1)
    described = [
        {(family.name, family.type, family.documentation) for family in metrics.families()} for metrics in (alone, node)
    ]
    assert described[0] == described[1]


def test_counts_of_an_ended_process_stay_and_its_gauges_go(folder: Path) -> None:
    one, two = Metrics(Node(folder, "worker1")), Metrics(Node(folder, "worker2"))
    for metrics in (one, two):
        metrics.request_timer("page")(200, 0.1)
        metrics.queue_depth(4)
        metrics.race_lost()
    leave(folder, "worker1")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "200"))] == 2
    assert found["rankcurve_write_conflicts_total", ()] == 2
    assert found["rankcurve_write_queue_posts", ()] == 4
    files = set(folder.iterdir())
    again = Metrics(Node(folder, "worker1"))
    again.request_timer("page")(200, 0.1)
    again.race_lost()
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "200"))] == 3
    assert found["rankcurve_write_conflicts_total", ()] == 3
    assert found["rankcurve_write_queue_posts", ()] == 4
    gauges = {"gauge_livesum_worker1-loop.db", "gauge_livemostrecent_worker1.db"}
    assert {path.name for path in set(folder.iterdir()) - files} == gauges | {"worker1.pid"}


def test_the_memory_and_the_time_of_all_processes_are_added_up(folder: Path) -> None:
    metrics = Metrics(Node(folder, "worker1"))
    one = samples(metrics)
    write_pid(folder, SUPERVISOR)
    both = samples(metrics)
    assert both["process_resident_memory_bytes", ()] >= 1.9 * one["process_resident_memory_bytes", ()]
    assert both["process_start_time_seconds", ()] == one["process_start_time_seconds", ()]
    (folder / "worker1.pid").unlink()
    (folder / "worker2.pid").write_text("")  # just beginning
    assert samples(metrics)["process_open_fds", ()] < both["process_open_fds", ()]


def test_cells_are_read_by_the_library_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "counter_a.db"
    cells = SharedCells(path)
    for number in range(1, 20):  # keys of every length modulo 8
        cells.values[cells.index_of("f", f"{'s' * number}_total", {"label": "é" * number}, "Help")] += number
    again = SharedCells(path)
    again.values[again.index_of("f", "s_total", {"label": "é"}, "Help")] += 10
    entries = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]
    read = {key: value for key, value, _, _ in entries}
    assert sorted(read.values()) == [*range(2, 12), 11, *range(12, 20)]
    assert path.stat().st_size == FILE_BYTES


def test_a_full_file_is_an_error_that_names_the_sample(tmp_path: Path) -> None:
    cells = SharedCells(tmp_path / "counter_a.db")
    with pytest.raises(ValueError, match="more samples than a node's file holds: s_total"):
        cells.index_of("f", "s_total", {"label": "x" * FILE_BYTES}, "Help")
