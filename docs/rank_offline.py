"""Rank offline: what `GET …/rankings/{column}/curve` answers is enough for every rank that the curve can give.

The one rule: whole numbers only, so that every language gets the service's own answer. Copy it, or port it: it needs
nothing but this file.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from datetime import datetime
from decimal import Decimal
from typing import Any

SHAPE_UNIT = 65_536
TIME_LIMIT = 10**16  # microseconds since 1970, one more than any: behind all who reached the value before
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def key_of(curve: dict[str, Any], value: Any, reached_at: str | None = None) -> int:
    """The place of a value as a whole number, smaller is better; without a time, that of one who reaches it last."""
    key = int(Decimal(str(value)).scaleb(curve["scale"]))
    key = -key if curve["best"] == "high" else key
    if curve["ties"] == "shared":
        return key
    since = None if reached_at is None else datetime.fromisoformat(reached_at) - EPOCH
    reached_us = TIME_LIMIT - 1 if since is None else (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return key * TIME_LIMIT + reached_us


def rank_of(curve: dict[str, Any], value: Any, reached_at: str | None = None) -> tuple[int, int, int]:
    """(rank, low, high) of a value by a curve's document: what the service answers with `rank=estimate`."""
    knots, step = curve["knots"], curve["step"]
    keys = [key_of(curve, knot["value"], knot.get("reached_at")) for knot in knots]
    key = key_of(curve, value, reached_at)
    if keys and step != 1:
        key += (keys[0] - key) % step  # nobody stands between two steps: the next one has the same rank
    j = bisect_left(keys, key)  # the first knot that is no better
    if j == len(keys):
        return (curve["total"] + 1,) * 3
    high = knots[j]["rank"]
    low = knots[j - 1]["rank"] + knots[j - 1]["ties"] if j else high
    if keys[j] == key or low == high:
        return high, high, high
    start = keys[j - 1] + step
    run, at = keys[j] - start, key - start
    if curve["shapes"] is None:
        part, whole = at, run
    else:
        s1, s2 = curve["shapes"][j - 1]
        part = at * (3 * (run - at) * ((run - at) * s1 + at * s2) + at * at * SHAPE_UNIT)
        whole = run**3 * SHAPE_UNIT
    rank = low + (2 * (high - low) * part + whole) // (2 * whole)  # to the nearest, halves up
    if curve["errors"] is None:
        return rank, low, high
    error = curve["errors"][j - 1]
    return rank, max(low, rank - error), min(high, rank + error)


if __name__ == "__main__":  # curl …/curve | python rank_offline.py 600 700
    document = json.load(sys.stdin, parse_float=Decimal)
    for asked in sys.argv[1:]:
        print(asked, *rank_of(document, asked))
