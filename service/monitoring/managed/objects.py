"""Managed objects: each has a name, attributes to read, and operations that change what the node does.

Operators get no documentation of an attribute except its description, which states the meaning and the unit.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .history import MetricsMoment
from .object_names import ObjectName

LONG, DOUBLE, TEXT, BOOLEAN = "long", "double", "java.lang.String", "boolean"
COMPOSITE, LIST = "javax.management.openmbean.CompositeData", "java.util.List"
NOTHING = "void"
DOMAIN = "rankcurve"


class UnknownObjectError(Exception):
    """There is no such managed object."""


class UnknownAttributeError(Exception):
    """The managed object has no such attribute."""


class UnknownOperationError(Exception):
    """The managed object has no such operation, or the operation does not take these arguments."""


class ForbiddenError(Exception):
    """The operation is not on the list of allowed operations."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value that operators read. `description` names its unit."""

    kind: str
    description: str
    read: Callable[[MetricsMoment], Any]


Rows = Sequence[tuple[str, str, str, Callable[[Any], Any]]]  # name, kind, description with unit, function that reads


@dataclass(frozen=True, slots=True)
class Operation:
    """An action that operators start. It has no arguments."""

    description: str
    action: Callable[[], Awaitable[Any]]
    returns: str = NOTHING


@dataclass(frozen=True, slots=True)
class ManagedObject:
    """An object of the tree. `kind` is the class name that Jolokia shows."""

    name: ObjectName
    description: str
    attributes: Mapping[str, Attribute]
    operations: Mapping[str, Operation] = field(default_factory=dict)
    kind: str = "rankcurve.Managed"

    @property
    def type(self) -> str:
        """Return the type, by which the setting `managed_operations` names the object."""
        return self.name.values.get("type", "")


def declare(
    description: str,
    rows: Rows,
    operations: Mapping[str, Operation] = MappingProxyType({}),
    *,
    subject: Callable[[MetricsMoment], Any] = lambda now: now,
    **properties: str,
) -> ManagedObject:
    """Return the object with these properties in its name, and the attributes of a table.

    The functions of the table read the `subject`; all attributes are null while it is None.
    """

    def reader(read: Callable[[Any], Any]) -> Callable[[MetricsMoment], Any]:
        return lambda now: None if (found := subject(now)) is None else read(found)

    attributes = {name: Attribute(kind, about, reader(read)) for name, kind, about, read in rows}
    name = ObjectName.of(DOMAIN, **properties)
    return ManagedObject(name, description, attributes, operations, f"{DOMAIN}.{properties['type']}")
