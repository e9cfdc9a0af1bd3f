"""Test work leases. Only work leases prevent that two job processes store two curves of one column."""

import asyncio
import itertools
import random
import time
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.errors import LeaseLostError, LeaseTakenError
from storage.leases.work_leases import WorkLease, WorkLeases, store_clock
from storage.store import Program
from tests.storage.deployment import Clock, Deployment, Session, run_machine
from tests.storage.processes import Processes

MARGIN_US = 100
LEASE_US = 1_000


class Holders:
    """Holders of leases in one store, with a clock that only the test moves."""

    def __init__(self, deployment: Deployment) -> None:
        self.store = deployment.store
        self.clock = Clock()
        self.leases = WorkLeases(self.clock.read, margin_us=MARGIN_US)

    async def claim(self, holder: str, resource: str = "r", lease_us: int = LEASE_US) -> WorkLease:
        return await self.store.write(lambda: self.leases.claim("work", resource, holder=holder, lease_us=lease_us))

    async def renew(self, lease: WorkLease) -> WorkLease:
        return await self.store.write(lambda: self.leases.renew(lease, lease_us=LEASE_US))

    async def release(self, lease: WorkLease, *, rests_until_us: int = 0) -> None:
        await self.store.write(lambda: self.leases.release(lease, rests_until_us=rests_until_us))

    async def find(self, resource: str = "r") -> WorkLease | None:
        return await self.store.read(lambda: self.leases.find_lease("work", resource))


@pytest.fixture
def holders(deployment: Deployment) -> Holders:
    return Holders(deployment)


async def test_the_stores_clock_shows_the_current_time_and_moves_within_a_transaction(deployment: Deployment) -> None:
    def twice() -> Program[tuple[int, int]]:
        first = yield from store_clock()
        second = first
        while second == first:
            second = yield from store_clock()
        return first, second

    # Test and server run on one machine, so their clocks agree. SQLite rounds times to milliseconds.
    before_us = time.time_ns() // 1000 - 1_000
    first, second = await deployment.store.write(twice)
    assert before_us <= first < second <= time.time_ns() // 1000 + 1_000


HOLDERS = ("ada", "bob", "cleo")


class Holdings(RuleBasedStateMachine):
    """Let holders claim, renew, overrun and release leases. Compare the leases with a plain model."""

    session: Session  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.holders = Holders(self.session.deployment)
        self.resource = f"example {time.monotonic_ns()}"
        self.held: dict[str, WorkLease] = {}  # by holder: the last lease that it got, even if the lease has ended
        self.current: tuple[str, int] | None = None  # the last holder and its version, or None after a release
        self.until_us = 0
        self.number = 0

    @rule(holder=st.sampled_from(HOLDERS))
    def claim(self, holder: str) -> None:
        free = self.current is None or self.holders.clock.now_us >= self.until_us + MARGIN_US
        if not free:
            with pytest.raises(LeaseTakenError, match="held by") as taken:
                self.session.run(self.holders.claim(holder, self.resource))
            assert taken.value.free_in_us == self.until_us + MARGIN_US - self.holders.clock.now_us
            return
        lease = self.session.run(self.holders.claim(holder, self.resource))
        assert lease.version == self.number + 1
        self.number = lease.version
        self.held[holder] = lease
        self.current, self.until_us = (holder, lease.version), self.holders.clock.now_us + LEASE_US

    @rule(holder=st.sampled_from(HOLDERS))
    def renew(self, holder: str) -> None:
        if holder not in self.held:
            return
        try:
            self.held[holder] = self.session.run(self.holders.renew(self.held[holder]))
        except LeaseLostError:
            assert self.current != (holder, self.held[holder].version)
        else:
            assert self.current == (holder, self.held[holder].version)
            self.until_us = self.holders.clock.now_us + LEASE_US

    @rule(holder=st.sampled_from(HOLDERS))
    def release(self, holder: str) -> None:
        if holder not in self.held:
            return
        try:
            self.session.run(self.holders.release(self.held[holder]))
        except LeaseLostError:
            assert self.current != (holder, self.held[holder].version)
        else:
            assert self.current == (holder, self.held[holder].version)
            self.current = None

    @rule(us=st.sampled_from((1, MARGIN_US, LEASE_US // 2, LEASE_US, LEASE_US + MARGIN_US)))
    def pass_time(self, us: int) -> None:
        self.holders.clock.now_us += us

    @invariant()
    def the_store_says_the_same(self) -> None:
        found = self.session.run(self.holders.find(self.resource))
        assert (found.version if found else 0) == self.number
        if self.current is not None:
            assert found is not None
            assert (found.holder, found.version, found.expires_at_us) == (*self.current, self.until_us)


def test_there_are_never_two_live_holders_and_numbers_grow(session: Session) -> None:
    run_machine(Holdings, session)


async def test_holders_of_several_processes_never_hold_at_once_and_versions_grow(processes: Processes) -> None:
    leases, lease_us, claims = WorkLeases(store_clock, margin_us=0), 5_000, 30
    holdings: list[tuple[int, int, int]] = []  # version, and the time during which a holder had the resource
    lost = 0

    async def hold(deployment: Deployment, name: str) -> tuple[int, int, int]:
        """Claim, renew and perhaps release the resource, and sometimes be late. Return what the holder knows."""
        nonlocal lost
        rng, store = random.Random(name), deployment.store

        def claim() -> Program[tuple[WorkLease, int]]:
            lease = yield from leases.claim("pool", "one", holder=name, lease_us=lease_us)
            return lease, (yield from store_clock())  # the claim may have waited, so read the clock after it

        lease, from_us = await store.write(claim)
        until_us = lease.expires_at_us
        try:
            for _ in range(rng.randrange(3)):
                end_us = await store.read(store_clock) + rng.randrange(2 * lease_us)
                while await store.read(store_clock) < end_us:
                    pass
                until_us = (await deployment.write(leases.renew, lease, lease_us=lease_us)).expires_at_us
            if rng.random() < 0.5:
                before_us = await store.read(store_clock)
                await deployment.write(leases.release, lease)
                until_us = min(until_us, before_us)  # the holder certainly had the lease until it began to release it
        except LeaseLostError:
            lost += 1
        return lease.version, from_us, until_us

    async def hold_repeatedly(deployment: Deployment, holder: str) -> None:
        done = 0
        while done < claims:
            with suppress(LeaseTakenError):
                holdings.append(await hold(deployment, f"{holder}/{done}"))
                done += 1

    started = [await processes.start_process(writer_connections=4, reader_connections=4) for _ in range(3)]
    await asyncio.gather(*(hold_repeatedly(each, f"{at}/{n}") for at, each in enumerate(started) for n in range(4)))
    holdings.sort()
    assert [version for version, _, _ in holdings] == list(range(1, 12 * claims + 1)), "each version once"
    for (_, _, until_us), (_, from_us, _) in itertools.pairwise(holdings):
        assert until_us <= from_us, "two live holders"
    assert lost > 0, "no holder was late, so the test shows nothing"
