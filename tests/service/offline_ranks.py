"""Rank offline with the Python client, and make curves to compare such ranks with."""

import json
import random
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from rankcurve import Bracket, OfflineCurve
from rankcurve.answers import Curve as CurveAnswer
from rankcurve.answers import Value

from predictor import AsOf, Curve, Knot, LiveCounts, LiveCurve
from service.contract.values import format_us
from service.views.rankings.curves import curve_document
from storage.log.cells import Padding
from storage.records import Best, Board, Leaf, Place, Ties
from tests.storage.deployment import counter, ranked, spec


def rank_of(
    document: dict[str, Any],
    value: Value | str,
    reached_at: str | None = None,
    ties: Mapping[str, Value | str] | None = None,
) -> Bracket:
    """Return the rank of a value from a curve's document."""
    reached = None if reached_at is None else datetime.fromisoformat(reached_at)
    return OfflineCurve(msgspec.convert(document, CurveAnswer)).rank(value, reached, ties)


STEP = 4


def board_of(best: Best, ties: Ties) -> Board:
    column = ranked("v", best=best, scale=2, min_scaled=-5_000, max_scaled=5_000)
    one = spec(column, ties=ties)
    return Board(1, "b", one, 1, (Leaf(1, "b", one, Place(0)),))


def make_curve(rng: random.Random, padding: Padding, shaped: bool) -> Curve:
    """Return a curve with errors and a few knots on a lattice. Its pieces are cubics if `shaped`, otherwise lines."""
    values = sorted(rng.sample(range(-400, 400, STEP), 6))
    keys = sorted(padding.key_of_cell(padding.pad(value, rng.randrange(1, 10**6))) for value in values)
    knots, counted = [], 0
    for key in keys:
        ties = rng.randint(1, 3)
        knots.append(Knot(key, counted, ties))
        counted += ties + rng.choice((0, 5, 60))
    total = knots[-1].better_count + knots[-1].ties
    shapes = [(30_000, 30_001), (0, 65_536), (5, 7), (21_845, 43_691), (65_536, 65_536)]
    step = 1 if padding.timed else STEP
    errors = [rng.randrange(30) for _ in shapes]
    return Curve(knots, total=total, as_of_us=5, step=step, errors=errors, shapes=shapes if shaped else None)


def move_entries(rng: random.Random, curve: Curve, padding: Padding, step: int) -> LiveCurve:
    """Return a live curve, whose live counts have new entries in the gaps of the curve and beyond both ends."""
    counts = LiveCounts(curve)
    for _ in range(rng.choice((0, 25))):
        counts.count_moves(
            [(None, padding.key_of_cell(padding.pad(rng.randrange(-600, 600, step), rng.randrange(1, 10**6))))]
        )
    return LiveCurve(curve, counts, as_of=AsOf(9))


def decode_document(board: Board, curve: Curve | LiveCurve) -> dict[str, Any]:
    """Return the document of a curve as a client receives it."""
    document: dict[str, Any] = json.loads(msgspec.json.encode(curve_document(board, 0, [curve])), parse_float=Decimal)
    return document


Question = tuple[Decimal, str, dict[str, Decimal | int], tuple[int, int, int]]


def make_tied_curve(rng: random.Random, best: Best, ties: Ties) -> tuple[dict[str, Any], list[Question]]:
    """Return the document of a curve with two tie columns, and values, with the ranks that they have on the curve."""
    value = ranked("v", best=best, scale=2, min_scaled=-5_000, max_scaled=5_000)
    time = ranked("time", best=Best.LOW, scale=1, min_scaled=-9, max_scaled=90)
    one = spec(value, counter("wins"), time, ties=ties, tie_columns=("time", "wins"))
    board = Board(1, "b", one, 1, (Leaf(1, "b", one, Place(0)),))
    padding = Padding(one, one.columns[0])

    def key_of(value: int, reached_us: int, *tied: int | None) -> int:
        return padding.key_of_cell(padding.pad(value, reached_us, tied))

    def draw() -> tuple[int, int, int | None, int | None]:
        tied = rng.choice((None, -9, 0, 41, 90)), rng.choice((None, -(2**63), 0, 2**63 - 1))
        return rng.choice((-200, 0, 1, 2, 300)), rng.randrange(1, 10**6), *tied

    keys = sorted({key_of(*draw()) for _ in range(8)})
    knots = [Knot(key, 10 * number, 1 + number % 2) for number, key in enumerate(keys)]
    total = knots[-1].better_count + knots[-1].ties
    curve = Curve(knots, total=total, as_of_us=5, step=1, errors=None, shapes=None)
    questions: list[Question] = []
    for _ in range(200):
        number, reached_us, seconds, wins = draw()
        given: dict[str, Decimal | int] = {} if wins is None else {"wins": wins}
        if seconds is not None:
            given["time"] = Decimal(seconds).scaleb(-1)
        at = curve.locate(key_of(number, reached_us, seconds, wins))
        questions.append((Decimal(number).scaleb(-2), format_us(reached_us), given, (at.rank, at.low, at.high)))
    return decode_document(board, curve), questions
