"""A client that computes ranks offline from the document of a curve gets exactly the ranks that the service answers."""

import random
from dataclasses import replace
from math import gcd
from typing import Any

import pytest

from predictor import Curve
from storage.curves.stored_curves import ServedCurve
from tests.service.offline_ranks import rank_of
from tests.service.real_service import Service

B = "/v1/leaderboards/b"
KNOTS = 12
COLUMNS: dict[str, dict[str, Any]] = {
    "high": {"name": "v", "min": -1000},
    "low decimals": {"name": "v", "merge": "min", "best": "low", "scale": 2, "min": 0},
    "negatives": {"name": "v", "min": -500, "max": 500},
}


async def fill(service: Service, column: dict[str, Any], ties: str) -> None:
    """Post values for 120 owners and fit a curve with few knots. The values are multiples of 3, and some are tied."""
    await service.board("b", column, ties=ties, predictor={"samples": KNOTS, "exact_top": 0})
    rng = random.Random(7)
    low = 0 if column.get("min", 0) == 0 else -400
    posts = [{"owner": f"p{i}", "stats": {"v": rng.randrange(low, 400, 3)}} for i in range(120)]
    await service.post("b", *posts)
    await service.refresh("b", "v")


async def compare(service: Service, scale: int) -> dict[str, Any]:
    """Compare ranks from the document with the service's ranks. Return the document.

    The values include values of the board, values between them, and values beyond its ends.
    """
    curve: dict[str, Any] = (await service.call("GET", f"{B}/rankings/v/curve")).body
    low = 0 if scale else -410
    values = [str(value) for value in range(low, 410)]
    values += [f"{value}.{digits}" for value in range(0, 400, 5) for digits in ("01", "50", "99") if scale]
    offline = rank_of()
    for first in range(0, len(values), 500):
        asked = ",".join(values[first : first + 500])
        for answer in (await service.get(f"{B}/rankings/v/positions?rank=estimate&values={asked}"))["positions"]:
            said = (answer["rank"], answer["low"], answer["high"])
            assert offline(curve, answer["value"]) == said
    return curve


@pytest.mark.parametrize("ties", ["shared", "earliest"])
@pytest.mark.parametrize("kind", sorted(COLUMNS))
async def test_the_document_gives_the_same_ranks_as_the_service(service: Service, kind: str, ties: str) -> None:
    column = COLUMNS[kind]
    await fill(service, column, ties)
    curve = await compare(service, column.get("scale", 0))
    assert len(curve["knots"]) == KNOTS
    assert all(("reached_at" in knot) == (ties == "earliest") for knot in curve["knots"])


async def test_the_document_contains_errors_shapes_and_the_lattice(service: Service) -> None:
    await fill(service, {"name": "v", "min": -1000}, "shared")
    board = await service.context.catalog.find_board("b")
    served = service.context.curves.book.find_served(board, 0)
    assert served is not None
    skipped = served.curve
    keys = [knot.key for knot in skipped.knots]
    rng = random.Random(3)
    shapes = [tuple(sorted((rng.randrange(65_537), rng.randrange(65_537)))) for _ in keys[1:]]
    fitted = Curve(
        skipped.knots, total=skipped.total, as_of_us=skipped.as_of_us, method="scan", certificate=0.01,
        step=gcd(*(key - keys[0] for key in keys)), errors=[rng.randrange(4) for _ in keys[1:]],
        shapes=[(first, second) for first, second in shapes],
    )  # fmt: skip
    for number, curve in enumerate((replace(fitted, shapes=None), replace(fitted, errors=None), fitted), start=1):
        service.context.curves.book.serve_curve(ServedCurve(board.key, 0, board.epoch, served.version + number, curve))
        document = await compare(service, 0)
        assert document["step"] == 3
        assert (document["method"], float(document["certificate"])) == ("scan", 0.01)
        assert (document["errors"] is None, document["shapes"] is None) == (curve.errors is None, curve.shapes is None)


async def test_the_document_ranks_equal_values_by_the_time_when_they_were_reached(service: Service) -> None:
    await service.board("b", {"name": "v"}, ties="earliest", predictor={"exact_top": 0})
    posts = [{"owner": f"p{i}", "stats": {"v": 5}, "at": f"2026-01-01T00:00:{i:02d}.5Z"} for i in range(20)]
    await service.post("b", *posts)
    await service.refresh("b", "v")
    curve = (await service.call("GET", f"{B}/rankings/v/curve")).body
    for i in range(20):
        assert rank_of()(curve, 5, f"2026-01-01T00:00:{i:02d}.500000Z") == (i + 1,) * 3
    assert rank_of()(curve, 5) == (21,) * 3
