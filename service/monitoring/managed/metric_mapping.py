"""Maps metrics to the tree: each metric family of Prometheus becomes an attribute of managed objects.

Every family whose name begins with `rankcurve_` is mapped. If its name matches no group, the family becomes an
attribute of `type=Metrics`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .history import Labels, MetricFamily, MetricsMoment
from .object_names import ObjectName
from .objects import COMPOSITE, DOUBLE, Attribute, ManagedObject

DOMAIN = "rankcurve"
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
    """Makes managed objects from metric families. `store` is the store's name in the tree."""

    def __init__(self, store: str, groups: Sequence[MetricGroup] = GROUPS) -> None:
        named = [group._replace(name=group.name.format(store=store)) for group in groups]
        self._by_prefix = sorted(
            ((_PREFIX + prefix, group) for group in named for prefix in group.prefixes), key=lambda one: -len(one[0])
        )
        self._made: tuple[int, dict[ObjectName, ManagedObject]] = (-1, {})

    def map_metrics(self, families: Mapping[str, MetricFamily]) -> Mapping[ObjectName, ManagedObject]:
        """Return the objects of the families by name. Return the same mapping again until a new sample appears."""
        size = sum(1 + len(family.labels) for family in families.values())
        if size != self._made[0]:
            self._made = size, self._grouped(families.values())
        return self._made[1]

    def _grouped(self, families: Iterable[MetricFamily]) -> dict[ObjectName, ManagedObject]:
        found: dict[ObjectName, tuple[MetricGroup, dict[str, Attribute]]] = {}
        for family in families:
            if not family.name.startswith(_PREFIX):
                continue
            prefix, group = next(
                ((prefix, group) for prefix, group in self._by_prefix if family.name.startswith(prefix)),
                (_PREFIX, _OTHERS),
            )
            for name, labels in _split(group, family).items():
                attributes = found.setdefault(name, (group, {}))[1]
                attributes[attribute_name(family.name, prefix)] = _attribute(family, labels, group.label)
        return {name: ManagedObject(name, group.description, attributes) for name, (group, attributes) in found.items()}


def _split(group: MetricGroup, family: MetricFamily) -> dict[ObjectName, list[Labels]]:
    """Return the labels of a family's samples, grouped by the object that the samples belong to."""
    found: dict[ObjectName, list[Labels]] = {}
    for labels in family.labels:
        properties = {"type": group.type}
        if group.label:
            properties[group.key] = dict(labels).get(group.label, _ALL)
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


def _attribute(family: MetricFamily, labels: list[Labels], in_name: str) -> Attribute:
    names = [name for name, _ in labels[0] if name != in_name]
    described = f"{family.documentation.rstrip('.')} [{unit_of(family.name)}]"
    added, figures = _FIGURES.get(family.kind, ("", _current))
    if family.kind not in _FIGURES and not names:
        return Attribute(DOUBLE, described, lambda now: now.value(family.name, labels[0]))
    return Attribute(
        COMPOSITE, described + added, lambda now: _nested(names, labels, lambda each: figures(now, family, each))
    )


def unit_of(family: str) -> str:
    """Return the unit in a metric's name, such as `seconds`, or `count` if the name contains none."""
    return next((word for word in reversed(family.split("_")) if word in _UNITS), "count")


def _nested(names: Sequence[str], labels: Sequence[Labels], leaf: Any) -> dict[str, Any]:
    """Return the total of the samples. The key `names[0]` holds a nested mapping for each value of that label."""
    if not names:
        return leaf(labels[0]) if len(labels) == 1 else _total([leaf(each) for each in labels])
    parts: dict[str, list[Labels]] = {}
    for each in labels:
        parts.setdefault(dict(each).get(names[0], ""), []).append(each)
    by_value = {value: _nested(names[1:], inner, leaf) for value, inner in parts.items()}
    return {**_total(list(by_value.values())), names[0]: by_value}


def _total(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the figures that can be added up. Percentiles can't be added, so they are left out."""
    sums: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name in _ADDED:
                sums[name] = sums.get(name, 0) + value
    return sums


_ADDED = {"Count", "Sum", "Value"}


def _current(now: MetricsMoment, family: MetricFamily, labels: Labels) -> dict[str, Any]:
    return {"Value": now.value(family.name, labels)}


def _count(now: MetricsMoment, family: MetricFamily, labels: Labels) -> dict[str, Any]:
    return {"Count": _whole(now.value(f"{family.name}_total", labels))}


def _times(now: MetricsMoment, family: MetricFamily, labels: Labels) -> dict[str, Any]:
    return {**_sizes(now, family, labels), **now.percentiles(family, labels)}


def _sizes(now: MetricsMoment, family: MetricFamily, labels: Labels) -> dict[str, Any]:
    count = now.value(f"{family.name}_count", labels)
    total = now.value(f"{family.name}_sum", labels)
    return {"Count": _whole(count), "Sum": total, "Mean": total / count if count else None}


# For a kind of metric: what the description of its attribute adds, and the function that returns a sample's figures.
_FIGURES = {
    "counter": ("", _count),
    "histogram": ("; percentiles of the last 5 minutes", _times),
    "summary": ("", _sizes),
}


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value
