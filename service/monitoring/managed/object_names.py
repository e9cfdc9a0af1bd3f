"""Names of managed objects, as in JMX: `domain:key=value,key=value`, with quoted values and patterns.

The order of keys does not matter. The canonical form of a name has its keys in alphabetical order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "*": "\\*", "?": "\\?", "\n": "\\n"})
_NEEDS_QUOTES = re.compile(r'[,=:"*?\n]')
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\", "*": "*", "?": "?"}
# Matches one key and its value. The value is quoted, with escapes, or plain. Both forms may contain wildcards.
_PROPERTY = re.compile(r'([^,=:*?"\n]+)=("(?:[^"\\\n]|\\[n"\\*?])*"|[^,=:"\n]+)(,|$)')
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

    @cached_property
    def key_list(self) -> str:
        """Return the properties as text, in the order given."""
        return self._joined(self.properties)

    @cached_property
    def canonical_key_list(self) -> str:
        return self._joined(tuple(sorted(self.properties)))

    def _joined(self, properties: tuple[tuple[str, str], ...]) -> str:
        return ",".join([*(f"{key}={value}" for key, value in properties), *(["*"] if self.more else [])])

    @cached_property
    def canonical(self) -> str:
        return f"{self.domain}:{self.canonical_key_list}"

    def text(self, *, canonical: bool = True) -> str:
        return self.canonical if canonical else f"{self.domain}:{self.key_list}"

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
    properties: list[tuple[str, str]] = []
    more = False
    for key, value in _parts(key_list, text):
        if not key:
            more = True
        elif key in dict(properties):
            raise MalformedNameError(f"Duplicate key `{key}`: {text}")
        else:
            properties.append((key, value))
    return ObjectName(domain, tuple(properties), more)


def _parts(key_list: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each property. For the wildcard of further properties, yield two empty texts."""
    at, more = 0, False
    while at < len(key_list):
        if key_list.startswith("*", at) and key_list[at + 1 : at + 2] in ("", ",") and not more:
            more = True
            yield "", ""
            at += 2
        elif found := _PROPERTY.match(key_list, at):
            yield found[1], found[2]
            at = found.end()
        else:
            raise MalformedNameError(f"Invalid key properties: {text}")
    if key_list.endswith(","):
        raise MalformedNameError(f"Invalid key properties: {text}")


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
