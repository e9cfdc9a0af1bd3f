"""Test that stores read each other's lease journals, and find keys that have leases in both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from querybuilder import Bound
from storage.errors import UnknownLeaseError
from storage.leases.lease_records import RegionCounts, ResourceChange
from storage.leases.peers import AppliedPage, remote_leases
from storage.leases.pools import lease_resources
from storage.schema.lease_tables import LEASE_RESOURCES
from storage.store import Program
from tests.storage.backends import Backend
from tests.storage.deployment import Clock, Deployment
from tests.storage.leasing import LEASE_US, Pools
from tests.storage.meddling import interpose

PAGE = 100


class Region:
    """A region with a store of its own. It reads the journal of another store only when a test calls `read`."""

    def __init__(self, name: str, deployment: Deployment, clock: Clock) -> None:
        self.name, self.pools = name, Pools(deployment, clock, peers=True)
        self.exchange = self.pools.exchange(name)

    async def read(self, peer: Region) -> AppliedPage:
        store = self.pools.store
        after = await store.read(lambda: remote_leases.read_cursor(peer.name))
        page = await peer.pools.events(after)
        return await store.write(lambda: self.exchange.apply_page(peer.name, page[:PAGE], rows_max=PAGE))


@pytest.fixture
async def regions(backend: Backend, tmp_path: Path) -> AsyncIterator[tuple[Region, Region]]:
    async with AsyncExitStack() as stack:
        clock, made = Clock(), []
        for name in ("eu", "us"):
            (tmp_path / name).mkdir()
            open_store = await stack.enter_async_context(backend(tmp_path / name))
            region = Region(name, await Deployment.on(await open_store()), clock)
            await region.pools.create()
            await region.pools.add(*(f"{name}-{number}" for number in range(3)), region=name)
            made.append(region)
        yield made[0], made[1]


async def test_a_key_with_a_lease_elsewhere_gets_that_lease_and_nothing_here(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    first = await eu.pools.ask("ada")
    assert (await us.read(eu)).events == 4
    assert await us.pools.ask("ada", region="us") == first._replace(acquired=False)
    assert (await us.pools.counts())["us"].held == 0
    assert await us.read(eu) == AppliedPage(0), "no event is read twice"


async def test_a_request_for_time_reaches_the_store_of_the_lease_and_comes_back(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    first = await eu.pools.ask("ada")
    await us.read(eu)
    until_us = first.expires_at_us + 50 * LEASE_US
    for _ in range(3):
        assert (await us.pools.ask("ada", region="us", until_us=until_us)).expires_at_us == first.expires_at_us
    assert [kind for kind, _, _ in await us.pools.summarize_events()].count("wanted") == 1, "the store asks once"
    await eu.read(us)
    assert (await eu.pools.ask("ada", until_us=1)).expires_at_us == until_us
    await us.read(eu)
    assert (await us.pools.ask("ada", region="us", until_us=1)).expires_at_us == until_us


async def test_a_lease_can_be_given_back_through_another_store(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    first = await eu.pools.ask("ada")
    await us.read(eu)
    assert (await us.pools.give_back("ada")).resource == first.resource
    with pytest.raises(UnknownLeaseError):
        await us.pools.give_back("ada")
    await eu.read(us)
    assert (await eu.pools.counts())["eu"] == RegionCounts(total=3, held=0, acquired=1)


async def test_an_ended_lease_elsewhere_does_not_refuse_a_key(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    for key in ("over", "given back"):
        await eu.pools.ask(key)
    await us.read(eu)
    await eu.pools.give_back("given back")
    await us.read(eu)
    assert (await us.pools.ask("given back", region="us")).acquired
    eu.pools.clock.now_us += LEASE_US
    assert (await us.pools.ask("over", region="us")).acquired


async def test_the_second_of_two_leases_of_a_key_is_found_and_released(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    first = await us.pools.ask("ada", region="us")
    eu.pools.clock.now_us += 1
    await eu.pools.ask("ada")
    assert await us.read(eu) == AppliedPage(4), "the first lease stays"
    assert await eu.read(us) == AppliedPage(4, duplicates=1)
    assert (await eu.pools.counts())["eu"] == RegionCounts(total=3, held=0, acquired=1)
    assert [kind for kind, _, _ in await eu.pools.summarize_events()][-2:] == ["duplicate", "released"]
    assert await eu.pools.ask("ada") == first._replace(acquired=False, now_us=eu.pools.clock())
    await us.read(eu)
    assert (await us.pools.ask("ada", region="us")).resource == first.resource


async def test_a_page_that_is_overtaken_in_the_middle_records_each_event_once(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    keys = ("ada", "bob", "cleo")
    for key in keys:
        await us.pools.ask(key, region="us")
    eu.pools.clock.now_us += 1
    for key in keys:
        await eu.pools.ask(key)
    rows = await eu.pools.store.read(lambda: lease_resources.find_by_holders([(1, "bob")]))
    [row] = rows.values()
    writes = 0

    def overtake(query: Bound) -> Program[None]:
        nonlocal writes
        sql = query.build(eu.pools.dialect).sql
        if " SET " in sql and LEASE_RESOURCES in sql:
            writes += 1
            if writes == 1:
                extended = row._replace(expires_at_us=row.expires_at_us + 10)
                assert (yield from lease_resources.write_changes([ResourceChange(row, extended)]))

    page, known = await us.pools.events(), len(await eu.pools.events())
    applied = await eu.pools.store.write(lambda: interpose(eu.exchange.apply_page("us", page, rows_max=PAGE), overtake))
    assert writes == 2, "one of the three leases was decided again"
    assert applied.duplicates == 3
    events = (await eu.pools.events())[known:]
    assert sorted((event.kind, event.key) for event in events) == [
        (kind, key) for kind in ("duplicate", "released") for key in keys
    ]
    assert len({event.number for event in events}) == len(events)
    assert (await eu.pools.counts())["eu"] == RegionCounts(total=3, held=0, acquired=3)


async def test_one_of_two_leases_of_the_same_microsecond_is_released_by_name(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    await us.pools.ask("ada", region="us")
    await eu.pools.ask("ada")
    taken = [await us.read(eu), await eu.read(us)]
    assert sum(one.duplicates for one in taken) == 1
    assert [(await eu.pools.counts())["eu"].held, (await us.pools.counts())["us"].held] == [1, 0]


async def test_events_of_pools_that_are_not_here_are_passed_over(regions: tuple[Region, Region]) -> None:
    eu, us = regions
    await eu.pools.create("another")
    await eu.pools.add("x", pool_id="another")
    assert (await us.read(eu)).events == 4
    assert await us.read(eu) == AppliedPage(0)
