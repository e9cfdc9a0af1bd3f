"""Test that every metric is an attribute of a managed object, with a name and a unit."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from config.settings import ManagedSettings
from service.monitoring.managed.history import MetricHistory
from service.monitoring.managed.metric_mapping import MetricMapping
from service.monitoring.managed.objects import ManagedObject
from service.telemetry.metrics.process import Metrics
from tests.service.telemetry.test_e2e_series import report_job


def objects_of(collect: Callable[[], Iterable[Metric]]) -> dict[str, ManagedObject]:
    history = MetricHistory(collect, ManagedSettings(rates_tick_s=5), monotonic=lambda: 0.0)
    history.note_snapshot()
    return {name.canonical: managed for name, managed in MetricMapping("sqlite").map_metrics(history.families).items()}


def test_a_metric_without_a_group_is_an_attribute_of_a_common_object() -> None:
    registry = CollectorRegistry()
    Counter("rankcurve_new_thing_bytes", "Bytes of the new thing", registry=registry)
    found = objects_of(registry.collect)["rankcurve:type=Metrics"].attributes["NewThingBytes"]
    assert found.description.startswith("Bytes of the new thing [bytes]")


def test_labels_become_names_of_objects_or_parts_of_an_attribute() -> None:
    registry = CollectorRegistry()
    depth = Gauge("rankcurve_ingest_posts", "Posts in the queue", ["shard"], registry=registry)
    depth.labels("0").set(3)
    depth.labels("1").set(4)
    waits = Histogram("rankcurve_store_connection_wait_seconds", "Waits", ["pool", "kind"], registry=registry)
    waits.labels("default", "read").observe(0.1)
    waits.labels("default", "write").observe(0.3)
    objects = objects_of(registry.collect)
    assert {"rankcurve:shard=0,type=Queue", "rankcurve:shard=1,type=Queue", "rankcurve:name=default,type=Pool"} == set(
        objects
    )
    history = MetricHistory(registry.collect, ManagedSettings(rates_tick_s=5), monotonic=lambda: 0.0)
    moment = history.read_moment()
    assert objects["rankcurve:shard=1,type=Queue"].attributes["IngestPosts"].read(moment) == 4
    waited = objects["rankcurve:name=default,type=Pool"].attributes["StoreConnectionWaitSeconds"].read(moment)
    assert (waited["Count"], waited["kind"]["read"]["Count"], waited["kind"]["write"]["Sum"]) == (2, 1, 0.3)
    assert "P99" in waited["kind"]["read"]
    assert "P99" not in waited  # percentiles for reads and for writes cannot be combined


def test_every_metric_of_the_service_has_an_attribute_with_a_unit() -> None:
    metrics = Metrics()
    metrics.make_request_timer("page")(200, 0.1)
    metrics.meter.add("rankcurve_reads", 1, "page", "count")
    metrics.meter.observe("rankcurve_store_connection_wait_seconds", 0.1, "default")
    report_job(metrics.meter, "fold")
    objects = objects_of(metrics.collect_counted)
    attributes = [attribute for managed in objects.values() for attribute in managed.attributes.values()]
    families = [
        family for family in metrics.collect_counted() if family.name.startswith("rankcurve_") and family.samples
    ]
    assert len(attributes) == len(families)
    assert all("[" in attribute.description and "]" in attribute.description for attribute in attributes)
    assert {
        "rankcurve:name=sqlite,type=Store", "rankcurve:name=default,type=Pool", "rankcurve:type=Cache",
        "rankcurve:type=Throttle", "rankcurve:name=page,type=RequestProcessor", "rankcurve:name=fold,type=Job",
    } <= set(objects)  # fmt: skip
