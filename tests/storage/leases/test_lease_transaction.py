"""Test the lease transaction. Only this transaction prevents that two leases on one resource are valid."""

import asyncio
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from querybuilder import Bound
from storage.errors import LeaseInPastError, NoResourceError, UnknownLeaseError, UnknownPoolError, UnknownRegionError
from storage.leases.lease_records import Grant, LeaseRequest, RegionCounts, Release, ResourceChange
from storage.leases.lease_transaction import LeaseTransactions
from storage.leases.pools import lease_resources
from storage.leases.work_leases import store_clock
from storage.schema.lease_tables import LEASE_RESOURCES, VERSIONS_IN_FLIGHT
from storage.store import Program
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment, Session, run_machine
from tests.storage.leasing import CLIENT, LEASE_US, MARGIN_US, Pools, unwrap_grant
from tests.storage.meddling import interpose


async def test_the_journal_and_the_counts_tell_which_ended_lease_was_given_away(pools: Pools) -> None:
    await pools.add("a")
    await pools.ask("ada")
    with pytest.raises(NoResourceError):
        await pools.ask("bob")
    pools.clock.now_us += LEASE_US + MARGIN_US
    await pools.ask("bob")
    kinds = [kind for kind, _, _ in await pools.summarize_events()]
    assert kinds == ["added", "acquired", "liberated", "acquired"]
    assert (await pools.counts())["eu"] == RegionCounts(total=1, held=1, acquired=2, refused=1)


async def test_a_lease_that_would_have_ended_already_is_refused(pools: Pools) -> None:
    await pools.add("a")
    with pytest.raises(LeaseInPastError):
        await pools.ask("ada", until_us=pools.clock())
    await pools.ask("ada")
    assert (await pools.ask("ada", until_us=1)).resource == "a", "a running lease is not shortened"


async def test_requests_of_one_transaction_share_the_free_resources(pools: Pools) -> None:
    await pools.add("a", "b")
    await pools.ask("ada")
    pools.clock.now_us += LEASE_US + MARGIN_US
    asked = [LeaseRequest(CLIENT, "numbers", key, "eu", None, LEASE_US) for key in ("bob", "ada", "cleo")]
    unknown = LeaseRequest(CLIENT, "elsewhere", "ada", "eu", None, LEASE_US)
    outcomes = await pools.run(*asked, unknown, Release(CLIENT, "numbers", "dora"))
    kept = outcomes[1]
    assert isinstance(kept, Grant)
    assert not kept.acquired, "its own key comes before a key that finds the region exhausted"
    assert sorted(type(one).__name__ for one in outcomes) == [
        "Grant", "Grant", "NoResourceError", "UnknownLeaseError", "UnknownPoolError",
    ]  # fmt: skip


async def test_a_dropped_pool_is_unknown_at_once_and_its_rows_are_deleted_in_steps(pools: Pools) -> None:
    await pools.add("a", "b", "c")
    await pools.ask("ada")
    await pools.store.write(lambda: pools.pools.drop_pool(CLIENT, "numbers", now_us=pools.clock()))
    with pytest.raises(UnknownPoolError):
        await pools.ask("ada")
    await pools.create()
    await pools.add("a")
    swept = [await pools.store.write(lambda: pools.pools.sweep_dropped(rows_max=2)) for _ in range(3)]
    assert swept == [2, 1, 0]
    assert [row.resource for row in await pools.rows()] == ["a"]
    assert await pools.counts() == {"eu": RegionCounts(total=1)}


async def test_a_request_is_decided_again_if_its_resource_changed_before_the_write(pools: Pools) -> None:
    await pools.add("a", "b", "c")
    held = await pools.ask("ada")
    row = next(row for row in await pools.rows() if row.holder == "ada")
    extended = row._replace(expires_at_us=row.expires_at_us + 1)
    asks = [LeaseRequest(CLIENT, "numbers", key, "eu", held.expires_at_us + 10) for key in ("ada", "bob")]
    writes = 0

    def overtake(query: Bound) -> Program[None]:
        nonlocal writes
        sql = query.build(pools.dialect).sql
        if " SET " in sql and LEASE_RESOURCES in sql:
            writes += 1
            if writes == 1:
                assert (yield from lease_resources.write_changes([ResourceChange(row, extended)]))

    outcomes = await pools.store.write(lambda: interpose(pools.groups.serve_requests(asks), overtake))
    assert writes == 2, "the overtaken request was decided again"
    ada, bob = map(unwrap_grant, outcomes)
    assert (ada.resource, ada.version, ada.expires_at_us) == (held.resource, held.version, held.expires_at_us + 10)
    assert bob.acquired
    happened = [event for event in await pools.summarize_events() if event[0] != "added"]
    assert happened[0] == ("acquired", held.resource, "ada")
    assert sorted(happened[1:]) == [("acquired", bob.resource, "bob"), ("extended", held.resource, "ada")]
    assert (await pools.counts())["eu"] == RegionCounts(total=3, held=2, acquired=2)


