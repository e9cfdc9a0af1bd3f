"""Test that each request for a lease gets exactly one answer, whatever happens to the other requests of its group."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from config.settings import Settings
from querybuilder import Bound
from storage.errors import (
    NoResourceError,
    OutcomeUnknownError,
    QueueFullError,
    StoreBusyError,
    WaitTooLongError,
)
from storage.leases.batcher import LeaseBatcher
from storage.leases.lease_records import LeaseRequest
from storage.store import Program, Rows, Store
from tests.meter import RecordingMeter
from tests.storage.leasing import CLIENT, LEASE_US, Pools
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.processes import Processes

T = TypeVar("T")
LIMITS = Settings(lease_requests_waiting_max=50, lease_wait_s_max=30).model_copy(
    update={"lease_group_max": 10, "lease_groups_in_flight_max": 2, "point_read_tasks_max": 2}
)


class GatedStore(PassingStore):
    """A store that delays writes and answers until the test lets them continue. A test can also make writes fail."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes_at_once = 2
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.answers = asyncio.Event()
        self.answers.set()
        self.answered: asyncio.Queue[None] = asyncio.Queue()
        self.written: list[str] = []  # the SQL text of each query in a transaction
        self.failures: list[Exception] = []

    async def read_query(self, query: Bound) -> Rows:
        rows = await self._store.read_query(query)
        self.answered.put_nowait(None)
        await self.answers.wait()
        return rows

    async def write(self, program: Callable[[], Program[T]]) -> T:
        self.begun.put_nowait(None)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await self._store.write(lambda: interpose(program(), self._watch))

    def _watch(self, query: Bound) -> None:
        self.written.append(query.build(self.dialect).sql)


class GatedBatcher:
    """A batcher on a store that a test can block."""

    def __init__(self, pools: Pools, limits: Settings = LIMITS, *, lease_us: int = LEASE_US) -> None:
        self.pools, self.lease_us = pools, lease_us
        self.store = GatedStore(pools.store)
        self.meter = RecordingMeter()
        self.batcher = LeaseBatcher(self.store, pools.groups, limits, self.meter)

    def ask(self, key: str) -> asyncio.Task[Any]:
        asked = LeaseRequest(CLIENT, "numbers", key, "eu", None, self.lease_us)
        return asyncio.create_task(self.batcher.request_lease(asked))

    async def wait_for_requests(self, requests: int) -> None:
        while await self.meter.events["rankcurve_lease_requests_waiting"].get() != requests:
            pass

    async def hold_transaction(self) -> None:
        """Begin a transaction that the store blocks. Return when the transaction is blocked."""
        self.store.gate.clear()
        self.blocking = self.ask("blocking")
        await self.store.begun.get()


@pytest.fixture
async def gated(pools: Pools) -> AsyncIterator[GatedBatcher]:
    await pools.add("a", "b", "c")
    made = GatedBatcher(pools)
    yield made
    made.store.gate.set()
    await made.batcher.close()


async def test_requests_that_arrive_during_a_transaction_share_the_next(gated: GatedBatcher) -> None:
    await gated.hold_transaction()
    tasks = [gated.ask(f"k{number}") for number in range(4)]
    await gated.wait_for_requests(4)
    gated.store.gate.set()
    outcomes = await asyncio.gather(gated.blocking, *tasks, return_exceptions=True)
    assert sum(isinstance(one, NoResourceError) for one in outcomes) == 2
    assert gated.meter.values["rankcurve_lease_write_requests"][0] == 1
    assert sum(gated.meter.values["rankcurve_lease_write_requests"]) == 5
    assert gated.meter.by_label("rankcurve_lease_requests") == {"acquired": 3, "no_resource": 2}


async def test_a_second_transaction_begins_beside_the_first_only_for_as_many_requests(gated: GatedBatcher) -> None:
    await gated.hold_transaction()
    tasks = [gated.ask(f"k{number}") for number in range(2)]
    await gated.store.begun.get()  # one waiting request is as many as the first transaction has
    gated.store.gate.set()
    outcomes = await asyncio.gather(gated.blocking, *tasks, return_exceptions=True)
    assert sum(not isinstance(one, Exception) for one in outcomes) == 3
    assert max(gated.meter.values["rankcurve_lease_write_requests"]) <= LIMITS.lease_group_max
    assert sum(gated.meter.values["rankcurve_lease_write_requests"]) == 3


