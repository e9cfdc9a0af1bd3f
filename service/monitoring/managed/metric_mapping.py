"""Maps metrics to the tree: each metric family of Prometheus becomes an attribute of managed objects.

Every family whose name begins with `rankcurve_` is mapped. If its name matches no group, the family becomes an
attribute of `type=Metrics`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from service.telemetry.metrics.families import Family
from service.telemetry.metrics.totals import Totals

from .history import Labels, MetricsMoment
from .object_names import ObjectName
from .objects import COMPOSITE, DOMAIN, DOUBLE, Attribute, ManagedObject

_PREFIX = "rankcurve_"
_ALL = "all"  # the name of the object for samples without the group's label
_UNITS = ("seconds", "bytes", "ratio", "posts", "rows", "entries", "requests", "reads", "connections", "curves")


class MetricGroup(NamedTuple):
    """A set of metrics, and the object or objects to which they belong."""

    type: str
    prefixes: tuple[str, ...]  # beginnings of metric names after `rankcurve_`; the longest match decides
    description: str
    name: str = ""  # the name of the group's only object; empty if it has no name, or if `label` is set
    label: str = ""  # a label of the samples; there is one object for each of its values
    key: str = "name"  # the key under which an object's name holds the value of the label


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
    MetricGroup("Queue", ("ingest",), "The queue of posts that are applied later", label="shard", key="shard"),
    MetricGroup("Stream", ("stream",), "Streams that send changes to clients"),
    MetricGroup("RequestProcessor", ("request",), "A route of the service", label="route"),
    MetricGroup("Node", ("process_ends",), "The processes of this node"),
)
_OTHERS = MetricGroup("Metrics", (), "Metrics that belong to no other object")


class MetricMapping:
    """Makes managed objects from the families of `totals`. `store` is the store's name in the tree."""

    def __init__(self, store: str, totals: Totals) -> None:
        named = [group._replace(name=group.name.format(store=store)) for group in GROUPS]
        self._by_prefix = sorted(
            ((_PREFIX + prefix, group) for group in named for prefix in group.prefixes), key=lambda one: -len(one[0])
        )
        self._totals = totals
        self._made: tuple[int, dict[ObjectName, ManagedObject]] = (-1, {})

    def map_metrics(self) -> Mapping[ObjectName, ManagedObject]:
        """Return the objects by name. Return the same mapping again until a new series appears."""
        size = sum(map(len, self._totals.series.values()))
        if size != self._made[0]:
            self._made = size, self._grouped()
        return self._made[1]

    def _grouped(self) -> dict[ObjectName, ManagedObject]:
        found: dict[ObjectName, tuple[MetricGroup, dict[str, Attribute]]] = {}
        for family in self._totals.families.values():
            prefix, group = next(
                ((prefix, group) for prefix, group in self._by_prefix if family.name.startswith(prefix)),
                (_PREFIX, _OTHERS),
            )
            for name, series in _split(group, family, self._totals.series[family.name]).items():
                attributes = found.setdefault(name, (group, {}))[1]
                attributes[attribute_name(family.name, prefix)] = _attribute(family, series, group.label)
        return {name: ManagedObject(name, group.description, attributes) for name, (group, attributes) in found.items()}


def _split(group: MetricGroup, family: Family, series: Iterable[Labels]) -> dict[ObjectName, list[Labels]]:
    """Return the series of a family, grouped by the object that they belong to."""
    found: dict[ObjectName, list[Labels]] = {}
    for labels in series:
        properties = {"type": group.type}
        if group.label:
            properties[group.key] = dict(zip(family.labels, labels, strict=True)).get(group.label, _ALL)
        elif group.name:
            properties["name"] = group.name
        found.setdefault(ObjectName.of(DOMAIN, **properties), []).append(labels)
    return found


def attribute_name(family: str, prefix: str = _PREFIX) -> str:
    """Return the name of the attribute for a family: `rankcurve_write_batch_posts` becomes `WriteBatchPosts`.

    A group's prefix that ends with `_` is left out.
    """
    rest = family.removeprefix(prefix if prefix.endswith("_") else _PREFIX)
    return "".join(word[:1].upper() + word[1:] for word in rest.split("_") if word)


def _attribute(family: Family, series: list[Labels], in_name: str) -> Attribute:
    names = {name: index for index, name in enumerate(family.labels) if name != in_name}
    described = f"{family.documentation.rstrip('.')} [{unit_of(family.name)}]"
    if family.is_gauge and not names:
        return Attribute(DOUBLE, described, lambda now: now.read_numbers(family.name, series[0])[0])
    if family.kind == "histogram":
        described += "; percentiles of the last 5 minutes"
    return Attribute(
        COMPOSITE, described, lambda now: _nested(list(names.items()), series, lambda each: _figures(now, family, each))
    )


def unit_of(family: str) -> str:
    """Return the unit in a metric's name, such as `seconds`, or `count` if the name contains none."""
    return next((word for word in reversed(family.split("_")) if word in _UNITS), "count")


def _nested(
    names: Sequence[tuple[str, int]], series: Sequence[Labels], leaf: Callable[[Labels], dict[str, Any]]
) -> dict[str, Any]:
    """Return the total of the series. The first name holds a nested mapping for each value of that label.

    `names` are the labels, each with its index.
    """
    if not names:
        return leaf(series[0])
    (name, index), *others = names
    parts: dict[str, list[Labels]] = {}
    for each in series:
        parts.setdefault(each[index], []).append(each)
    by_value = {value: _nested(others, inner, leaf) for value, inner in parts.items()}
    # Percentiles can't be added up, so the total has none.
    sums = {
        figure: sum(part[figure] for part in by_value.values())
        for figure in ("Count", "Sum", "Value")
        if all(figure in part for part in by_value.values())
    }
    return {**sums, name: by_value}


def _figures(now: MetricsMoment, family: Family, labels: Labels) -> dict[str, Any]:
    first, *counts = now.read_numbers(family.name, labels)
    if family.kind == "counter":
        return {"Count": _whole(first)}
    if family.is_gauge:
        return {"Value": first}
    count = sum(counts)
    figures = {"Count": _whole(count), "Sum": first, "Mean": first / count if count else None}
    return figures | (now.percentiles(family, labels) if family.kind == "histogram" else {})


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value
