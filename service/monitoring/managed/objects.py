"""Managed objects: each has a name, attributes to read, and operations that change what the node does.

The description of an attribute states its meaning and its unit, because operators see no other documentation of it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import Fault, RefusedError
from .object_names import ObjectName

DOUBLE, TEXT = "double", "java.lang.String"
COMPOSITE, LIST = "javax.management.openmbean.CompositeData", "java.util.List"
DOMAIN = "rankcurve"


class Attribute(NamedTuple):
    """A value that operators read. `description` names its unit."""

    kind: str
    description: str
    read: Callable[[], Any]


class Operation(NamedTuple):
    """An action without arguments that operators start. `run` returns how many processes have done the action."""

    description: str
    run: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ManagedObject:
    name: ObjectName
    description: str
    attributes: dict[str, Attribute] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)

    def read(self, attribute: str) -> Any:
        """Return an attribute's value.

        Raises:
            RefusedError: the object has no attribute of that name.
        """
        if attribute not in self.attributes:
            raise RefusedError(Fault.ATTRIBUTE_UNKNOWN, f"No such attribute: {attribute}")
        return self.attributes[attribute].read()


# The objects of a node by the text of their names. They are made for one request, and show the node at that time.
Objects = Mapping[str, ManagedObject]


def name_object(object_type: str, **properties: str) -> ObjectName:
    return ObjectName(DOMAIN, {"type": object_type, **properties})


def find_object(objects: Objects, name: ObjectName) -> ManagedObject:
    """Return the managed object that has this name.

    Raises:
        RefusedError: there is no object of that name.
    """
    found = objects.get(name.text)
    if found is None:
        raise RefusedError(Fault.OBJECT_UNKNOWN, name.text)
    return found


def find_matching(objects: Objects, pattern: ObjectName) -> list[ManagedObject]:
    """Return the objects whose names match a pattern, in the order of their names."""
    return [managed for _, managed in sorted(objects.items()) if pattern.matches(managed.name)]
