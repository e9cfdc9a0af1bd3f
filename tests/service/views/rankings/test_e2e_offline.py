"""Test that ranks computed offline from a curve document are exactly the ranks that the service returns."""

import json
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from predictor import AsOf, Curve, Knot, LiveCounts, LiveCurve
from service.contract.values import format_us
from service.views.rankings.curves import curve_document
from storage.log.cells import Padding
from storage.records import Best, Board, Leaf, Place, Ties
from tests.service.offline_ranks import rank_of
from tests.service.real_service import Service
from tests.storage.deployment import counter, ranked, spec

B = "/v1/leaderboards/b"


async def test_the_document_ranks_equal_values_by_the_time_when_they_were_reached(service: Service) -> None:
    await service.board("b", {"name": "v"}, ties="earliest", predictor={"exact_top": 0})
    posts = [{"owner": f"p{i}", "stats": {"v": 5}, "at": f"2026-01-01T00:00:{i:02d}.5Z"} for i in range(20)]
    await service.post("b", *posts)
    await service.refresh("b", "v")
    curve = (await service.call("GET", f"{B}/rankings/v/curve")).body
    assert all("reached_at" in knot for knot in curve["knots"])
    for i in range(20):
        assert rank_of(curve, 5, f"2026-01-01T00:00:{i:02d}.500000Z") == (i + 1,) * 3
    assert rank_of(curve, 5) == (21,) * 3


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ties", list(Ties))
@pytest.mark.parametrize("best", list(Best))
def test_the_document_gives_every_key_the_rank_of_its_curve(best: Best, ties: Ties, seed: int) -> None:
    rng, board = random.Random(seed), board_of(best, ties)
    padding = Padding(board.spec, board.spec.columns[0])
    curve = make_curve(rng, padding, shaped=seed % 2 == 0)
    live = move_entries(rng, curve, padding, step=STEP if seed < 4 else 1)
    for held in (live, curve, replace(curve, errors=None)):
        document = decode_document(board, held)
        for value in range(-700, 700):
            reached_us = rng.randrange(1, 10**6)
            at = held.locate(padding.key_of_cell(padding.pad(value, reached_us)))
            found = rank_of(document, Decimal(value).scaleb(-2), format_us(reached_us))
            assert found == (at.rank, at.low, at.high)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", list(Ties))
@pytest.mark.parametrize("best", list(Best))
def test_the_document_gives_the_rank_of_a_value_with_values_in_tie_columns(best: Best, ties: Ties, seed: int) -> None:
    rng = random.Random(seed)
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
    document = decode_document(board, curve)
    for _ in range(200):
        number, reached_us, seconds, wins = draw()
        given: dict[str, Decimal | int] = {} if wins is None else {"wins": wins}
        if seconds is not None:
            given["time"] = Decimal(seconds).scaleb(-1)
        at = curve.locate(key_of(number, reached_us, seconds, wins))
        found = rank_of(document, Decimal(number).scaleb(-2), format_us(reached_us), given)
        assert found == (at.rank, at.low, at.high)


def test_the_document_of_a_board_that_was_empty_at_the_fit_gives_the_right_ranks() -> None:
    board = board_of(Best.HIGH, Ties.SHARED)
    padding = Padding(board.spec, board.spec.columns[0])
    live = move_entries(random.Random(1), Curve((), total=0, as_of_us=1), padding, step=1)
    for curve in (live, Curve((), total=0, as_of_us=1)):
        document = decode_document(board, curve)
        for value in range(-700, 700):
            at = curve.locate(padding.key_of_cell(padding.pad(value)))
            assert rank_of(document, Decimal(value).scaleb(-2)) == (at.rank, at.low, at.high)


def test_the_document_has_no_entries_outside_the_knots_if_nobody_is_there() -> None:
    board = board_of(Best.LOW, Ties.SHARED)
    padding = Padding(board.spec, board.spec.columns[0])
    curve = make_curve(random.Random(2), padding, shaped=True)
    assert decode_document(board, curve)["outside"] is None
    assert decode_document(board, LiveCurve(curve, LiveCounts(curve), as_of=AsOf(9)))["outside"] is None
    counts = LiveCounts(curve)
    counts.count_moves([(None, curve.knots[-1].key + 1)])
    outside = decode_document(board, LiveCurve(curve, counts, as_of=AsOf(9)))["outside"]
    assert (outside["best"], outside["errors"]) == (None, [0, 2])
