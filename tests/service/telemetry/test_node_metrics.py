"""Test that a node adds up the counts of its processes. When a process ends, no count is lost or counted twice."""

from pathlib import Path

import pytest

from service.http.endpoint import count_answer
from service.telemetry.metrics.metric_families import Family
from service.telemetry.metrics.node_metrics import NodeMember, leave_node
from service.telemetry.metrics.numbers import FILE_BYTES, Numbers
from service.telemetry.metrics.process import Metrics
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
        count_answer(metrics.meter, "page", 200, 0.1)
        metrics.meter.set("rankcurve_write_queue_posts", 4)
        metrics.meter.add("rankcurve_write_conflicts")
    leave_node(tmp_path, "worker1")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 2
    assert found["rankcurve_write_conflicts_total", ()] == 2
    assert found["rankcurve_write_queue_posts", ()] == 4
    again = Metrics(NodeMember(tmp_path, "worker1"))
    count_answer(again.meter, "page", 200, 0.1)
    again.meter.add("rankcurve_write_conflicts")
    found = samples(two)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 3
    assert found["rankcurve_write_conflicts_total", ()] == 3
    assert found["rankcurve_write_queue_posts", ()] == 4


def test_a_full_file_raises_an_error_that_names_the_series(tmp_path: Path) -> None:
    numbers = Numbers([Family("s", "counter", "Help", {"label": ()})], tmp_path / "a.db")
    with pytest.raises(ValueError, match="more series than a node's file holds: s"):
        numbers.add("s", 1, "x" * FILE_BYTES)


def test_the_sums_over_processes_are_what_one_process_would_have(tmp_path: Path) -> None:
    processes = [Metrics(NodeMember(tmp_path, f"worker{number}")) for number in range(3)]
    alone = Metrics()
    for _ in range(2):  # in the second round, the series are already known
        for number, each in enumerate(processes):
            for metrics in (each, alone):
                for route in ("page", "post"):
                    count_answer(metrics.meter, route, 200 + 100 * number, 0.001 * 10**number)
                metrics.meter.observe("rankcurve_store_connection_wait_seconds", 0.1 * number, "default")
                metrics.meter.observe("rankcurve_write_batch_posts", number)
                metrics.meter.set("rankcurve_write_queue_posts", 2 * number if metrics is each else 6)
        assert by_sample(processes[0].totals.collect()) == pytest.approx(by_sample(alone.totals.collect()))


def test_a_gauge_of_a_duty_shows_the_process_that_has_the_duty_now(tmp_path: Path) -> None:
    metrics = Metrics(NodeMember(tmp_path, "jobs2"))
    one, two = Metrics(NodeMember(tmp_path, "jobs1")).meter, metrics.meter
    lag, waiting, age = "rankcurve_closing_lag_seconds", "rankcurve_ingest_posts", "rankcurve_ingest_age_seconds"

    def read_gauges() -> dict[str, float]:
        return {name: value for (name, _), value in samples(metrics).items() if name in (lag, waiting, age)}

    assert read_gauges() == {}  # no process has set a gauge yet
    one.set(lag, 400)
    one.set(waiting, 5)
    one.set(age, 7)
    assert read_gauges() == {lag: 400, waiting: 5, age: 7}
    two.set(lag, 2)  # jobs2 now closes boards and measures the queue, but jobs1 has not noticed this yet
    two.set(waiting, 0)
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
