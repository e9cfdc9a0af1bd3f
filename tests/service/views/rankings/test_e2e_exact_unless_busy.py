"""Test that default ranks are counted while the process has room, and come from the curve while it is busy."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from service.contract.values import to_micros
from service.ranks.locator import CountBegin, WantedRank
from storage.leaves.count_policy import DEFAULT_CHANGES_MAX
from tests.service.real_service import ONE_PROCESS, Service

B = "/v1/leaderboards/b"
OWNERS = 300
LATER = 7  # owners who come after the fit, with the best values


@pytest.fixture(params=["shared", "earliest"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, either_store: dict[str, Any]
) -> AsyncIterator[Service]:
    """Start a service with a curve of few knots. The owner `p<n>` has rank `OWNERS` + `LATER` - n."""
    async with Service(tmp_path, **either_store).running() as made:
        await made.board("b", {"name": "xp"}, ties=request.param, predictor={"samples": 5, "exact_top": 5})
        await made.post("b", *({"owner": f"p{i}", "stats": {"xp": i * i}} for i in range(OWNERS)))
        await made.refresh("b", "xp")
        await made.post("b", *({"owner": f"late{i}", "stats": {"xp": OWNERS**2 + i}} for i in range(LATER)))
        yield made


async def read_in_the_middle(service: Service, number: int) -> list[dict[str, Any]]:
    """Return the default answers for an owner in the middle of a gap: two positions and a row."""
    (position,) = (await service.get(f"{B}/entries/p{number}/positions"))["positions"]
    (with_next,) = (await service.get(f"{B}/entries/p{number}/positions?next=true"))["positions"]
    around = await service.get(f"{B}/entries/p{number}/around?column=xp&better=1&worse=1")
    (row,) = (row for row in around["entries"] if row["owner"] == f"p{number}")
    return [position, with_next, row]


@pytest.mark.parametrize("number", [40, 222])
async def test_default_ranks_are_exact_while_there_is_room(service: Service, number: int) -> None:
    for answer in await read_in_the_middle(service, number):
        assert answer["exact"], answer
        assert answer["rank"] == OWNERS + LATER - number


@ONE_PROCESS
async def test_default_ranks_have_brackets_while_the_process_is_busy(service: Service) -> None:
    service.keep_busy()
    await service.wait_folded("b", "xp")
    truth = OWNERS + LATER - 111
    position, with_next, row = await read_in_the_middle(service, 111)
    for answer in (position, with_next):
        assert answer["method"] == "curve"
        assert answer["low"] <= truth <= answer["high"]
    assert not row["exact"]
    (exact,) = (await service.get(f"{B}/entries/p111/positions?rank=exact"))["positions"]
    assert exact["rank"] == truth


@ONE_PROCESS
async def test_owners_who_ask_together_get_their_own_counts(service: Service) -> None:
    numbers = range(OWNERS)
    found = await asyncio.gather(*(service.get(f"{B}/entries/p{number}/positions") for number in numbers))
    for number, answer in zip(numbers, found, strict=True):
        (position,) = answer["positions"]
        assert position["exact"]
        if position["method"] != "knot":  # a knot has the rank as of the curve
            assert position["rank"] == OWNERS + LATER - number


async def test_a_rank_that_counts_a_post_is_as_of_a_time_after_the_post_was_sent(service: Service) -> None:
    context = service.context
    board = await context.catalog.find_board("b")
    locator = context.ranks.find_locator(board)
    starts, begin = locator.find_default_starts([0], "auto"), locator.begin_count(0)
    assert starts
    sent_us = context.now_us() + 1
    await service.post_xp("b", newest=OWNERS**2 + LATER)
    answered_us = context.now_us()
    read = await context.reads.read_entry(board, "p111", starts)
    assert read.entry is not None
    cell = str(read.entry.cells[0])
    wanted, store = WantedRank(0, cell, "p111"), context.store.at(board.partition)
    position = locator.find_position(wanted, "auto", starts, read)
    assert position is not None
    anchored = await store.read(lambda: locator.count_rank(wanted, "auto", begin))
    from_top = await store.read(lambda: locator.count_rank(wanted, "exact", begin._replace(start=None)))
    assert (position.method, anchored.method, from_top.method) == ("gap", "gap", "count")
    assert position.rank == anchored.rank == from_top.rank == OWNERS + LATER + 1 - 111
    assert sent_us <= to_micros(datetime.fromisoformat(position.as_of)) <= answered_us
    assert sent_us <= anchored.as_of_us == from_top.as_of_us <= answered_us


async def test_a_default_count_near_the_top_reads_rows_and_not_thousands_of_changes(
    service: Service,
) -> None:
    locator = service.context.ranks.find_locator(await service.context.catalog.find_board("b"))
    start, exact = locator.begin_count(0).start, locator.find_count_start(0)
    assert start is not None
    assert exact is not None
    assert start.changes_max == DEFAULT_CHANGES_MAX < exact.changes_max
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(2, DEFAULT_CHANGES_MAX + 4)))
    wanted = WantedRank(0, locator.entries.rankings[0].padding.pad_arrival(OWNERS**2 - 1), None)
    store = service.context.store.at(locator.board.partition)
    begin = CountBegin(start, service.context.now_us())
    found = await store.read(lambda: locator.count_rank(wanted, "auto", begin))
    assert (found.rank, found.exact, found.method) == (1 + LATER, True, "count")
    (position,) = (await service.get(f"{B}/entries/late{LATER - 1}/positions"))["positions"]
    assert (position["rank"], position["exact"]) == (1, True)
