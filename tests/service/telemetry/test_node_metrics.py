"""Test that a node adds up the counts of its processes. When a process ends, no count is lost or counted twice."""

from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from service.telemetry.metrics.families import Family
from service.telemetry.metrics.node import SUPERVISOR, NodeMember, leave_node, write_pid
from service.telemetry.metrics.numbers import FILE_BYTES, Numbers
from service.telemetry.metrics.process import Metrics
from service.telemetry.metrics.totals import NodeFiles, Totals
from tests.service.telemetry.test_e2e_series import make_full_metrics
from tests.service.telemetry.test_metrics import by_sample, samples


def test_a_node_exposes_the_same_metric_families_as_a_single_process(tmp_path: Path) -> None:
    alone, node = make_full_metrics(), make_full_metrics(NodeMember(tmp_path, "worker1"))
    described = [
        {(family.name, family.type, family.documentation) for family in metrics.collect()} for metrics in (alone, node)
    ]
    assert described[0] == described[1]


def test_counters_of_an_ended_process_stay_and_its_gauges_disappear(tmp_path: Path) -> None:
    one, two = Metrics(NodeMember(tmp_path, "worker1")), Metrics(NodeMember(tmp_path, "worker2"))
    for metrics in (one, two):
        metrics.make_request_timer("page")(200, 0.1)
        metrics.meter.set("rankcurve_write_queue_posts", 4)
        metrics.meter.add("rankcurve_write_conflicts")
    leave_node(tmp_path, "worker1")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 2
    assert found["rankcurve_write_conflicts_total", ()] == 2
    assert found["rankcurve_write_queue_posts", ()] == 4
    files = set(tmp_path.iterdir())
    again = Metrics(NodeMember(tmp_path, "worker1"))
    again.make_request_timer("page")(200, 0.1)
    again.meter.add("rankcurve_write_conflicts")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 3
    assert found["rankcurve_write_conflicts_total", ()] == 3
    assert found["rankcurve_write_queue_posts", ()] == 4
    gauges = {"gauge_livesum_worker1.db", "gauge_livemostrecent_worker1.db"}
    assert {path.name for path in set(tmp_path.iterdir()) - files} == gauges | {"worker1.pid"}


def test_the_process_metrics_add_up_memory_and_files_of_all_processes(tmp_path: Path) -> None:
    metrics = Metrics(NodeMember(tmp_path, "worker1"))
    one = samples(metrics)
    write_pid(tmp_path, SUPERVISOR)
    both = samples(metrics)
    assert both["process_resident_memory_bytes", ()] >= 1.9 * one["process_resident_memory_bytes", ()]
    assert both["process_start_time_seconds", ()] == one["process_start_time_seconds", ()]
    (tmp_path / "worker1.pid").unlink()
    (tmp_path / "worker2.pid").write_text("")  # this process has just started and has not written its process id yet
    assert samples(metrics)["process_open_fds", ()] < both["process_open_fds", ()]


def test_the_library_reads_our_files_and_a_new_process_finds_its_numbers(tmp_path: Path) -> None:
    # The lengths of these keys give every remainder of a division by 8.
    families = [Family("f" * number, "counter", "Help", {"label": ()}) for number in range(1, 20)]
    numbers = Numbers(families, tmp_path, "a")
    for number, family in enumerate(families, 1):
        numbers.add(family.name, number, "é" * number)
    Numbers(families, tmp_path, "a").add("f", 10, "é")
    path = tmp_path / "counter_a.db"
    entries = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]
    assert sorted(value for _, value, _, _ in entries) == [*range(2, 12), 11, *range(12, 20)]
    assert path.stat().st_size == FILE_BYTES


def test_a_full_file_raises_an_error_that_names_the_sample(tmp_path: Path) -> None:
    numbers = Numbers([Family("s", "counter", "Help", {"label": ()})], tmp_path, "a")
    with pytest.raises(ValueError, match="more samples than a node's file holds: s_total"):
        numbers.add("s", 1, "x" * FILE_BYTES)


