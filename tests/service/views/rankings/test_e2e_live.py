"""Ranks of processes that share live curves, of services without a curve yet, and over several boards, are true.

The tests of live curves compute true ranks from the posts, and request only estimates, so that no count hides an error.
"""

import asyncio
import random
from bisect import bisect_left
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from config.settings import ReadingSettings
from tests.service.real_service import RARELY, Service

B = "/v1/leaderboards/b"
POSITIONS = "/v1/leaderboards/eu/rankings/xp/positions"
XP = {"name": "xp", "merge": "last", "best": "high", "sorted": True}
OWNERS = 300


@pytest.fixture
async def pair(store_url: str, tmp_path: Path) -> AsyncIterator[list[Service]]:
    """Start two processes that answer requests and run jobs."""
    shared: dict[str, Any] = {"store": store_url, "curve_poll_s": 0.05, "lease_s": 1, "lease_margin_s": 0}
    async with Service(tmp_path, **shared).running() as one, Service(tmp_path, **shared).running() as other:
        yield [one, other]


async def play(service: Service, values: dict[str, int], rng: random.Random, owners: range) -> None:
    """Post random values for random owners in six requests. Store the owners' values in `values`."""
    for _ in range(6):
        chosen = rng.sample(owners, 30)
        posts = {f"o{number}": rng.randrange(5_000) for number in chosen}
        await service.post("b", *({"owner": owner, "stats": {"xp": value}} for owner, value in posts.items()))
        values |= posts


async def check_estimates(service: Service, values: dict[str, int]) -> None:
    """Wait until the curve counts every acknowledged post. Then fail unless each bracket contains the true rank."""
    state = (await service.wait_folded("b", "xp"))["xp"]
    assert state["total"] == len(values)
    keys = sorted(-value for value in values.values())
    asked = sorted(set(values.values()))[::3]
    path = f"{B}/rankings/xp/positions?rank=estimate&values={','.join(map(str, asked))}"
    for value, found in zip(asked, (await service.get(path))["positions"], strict=True):
        assert found["low"] <= 1 + bisect_left(keys, -value) <= found["high"]
        assert found["low"] <= found["rank"] <= found["high"]


