"""Why here: whoever waits for a lease is told once what became of it, whatever becomes of those who wait beside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from storage.errors import NoResource, OutcomeUnknown, QueueFull, StoreBusy, UnknownLease, UnknownPool, WaitTooLong
from storage.lease_desk import CROWD, LeaseDesk, LeaseDeskLimits
from storage.lease_records import Ask, GiveBack
from storage.store import Program, Store
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment
from tests.storage.leasing import CLIENT, LEASE_US, Pools
from tests.storage.passing import PassingStore

T = TypeVar("T")
LIMITS = LeaseDeskLimits(
    lease_group_max=10,
    lease_groups_in_flight_max=2,
    lease_requests_waiting_max=50,
    lease_wait_s_max=30,
    point_read_lanes=2,
)


class GatedStore(PassingStore):
    """A store whose transactions wait for a gate, and fail where a test says so."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes_at_once = 2
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.failures: list[Exception] = []

    async def write(self, program: Callable[[], Program[T]]) -> T:
        """See `Store.write`."""
        self.begun.put_nowait(None)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await self._store.write(program)


class Told:
    """What the desk told."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.groups: list[int] = []
        self.waiting: asyncio.Queue[int] = asyncio.Queue()

    def lease_answered(self, outcome: str) -> None:
        """See `LeaseObserver`."""
        self.outcomes[outcome] += 1

    def lease_requests_waiting(self, requests: int) -> None:
        """See `LeaseObserver`."""
        self.waiting.put_nowait(requests)

    async def waits_for(self, requests: int) -> None:
        """Return when so many wait."""
        while await self.waiting.get() != requests:
            pass

    def lease_group_written(self, requests: int, seconds: float) -> None:
        """See `LeaseObserver`."""
        assert seconds >= 0
        self.groups.append(requests)


class Counterpart:
    """A desk on a gated store with a pool of three."""

    def __init__(self, pools: Pools, limits: LeaseDeskLimits = LIMITS) -> None:
        self.pools = pools
        self.store = GatedStore(pools.store)
        self.told = Told()
        self.desk = LeaseDesk(self.store, pools.groups, limits, self.told)

    def ask(self, key: str, pool_id: str = "numbers") -> asyncio.Task[Any]:
        """A request under way."""
        return asyncio.create_task(self.desk.ask(Ask(CLIENT, pool_id, key, "eu", None, LEASE_US)))

    async def held(self) -> None:
        """Return when a transaction waits at the gate."""
        self.store.gate.clear()
        self.blocking = self.ask("blocking")
        await self.store.begun.get()


@pytest.fixture
async def counterpart(open_store: OpenStore) -> AsyncIterator[Counterpart]:
    """A desk that is closed at the end."""
    pools = Pools(await Deployment.on(await open_store()))
    await pools.create()
    await pools.add("a", "b", "c")
    made = Counterpart(pools)
    yield made
    made.store.gate.set()
    await made.desk.close()


async def test_who_asks_while_a_transaction_is_under_way_shares_the_next(counterpart: Counterpart) -> None:
    await counterpart.held()
    tasks = [counterpart.ask(f"k{number}") for number in range(4)]
    await counterpart.told.waits_for(4)
    counterpart.store.gate.set()
    outcomes = await asyncio.gather(counterpart.blocking, *tasks, return_exceptions=True)
    assert sum(isinstance(one, NoResource) for one in outcomes) == 2
    assert counterpart.told.groups[0] == 1
    assert sum(counterpart.told.groups) == 5
    assert counterpart.told.outcomes == {"acquired": 3, "no_resource": 2}


async def test_a_second_transaction_beside_one_is_for_a_crowd(counterpart: Counterpart) -> None:
    await counterpart.held()
    tasks = [counterpart.ask(f"k{number}") for number in range(CROWD - 1)]
    await counterpart.told.waits_for(CROWD - 1)
    assert counterpart.store.begun.empty()
    tasks.append(counterpart.ask("one more"))
    await counterpart.store.begun.get()
    counterpart.store.gate.set()
    outcomes = await asyncio.gather(counterpart.blocking, *tasks, return_exceptions=True)
    assert sum(isinstance(one, NoResource) for one in outcomes) == CROWD - 2
    assert counterpart.told.groups[0] in (1, LIMITS.lease_group_max)
    assert sum(counterpart.told.groups) == CROWD + 1


async def test_one_key_is_never_in_two_transactions_and_gets_one_resource(counterpart: Counterpart) -> None:
    given = await asyncio.gather(*(counterpart.ask("k") for _ in range(20)))
    assert len({one.resource for one in given}) == 1
    assert sum(one.acquired for one in given) == 1
    assert (await counterpart.pools.counts())["eu"].held == 1


async def test_what_lasts_for_long_enough_needs_no_transaction(counterpart: Counterpart) -> None:
    pools = counterpart.pools
    pools.clock.now_us = 4_000_000_000_000_000  # the desk reads by the store's own clock
    await counterpart.ask("k")
    counterpart.store.failures = [StoreBusy("no transaction")]
    known = await counterpart.desk.ask(Ask(CLIENT, "numbers", "k", "eu", 4_000_000_000_000_001))
    assert not known.acquired
    assert (await counterpart.desk.look(CLIENT, "numbers", "k")).resource == known.resource
    assert counterpart.told.outcomes == {"acquired": 1, "kept": 1}
    with pytest.raises(StoreBusy):
        await counterpart.desk.ask(Ask(CLIENT, "numbers", "k", "eu", 5_000_000_000_000_000))


async def test_nothing_is_found_where_nothing_is(counterpart: Counterpart) -> None:
    with pytest.raises(UnknownPool):
        await counterpart.desk.look(CLIENT, "nowhere", "k")
    with pytest.raises(UnknownLease):
        await counterpart.desk.look(CLIENT, "numbers", "k")
    with pytest.raises(UnknownLease):
        await counterpart.desk.give_back(GiveBack(CLIENT, "numbers", "k"))
    with pytest.raises(UnknownPool):
        await counterpart.ask("k", "nowhere")


async def test_a_transaction_that_fails_is_told_to_all_of_it_and_to_nobody_else(counterpart: Counterpart) -> None:
    counterpart.store.failures = [StoreBusy("away"), OutcomeUnknown()]
    with pytest.raises(StoreBusy, match="away"):
        await counterpart.ask("k")
    with pytest.raises(WaitTooLong, match="ask again"):
        await counterpart.ask("k")
    assert (await counterpart.ask("k")).acquired


async def test_who_goes_away_is_left_out_and_who_waits_too_long_is_told(counterpart: Counterpart) -> None:
    await counterpart.held()
    gone = counterpart.ask("gone")
    await counterpart.told.waits_for(1)
    gone.cancel()
    impatient = LeaseDesk(
        counterpart.store, counterpart.pools.groups, replace(LIMITS, lease_wait_s_max=0.01), counterpart.told
    )
    with pytest.raises(WaitTooLong):
        await impatient.ask(Ask(CLIENT, "numbers", "late", "eu", None, LEASE_US))
    counterpart.store.gate.set()
    await counterpart.blocking
    await counterpart.desk.close()
    holders = {row.holder for row in await counterpart.pools.rows()}
    assert "gone" not in holders


async def test_too_many_who_wait_are_refused_and_so_is_everyone_at_the_end(counterpart: Counterpart) -> None:
    small = Counterpart(counterpart.pools, replace(LIMITS, lease_requests_waiting_max=1))
    await small.held()
    with pytest.raises((QueueFull, StoreBusy)):
        await asyncio.gather(*(small.ask(f"k{number}") for number in range(5)))
    small.store.gate.set()
    await small.blocking
    await small.desk.close()
    with pytest.raises(QueueFull):
        await small.ask("k")
