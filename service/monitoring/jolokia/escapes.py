"""Joins parts to a Jolokia path, and splits a path into its parts.

`!` escapes a character: `!/` is a slash inside a part, `!!` is an exclamation mark, and `!x` is any other character x.

`split_path(join_path(parts)) == parts` holds unless the last part is empty. The protocol can't write such a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"((?:[^!/]|!.)*)(/|$)", re.DOTALL)
_ESCAPED = re.compile(r"!(.)", re.DOTALL)


def escape(part: str) -> str:
    return part.replace("!", "!!").replace("/", "!/")


def join_path(parts: Iterable[str]) -> str:
    return "/".join(map(escape, parts))


def split_path(path: str) -> list[str]:
    """Return the parts of a path; an empty path has none."""
    parts, at = [], 0
    while at < len(path):
        found = _PART.match(path, at)
        if found is None:  # the path ends with an exclamation mark that escapes nothing
            parts.append(_ESCAPED.sub(r"\1", path[at:].removesuffix("!")))
            break
        parts.append(_ESCAPED.sub(r"\1", found[1]))
        at = found.end()
    return parts
