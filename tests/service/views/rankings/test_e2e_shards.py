"""A value's rank over several leaderboards is the rank that it would have on one board with all their entries."""

import random

import pytest

from tests.service.real_service import RARELY, Service

XP = {"name": "xp"}
POSITIONS = "/v1/leaderboards/eu/rankings/xp/positions"


@pytest.mark.parametrize("refreshed", [False, True], ids=["counted", "from curves"])
async def test_the_rank_over_boards_is_that_of_one_board_with_all_entries(service: Service, refreshed: bool) -> None:
    rng = random.Random(5)
    shards = {board: [rng.randint(0, 400) for _ in range(size)] for board, size in (("eu", 150), ("us", 90), ("jp", 1))}
    for board, values in shards.items():
        await service.board(board, XP, predictor={"samples": 6, "exact_top": 5, **RARELY})
        await service.post(board, *[{"owner": f"p{i}", "stats": {"xp": value}} for i, value in enumerate(values)])
        if refreshed:
            await service.refresh(board, "xp")
    everybody = [value for values in shards.values() for value in values]
    asked = sorted({*rng.sample(everybody, 20), 0, 400, 1000, -5})
    estimates = 0
    for mode in ("auto", "exact", "estimate"):
        query = f"values={','.join(map(str, asked))}&rank={mode}&with=us,jp"
        for value, found in zip(asked, (await service.get(f"{POSITIONS}?{query}"))["positions"], strict=True):
            true_rank = 1 + sum(other > value for other in everybody)
            assert found["low"] <= true_rank <= found["high"]
            assert found["low"] <= found["rank"] <= found["high"]
            assert found["exact"] == (found["low"] == found["high"])
            assert (found["value"], found["total"]) == (value, len(everybody))
            if mode == "exact" or not refreshed:
                assert (found["rank"], found["exact"]) == (true_rank, True)
            estimates += found["method"] == "curve"
    assert bool(estimates) == refreshed


async def test_boards_whose_columns_differ_cannot_be_ranked_together(service: Service) -> None:
    await service.board("eu", XP)
    await service.board("low", {"name": "xp", "best": "low"})
    await service.board("fine", {"name": "xp", "scale": 2})
    await service.board("other", {"name": "kills"})
    for boards, refusal in (
        ("none", (404, "unknown_board")),
        ("other", (404, "unknown_column")),
        ("low", (400, "bad_request")),
        ("fine", (400, "bad_request")),
        ("eu", (400, "bad_request")),
        ("", (400, "bad_request")),
        (",".join(f"b{i}" for i in range(1001)), (400, "too_many_boards")),
    ):
        assert await service.refused("GET", f"{POSITIONS}?values=1&with={boards}") == refusal
    many = ",".join(map(str, range(501)))
    assert await service.refused("GET", f"{POSITIONS}?values={many}&with=us") == (400, "too_many_values")
