"""Names of managed objects, as in JMX: `domain:key=value,key=value`, with quoted values and patterns.

The order of keys does not matter. The canonical form of a name has its keys in alphabetical order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "*": "\\*", "?": "\\?", "\n": "\\n"})
_NEEDS_QUOTES = re.compile(r'[,=:"*?\n]')
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\", "*": "*", "?": "?"}
# Matches a key and its value, or the wildcard of further properties. The value is quoted, with escapes, or plain. Both
# forms may contain wildcards.
_PROPERTY = re.compile(r'(?:(?P<key>[^,=:*?"\n]+)=(?P<value>"(?:[^"\\\n]|\\[n"\\*?])*"|[^,=:"\n]+)|\*)(?:,|$)')
NAME_CHARS_MAX = 4096


class MalformedNameError(ValueError):
    """The text is not the name of a managed object."""


def quote_value(value: str) -> str:
    """Return a value as it is written in a name: in quotes if it is empty or has a character with a special meaning."""
    return f'"{value.translate(_QUOTED)}"' if _NEEDS_QUOTES.search(value) or not value else value


def unquote_value(text: str) -> str:
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text[1:-1])


@dataclass(frozen=True)
class ObjectName:
    """A name or, with wildcards, a pattern of names. Values are kept as written, with their quotes."""

    domain: str
    properties: tuple[tuple[str, str], ...]  # keys and values, in the order given
    more: bool = False  # the pattern also matches names with further properties

    @classmethod
    def of(cls, domain: str, **properties: str) -> ObjectName:
        """Make a name from a domain, keys and plain values. Quote the values that need quotes."""
        return cls(domain, tuple((key, quote_value(value)) for key, value in properties.items()))

    def key_list(self, *, canonical: bool = True) -> str:
        """Return the properties as text, in alphabetical order or in the order given."""
        properties = sorted(self.properties) if canonical else self.properties
        return ",".join([*(f"{key}={value}" for key, value in properties), *(["*"] if self.more else [])])

    @cached_property
    def canonical(self) -> str:
        return f"{self.domain}:{self.key_list()}"

    def text(self, *, canonical: bool = True) -> str:
        return self.canonical if canonical else f"{self.domain}:{self.key_list(canonical=False)}"

    @cached_property
    def values(self) -> Mapping[str, str]:
        """Return the plain values by key, without quotes."""
        return {key: unquote_value(value) for key, value in self.properties}

    @cached_property
    def is_pattern(self) -> bool:
        """Return whether this may match several names."""
        return self.more or _wild(self.domain) or any(_wild(value) for _, value in self.properties)

    def matches(self, name: ObjectName) -> bool:
        if not _matching(self.domain).fullmatch(name.domain):
            return False
        theirs = dict(name.properties)
        if len(theirs) != len(self.properties) and not (self.more and len(theirs) > len(self.properties)):
            return False
        return all(key in theirs and _matching(value).fullmatch(theirs[key]) for key, value in self.properties)


@lru_cache(maxsize=1024)
def parse_name(text: str) -> ObjectName:
    """Parse a name or a pattern.

    Raises:
        MalformedNameError: the text is neither.
    """
    if len(text) > NAME_CHARS_MAX:
        raise MalformedNameError(f"a name has at most {NAME_CHARS_MAX} characters")
    domain, colon, key_list = text.partition(":")
    if not colon:
        raise MalformedNameError(f"Domain part must be specified: {text}")
    if "\n" in domain:
        raise MalformedNameError(f"Invalid character in the domain: {text!r}")
    if not key_list:
        raise MalformedNameError(f"Key properties cannot be empty: {text}")
    properties: dict[str, str] = {}
    at, more = 0, False
    while at < len(key_list) or key_list.endswith(","):
        found = _PROPERTY.match(key_list, at)
        if found is None or (found["key"] is None and more):
            raise MalformedNameError(f"Invalid key properties: {text}")
        if found["key"] is None:
            more = True
        elif found["key"] in properties:
            raise MalformedNameError(f"Duplicate key `{found['key']}`: {text}")
        else:
            properties[found["key"]] = found["value"]
        at = found.end()
    return ObjectName(domain, tuple(properties.items()), more)


def _wild(text: str) -> bool:
    """Return whether a text has a wildcard. An escaped `*` or `?` within quotes is not a wildcard."""
    return bool(re.search(r"[*?]", re.sub(r"\\.", "", text) if text.startswith('"') else text))


@lru_cache(maxsize=1024)
def _matching(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern. Quoted texts are compared as written, with their escapes."""
    if not _wild(pattern):
        return re.compile(re.escape(pattern))
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL) if pattern.startswith('"') else list(pattern)
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(token, re.escape(token)) for token in tokens), re.DOTALL)
