"""What a managed object is: a name, attributes that are read at a moment, operations that change what the node does.

The rule: an attribute says what it is and in which unit; nothing else describes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .history import Moment
from .object_names import ObjectName

LONG, DOUBLE, TEXT, BOOLEAN = "long", "double", "java.lang.String", "boolean"
COMPOSITE, LIST = "javax.management.openmbean.CompositeData", "java.util.List"
NOTHING = "void"


class ManagedError(Exception):
    """an operation or attribute of a managed object can't be had"""


class UnknownObject(ManagedError):
    """no such managed object"""


class UnknownAttribute(ManagedError):
    """no such attribute"""


class UnknownOperation(ManagedError):
    """no such operation, or not with these arguments"""


class Forbidden(ManagedError):
    """the operation is not on the list of those that are allowed"""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something to read. `description` names the unit."""

    kind: str
    description: str
    read: Callable[[Moment], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of an operation; all are text on the wire."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Something to do. `run` gets as many arguments as there are parameters."""

    description: str
    run: Callable[..., Awaitable[Any]]
    parameters: Sequence[Parameter] = ()
    returns: str = NOTHING


@dataclass(frozen=True, slots=True)
class Managed:
    """An object of the tree."""

    name: ObjectName
    description: str
    attributes: Mapping[str, Attribute]
    operations: Mapping[str, Operation] = field(default_factory=dict)
    kind: str = "rankcurve.Managed"

    @property
    def type(self) -> str:
        """What the allow-list of operations calls it."""
        return self.name.values.get("type", "")