def test_our_sums_equal_those_of_the_prometheus_library(tmp_path: Path) -> None:
    processes = [Metrics(NodeMember(tmp_path, f"worker{number}")) for number in range(3)]
    for number, metrics in enumerate(processes):
        for route in ("page", "post"):
            metrics.make_request_timer(route)(200 + number, 0.001 * 10**number)
        metrics.meter.observe("rankcurve_store_connection_wait_seconds", 0.1 * number, "default")
        metrics.meter.observe("rankcurve_refresh_seconds", 0.1)
        metrics.meter.set("rankcurve_write_queue_posts", number)
    leave_node(tmp_path, "worker1")
    library = MultiProcessCollector(None, str(tmp_path)).collect()  # type: ignore[no-untyped-call]
    ours = Totals(NodeFiles(tmp_path).list_sources)
    for _ in range(2):  # in the second round, the keys are already known and are not read again
        found = [family for family in ours.collect() if family.samples]
        assert {(each.name, each.type) for each in found} == {
            (each.name, each.type) for each in library if each.samples
        }
        assert by_sample(found) == pytest.approx(by_sample(library))
        processes[0].meter.add("rankcurve_reads", 1, "page", "count")
        library = MultiProcessCollector(None, str(tmp_path)).collect()  # type: ignore[no-untyped-call]


def test_a_gauge_that_every_process_sets_has_the_newest_value(tmp_path: Path) -> None:
    family = Family("depth", "latest", "Help")
    first, second = Numbers([family], tmp_path, "worker1"), Numbers([family], tmp_path, "worker2")
    totals = Totals(NodeFiles(tmp_path).list_sources)
    first.set("depth", 3)
    for numbers, value in ((second, 5.0), (first, 4.0)):
        numbers.set("depth", value)
        assert by_sample(totals.collect()) == {("depth", ()): value}


def test_a_gauge_of_a_duty_shows_the_process_that_has_the_duty_now(tmp_path: Path) -> None:
    metrics = Metrics(NodeMember(tmp_path, "jobs2"))
    one, two = Metrics(NodeMember(tmp_path, "jobs1")).meter, metrics.meter
    lag, waiting, age = "rankcurve_closing_lag_seconds", "rankcurve_ingest_posts", "rankcurve_change_log_age_seconds"

    def read_gauges() -> dict[str, float]:
        return {name: value for (name, _), value in samples(metrics).items() if name in (lag, waiting, age)}

    assert read_gauges() == {}  # no process has set a gauge yet
    one.set(lag, 400)
    one.set(waiting, 5, "0")
    one.set(age, 7)
    assert read_gauges() == {lag: 400, waiting: 5, age: 7}
    two.set(lag, 2)  # jobs2 now closes boards and measures the queue, but jobs1 has not noticed this yet
    two.set(waiting, 0, "0")
    assert read_gauges() == {lag: 2, waiting: 0, age: 7}
    one.clear(lag)  # jobs1 notices this after jobs2 has set its value, so the value of jobs2 stays
    one.clear(age)
    assert read_gauges() == {lag: 2, waiting: 0}
    two.clear(lag)
    two.clear(waiting)
    assert read_gauges() == {waiting: 5}
    leave_node(tmp_path, "jobs1")  # the supervisor does this after jobs1 was killed
    assert read_gauges() == {}


def test_a_single_process_shows_a_gauge_until_it_removes_the_gauge() -> None:
    metrics = Metrics()
    metrics.meter.set("rankcurve_closing_lag_seconds", 400)
    assert samples(metrics)["rankcurve_closing_lag_seconds", ()] == 400
    metrics.meter.clear("rankcurve_closing_lag_seconds")
    assert ("rankcurve_closing_lag_seconds", ()) not in samples(metrics)
