"""Makes percent-encoded paths and queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from urllib.parse import quote


def quote_segment(text: str) -> str:
    """Return one path segment, percent-encoded. `.` and `..` are encoded too, because URL libraries remove them."""
    return "%2E" * len(text) if text in (".", "..") else quote(text, safe="")


def path_of(*segments: str) -> str:
    """Return the path of these segments, each percent-encoded."""
    return "".join(f"/{quote_segment(segment)}" for segment in segments)


def with_query(path: str, query: Mapping[str, object]) -> str:
    """Return a path with its query. Members that are None are left out; a list is joined by commas."""
    pairs = [f"{quote(name)}={quote(_text_of(value), safe='')}" for name, value in query.items() if value is not None]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_text_of, value))
    return str(value)
