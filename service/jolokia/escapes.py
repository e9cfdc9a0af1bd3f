"""How Jolokia writes parts with slashes into a path: `!/` is a slash, `!!` an exclamation mark, `!x` any x.

The rule: `split(join(parts)) == parts` for all parts but an empty last one, which the protocol can't write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"((?:[^!/]|!.)*)(/|$)", re.DOTALL)
_ESCAPED = re.compile(r"!(.)", re.DOTALL)


def escape(part: str) -> str:
    """A part as it stands in a path."""
    return part.replace("!", "!!").replace("/", "!/")


def join(parts: Iterable[str]) -> str:
    """A path of parts."""
    return "/".join(map(escape, parts))


def split(path: str) -> list[str]:
    """The parts of a path; of an empty one none."""
    parts, at = [], 0
    while at < len(path):
        found = _PART.match(path, at)
        if found is None:  # it ends with an exclamation mark that escapes nothing
            parts.append(_ESCAPED.sub(r"\1", path[at:].removesuffix("!")))
            break
        parts.append(_ESCAPED.sub(r"\1", found[1]))
        at = found.end()
    return parts
