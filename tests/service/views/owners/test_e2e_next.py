"""The next better place than an owner's: its value, the points that the owner lacks, and whether its rank is exact."""

import random
from typing import Any

import pytest

from tests.service.plain_board import PlainBoard, random_board, random_posts
from tests.service.real_service import Service, escaped, without

B = "/v1/leaderboards/b"


async def season(service: Service, ties: str, seed: int) -> PlainBoard:
    """Make a random board; send the same posts to the service and to the board in plain Python."""
    rng = random.Random(seed)
    board = random_board(rng, ties)
    predictor = {"samples": 7, "exact_top": 10}
    await service.board("b", *(column.body() for column in board.columns), ties=ties, predictor=predictor)
    await service.post("b", *random_posts(rng, board, owners=60, posts=250))
    return board


async def positions(service: Service, owner: str, query: str) -> list[dict[str, Any]]:
    """Return an owner's positions; an empty list if the owner is not ranked."""
    answer = await service.call("GET", f"{B}/entries/{escaped(owner)}/positions?{query}")
    assert answer.status == 200 or answer.body["code"] == "not_ranked"
    found: list[dict[str, Any]] = [] if answer.status == 404 else answer.body["positions"]
    return found


def check_next(board: PlainBoard, owner: str, found: dict[str, Any], *, exact: bool) -> None:
    """Compare an answer's next better place with the next better owner in the sorted rows of the plain board."""
    name, place = found["column"], found["next"]
    column, ranks = board.column(name), board.ranks(name)
    better = [other for other in board.order(name) if ranks[other] < ranks[owner]]
    if not better:
        assert place is None
        return
    assert column.scaled(place["value"]) == board.value(name, better[-1])
    assert place["low"] <= ranks[better[-1]] <= place["high"]
    assert place["low"] <= place["rank"] <= place["high"]
    assert place["exact"] == (place["low"] == place["high"])
    if exact:
        assert (place["rank"], place["exact"]) == (ranks[better[-1]], True)
    towards = 1 if column.best == "high" else -1
    own = board.value(name, owner)
    if place["points"] is None:
        assert board.value(name, better[-1]) in (column.least, column.most)
        return
    points = column.scaled(place["points"])
    assert board.arrival_rank(name, own + towards * points) <= ranks[better[-1]]
    # If the owner got one unit less than these points, it would not reach the place.
    assert board.arrival_rank(name, own + towards * (points - 1)) > ranks[better[-1]]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("ties", ["shared", "earliest"])
async def test_the_next_place_and_the_missing_points_agree_with_sorting(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed)
    ranked = [column.name for column in board.columns if column.sorted]
    for query in ("rank=auto", "rank=estimate"):
        for owner in board.rows:
            plain = await positions(service, owner, query)
            found = await positions(service, owner, f"{query}&next=true")
            assert without(plain, "as_of", "next") == without(found, "as_of", "next")
            for each in found:
                if each["value"] is not None:
                    check_next(board, owner, each, exact=False)
        await service.refresh("b", *ranked)
    for owner in board.rows:
        for each in await positions(service, owner, "rank=exact&next=true"):
            if each["value"] is not None:
                check_next(board, owner, each, exact=True)


async def test_an_owner_without_a_next_place_or_an_entry_is_told_so(service: Service) -> None:
    await service.board("b", {"name": "xp", "max": 10}, {"name": "kills"}, ties="earliest")
    posts = [{"owner": f"p{i}", "stats": {"xp": 10}, "at": f"2026-01-01T00:00:0{i}Z"} for i in range(2)]
    await service.post("b", *posts, {"owner": "idle", "stats": {"xp": 1}})
    first, kills = await positions(service, "p0", "next=true")
    assert (first["next"], kills) == (None, {"column": "kills", "value": None, "rank": None})
    (second, _) = await positions(service, "p1", "next=true")
    assert (second["next"]["rank"], second["next"]["value"], second["next"]["points"]) == (1, 10, None)
    assert "next" not in (await positions(service, "p1", "next=false"))[0]
    path = f"{B}/entries"
    assert await service.refused("GET", f"{path}/nobody/positions?next=true") == (404, "unknown_owner")
    assert await service.refused("GET", f"{path}/p0/positions?columns=kills&next=true") == (404, "not_ranked")
    assert await service.refused("GET", f"{path}/p0/positions?next=maybe") == (400, "bad_request")
