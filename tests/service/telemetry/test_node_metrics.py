"""A node adds up the counts of its processes. When a process ends, no count is lost or added twice."""

from pathlib import Path

import prometheus_client.values
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from service.telemetry.metrics.cells import FILE_BYTES, SharedCells
from service.telemetry.metrics.node import SUPERVISOR, NodeMember, leave_node, write_pid
from service.telemetry.metrics.node_values import NodeValues
from service.telemetry.metrics.process import Metrics
from storage.queue.ingest_queue import ShardBacklog
from tests.service.telemetry.test_metrics import by_sample, samples


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a node's folder. When the test ends, undo what joining the node changes in prometheus_client."""
    monkeypatch.setattr(prometheus_client.values, "ValueClass", prometheus_client.values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    return tmp_path


def test_a_node_exposes_the_same_metric_families_as_a_single_process(folder: Path) -> None:
    alone, node = Metrics(), Metrics(NodeMember(folder, "worker1"))
    for metrics in (alone, node):
        metrics.make_request_timer("page")(200, 0.1)
        metrics.count_ranks_read("page", "count")
        metrics.store.connection_waited("default", "read", 0.1)
        metrics.store.connections_lent("default", "read", 1, waiting=0, limit=4)
        metrics.jobs.job_paused("fold", paused=False)
        metrics.jobs.job_round_ended("fold", 0.1)
    of_one, of_node = [{(each.name, each.type, each.documentation) for each in m.collect_all()} for m in (alone, node)]
    assert of_one == of_node


def test_counters_of_an_ended_process_stay_and_its_gauges_disappear(folder: Path) -> None:
    one, two = Metrics(NodeMember(folder, "worker1")), Metrics(NodeMember(folder, "worker2"))
    for metrics in (one, two):
        metrics.make_request_timer("page")(200, 0.1)
        metrics.queue_depth(4)
        metrics.race_lost()
    leave_node(folder, "worker1")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 2
    assert found["rankcurve_write_conflicts_total", ()] == 2
    assert found["rankcurve_write_queue_posts", ()] == 4
    files = set(folder.iterdir())
    again = Metrics(NodeMember(folder, "worker1"))
    again.make_request_timer("page")(200, 0.1)
    again.race_lost()
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 3
    assert found["rankcurve_write_conflicts_total", ()] == 3
    assert found["rankcurve_write_queue_posts", ()] == 4
    gauges = {"gauge_livesum_worker1-loop.db", "gauge_livemostrecent_worker1-loop.db"}
    assert {path.name for path in set(folder.iterdir()) - files} == gauges | {"worker1.pid"}


def test_the_process_metrics_add_up_memory_and_files_of_all_processes(folder: Path) -> None:
    metrics = Metrics(NodeMember(folder, "worker1"))
    one = samples(metrics)
    write_pid(folder, SUPERVISOR)
    both = samples(metrics)
    assert both["process_resident_memory_bytes", ()] >= 1.9 * one["process_resident_memory_bytes", ()]
    assert both["process_start_time_seconds", ()] == one["process_start_time_seconds", ()]
    (folder / "worker1.pid").unlink()
    (folder / "worker2.pid").write_text("")  # this process has just started and has not written its id yet
    assert samples(metrics)["process_open_fds", ()] < both["process_open_fds", ()]


def test_the_library_reads_shared_cells_and_a_new_process_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "counter_a.db"
    cells = SharedCells(path)
    for number in range(1, 20):  # so that the lengths of the keys, divided by 8, leave every remainder
        cells.values[cells.index_of("f", f"{'s' * number}_total", {"label": "é" * number}, "Help")] += number
    again = SharedCells(path)
    again.values[again.index_of("f", "s_total", {"label": "é"}, "Help")] += 10
    entries = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]
    read = {key: value for key, value, _, _ in entries}
    assert sorted(read.values()) == [*range(2, 12), 11, *range(12, 20)]
    assert path.stat().st_size == FILE_BYTES


