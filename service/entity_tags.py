"""Conditional requests: whether the caller has already what it asks for."""

from __future__ import annotations


def holds(if_none_match: str, etag: str) -> bool:
    """Whether the header, a list of entity tags or `*`, has this one; weak ones count (RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag.removeprefix("W/") in tags or tags == ["*"]