async def test_a_lease_lasts_as_long_as_was_asked_by_the_stores_own_clock(pools: Pools) -> None:
    await pools.add("a")
    groups = LeaseTransactions(None, margin_us=MARGIN_US, attempts_max=5, rng=pools.rng)
    before_us = await pools.store.read(store_clock)
    [outcome] = await pools.store.write(
        lambda: groups.serve_requests([LeaseRequest(CLIENT, "numbers", "ada", "eu", None, 7_000_000)])
    )
    lease = unwrap_grant(outcome)
    assert before_us <= lease.now_us <= await pools.store.read(store_clock)
    assert lease.expires_at_us == lease.now_us + 7_000_000


async def test_many_keys_that_ask_at_once_get_a_resource_each(open_store: OpenStore) -> None:
    pools = Pools(await Deployment.on(await open_store()))
    other = Pools(Deployment(await open_store(), "")) if not pools.store.sole_writer else pools
    await pools.create()
    await pools.add(*(f"r{number}" for number in range(30)))
    asks = ((pools, other)[number % 2].ask(f"key {number // 2}") for number in range(80))
    outcomes = await asyncio.gather(*asks, return_exceptions=True)
    got = {(one.key, one.resource) for one in outcomes if isinstance(one, Grant)}
    assert len(got) == len({key for key, _ in got}) == len({resource for _, resource in got}) == 30
    assert all(isinstance(one, Grant | NoResourceError) for one in outcomes), outcomes
    counts = (await pools.counts())["eu"]
    assert (counts.total, counts.held, counts.acquired) == (30, 30, 30)


KEYS = ("ada", "bob", "cleo", "dora")
NAMES = ("a", "b", "c")
REGIONS = ("eu", "us")


