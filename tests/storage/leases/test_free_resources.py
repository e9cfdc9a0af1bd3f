"""Test how a process remembers the first resources of a free queue. No resource is leased twice or skipped."""

import pytest

from storage.errors import NoResourceError, StoreBusyError
from storage.leases.lease_records import LeaseRequest, RegionCounts
from storage.leases.lease_transaction import FRONT_KNOWN_US
from storage.store import Program
from tests.storage.deployment import Deployment
from tests.storage.leasing import CLIENT, LEASE_US, Pools, unwrap_grant


async def create_one_queue(pools: Pools, *names: str) -> None:
    """Create a pool. Its resources have been free since the same time."""
    await pools.create("one")
    await pools.add(*names, pool_id="one")


async def take_resource(pools: Pools, key: str) -> tuple[str, int]:
    """Lease a resource from the pool for a key. Return the resource's name and version."""
    [got] = await pools.run(LeaseRequest(CLIENT, "one", key, "eu", None, LEASE_US))
    return unwrap_grant(got).resource, unwrap_grant(got).version


async def test_a_resource_that_joins_before_the_known_front_of_the_queue_is_found(pools: Pools) -> None:
    await create_one_queue(pools, "late")
    pools.clock.now_us -= 1_000
    await pools.add("early", pool_id="one")
    pools.clock.now_us += 1_000

    assert await take_resource(pools, "x") == ("early", 1)
    pools.clock.now_us -= 2_000
    await pools.add("earliest", pool_id="one")
    pools.clock.now_us += 2_000
    assert await take_resource(pools, "y") == ("late", 1), "the desk remembered the front"
    assert await take_resource(pools, "z") == ("earliest", 1), "before the queue is called empty, all of it is read"


async def test_the_front_of_the_queue_is_read_again_after_a_minute(pools: Pools) -> None:
    await create_one_queue(pools, "a", "b", "c")
    await take_resource(pools, "x")
    pools.clock.now_us -= 1_000
    await pools.add("earliest", pool_id="one")
    pools.clock.now_us += 1_000 + FRONT_KNOWN_US
    assert (await take_resource(pools, "y"))[0] == "earliest"


async def test_a_resource_that_another_process_took_is_not_given_again(pools: Pools) -> None:
    await create_one_queue(pools, "a", "b", "c", "d", "e")
    other = Pools(Deployment(pools.store, ""))
    assert await take_resource(pools, "x") == ("a", 1)
    assert await take_resource(other, "y") == ("b", 1)
    assert await take_resource(pools, "z") == ("c", 1)
    assert await take_resource(other, "u") == ("d", 1)
    assert await take_resource(pools, "v") == ("e", 1)
    with pytest.raises(NoResourceError):
        await take_resource(pools, "w")
    assert (await pools.counts("one"))["eu"] == RegionCounts(total=5, held=5, acquired=5, refused=1)
    acquired = [(resource, key) for kind, resource, key in await pools.summarize_events() if kind == "acquired"]
    assert acquired == [("a", "x"), ("b", "y"), ("c", "z"), ("d", "u"), ("e", "v")]


async def test_a_resource_that_a_failed_transaction_took_is_found_again(pools: Pools) -> None:
    await create_one_queue(pools, "a", "b")

    def failing() -> Program[None]:
        yield from pools.groups.serve_requests([LeaseRequest(CLIENT, "one", "x", "eu", None, LEASE_US)])
        raise StoreBusyError("the transaction is rolled back")

    with pytest.raises(StoreBusyError):
        await pools.store.write(failing)
    assert await take_resource(pools, "y") == ("a", 1)
    assert await take_resource(pools, "z") == ("b", 1)


async def test_a_resource_that_was_added_again_to_another_region_is_not_given_in_its_old_one(pools: Pools) -> None:
    await create_one_queue(pools, "a", "b")
    assert await take_resource(pools, "x") == ("a", 1)
    await pools.remove("b", pool_id="one")
    await pools.add("b", region="us", pool_id="one")
    with pytest.raises(NoResourceError):
        await take_resource(pools, "y")
