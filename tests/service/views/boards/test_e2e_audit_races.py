"""Test that audits never report a wrong bracket while posts, erasures, folds and refreshes run."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Service

BOARD, OWNERS = "b", 400
AUDIT = f"/v1/leaderboards/{BOARD}/rankings/xp/audit?owners=25"


@pytest.fixture
async def busy(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service that folds changes very often, and that reloads the live counts very often."""
    async with Service(tmp_path, fold_interval_s=0.01, live_poll_s=0.05, **either_store).running() as service:
        yield service


async def change(service: Service, rng: random.Random, rounds: int) -> None:
    """In each of `rounds` rounds, post random values for random owners, and erase one random owner."""
    for _ in range(rounds):
        names = rng.sample(range(OWNERS), 40)
        await service.post(BOARD, *({"owner": f"p{name}", "stats": {"xp": rng.randrange(500)}} for name in names))
        await service.call("DELETE", f"/v1/leaderboards/{BOARD}/entries/p{rng.randrange(OWNERS)}")


async def test_audits_beside_changes_find_no_wrong_bracket(busy: Service) -> None:
    rng = random.Random(9)
    await busy.board(BOARD, {"name": "xp"}, predictor={"samples": 15})
    await change(busy, rng, 10)
    await busy.refresh(BOARD, "xp")
    changing = [asyncio.create_task(change(busy, random.Random(seed), 15)) for seed in range(3)]
    compared = live = 0
    while not all(task.done() for task in changing):
        found = await busy.must("POST", AUDIT)
        assert (found["brackets_broken"], found["certificates_broken"]) == (0, 0), found["broken"]
        compared += found["owners"]
        served = busy.context.curves.book.find_served(await busy.context.catalog.find_board(BOARD), 0)
        live += served is not None and served.live_version > 0
        if len(changing) == 3 and compared > 100:
            changing.append(asyncio.create_task(busy.refresh(BOARD, "xp")))
    await asyncio.gather(*changing)
    assert compared > 0
    assert live > 0
