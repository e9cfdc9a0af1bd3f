"""Test that each request for a lease gets exactly one answer, whatever happens to the other requests of its group."""

import asyncio
from collections import Counter
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
    UnknownLeaseError,
    WaitTooLongError,
)
from storage.leases import batcher as batcher_module
from storage.leases.batcher import CROWD, LeaseBatcher
from storage.leases.lease_records import LeaseRequest, RegionCounts, Release
from storage.leases.lease_transaction import LeaseTransactions
from storage.store import Program, Rows, Store
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment
from tests.storage.leasing import CLIENT, LEASE_US, MARGIN_US, Pools
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.processes import Processes

T = TypeVar("T")
on_postgres = pytest.mark.parametrize("backend", ["partitions", "postgres"], indirect=True)
# The stores of `partitions` write a lease in a transaction of several statements, as stores on Citus do.
in_one_statement = pytest.mark.parametrize("backend", ["postgres"], indirect=True)
LIMITS = Settings(lease_requests_waiting_max=50, lease_wait_s_max=30).model_copy(
    update={"lease_group_max": 10, "lease_groups_in_flight_max": 2, "point_read_lanes": 2}
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
        self.alone = 0  # number of writing statements that ran outside a transaction
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

    async def write_query(self, query: Bound) -> Rows:
        self.begun.put_nowait(None)
        await self.gate.wait()
        rows = await self._store.write_query(query)
        self.alone += 1
        if self.failures:
            raise self.failures.pop(0)
        return rows

    def _watch(self, query: Bound) -> None:
        self.written.append(query.build(self.dialect).sql)


class Reported:
    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.groups: list[int] = []
        self.waiting: asyncio.Queue[int] = asyncio.Queue()

    def lease_answered(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def lease_requests_waiting(self, requests: int) -> None:
        self.waiting.put_nowait(requests)

    async def wait_for_requests(self, requests: int) -> None:
        while await self.waiting.get() != requests:
            pass

    def lease_group_written(self, requests: int, seconds: float) -> None:
        assert seconds >= 0
        self.groups.append(requests)


class GatedBatcher:
    """A batcher on a store that a test can block."""

    def __init__(self, pools: Pools, limits: Settings = LIMITS, *, lease_us: int = LEASE_US) -> None:
        self.pools, self.lease_us = pools, lease_us
        self.store = GatedStore(pools.store)
        self.reported = Reported()
        self.batcher = LeaseBatcher(self.store, pools.groups, limits, self.reported)

    def ask(self, key: str) -> asyncio.Task[Any]:
        asked = LeaseRequest(CLIENT, "numbers", key, "eu", None, self.lease_us)
        return asyncio.create_task(self.batcher.request_lease(asked))

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
    await gated.reported.wait_for_requests(4)
    gated.store.gate.set()
    outcomes = await asyncio.gather(gated.blocking, *tasks, return_exceptions=True)
    assert sum(isinstance(one, NoResourceError) for one in outcomes) == 2
    assert gated.reported.groups[0] == 1
    assert sum(gated.reported.groups) == 5
    assert gated.reported.outcomes == {"acquired": 3, "no_resource": 2}


async def test_a_second_transaction_begins_beside_the_first_only_for_a_crowd(gated: GatedBatcher) -> None:
    await gated.hold_transaction()
    tasks = [gated.ask(f"k{number}") for number in range(CROWD - 1)]
    await gated.reported.wait_for_requests(CROWD - 1)
    assert gated.store.begun.empty()
    tasks.append(gated.ask("one more"))
    await gated.store.begun.get()
    gated.store.gate.set()
    outcomes = await asyncio.gather(gated.blocking, *tasks, return_exceptions=True)
    assert sum(isinstance(one, NoResourceError) for one in outcomes) == CROWD - 2
    assert gated.reported.groups[0] in (1, LIMITS.lease_group_max)
    assert sum(gated.reported.groups) == CROWD + 1


async def test_one_key_is_never_in_two_transactions_and_gets_one_resource(gated: GatedBatcher) -> None:
    given = await asyncio.gather(*(gated.ask("k") for _ in range(20)))
    assert len({one.resource for one in given}) == 1
    assert sum(one.acquired for one in given) == 1
    assert (await gated.pools.counts())["eu"].held == 1


async def test_a_key_that_a_read_found_without_a_lease_is_not_read_again(gated: GatedBatcher) -> None:
    await asyncio.gather(*(gated.ask(f"k{number}") for number in range(2)))
    assert gated.store.written
    assert not [sql for sql in gated.store.written if "lease_pools" in sql]
    await gated.batcher.release_lease(Release(CLIENT, "numbers", "k0"))
    assert [sql for sql in gated.store.written if "lease_pools" in sql], "no read had looked for that key"


async def test_a_finding_from_before_another_transaction_of_its_key_is_read_again(gated: GatedBatcher) -> None:
    gated.store.gate.clear()
    first = gated.ask("k")
    await gated.store.begun.get()
    await gated.store.answered.get()
    gated.store.answers.clear()
    second = gated.ask("k")
    # Wait until the second request has read that the key has no lease. The test delays the answer to this read.
    await gated.store.answered.get()
    gated.store.gate.set()
    acquired = await first
    gated.store.answers.set()
    found = await second
    assert (found.resource, found.version, found.acquired) == (acquired.resource, acquired.version, False)


async def test_a_finding_that_is_too_old_is_read_again(gated: GatedBatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request wait too long after the read that found its key free. A lease starts at the time of that read."""
    monkeypatch.setattr(batcher_module, "FRESH_S", 0.0)
    await gated.ask("k")
    assert [sql for sql in gated.store.written if "lease_pools" in sql]


async def test_the_batcher_remembers_few_transactions_and_reads_again_what_it_forgot(gated: GatedBatcher) -> None:
    small = GatedBatcher(gated.pools, LIMITS.model_copy(update={"lease_requests_waiting_max": 1}))
    small.store.answers.clear()
    waiting = small.ask("k")
    await small.store.answered.get()
    for number in range(2):  # after each release, the batcher forgets an earlier transaction
        with pytest.raises(UnknownLeaseError):
            await small.batcher.release_lease(Release(CLIENT, "numbers", f"nobody {number}"))
    small.store.written.clear()
    small.store.answers.set()
    assert (await waiting).acquired
    assert [sql for sql in small.store.written if "lease_pools" in sql]
    await small.batcher.close()


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


@pytest.fixture
async def direct(open_store: OpenStore) -> AsyncIterator[GatedBatcher]:
    """Provide a batcher on PostgreSQL and the store's clock. It grants a lease by one statement if possible."""
    made = await open_direct_batcher(open_store)
    await made.pools.create(partitions=1)
    yield made
    made.store.gate.set()
    await made.batcher.close()


async def open_direct_batcher(open_store: OpenStore) -> GatedBatcher:
    pools = Pools(await Deployment.on(await open_store()))
    pools.groups = LeaseTransactions(pools.dialect, None, margin_us=MARGIN_US, attempts_max=5, rng=pools.rng)
    return GatedBatcher(pools, lease_us=3_600_000_000)  # an hour, because the clock of the store moves


@in_one_statement
async def test_one_statement_gives_and_counts_a_resource_that_was_seen_ahead(direct: GatedBatcher) -> None:
    pools, names = direct.pools, [f"n{number:03}" for number in range(200)]
    await pools.add(*names)
    first = await direct.ask("first")
    assert (first.resource, first.version, first.acquired) == ("n000", 1, True)
    assert direct.store.alone == 0, "no read had looked ahead"
    given = [await direct.ask(f"k{number}") for number in range(150)]
    assert direct.store.alone == 150, "each statement also looked for the next resources"
    assert [one.resource for one in given] == names[1:151]
    assert (await pools.counts())["eu"] == RegionCounts(total=200, held=151, acquired=151)
    happened = [each[1:] for each in await pools.summarize_events() if each[0] == "acquired"]
    assert happened == [(one.resource, one.key) for one in (first, *given)]
    rows = {row.resource: row for row in await pools.rows()}
    assert all(rows[one.resource].holder == one.key and rows[one.resource].version == 1 for one in given)
    again = await direct.ask("k7")
    assert (again.resource, again.version, again.acquired) == ("n008", 1, False)


@on_postgres
async def test_the_batcher_looks_again_if_another_process_was_first(
    direct: GatedBatcher, open_store: OpenStore
) -> None:
    await direct.pools.add("a", "b", "c", "d")
    other = await open_direct_batcher(open_store)
    assert (await direct.ask("x")).resource == "a"
    assert (await other.ask("y")).resource == "b"
    assert (await direct.ask("z")).resource == "c"
    assert direct.store.alone == 0, "the statement failed"
    assert (await direct.pools.counts())["eu"] == RegionCounts(total=4, held=3, acquired=3)
    assert [key for kind, _, key in await direct.pools.summarize_events() if kind == "acquired"] == ["x", "y", "z"]
    await other.batcher.close()


@on_postgres
async def test_a_key_keeps_a_resource_that_another_process_gave_it(direct: GatedBatcher, open_store: OpenStore) -> None:
    await direct.pools.add("a", "b", "c", "d")
    other = await open_direct_batcher(open_store)
    await direct.ask("x")
    direct.store.gate.clear()
    late = direct.ask("k")
    # Wait until two writes have begun: one for the key `x`, and one for the key `k`, which had no lease.
    for _ in range(2):
        await direct.store.begun.get()
    prompt = await other.ask("k")
    direct.store.gate.set()
    found = await late
    assert (found.resource, found.version, found.acquired) == (prompt.resource, prompt.version, False)
    assert (await direct.pools.counts())["eu"].held == 2
    await other.batcher.close()


@in_one_statement
async def test_the_batcher_finds_a_lease_whose_write_got_no_answer(direct: GatedBatcher) -> None:
    await direct.pools.add("a", "b", "c")
    await direct.ask("x")
    direct.store.failures = [OutcomeUnknownError()]
    found = await direct.ask("k")
    assert (found.resource, found.version, found.acquired) == ("b", 1, False)
    assert (await direct.pools.counts())["eu"].held == 2
    assert direct.store.alone == 1


async def test_a_lease_that_lasts_long_enough_needs_no_transaction(gated: GatedBatcher) -> None:
    pools = gated.pools
    pools.clock.now_us = 4_000_000_000_000_000  # far from the clock of the store, which the batcher uses for its reads
    await gated.ask("k")
    gated.store.failures = [StoreBusyError("no transaction")]
    known = await gated.batcher.request_lease(LeaseRequest(CLIENT, "numbers", "k", "eu", 4_000_000_000_000_001))
    assert not known.acquired
    assert (await gated.batcher.find_lease(CLIENT, "numbers", "k")).resource == known.resource
    assert gated.reported.outcomes == {"acquired": 1, "kept": 1}
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
    await gated.reported.wait_for_requests(1)
    gone.cancel()
    impatient = LeaseBatcher(
        gated.store, gated.pools.groups, LIMITS.model_copy(update={"lease_wait_s_max": 0.01}), gated.reported
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