async def test_the_curves_of_every_process_count_the_posts_of_all_processes(pair: list[Service]) -> None:
    first, second = pair
    rng, values = random.Random(3), {f"o{number}": number * 10 for number in range(OWNERS)}
    await first.board("b", XP, predictor={"samples": 12, "exact_top": 0, "refresh_seconds": 3600})
    await first.post("b", *({"owner": owner, "stats": {"xp": value}} for owner, value in values.items()))
    await first.refresh("b", "xp")
    for _ in range(2):
        # Each process posts for different owners, so that the test knows the last post of every owner.
        await asyncio.gather(
            play(first, values, rng, range(OWNERS // 2)), play(second, values, rng, range(OWNERS // 2, OWNERS))
        )
        for service in pair:
            await check_estimates(service, values)
    await first.stop()
    await play(second, values, rng, range(2 * OWNERS))
    await check_estimates(second, values)


async def test_a_restarted_process_continues_from_the_stored_live_counts(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as service:
        rng, values = random.Random(4), {f"o{number}": number * 10 for number in range(OWNERS)}
        await service.board("b", XP, predictor={"samples": 12, "exact_top": 0, "refresh_seconds": 3600})
        await service.post("b", *({"owner": owner, "stats": {"xp": value}} for owner, value in values.items()))
        await service.refresh("b", "xp")
        await play(service, values, rng, range(2 * OWNERS))
        await check_estimates(service, values)
        moves = (await service.get(B))["curves"]["xp"]["moves"]
        await service.restart()
        await play(service, values, rng, range(2 * OWNERS))
        await check_estimates(service, values)
        assert (await service.get(B))["curves"]["xp"]["moves"] > moves > 0


@pytest.mark.parametrize("refreshed", [False, True], ids=["counted", "from curves"])
async def test_the_rank_over_boards_is_that_of_one_board_with_all_entries(service: Service, refreshed: bool) -> None:
    rng = random.Random(5)
    shards = {board: [rng.randint(0, 400) for _ in range(size)] for board, size in (("eu", 150), ("us", 90), ("jp", 1))}
    for board, values in shards.items():
        await service.board(board, {"name": "xp"}, predictor={"samples": 6, "exact_top": 5, **RARELY})
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
    await service.board("eu", {"name": "xp"})
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


async def test_the_schedule_fits_the_first_curve_and_no_request_waits_for_it(service: Service) -> None:
    await service.board("b", {"name": "xp"}, predictor={"refresh_seconds": 1, "exact_top": 0})
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(50)))
    methods = ["count"]
    async with asyncio.timeout(60):
        while methods[-1] == "count":
            (found,) = (await service.get(f"{B}/entries/p7/positions"))["positions"]
            assert (found["rank"], found["exact"]) == (43, True)
            methods.append(found["method"])
    assert methods[-1] == "knot"
    assert (await service.get(f"{B}/rankings/xp/curve"))["total"] == 50


@pytest.fixture
async def lagging(tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service whose curve of board `b`, with a knot for each value, does not count the newest posts."""
    async with Service(tmp_path).running() as service:
        await service.board("b", XP, predictor={"samples": 2 * OWNERS, "exact_top": 5})
        await service.post("b", *({"owner": f"o{number}", "stats": {"xp": number}} for number in range(OWNERS)))
        await service.refresh("b", "xp")
        await service.wait_folded("b", "xp")
        await service.get("/jolokia/exec/rankcurve:type=Job,name=fold/pause")
        yield service


@pytest.mark.parametrize(
    "path",
    [
        "entries/o100/around?column=xp&better=1&worse=1",
        "rankings/xp/around?value=100&better=1&worse=1",
        "rankings/xp/buckets?buckets=3&rank=estimate",
    ],
)
async def test_what_is_read_off_a_curve_that_lags_is_not_exact_and_its_tag_ends_with_the_lag(
    lagging: Service, path: str
) -> None:
    def rows_of(body: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = body["buckets"] if "buckets" in body else body["entries"]
        return rows

    path = f"{B}/{path}"
    fitted = await lagging.call("GET", path)
    assert all(row["exact"] for row in rows_of(fitted.body)), "the curve counts everything"
    await lagging.post("b", *({"owner": f"late{number}", "stats": {"xp": 250}} for number in range(120)))
    stale = await lagging.call("GET", path, headers={"If-None-Match": fitted.headers["ETag"]})
    assert stale.status == 200
    assert not any(row["exact"] for row in rows_of(stale.body)), "none of the 120 posts is counted"
    unchanged = await lagging.call("GET", path, headers={"If-None-Match": stale.headers["ETag"]})
    assert (unchanged.status, unchanged.headers["ETag"]) == (304, stale.headers["ETag"])
    await lagging.get("/jolokia/exec/rankcurve:type=Job,name=fold/resume")
    await lagging.wait_folded("b", "xp")
    counted = await lagging.call("GET", path, headers={"If-None-Match": stale.headers["ETag"]})
    assert counted.status == 200
    assert all(row["exact"] for row in rows_of(counted.body))
    assert rows_of(counted.body) != rows_of(stale.body)


async def test_estimated_buckets_that_were_counted_are_sent_again_once_there_is_a_curve(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as service:
        await service.board("b", XP)
        await service.post_xp("b", ada=1, bob=2)
        path = f"{B}/rankings/xp/buckets?buckets=2&rank=estimate"
        counted = await service.call("GET", path)
        assert "low" not in counted.body["buckets"][0]
        await service.refresh("b", "xp")
        estimated = await service.call("GET", path, headers={"If-None-Match": counted.headers["ETag"]})
        assert estimated.status == 200
        assert "low" in estimated.body["buckets"][0]


async def test_a_value_read_off_a_curve_that_lags_is_not_exact(
    lagging: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadingSettings, "light_read_rows_max", -1)  # no value is found by counting
    path = f"{B}/rankings/xp/values?ranks=50,100,200"
    assert [each["exact"] for each in (await lagging.get(path))["values"]] == [True] * 3
    await lagging.post_xp("b", late=OWNERS)
    assert [each["exact"] for each in (await lagging.get(path))["values"]] == [False] * 3
