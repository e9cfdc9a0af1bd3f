"""Several processes share one store with live curves. Whichever process folds or answers, brackets hold the true rank.

The tests compute the true ranks from the posts. They request only estimates, so that no count hides a wrong curve.
"""

import asyncio
import random
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.schemas import fresh_schema
from tests.service.real_service import Service

BOARD = "/v1/leaderboards/b"
XP = {"name": "xp", "merge": "last", "best": "high", "sorted": True}
OWNERS = 300


@pytest.fixture
async def pair(postgres_url: str, tmp_path: Path) -> AsyncIterator[list[Service]]:
    """Start two processes that serve and run jobs."""
    async with fresh_schema(postgres_url) as url, AsyncExitStack() as stack:
        services = [Service(tmp_path, store=url, curve_poll_s=0.05, lease_s=1, lease_margin_s=0) for _ in range(2)]
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        yield services


async def play(service: Service, values: dict[str, int], rng: random.Random, owners: range) -> None:
    """Post random values for random owners, in six requests. Write each owner's value into `values`."""
    for _ in range(6):
        chosen = rng.sample(owners, 30)
        posts = {f"o{number}": rng.randrange(5_000) for number in chosen}
        await service.post("b", *({"owner": owner, "stats": {"xp": value}} for owner, value in posts.items()))
        values |= posts


async def check_estimates(service: Service, values: dict[str, int]) -> None:
    """Wait until the curve counts every acknowledged post. Then fail unless each bracket holds the true rank."""
    state = (await service.wait_folded("b", "xp"))["xp"]
    assert state["total"] == len(values)
    keys = sorted(-value for value in values.values())
    asked = sorted(set(values.values()))[::3]
    path = f"{BOARD}/rankings/xp/positions?rank=estimate&values={','.join(map(str, asked))}"
    for value, found in zip(asked, (await service.get(path))["positions"], strict=True):
        assert found["low"] <= 1 + bisect_left(keys, -value) <= found["high"]
        assert found["low"] <= found["rank"] <= found["high"]


async def test_the_curves_of_every_process_count_the_posts_of_all_processes(
    pair: list[Service],
) -> None:
    first, second = pair
    rng, values = random.Random(3), {f"o{number}": number * 10 for number in range(OWNERS)}
    await first.board("b", XP, predictor={"samples": 12, "exact_top": 0, "refresh_seconds": 3600})
    await first.post("b", *({"owner": owner, "stats": {"xp": value}} for owner, value in values.items()))
    await first.refresh("b", "xp")
    for _ in range(2):
        # Each process posts for owners of its own, so that the test knows which post of an owner came last.
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
        moves = (await service.get(BOARD))["curves"]["xp"]["moves"]
        await service.restart()
        await play(service, values, rng, range(2 * OWNERS))
        await check_estimates(service, values)
        assert (await service.get(BOARD))["curves"]["xp"]["moves"] > moves > 0
