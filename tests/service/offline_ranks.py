"""Rank offline with the Python client, from a document that the service has sent."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from rankcurve import Bracket, OfflineCurve
from rankcurve.answers import Curve, Value


def rank_of(
    document: dict[str, Any],
    value: Value | str,
    reached_at: str | None = None,
    ties: Mapping[str, Value | str] | None = None,
) -> Bracket:
    """Return the rank of a value from a curve's document."""
    reached = None if reached_at is None else datetime.fromisoformat(reached_at)
    return OfflineCurve(msgspec.convert(document, Curve)).rank(value, reached, ties)
