"""Maps metrics to managed objects: each metric family of Prometheus becomes an attribute of one or several objects.

Every family whose name begins with `rankcurve_` is mapped. The beginning of its name decides to which object it belongs
(`GROUPS`). A family that no group names becomes an attribute of `type=Metrics`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from service.telemetry.metrics.families import Family

from .history import Labels, MetricsMoment
from .object_names import ObjectName
from .objects import COMPOSITE, DOUBLE, Attribute, ManagedObject, name_object

_PREFIX = "rankcurve_"
_ALL = "all"  # if a group has an object for each value of a label, samples without the label belong to the object `all`
_UNITS = ("seconds", "bytes", "ratio", "posts", "rows", "entries", "requests", "reads", "connections", "curves")

Figures = dict[str, Any]  # the numbers shown for a series, by name: Value, or Count, Sum, Mean and percentiles


class MetricGroup(NamedTuple):
    """A set of metrics, and the object or objects to which they belong."""

    type: str
    prefixes: tuple[str, ...]  # beginnings of metric names after `rankcurve_`; the longest match decides
    description: str
    name: str = ""  # the name of the group's only object; empty if it has no name, or if `label` is set
    label: str = ""  # a label of the samples; there is one object for each of its values
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


class _Shown(NamedTuple):
    """A family of metrics with all that its attributes need: a description, its series, and a function to read them."""

    name: str
    description: str
    is_number: bool  # whether it is a gauge; a gauge without labels is shown as a plain number instead of Figures
    labels: Sequence[str]
    series: Iterable[Labels]
    read: Callable[[Labels], Figures]


def map_metrics(now: MetricsMoment, *, store: str) -> dict[str, ManagedObject]:
    """Return the managed objects of all metrics, by name. `store`, such as `sqlite`, names the object of the store."""
    named = [group._replace(name=group.name.format(store=store)) for group in GROUPS]
    by_prefix = sorted(
        ((_PREFIX + prefix, group) for group in named for prefix in group.prefixes), key=lambda one: -len(one[0])
    )
    objects: dict[str, ManagedObject] = {}
    for shown in (*_counted(now), *_viewed(now)):
        prefix, group = next(
            ((prefix, group) for prefix, group in by_prefix if shown.name.startswith(prefix)), (_PREFIX, _OTHERS)
        )
        for name, series in _split(group, shown):
            managed = objects.setdefault(name.text, ManagedObject(name, group.description))
            managed.attributes[attribute_name(shown.name, prefix)] = _attribute(shown, series, group.label)
    return objects


def _counted(now: MetricsMoment) -> Iterator[_Shown]:
    """Yield the families whose numbers the processes of the node count."""
    for family in now.totals.families.values():
        about = "; percentiles of the last 5 minutes" if family.kind == "histogram" else ""
        series, read = now.totals.series[family.name], partial(_figures, now, family)
        yield _Shown(family.name, _described(family) + about, family.is_gauge, tuple(family.labels), series, read)


def _viewed(now: MetricsMoment) -> Iterator[_Shown]:
    """Yield the families that are computed at each scrape. None of these families is a histogram."""
    for metric in now.views:
        figures: dict[Labels, Figures] = {}
        labels: Sequence[str] = ()
        for sample in metric.samples:
            labels, figure = tuple(sample.labels), sample.name.removeprefix(metric.name).strip("_").title()
            figures.setdefault(tuple(sample.labels.values()), {})[figure or "Value"] = _whole(sample.value)
        is_number, read = metric.type == "gauge", figures.__getitem__
        yield _Shown(metric.name, _described(metric), is_number, labels, figures, read)


def _split(group: MetricGroup, shown: _Shown) -> list[tuple[ObjectName, list[Labels]]]:
    """Return the series of a family, grouped by the name of the managed object that shows them."""
    found: dict[str, list[Labels]] = {}
    for labels in shown.series:
        named = dict(zip(shown.labels, labels, strict=True)).get(group.label, _ALL) if group.label else group.name
        found.setdefault(named, []).append(labels)
    return [(name_object(group.type, **({group.key: each} if each else {})), series) for each, series in found.items()]


def attribute_name(family: str, prefix: str = _PREFIX) -> str:
    """Return the name of the attribute for a family: `rankcurve_write_batch_posts` becomes `WriteBatchPosts`.

    Every `prefix` begins with `rankcurve_`. If `prefix` ends with `_`, its last word is complete, and the attribute's
    name leaves out the prefix. Otherwise, the attribute's name leaves out only `rankcurve_`.
    """
    rest = family.removeprefix(prefix if prefix.endswith("_") else _PREFIX)
    return "".join(word[:1].upper() + word[1:] for word in rest.split("_") if word)


def _described(family: Family | Metric) -> str:
    unit = next((word for word in reversed(family.name.split("_")) if word in _UNITS), "count")
    return f"{family.documentation.rstrip('.')} [{unit}]"


def _attribute(shown: _Shown, series: list[Labels], in_name: str) -> Attribute:
    names = [(name, index) for index, name in enumerate(shown.labels) if name != in_name]
    if shown.is_number and not names:
        return Attribute(DOUBLE, shown.description, lambda: shown.read(series[0])["Value"])
    read = shown.read
    return Attribute(COMPOSITE, shown.description, lambda: _nested(names, {each: read(each) for each in series}))


def _nested(names: Sequence[tuple[str, int]], series: Mapping[Labels, Figures]) -> Figures:
    """Return figures nested by labels, such as `{"Count": 3, "kind": {"read": {"Count": 1}, "write": {"Count": 2}}}`.

    The outer figures are sums over the values of a label. The keys of `series` are tuples of label values. `names` has
    the labels by which to nest, each with the index of its value in these tuples.
    """
    if not names:
        return next(iter(series.values()))
    (name, index), *others = names
    parts: dict[str, dict[Labels, Figures]] = {}
    for labels, figures in series.items():
        parts.setdefault(labels[index], {})[labels] = figures
    by_value = {value: _nested(others, inner) for value, inner in parts.items()}
    # Percentiles can't be added up, so the total has none.
    sums = {
        figure: sum(part[figure] for part in by_value.values())
        for figure in ("Count", "Sum", "Value")
        if all(figure in part for part in by_value.values())
    }
    return {**sums, name: by_value}


def _figures(now: MetricsMoment, family: Family, labels: Labels) -> Figures:
    first, *counts = now.read_numbers(family.name, labels)
    if family.kind == "counter":
        return {"Count": _whole(first)}
    if family.is_gauge:
        return {"Value": first}
    count = sum(counts)
    figures = {"Count": _whole(count), "Sum": first, "Mean": first / count if count else None}
    return figures | (now.percentiles(family, labels) if family.kind == "histogram" else {})


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
