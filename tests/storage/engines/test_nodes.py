"""Test a store whose partitions are on two nodes, of which one freezes: it accepts everything and answers nothing.

The nodes are two proxies in front of one PostgreSQL server. The store believes that Citus has placed its partitions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import pytest

from querybuilder import lit, select
from storage.engines import database_nodes as nodes_module
from storage.engines.database_nodes import Node
from storage.engines.partitions import Address, NodeMap
from storage.engines.postgres import PostgresStore
from storage.engines.postgres_connection import PostgresConnection
from storage.errors import OutcomeUnknownError, PartitionAwayError
from storage.log.change_log import change_log
from storage.reads.away_partitions import find_away_partitions
from storage.records import PostStatus, TableSharing
from storage.schema.creation import count_partitions
from storage.schema.sequences import count_fact
from storage.store import CONTROL, Program, in_partition
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.proxy import DatabaseProxy

XP = ranked("xp")
FROZEN, LIVING = 1, 0  # a partition on each node
WAIT_S = 30.0


class Cluster:
    """A store with the control partition and partitions 0 and 2 on one node, and 1 and 3 on the other."""

    def __init__(self, store: PostgresStore, living: DatabaseProxy, frozen: DatabaseProxy) -> None:
        self.store, self.living, self.frozen = store, living, frozen
        self.returned = asyncio.Event()  # set when a node that was away answers again

    def node_of(self, partition: int) -> Node:
        return self.store._nodes.find_node(self.store._partitions.schema_of(partition))

    def watch(self, node: Node) -> None:
        report = node.breaker._report

        def reported(change: int) -> None:
            report(change)
            if change < 0:
                self.returned.set()

        node.breaker._report = reported

    def place(self, addresses: dict[int, Address]) -> NodeMap:
        schema_of = self.store._partitions.schema_named
        return NodeMap({schema_of(each): where for each, where in addresses.items()}, addresses[CONTROL])


@pytest.fixture
async def cluster(place: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    async with asyncio.timeout(WAIT_S), AsyncExitStack() as stack:
        living, frozen = [await stack.enter_async_context(DatabaseProxy(place)) for _ in range(2)]
        store = await PostgresStore.open(place, POSTGRES_LIMITS)
        stack.push_async_callback(store.close)
        await store.create_apart(4)
        found = Cluster(store, living, frozen)
        ways = {each: frozen if each % 2 == FROZEN and each >= 0 else living for each in (CONTROL, *range(4))}
        where = found.place({each: way.address for each, way in ways.items()})

        async def read_node_map(_connection: PostgresConnection) -> NodeMap:
            return where

        monkeypatch.setattr(nodes_module, "read_node_map", read_node_map)
        await store._nodes.distribute()
        for node in store._nodes.list_nodes():
            node.placements = None  # this server has no table of Citus
            found.watch(node)
        yield found
        frozen.thaw()


async def test_statements_go_to_the_node_of_their_partition(cluster: Cluster) -> None:
    for partition in range(4):
        store = cluster.store.at(partition)
        if cluster.store._nodes._reading is not None:  # a new partition lets the process read the map again
            await cluster.store._nodes._reading
        before = cluster.living.connections, cluster.frozen.connections
        node = cluster.node_of(partition)
        for read in (store.read, partial(store.read, heavy=True), store.write):
            await read(change_log.take_mark)
        # A single query for the control partition takes no second step, whatever the partition of its program.
        await store.read_query(next(count_partitions()))
        after = cluster.living.connections, cluster.frozen.connections
        assert (after[0] > before[0], after[1] > before[1]) == (partition == LIVING, partition == FROZEN)
        assert node is cluster.node_of(CONTROL if partition % 2 == LIVING else FROZEN)


async def test_a_frozen_node_costs_only_its_own_boards(cluster: Cluster) -> None:
    deployment = await Deployment.on(cluster.store)
    away, here = [await deployment.create(f"b{each}", XP, partition=each) for each in (FROZEN, LIVING)]
    both = deployment.post("ada", part(away, {"xp": 1}), part(here, {"xp": 1}), post_id="both")
    await deployment.apply(deployment.post("ada", part(away, {"xp": 1})), deployment.post("ada", part(here, {"xp": 1})))
    cluster.frozen.freeze()
    with pytest.raises(PartitionAwayError, match=r"the database server 127\.0\.0\.1:\d+ \(partitions 1, 3\) does not"):
        await deployment.stats(away, "ada")
    for _ in range(20):  # far more than there are connections
        with pytest.raises(PartitionAwayError):
            await deployment.apply(both)
        with pytest.raises(PartitionAwayError):
            await deployment.apply(deployment.post("ada", part(away, {"xp": 1})))
        await deployment.apply(deployment.post("ada", part(here, {"xp": 1})))
    assert await deployment.stats(here, "ada") == {"xp": 21}
    assert await find_away_partitions(cluster.store, wait_s_max=WAIT_S) == [1, 3]
    node = cluster.node_of(FROZEN)
    assert (node.breaker.is_open, node.writers._counts["away"]) == (True, 1)
    cluster.frozen.thaw()
    await cluster.returned.wait()
    [outcomes] = await deployment.apply(both)
    assert [each.status for each in outcomes] == [PostStatus.APPLIED] * 2
    assert await deployment.stats(away, "ada") == {"xp": 2}


@pytest.mark.parametrize("writes", [True, False])
async def test_a_transaction_that_waits_for_a_node_that_freezes_ends_and_keeps_no_lock(
    cluster: Cluster, raw: asyncpg.Connection, writes: bool
) -> None:
    schemas = [cluster.store._partitions.schema_named(each) for each in (LIVING, FROZEN)]
    waiting = asyncio.Event()

    def program() -> Program[None]:
        yield from in_partition(LIVING, count_fact() if writes else change_log.take_mark())  # locks a row
        waiting.set()
        yield from in_partition(FROZEN, change_log.take_mark())

    async with raw.transaction():
        await raw.execute(f"LOCK TABLE {schemas[1]}.log_counter IN ACCESS EXCLUSIVE MODE")
        run = cluster.store.write if writes else cluster.store.read
        both = asyncio.create_task(run(program))
        await waiting.wait()
        cluster.frozen.freeze()
        with pytest.raises(PartitionAwayError):
            await cluster.store.at(FROZEN).read(change_log.take_mark)
        with pytest.raises(PartitionAwayError):
            await both
        await raw.execute(f"SELECT * FROM {schemas[0]}.log_counter FOR UPDATE NOWAIT")


async def test_a_commit_on_a_node_that_freezes_has_an_unknown_outcome(cluster: Cluster) -> None:
    store = cluster.store.at(FROZEN)

    def program() -> Program[None]:
        yield select(lit(1)).bind()
        cluster.frozen.freeze()  # the next thing that the transaction sends is its COMMIT
        return None

    with pytest.raises(OutcomeUnknownError):
        await store.write(program)


async def test_a_board_that_needs_no_table_is_created_beside_a_frozen_node(cluster: Cluster) -> None:
    own, sharing = [await Deployment.on(cluster.store, table) for table in (TableSharing.OWN, TableSharing.SHARED)]
    shared = await sharing.create("shared", XP, partition=LIVING)
    cluster.frozen.freeze()
    with pytest.raises(PartitionAwayError):
        await cluster.store.at(FROZEN).read(change_log.take_mark)
    made = await sharing.create("more", XP, partition=LIVING)
    assert made.leaf.table_key == shared.leaf.table_key
    with pytest.raises(PartitionAwayError):  # Citus tells every node of a new table
        await own.create("own", XP, partition=LIVING)
    borrowed = await own.create("own", XP, partition=LIVING, away=[FROZEN])
    assert (borrowed.spec.table, borrowed.leaf.table_key) == (TableSharing.OWN, shared.leaf.table_key)
    await own.apply(own.post("ada", part(borrowed, {"xp": 1})))
    assert await own.stats(borrowed, "ada") == {"xp": 1}
    assert await own.find("own") == borrowed


async def test_a_board_leaves_a_spare_table_for_boards_with_the_same_columns(cluster: Cluster) -> None:
    deployment = await Deployment.on(cluster.store)
    first = await deployment.create("first", XP, partition=LIVING, spare=True)
    assert first.leaf.table_key is None
    later = await deployment.create("later", XP, partition=LIVING, away=[FROZEN])
    assert later.leaf.table_key is not None
    other = await deployment.create("other", XP, ranked("kills"), partition=LIVING, away=[FROZEN])
    assert other.leaf.table_key is None


async def test_a_partition_that_was_moved_is_found_at_its_new_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster.store._nodes
    former = cluster.node_of(FROZEN)
    cluster.frozen.freeze()
    with pytest.raises(PartitionAwayError):
        await cluster.store.at(FROZEN).read(change_log.take_mark)

    async def read_node_map(_connection: PostgresConnection) -> NodeMap:
        return cluster.place(dict.fromkeys((CONTROL, *range(4)), cluster.living.address))

    if nodes._reading is not None:  # on a slow machine, the map is old by now, so the process reads it again
        await nodes._reading
    monkeypatch.setattr(nodes_module, "read_node_map", read_node_map)
    nodes.renew()
    reading = nodes._reading
    nodes.renew()  # one reading at a time
    assert reading is not None
    assert nodes._reading is reading
    await reading
    assert cluster.node_of(FROZEN) is cluster.node_of(LIVING)
    await asyncio.gather(*nodes._closing)
    counts, writers = former.writers._counts, nodes.entry.writers.connections
    assert former not in nodes.list_nodes()
    assert counts["away"] == 0, "a node that has left the map still counts"
    assert counts["limit write"] == 2 * writers
    nodes.renew()
    assert nodes._reading is not None
    await nodes._reading
    assert cluster.node_of(FROZEN) is cluster.node_of(LIVING)


async def test_a_node_that_has_left_the_map_is_not_asked_for_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, asked = cluster.store._nodes, []

    async def read_node_map(connection: PostgresConnection) -> NodeMap:
        asked.append(connection._addr)
        return cluster.place(dict.fromkeys((CONTROL, *range(4)), cluster.frozen.address))

    monkeypatch.setattr(nodes_module, "read_node_map", read_node_map)
    for _ in range(2):
        asked.clear()
        nodes.renew()
        assert nodes._reading is not None
        await nodes._reading
    assert asked == [cluster.frozen.address]
