"""Test that a curve sampled on a replica counts every write that was acknowledged before the sampling."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from storage.curves.sampling import sample_curve
from storage.engines.postgres import PostgresStore
from storage.engines.replica import ReplicaFirst
from storage.meter import Meter
from storage.records import Board
from storage.store import read_single
from tests.servers import PostgresServer, postgres
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import NOW_US, Deployment, part, ranked

XP = ranked("xp")
Pair = tuple[PostgresServer, PostgresServer]  # primary and standby


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with postgres() as primary:
        standby = PostgresServer(standby_of=primary)
        try:
            standby.start()
            yield primary, standby
        finally:
            standby.remove()


class Sampled:
    """A deployment whose heavy reads go to a replica first. It counts the heavy reads on each server."""

    def __init__(self, deployment: Deployment, store: ReplicaFirst, heard: dict[str, int]) -> None:
        self.deployment, self.store, self.heard = deployment, store, heard

    async def sample_total(self, board: Board) -> int:
        entries = self.deployment.entries(board)
        curve = await self.store.at(board.partition).read(
            lambda: sample_curve(self.deployment.dialect, entries, 0, gap_rows_max=10_000, now_us=NOW_US), heavy=True
        )
        return curve.total

    async def samples_the_primary(self, board: Board) -> bool:
        """Sample a board with one entry. Return whether the sampling read the entry on the primary."""
        return await self.sample_total(board) == 1 and self.heard["primary"] == 1


async def open_stores(stack: AsyncExitStack, primary_url: str, replica_url: str, *, lag_s_max: float = 5.0) -> Sampled:
    heard = {"replica": 0, "primary": 0}

    class HeavyReads(Meter):
        def __init__(self, server: str) -> None:
            self._server = server

        def set(self, name: str, value: float, *labels: str) -> None:
            # Long reads come one after the other, so each of them sets the gauge to 1 once.
            heard[self._server] += name == "rankcurve_store_connections_lent" and "heavy" in labels and value > 0

    primary = await PostgresStore.open(primary_url, POSTGRES_LIMITS, meter=HeavyReads("primary"))
    stack.push_async_callback(primary.close)
    replica = await PostgresStore.open(
        replica_url, POSTGRES_LIMITS.model_copy(update={"store_attempts_max": 2}), meter=HeavyReads("replica")
    )
    store = ReplicaFirst(primary, replica, lag_s_max=lag_s_max)
    stack.push_async_callback(store.close)
    return Sampled(await Deployment.on(primary), store, heard)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened_here:
        yield opened_here


async def post_entry(sampled: Sampled, board: Board, owner: str) -> None:
    await sampled.deployment.apply(sampled.deployment.post(owner, part(board, {"xp": len(owner)})))


async def test_a_sample_on_a_replica_holds_a_write_acknowledged_just_before(pair: Pair, stack: AsyncExitStack) -> None:
    primary, standby = pair
    sampled = await open_stores(stack, primary.url(), standby.url())
    board = await sampled.deployment.create("now", XP)
    for rows in range(1, 11):
        await post_entry(sampled, board, f"o{rows}")
        assert await sampled.sample_total(board) == rows
    assert sampled.heard["primary"] == 0
    assert sampled.heard["replica"] >= 10
    entries = sampled.deployment.entries(board)
    found, _ = await read_single(sampled.store, lambda: entries.find_entries_with_totals(["o1"]))
    assert list(found) == ["o1"]


async def test_a_replica_that_stopped_replaying_is_passed_over(pair: Pair, stack: AsyncExitStack) -> None:
    primary, standby = pair
    sampled = await open_stores(stack, primary.url(), standby.url(), lag_s_max=0.1)
    board = await sampled.deployment.create("still", XP)
    await asyncio.to_thread(standby.run_sql, "SELECT pg_wal_replay_pause()")
    try:
        await post_entry(sampled, board, "ada")
        assert await sampled.samples_the_primary(board)
    finally:
        await asyncio.to_thread(standby.run_sql, "SELECT pg_wal_replay_resume()")


async def test_an_unreachable_replica_is_passed_over(pair: Pair, stack: AsyncExitStack) -> None:
    primary, standby = pair
    sampled = await open_stores(stack, primary.url(), standby.url())
    board = await sampled.deployment.create("away", XP)
    await post_entry(sampled, board, "ada")
    await asyncio.to_thread(standby.stop, "immediate")
    try:
        assert await sampled.samples_the_primary(board)
    finally:
        await asyncio.to_thread(standby.start)


async def test_a_server_that_is_no_replica_is_passed_over(pair: Pair, stack: AsyncExitStack) -> None:
    primary, _ = pair
    sampled = await open_stores(stack, primary.url(), primary.url())
    board = await sampled.deployment.create("none", XP)
    await post_entry(sampled, board, "ada")
    assert await sampled.samples_the_primary(board)