class PoolModel(RuleBasedStateMachine):
    """Let keys request and release leases, and let operators change the pool. Compare the pool with a plain model."""

    session: Session  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.pools = Pools(self.session.deployment)
        self.pool_id = f"pool {time.monotonic_ns()}"
        self.session.run(self.pools.create(self.pool_id))
        self.regions: dict[str, str] = {}  # the region of each resource
        self.ever: set[str] = set()  # every region that has, or had, a resource
        self.leases: dict[str, tuple[str, int, int]] = {}  # by key: resource, fencing number, expiry
        self.numbers: dict[str, int] = {}  # by resource: the greatest fencing number so far

    @property
    def now_us(self) -> int:
        return self.pools.clock.now_us

    @rule(name=st.sampled_from(NAMES), region=st.sampled_from(REGIONS))
    def add(self, name: str, region: str) -> None:
        added = self.session.run(self.pools.add(name, region=region, pool_id=self.pool_id))
        assert added == ([] if name in self.regions else [name])
        self.regions.setdefault(name, region)
        self.ever.add(self.regions[name])

    @rule()
    def drop_and_create(self) -> None:
        self.session.run(self.pools.drop(self.pool_id))
        self.session.run(self.pools.create(self.pool_id))
        self.regions, self.ever, self.leases = {}, set(), {}

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        removed = self.session.run(self.pools.remove(name, pool_id=self.pool_id))
        leased = any(resource == name for resource, _, _ in self.leases.values())
        assert removed == ((0, 0, 1) if name not in self.regions else (0, 1, 0) if leased else (1, 0, 0))
        if removed.removed:
            del self.regions[name]

    @rule(key=st.sampled_from(KEYS), region=st.sampled_from(REGIONS), lease_us=st.sampled_from((1, LEASE_US)))
    def ask(self, key: str, region: str, lease_us: int) -> None:
        [outcome] = self.session.run(self.pools.run(LeaseRequest(CLIENT, self.pool_id, key, region, None, lease_us)))
        held = {resource for resource, _, _ in self.leases.values()}
        over = {
            resource: other
            for other, (resource, _, expiry_us) in self.leases.items()
            if expiry_us + MARGIN_US <= self.now_us and self.regions[resource] == region
        }
        if key in self.leases:
            resource, number, expiry_us = self.leases[key]
            later_us = max(expiry_us, self.now_us + lease_us)
            assert outcome == Grant(resource, self.regions[resource], key, number, later_us, self.now_us, False)
            self.leases[key] = resource, number, later_us
            return
        free = {name for name, place in self.regions.items() if place == region and name not in held}
        if not isinstance(outcome, Grant):
            assert isinstance(outcome, NoResourceError if region in self.ever else UnknownRegionError)
            assert not free
            assert not over
            return
        assert outcome.acquired
        if outcome.resource in over:
            assert not free
            del self.leases[over[outcome.resource]]
        else:
            assert outcome.resource in free, "two live holders"
        assert outcome.version > self.numbers.get(outcome.resource, 0)
        self.numbers[outcome.resource] = outcome.version
        self.leases[key] = outcome.resource, outcome.version, self.now_us + lease_us
        assert outcome.expires_at_us == self.now_us + lease_us

    @rule(key=st.sampled_from(KEYS))
    def give_back(self, key: str) -> None:
        [outcome] = self.session.run(self.pools.run(Release(CLIENT, self.pool_id, key)))
        if key not in self.leases:
            assert isinstance(outcome, UnknownLeaseError)
            return
        assert isinstance(outcome, Grant)
        assert (outcome.resource, outcome.version) == self.leases.pop(key)[:2]

    @rule(us=st.sampled_from((1, MARGIN_US, LEASE_US, LEASE_US + MARGIN_US)))
    def pass_time(self, us: int) -> None:
        self.pools.clock.now_us += us

    @invariant()
    def the_store_says_the_same(self) -> None:
        rows = self.session.run(self.pools.rows(self.pool_id))
        assert {row.resource: row.region for row in rows} == self.regions
        stored = {row.holder: (row.resource, row.version, row.expires_at_us) for row in rows if not row.is_free}
        assert stored == self.leases
        counts = self.session.run(self.pools.counts(self.pool_id))
        for region in REGIONS:
            here = [row for row in rows if row.region == region]
            counted = counts.get(region, RegionCounts())
            assert (counted.total, counted.held) == (len(here), sum(not row.is_free for row in here))


def test_pools_do_what_their_definition_says(session: Session) -> None:
    run_machine(PoolModel, session)


async def test_versions_grow_on_if_a_pool_is_dropped_and_created_again(pools: Pools) -> None:
    seen = [0]

    async def hold(key: str) -> None:
        seen.append((await pools.ask(key)).version)

    await pools.add("a")
    for number in range(5):
        await hold(f"key {number}")
        await pools.give_back(f"key {number}")
    for _ in range(3):
        await pools.drop()
        await pools.create()
        await pools.add("a")
        await hold("again")
        await pools.give_back("again")
        await pools.remove("a")
        await pools.add("a")
        await hold("put in again")
        await pools.give_back("put in again")
    assert seen == sorted(set(seen)), seen
    assert seen[-1] < 4 * VERSIONS_IN_FLIGHT, "versions do not grow without bound either"
    await pools.create("others")
    assert (await pools.pool("others")).floor == 0


async def test_a_late_lease_of_a_dropped_pool_has_a_smaller_version_than_later_ones(pools: Pools) -> None:
    await pools.add("a")
    ask = LeaseRequest(CLIENT, "numbers", "late", "eu", None, LEASE_US)
    dropped = False

    def drop_late(query: Bound) -> Program[None]:
        nonlocal dropped
        sql = query.build(pools.dialect).sql
        if not dropped and LEASE_RESOURCES in sql and "ORDER BY" in sql:
            dropped = True
            yield from pools.pools.drop_pool(CLIENT, "numbers", now_us=pools.clock())

    [late] = await pools.store.write(lambda: interpose(pools.groups.serve_requests([ask]), drop_late))
    assert dropped
    await pools.create()
    await pools.add("a")
    assert isinstance(late, Grant)
    assert (await pools.ask("next")).version > late.version
