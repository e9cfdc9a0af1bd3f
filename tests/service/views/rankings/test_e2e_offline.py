"""Test that ranks computed offline from a curve document are exactly the ranks that the service returns."""

import random
from dataclasses import replace
from decimal import Decimal

import pytest

from predictor import AsOf, Curve, LiveCounts, LiveCurve
from service.contract.values import format_us
from storage.log.cells import Padding
from storage.records import Best, Ties
from tests.service.offline_ranks import (
    STEP,
    board_of,
    decode_document,
    make_curve,
    make_tied_curve,
    move_entries,
    rank_of,
)
from tests.service.real_service import Service

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
    document, questions = make_tied_curve(random.Random(seed), best, ties)
    for value, reached_at, given, rank in questions:
        assert rank_of(document, value, reached_at, given) == rank


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
