"""Test that no version of a lease is used twice. Otherwise, a holder that slept past its lease could do harm."""

import asyncio

import pytest

from storage.leases.lease_records import Grant, LeaseRequest
from storage.leases.lease_transaction import read_findings
from storage.schema.lease_tables import VERSIONS_IN_FLIGHT
from tests.storage.leasing import CLIENT, LEASE_US, Pools


@pytest.mark.parametrize("whole_client", [False, True])
async def test_versions_grow_on_if_a_pool_is_dropped_and_created_again(pools: Pools, whole_client: bool) -> None:
    seen = [0]

    async def hold(key: str) -> None:
        seen.append((await pools.ask(key)).version)

    await pools.add("a")
    for number in range(5):
        await hold(f"key {number}")
        await pools.give_back(f"key {number}")
    for _ in range(3):
        await pools.drop(whole_client=whole_client)
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
    found = await pools.store.read(lambda: read_findings([ask]))
    await pools.drop()
    [late] = await pools.store.write(lambda: pools.groups.serve_requests([ask], found))
    await pools.create()
    await pools.add("a")
    assert isinstance(late, Grant)
    assert (await pools.ask("next")).version > late.version


async def test_versions_grow_while_two_callers_remove_and_add_the_same_resources(pools: Pools) -> None:
    names = [f"r{number}" for number in range(5)]
    await pools.add(*names)
    highest = dict.fromkeys(names, -1)
    for number in range(10):
        for name in names:
            got = await pools.ask(f"{name} {number}")
            assert got.version > highest[got.resource]
            highest[got.resource] = got.version
        for name in names:
            await pools.give_back(f"{name} {number}")
        await asyncio.gather(pools.remove(*names), pools.add(*names), pools.add(*names))
        await pools.add(*names)