def test_a_full_file_raises_an_error_that_names_the_sample(tmp_path: Path) -> None:
    cells = SharedCells(tmp_path / "counter_a.db")
    with pytest.raises(ValueError, match="more samples than a node's file holds: s_total"):
        cells.index_of("f", "s_total", {"label": "x" * FILE_BYTES}, "Help")


def test_our_sums_equal_those_of_the_prometheus_library(folder: Path) -> None:
    processes = [Metrics(NodeMember(folder, f"worker{number}")) for number in range(3)]
    for number, metrics in enumerate(processes):
        for route in ("page", "post"):
            metrics.make_request_timer(route)(200 + number, 0.001 * 10**number)
        metrics.store.connection_waited("default", "read", 0.1 * number)
        metrics.refreshed(0.1)
        metrics.queue_depth(number)
    leave_node(folder, "worker1")
    library = MultiProcessCollector(None, str(folder)).collect()  # type: ignore[no-untyped-call]
    ours = NodeValues(folder)
    for _ in range(2):  # in the second round, the keys are already known and are not read again
        found = [family for family in ours.collect() if family.samples]
        assert {(each.name, each.type) for each in found} == {
            (each.name, each.type) for each in library if each.samples
        }
        assert by_sample(found) == pytest.approx(by_sample(library))
        processes[0].count_ranks_read("page", "count")
        library = MultiProcessCollector(None, str(folder)).collect()  # type: ignore[no-untyped-call]


def test_a_gauge_that_every_process_sets_has_the_newest_value(folder: Path) -> None:
    Metrics(NodeMember(folder, "worker1"))
    first = Gauge("depth", "Help", registry=CollectorRegistry(), multiprocess_mode="livemostrecent")
    first.set(3)
    Metrics(NodeMember(folder, "worker2"))
    second = Gauge("depth", "Help", registry=CollectorRegistry(), multiprocess_mode="livemostrecent")
    values = NodeValues(folder)
    for gauge, value in ((second, 5.0), (first, 4.0)):
        gauge.set(value)
        assert by_sample([each for each in values.collect() if each.name == "depth"]) == {("depth", ()): value}


def test_a_gauge_of_a_duty_shows_the_process_that_has_the_duty_now(folder: Path) -> None:
    one, two = Metrics(NodeMember(folder, "jobs1")), Metrics(NodeMember(folder, "jobs2"))
    lag, waiting, age = "rankcurve_closing_lag_seconds", "rankcurve_ingest_posts", "rankcurve_change_log_age_seconds"

    def read_gauges() -> dict[str, float]:
        return {name: value for (name, _), value in samples(two).items() if name in (lag, waiting, age)}

    assert read_gauges() == {}  # no process has set a gauge yet
    one.closings.closing_lag(400)
    one.queue.backlog_seen({0: ShardBacklog(5, 1)}, 2)
    one.folds.log_age(7)
    assert read_gauges() == {lag: 400, waiting: 5, age: 7}
    two.closings.closing_lag(2)  # jobs2 closes boards and measures the queue now, and jobs1 has not noticed yet
    two.queue.backlog_seen({}, 2)
    assert read_gauges() == {lag: 2, waiting: 0, age: 7}
    one.closings.closing_left()  # jobs1 notices only after jobs2 has set its value, so the value of jobs2 stays
    one.folds.pruned_elsewhere()
    assert read_gauges() == {lag: 2, waiting: 0}
    two.closings.closing_left()
    two.queue.backlog_left()
    assert read_gauges() == {waiting: 5}
    leave_node(folder, "jobs1")  # the supervisor calls this after jobs1 was killed
    assert read_gauges() == {}


def test_a_single_process_shows_a_gauge_until_it_removes_the_gauge() -> None:
    metrics = Metrics()
    metrics.closings.closing_lag(400)
    assert samples(metrics)["rankcurve_closing_lag_seconds", ()] == 400
    metrics.closings.closing_left()
    assert ("rankcurve_closing_lag_seconds", ()) not in samples(metrics)
