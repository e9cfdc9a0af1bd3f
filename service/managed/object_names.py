"""Names of managed objects, as JMX has them: `domain:key=value,key=value`, quoted values, patterns.

The rule: a name is equal to another one whatever the order of its keys; canonical is the order of the alphabet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "*": "\\*", "?": "\\?", "\n": "\\n"})
_NEEDS_QUOTES = re.compile(r'[,=:"*?\n]')
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\", "*": "*", "?": "?"}
# A key, and a value: quoted with escapes, or of what needs no quotes; wildcards make a pattern of it.
_PROPERTY = re.compile(r'([^,=:*?"\n]+)=("(?:[^"\\\n]|\\[n"\\*?])*"|[^,=:"\n]+)(,|$)')
NAME_CHARS_MAX = 4096


class MalformedName(ValueError):
    """the text is not the name of a managed object"""


def quoted(value: str) -> str:
    """A value as it stands in a name: in quotes where it has a character that names use."""
    return f'"{value.translate(_QUOTED)}"' if _NEEDS_QUOTES.search(value) or not value else value


def unquoted(text: str) -> str:
    """The value that stands in a name."""
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text[1:-1])


@dataclass(frozen=True)
class ObjectName:
    """A name or, with wildcards, a pattern of names. Values are as they stand in the text, quotes included."""

    domain: str
    properties: tuple[tuple[str, str], ...]  # in the order in which they were given
    more: bool = False  # a pattern that any further properties may follow

    @classmethod
    def of(cls, domain: str, **properties: str) -> ObjectName:
        """A name of these values, quoted where that is needed."""
        return cls(domain, tuple((key, quoted(value)) for key, value in properties.items()))

    @cached_property
    def key_list(self) -> str:
        """The properties as they were given."""
        return self._joined(self.properties)

    @cached_property
    def canonical_key_list(self) -> str:
        """The properties by their keys."""
        return self._joined(tuple(sorted(self.properties)))

    def _joined(self, properties: tuple[tuple[str, str], ...]) -> str:
        return ",".join([*(f"{key}={value}" for key, value in properties), *(["*"] if self.more else [])])

    @cached_property
    def canonical(self) -> str:
        """The text that all equal names have in common."""
        return f"{self.domain}:{self.canonical_key_list}"

    def text(self, *, canonical: bool = True) -> str:
        """The name in one order or the other."""
        return self.canonical if canonical else f"{self.domain}:{self.key_list}"

    @cached_property
    def values(self) -> Mapping[str, str]:
        """The plain values by key."""
        return {key: unquoted(value) for key, value in self.properties}

    @cached_property
    def is_pattern(self) -> bool:
        """Whether it may stand for several names."""
        return self.more or _wild(self.domain) or any(_wild(value) for _, value in self.properties)

    def matches(self, name: ObjectName) -> bool:
        """Whether a name is one that this pattern stands for."""
        if not _matching(self.domain).fullmatch(name.domain):
            return False
        theirs = dict(name.properties)
        if len(theirs) != len(self.properties) and not (self.more and len(theirs) > len(self.properties)):
            return False
        return all(key in theirs and _matching(value).fullmatch(theirs[key]) for key, value in self.properties)


@lru_cache(maxsize=1024)
def parse_name(text: str) -> ObjectName:
    """The name or pattern of a text.

    Raises:
        MalformedName: it is none.
    """
    if len(text) > NAME_CHARS_MAX:
        raise MalformedName(f"a name has at most {NAME_CHARS_MAX} characters")
    domain, colon, key_list = text.partition(":")
    if not colon:
        raise MalformedName(f"Domain part must be specified: {text}")
    if "\n" in domain:
        raise MalformedName(f"Invalid character in the domain: {text!r}")
    if not key_list:
        raise MalformedName(f"Key properties cannot be empty: {text}")
    properties: list[tuple[str, str]] = []
    more = False
    for key, value in _parts(key_list, text):
        if not key:
            more = True
        elif key in dict(properties):
            raise MalformedName(f"Duplicate key `{key}`: {text}")
        else:
            properties.append((key, value))
    return ObjectName(domain, tuple(properties), more)


def _parts(key_list: str, text: str) -> Iterator[tuple[str, str]]:
    """Keys and values; a wildcard for further ones has neither."""
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
            raise MalformedName(f"Invalid key properties: {text}")
    if key_list.endswith(","):
        raise MalformedName(f"Invalid key properties: {text}")


def _wild(text: str) -> bool:
    """Whether a text has a wildcard; within quotes an escaped one stands for itself."""
    return bool(re.search(r"[*?]", re.sub(r"\\.", "", text) if text.startswith('"') else text))


@lru_cache(maxsize=1024)
def _matching(pattern: str) -> re.Pattern[str]:
    """What a pattern stands for. Within quotes names are compared as they stand, escapes included."""
    if not _wild(pattern):
        return re.compile(re.escape(pattern))
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL) if pattern.startswith('"') else list(pattern)
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(token, re.escape(token)) for token in tokens), re.DOTALL)
