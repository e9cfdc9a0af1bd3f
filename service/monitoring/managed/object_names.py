"""Names of managed objects, as in JMX: `domain:key=value,key=value`, and patterns of names with `*` and `?`.

Keys may have any order, but the text of a name has them in alphabetical order. No value needs the quotes of JMX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .errors import Fault, RefusedError

NAME_CHARS_MAX = 4096


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
        """Return whether this name has wildcards, so that it may match several names."""
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
