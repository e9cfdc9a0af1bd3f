"""Test that every metric is an attribute of a managed object, with a name and a unit."""

from types import SimpleNamespace
from typing import Any, cast

from config.settings import ManagedSettings
from service.http.endpoint import count_answer
from service.monitoring.managed.history import MetricHistory
from service.monitoring.managed.metric_mapping import map_metrics
from service.monitoring.managed.objects import Objects
from service.telemetry.metrics.metric_families import Family
from service.telemetry.metrics.node_metrics import Source, Totals
from service.telemetry.metrics.numbers import Numbers
from service.telemetry.metrics.process import Metrics, curve_metrics
from storage.curves.curve_book import ServedCurve
from tests.service.telemetry.test_e2e_series import report_job


def objects_of(metrics: Any) -> Objects:
    metrics.totals.add_up()
    moment = MetricHistory(metrics, ManagedSettings(rates_tick_s=5), monotonic=lambda: 0.0).read_moment()
    return map_metrics(moment, store="sqlite")


def count(*families: Family) -> tuple[Numbers, Any]:
    """Return a meter for some families, and metrics that show its numbers."""
    numbers = Numbers(families)
    source = Source(numbers.content)
    totals = Totals(families, lambda: [source])
    return numbers, SimpleNamespace(totals=totals, read_processes=dict, collect_views=list)


def test_a_metric_without_a_group_is_an_attribute_of_a_common_object() -> None:
    _, metrics = count(Family("rankcurve_new_thing_bytes", "counter", "Bytes of the new thing"))
    found = objects_of(metrics)["rankcurve:type=Metrics"].attributes["NewThingBytes"]
    assert found.description.startswith("Bytes of the new thing [bytes]")


def test_labels_become_names_of_objects_or_parts_of_an_attribute() -> None:
    numbers, metrics = count(
        Family("rankcurve_partition_entries", "gauge", "Entries of a partition", {"partition": ()}),
        Family("rankcurve_store_connection_wait_seconds", "histogram", "Waits", {"pool": (), "kind": ()}, (1,)),
    )
    numbers.set("rankcurve_partition_entries", 3, "0")
    numbers.set("rankcurve_partition_entries", 4, "1")
    numbers.observe("rankcurve_store_connection_wait_seconds", 0.1, "default", "read")
    numbers.observe("rankcurve_store_connection_wait_seconds", 0.3, "default", "write")
    objects = objects_of(metrics)
    assert {
        "rankcurve:number=0,type=Partition",
        "rankcurve:number=1,type=Partition",
        "rankcurve:name=default,type=Pool",
    } == set(objects)
    assert objects["rankcurve:number=1,type=Partition"].read("Entries") == 4
    waited = objects["rankcurve:name=default,type=Pool"].read("StoreConnectionWaitSeconds")
    assert (waited["Count"], waited["kind"]["read"]["Count"], waited["kind"]["write"]["Sum"]) == (2, 1, 0.3)
    assert "P99" in waited["kind"]["read"]
    assert "P99" not in waited  # percentiles for reads and for writes cannot be combined


def test_every_metric_of_the_service_has_an_attribute_with_a_unit() -> None:
    metrics = Metrics()
    count_answer(metrics.meter, "page", 200, 0.1)
    metrics.meter.add("rankcurve_reads", 1, "page", "count")
    metrics.meter.observe("rankcurve_store_connection_wait_seconds", 0.1, "default")
    report_job(metrics.meter, "fold")
    curve, fit = SimpleNamespace(as_of_us=90_000_000), SimpleNamespace(knots=range(1000))
    served = cast(ServedCurve, SimpleNamespace(curve=curve, fit=fit, live_version=1))
    metrics.watch(lambda: curve_metrics([served], 100.0))
    objects = objects_of(metrics)
    attributes = [attribute for managed in objects.values() for attribute in managed.attributes.values()]
    shown = [family for family in (*metrics.totals.collect(), *metrics.collect_views()) if family.samples]
    assert len(attributes) == len(shown)
    cache = objects["rankcurve:type=Cache"]
    assert (cache.read("CurveAgeSecondsMax"), cache.read("CurveKnots")) == (10, {"Count": 1, "Sum": 1000, "Mean": 1000})
    assert all("[" in attribute.description and "]" in attribute.description for attribute in attributes)
    assert {
        "rankcurve:name=sqlite,type=Store", "rankcurve:name=default,type=Pool", "rankcurve:type=Cache",
        "rankcurve:type=Throttle", "rankcurve:name=page,type=RequestProcessor", "rankcurve:name=fold,type=Job",
    } <= set(objects)  # fmt: skip
