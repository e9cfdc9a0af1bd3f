"""Maps metrics to managed objects: each Prometheus metric family becomes an attribute of one or several objects.

Because the mapping is a table instead of code for each metric, a new family whose name begins with `rankcurve_` shows
up without a change here. The beginning of its name decides to which object it belongs (`GROUPS`). A family that no
group names becomes an attribute of `type=Metrics`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from .history import MetricsMoment
from .objects import COMPOSITE, DOUBLE, Attribute, ManagedObject, ObjectName, name_object

_PREFIX = "rankcurve_"
_ALL = "all"  # if a group has an object for each value of a label, samples without the label belong to the object `all`
_UNITS = ("seconds", "bytes", "ratio", "posts", "rows", "entries", "requests", "reads", "connections", "curves")

Figures = dict[str, Any]  # the numbers shown for a series, by name: Value, or Count, Sum, Mean and percentiles
Series = dict[tuple[tuple[str, str], ...], Figures]  # by the name and value of each of the series' labels
_FIGURES = {"": "Value", "_total": "Count", "_count": "Count", "_sum": "Sum"}  # by the ending of a sample's name


class MetricGroup(NamedTuple):
    type: str
    prefixes: tuple[str, ...]  # beginnings of metric names after `rankcurve_`; the longest match decides
    description: str
    name: str = ""  # the name of the group's only object; empty if it has no name, or if `label` is set
    label: str = ""  # a label of the samples, with one object for each of its values
    key: str = "name"  # in an object's name, the key before `name` or before the label's value, as in `number=0`


GROUPS: Sequence[MetricGroup] = (
    MetricGroup(
        "Store", ("write", "posts", "reads", "store_"), "The store, and the writing of posts to it", name="{store}"
    ),
    MetricGroup("Partition", ("partition_",), "A partition of the store", label="partition", key="number"),
    MetricGroup("Pool", ("store_connection",), "A connection pool of the store", label="pool"),
    MetricGroup(
        "Throttle", ("rate_limit", "write_refused", "ingest_refused"), "Posts and requests that were refused, and why"
    ),
    MetricGroup(
        "Cache", ("shared_curve", "memcached", "curve", "live_lag"), "The curves that ranks are read off, and memcached"
    ),
    MetricGroup("Job", ("job_",), "A background job", label="job_name"),
    MetricGroup("Job", ("refresh", "scan"), "A background job", name="refresh"),
    MetricGroup("Job", ("fold", "changes_folded", "live_counts"), "A background job", name="fold"),
    MetricGroup("Job", ("audit",), "A background job", name="audit"),
    MetricGroup("Job", ("boards_closed", "boards_archived", "closing", "archive"), "A background job", name="close"),
    MetricGroup("Lease", ("lease",), "Leases that clients hold", name=_ALL),
    MetricGroup("Queue", ("ingest",), "The queue of posts that are applied later"),
    MetricGroup("Stream", ("stream",), "Streams that send changes to clients"),
    MetricGroup("RequestProcessor", ("request",), "A route of the service", label="route"),
    MetricGroup("Node", ("process_ends",), "The processes of this node"),
)
_OTHERS = MetricGroup("Metrics", (), "Metrics that belong to no other object")


def map_metrics(now: MetricsMoment, *, store: str) -> dict[str, ManagedObject]:
    """Map all metrics to managed objects, by name. `store`, such as `sqlite`, names the store's object."""
    named = [group._replace(name=group.name.format(store=store)) for group in GROUPS]
    by_prefix = sorted(
        ((_PREFIX + prefix, group) for group in named for prefix in group.prefixes), key=lambda one: -len(one[0])
    )
    objects: dict[str, ManagedObject] = {}
    for metric in now.metrics:
        prefix, group = next(
            ((prefix, group) for prefix, group in by_prefix if metric.name.startswith(prefix)), (_PREFIX, _OTHERS)
        )
        for name, series in _split(group, _read_series(now, metric)):
            managed = objects.setdefault(name.text, ManagedObject(name, group.description))
            managed.attributes[attribute_name(metric.name, prefix)] = _attribute(metric, series)
    return objects


def _read_series(now: MetricsMoment, metric: Metric) -> Series:
    found: Series = {}
    for sample in metric.samples:
        figure = _FIGURES.get(sample.name.removeprefix(metric.name))
        if figure is not None:
            found.setdefault(tuple(sample.labels.items()), {})[figure] = (
                int(sample.value) if float(sample.value).is_integer() else sample.value
            )
    for labels, figures in found.items():
        if "Sum" in figures:
            figures["Mean"] = figures["Sum"] / figures["Count"] if figures["Count"] else None
        if metric.type == "histogram":
            figures |= now.percentiles(metric.name, tuple(value for _, value in labels))
    return found


def _split(group: MetricGroup, series: Series) -> list[tuple[ObjectName, Series]]:
    """Group a metric's series by the managed object that shows them, and leave out the label in the object's name."""
    found: dict[str, Series] = {}
    for labels, figures in series.items():
        named = dict(labels).get(group.label, _ALL) if group.label else group.name
        found.setdefault(named, {})[tuple(each for each in labels if each[0] != group.label)] = figures
    return [(name_object(group.type, **({group.key: each} if each else {})), parts) for each, parts in found.items()]


def attribute_name(family: str, prefix: str = _PREFIX) -> str:
    """Derive the name of a family's attribute: `rankcurve_write_batch_posts` becomes `WriteBatchPosts`.

    Every `prefix` begins with `rankcurve_`. If `prefix` ends with `_`, its last word is complete, and the attribute's
    name leaves out the prefix. Otherwise, the attribute's name leaves out only `rankcurve_`.
    """
    rest = family.removeprefix(prefix if prefix.endswith("_") else _PREFIX)
    return "".join(word[:1].upper() + word[1:] for word in rest.split("_") if word)


def _attribute(metric: Metric, series: Series) -> Attribute:
    unit = next((word for word in reversed(metric.name.split("_")) if word in _UNITS), "count")
    about = f"{metric.documentation.rstrip('.')} [{unit}]"
    if metric.type == "histogram":
        about += "; percentiles of the last 5 minutes"
    if metric.type == "gauge" and () in series:
        return Attribute(DOUBLE, about, lambda: series[()]["Value"])
    return Attribute(COMPOSITE, about, lambda: _nested(series))


def _nested(series: Series) -> Figures:
    """Nest figures by labels, as in `{"Count": 3, "kind": {"read": {"Count": 1}, "write": {"Count": 2}}}`.

    The outer figures are sums over the values of a label.
    """
    if () in series:
        return series[()]
    name = next(iter(series))[0][0]
    parts: dict[str, Series] = {}
    for ((_, value), *others), figures in series.items():
        parts.setdefault(value, {})[tuple(others)] = figures
    by_value = {value: _nested(inner) for value, inner in parts.items()}
    # Percentiles can't be added up, so the total has none.
    sums = {
        figure: sum(part[figure] for part in by_value.values())
        for figure in ("Count", "Sum", "Value")
        if all(figure in part for part in by_value.values())
    }
    return {**sums, name: by_value}
