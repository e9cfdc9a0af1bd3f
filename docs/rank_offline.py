"""Compute ranks offline, from the response to `GET …/rankings/{column}/curve` and nothing else.

Copy this file, or translate it into another language; it needs no other file. It computes with whole numbers only, so
every language gets the same ranks as the service.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from datetime import datetime
from decimal import Decimal
from typing import Any

SHAPE_UNIT = 65_536
TIME_LIMIT = 10**16  # microseconds since 1970; every time that the service stores is earlier
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def key_of(curve: dict[str, Any], value: Any, reached_at: str | None = None) -> int:
    """Return the key of a value: a whole number; a smaller key is better.

    Without `reached_at` the value counts as reached after all others.
    """
    key = int(Decimal(str(value)).scaleb(curve["scale"]))
    key = -key if curve["best"] == "high" else key
    if curve["ties"] == "shared":
        return key
    since = None if reached_at is None else datetime.fromisoformat(reached_at) - EPOCH
    reached_us = TIME_LIMIT - 1 if since is None else (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return key * TIME_LIMIT + reached_us


def rank_of(curve: dict[str, Any], value: Any, reached_at: str | None = None) -> tuple[int, int, int]:
    """Return (rank, low, high) of a value from a curve's document, as the service does with `rank=estimate`."""
    knots, step = curve["knots"], curve["step"]
    keys = [key_of(curve, knot["value"], knot.get("reached_at")) for knot in knots]
    key = key_of(curve, value, reached_at)
    on_lattice = key + (keys[0] - key) % step if keys else key
    if curve["snaps"]:
        # No entry lies between two lattice points, so a key between them has the same rank as the next point.
        key = on_lattice
    j = bisect_left(keys, key)  # the index of the first knot that is not better; gap j lies before this knot
    low = knots[j - 1]["rank"] + knots[j - 1]["ties"] if j else 1
    high = knots[j]["rank"] if j < len(keys) else curve["total"] + 1
    if low == high or (j < len(keys) and keys[j] == key):
        return high, high, high
    best, worst = (end and key_of(curve, end["value"], end.get("reached_at")) for end in _ends(curve))
    if j == 0 and key <= best:
        return low, low, low  # nobody is better
    if j == len(keys) and key > worst:
        return high, high, high  # nobody is worse
    start = keys[j - 1] + step if j else best
    end = keys[j] if j < len(keys) else max(worst, start) + step
    inside = 0 < j < len(keys)
    shape = curve["shapes"][j - 1] if inside and curve["shapes"] else None
    rank = _estimate(low, high, on_lattice - start, end - start, shape)
    errors = curve["errors"] if inside else (curve["outside"] or {}).get("errors")
    if errors is None:
        return rank, low, high
    error = errors[j - 1] if inside else errors[0 if j == 0 else 1]
    return rank, max(low, rank - error), min(high, rank + error)


def _ends(curve: dict[str, Any]) -> tuple[Any, Any]:
    """Return the best value that an entry before the first knot may have, and the worst value after the last knot.

    Each is None if there is no such entry.
    """
    outside = curve["outside"] or {}
    return outside.get("best"), outside.get("worst")


def _estimate(low: int, high: int, at: int, run: int, shape: list[int] | None) -> int:
    """Return the rank at the place `at` of a gap, rounded half up.

    The ranks rise from `low` at 0 to `high` at `run`, along a line or, with a `shape`, along a cubic.
    """
    if at <= 0:
        return low
    if at >= run:
        return high
    part, whole = at, run
    if shape is not None:
        first, second = shape
        part = at * (3 * (run - at) * ((run - at) * first + at * second) + at * at * SHAPE_UNIT)
        whole = run**3 * SHAPE_UNIT
    return low + (2 * (high - low) * part + whole) // (2 * whole)


if __name__ == "__main__":  # usage: curl …/curve | python rank_offline.py 600 700
    document = json.load(sys.stdin, parse_float=Decimal)
    for asked in sys.argv[1:]:
        print(asked, *rank_of(document, asked))
