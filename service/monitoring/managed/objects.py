"""Managed objects: each has a name, attributes to read, and operations that change what the node does.

Operators get no documentation of an attribute except its description, which states the meaning and the unit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .history import MetricsMoment
from .object_names import ObjectName

LONG, DOUBLE, TEXT, BOOLEAN = "long", "double", "java.lang.String", "boolean"
COMPOSITE, LIST = "javax.management.openmbean.CompositeData", "java.util.List"
NOTHING = "void"


class ManagedError(Exception):
    """An operation or attribute of a managed object is not available."""


class UnknownObjectError(ManagedError):
    """There is no such managed object."""


class UnknownAttributeError(ManagedError):
    """The managed object has no such attribute."""


class UnknownOperationError(ManagedError):
    """The managed object has no such operation, or the operation does not take these arguments."""


class ForbiddenError(ManagedError):
    """The operation is not on the list of allowed operations."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value that operators read. `description` names its unit."""

    kind: str
    description: str
    read: Callable[[MetricsMoment], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of an operation. On the wire every argument is text."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An action that operators start. `action` receives one argument for each parameter."""

    description: str
    action: Callable[..., Awaitable[Any]]
    parameters: Sequence[Parameter] = ()
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
        """The type, by which the setting `managed_operations` names the object."""
        return self.name.values.get("type", "")