async def test_requests_of_one_key_take_turns_and_get_one_resource(gated: GatedBatcher) -> None:
    given = await asyncio.gather(*(gated.ask("k") for _ in range(20)))
    assert len({one.resource for one in given}) == 1
    assert sum(one.acquired for one in given) == 1
    assert (await gated.pools.counts())["eu"].held == 1
    assert not gated.batcher._waiting, "nothing is remembered of a key that has its answer"
    assert not gated.batcher._turns


async def test_a_request_that_follows_a_cancelled_one_takes_its_turn_after_the_others_of_its_key(pools: Pools) -> None:
    await pools.add("a", "b", "c")
    gated = GatedBatcher(pools, LIMITS.model_copy(update={"lease_groups_in_flight_max": 1}))
    await gated.hold_transaction()
    cancelled, waiting = gated.ask("k"), gated.ask("k")
    await gated.wait_for_requests(3)
    cancelled.cancel()
    await gated.wait_for_requests(2)
    late = gated.ask("k")
    await gated.wait_for_requests(3)
    gated.store.gate.set()
    given = await asyncio.gather(waiting, late)
    assert [one.acquired for one in given] == [True, False]
    assert len({one.resource for one in given}) == 1
    assert (await pools.counts())["eu"].held == 2
    await gated.batcher.close()


async def test_a_key_that_asks_two_processes_at_once_gets_one_resource(processes: Processes) -> None:
    deployments = [await processes.start_process() for _ in range(2)]
    pools = [Pools(deployment) for deployment in deployments]
    await pools[0].create()
    await pools[0].add("a", "b", "c")
    batchers = [GatedBatcher(each) for each in pools]
    for each in batchers:
        each.store.gate.clear()
    asked = [each.ask("k") for each in batchers]
    for each in batchers:  # wait until both batchers have read that the key has no lease
        await each.store.begun.get()
    for each in batchers:
        each.store.gate.set()
    got = await asyncio.gather(*asked)
    assert len({(one.resource, one.version) for one in got}) == 1
    assert sum(one.acquired for one in got) == 1
    assert (await pools[0].counts())["eu"].held == 1
    for each in batchers:
        await each.batcher.close()


async def test_a_lease_that_lasts_long_enough_needs_no_transaction(gated: GatedBatcher) -> None:
    pools = gated.pools
    pools.clock.now_us = 4_000_000_000_000_000  # far from the clock of the store, which the batcher uses for its reads
    await gated.ask("k")
    gated.store.failures = [StoreBusyError("no transaction")]
    known = await gated.batcher.request_lease(LeaseRequest(CLIENT, "numbers", "k", "eu", 4_000_000_000_000_001))
    assert not known.acquired
    assert (await gated.batcher.find_lease(CLIENT, "numbers", "k")).resource == known.resource
    assert gated.meter.by_label("rankcurve_lease_requests") == {"acquired": 1, "kept": 1}
    with pytest.raises(StoreBusyError):
        await gated.batcher.request_lease(LeaseRequest(CLIENT, "numbers", "k", "eu", 5_000_000_000_000_000))


async def test_a_failed_transaction_fails_only_its_own_requests(gated: GatedBatcher) -> None:
    gated.store.failures = [StoreBusyError("away"), OutcomeUnknownError()]
    with pytest.raises(StoreBusyError, match="away"):
        await gated.ask("k")
    with pytest.raises(WaitTooLongError, match="ask again"):
        await gated.ask("k")
    assert (await gated.ask("k")).acquired


async def test_a_cancelled_request_is_left_out_and_a_late_one_is_refused(gated: GatedBatcher) -> None:
    await gated.hold_transaction()
    gone = gated.ask("gone")
    await gated.wait_for_requests(1)
    gone.cancel()
    impatient = LeaseBatcher(
        gated.store, gated.pools.groups, LIMITS.model_copy(update={"lease_wait_s_max": 0.01}), gated.meter
    )
    with pytest.raises(WaitTooLongError):
        await impatient.request_lease(LeaseRequest(CLIENT, "numbers", "late", "eu", None, LEASE_US))
    gated.store.gate.set()
    await gated.blocking
    await gated.batcher.close()
    holders = {row.holder for row in await gated.pools.rows()}
    assert "gone" not in holders


async def test_requests_beyond_the_bound_or_after_the_end_are_refused(gated: GatedBatcher) -> None:
    small = GatedBatcher(gated.pools, LIMITS.model_copy(update={"lease_requests_waiting_max": 1}))
    await small.hold_transaction()
    with pytest.raises((QueueFullError, StoreBusyError)):
        await asyncio.gather(*(small.ask(f"k{number}") for number in range(5)))
    small.store.gate.set()
    await small.blocking
    await small.batcher.close()
    with pytest.raises(QueueFullError):
        await small.ask("k")
