"""Managed objects: each has a name, attributes to read, and operations that change what the node does.

The description of an attribute states its meaning and its unit, because operators see no other documentation for it.
Names are as in JMX, `domain:key=value,key=value`, and patterns for names have `*` and `?`. Keys may come in any order,
but the text of a name has them in alphabetical order. No value needs the quotes of JMX.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

NAME_CHARS_MAX = 4096
DOUBLE, TEXT = "double", "java.lang.String"
COMPOSITE, LIST = "javax.management.openmbean.CompositeData", "java.util.List"
DOMAIN = "rankcurve"


class Fault(Enum):
    """The ways in which a request can fail, each with an HTTP-like status and a Java exception from JMX."""

    OBJECT_UNKNOWN = 404, "javax.management.InstanceNotFoundException"
    ATTRIBUTE_UNKNOWN = 404, "javax.management.AttributeNotFoundException"
    NAME_MALFORMED = 400, "javax.management.MalformedObjectNameException"
    REQUEST_INVALID = 400, "java.lang.IllegalArgumentException"
    TYPE_UNSUPPORTED = 400, "java.lang.UnsupportedOperationException"
    FORBIDDEN = 403, "java.lang.Exception"
    FAILED = 500, "javax.management.MBeanException"


class RefusedError(Exception):
    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of a managed object or, with wildcards, a pattern of names."""

    domain: str
    properties: Mapping[str, str]
    more: bool = False  # the pattern also matches names with further keys

    @property
    def key_list(self) -> str:
        pairs = [f"{key}={value}" for key, value in sorted(self.properties.items())]
        return ",".join([*pairs, *(["*"] if self.more else [])])

    @property
    def text(self) -> str:
        return f"{self.domain}:{self.key_list}"

    @property
    def is_pattern(self) -> bool:
        return "*" in self.text or "?" in self.text

    def matches(self, name: ObjectName) -> bool:
        ours, theirs = self.properties, name.properties
        return (
            _fits(name.domain, self.domain)
            and all(key in theirs and _fits(theirs[key], value) for key, value in ours.items())
            and (self.more or len(theirs) == len(ours))
        )


def _fits(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))  # in JMX, `[` is an ordinary character


def parse_name(text: str) -> ObjectName:
    """Parse a name or a pattern.

    Raises:
        RefusedError: the text is neither a name nor a pattern.
    """
    domain, colon, key_list = text.partition(":")
    if len(text) > NAME_CHARS_MAX or not colon:
        raise RefusedError(Fault.NAME_MALFORMED, f"not a domain and key properties: {text[:NAME_CHARS_MAX]}")
    properties: dict[str, str] = {}
    for part in key_list.split(","):
        key, _, value = ("*", "=", "*") if part == "*" else part.partition("=")
        if not (key and value) or key in properties:
            raise RefusedError(Fault.NAME_MALFORMED, f"invalid key properties: {text}")
        properties[key] = value
    return ObjectName(domain, properties, more=properties.pop("*", None) is not None)


class Attribute(NamedTuple):
    """A value that operators read. Its `description` names its unit."""

    kind: str
    description: str
    read: Callable[[], Any]


class Operation(NamedTuple):
    """An action without arguments that operators start. `run` returns the number of processes that have run it."""

    description: str
    run: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ManagedObject:
    name: ObjectName
    description: str
    attributes: dict[str, Attribute] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)

    def read(self, attribute: str) -> Any:
        """Read an attribute's value.

        Raises:
            RefusedError: the object has no attribute of that name.
        """
        if attribute not in self.attributes:
            raise RefusedError(Fault.ATTRIBUTE_UNKNOWN, f"No such attribute: {attribute}")
        return self.attributes[attribute].read()


# A node's objects by the text of their names. They are made for one request, and show the node at that time.
Objects = Mapping[str, ManagedObject]


def name_object(object_type: str, **properties: str) -> ObjectName:
    return ObjectName(DOMAIN, {"type": object_type, **properties})


def find_object(objects: Objects, name: ObjectName) -> ManagedObject:
    """Find the managed object with this name.

    Raises:
        RefusedError: no object has this name.
    """
    found = objects.get(name.text)
    if found is None:
        raise RefusedError(Fault.OBJECT_UNKNOWN, name.text)
    return found


def find_matching(objects: Objects, pattern: ObjectName) -> list[ManagedObject]:
    return [managed for _, managed in sorted(objects.items()) if pattern.matches(managed.name)]
