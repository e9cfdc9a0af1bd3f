"""Keeps connections to a store's database servers, called nodes, and a map of which node has which partition.

    statement ── the schema of its tables ──> the map ──> a node ── breaker closed ──> a connection of that node
                                               ^                └── breaker open ──> PartitionAwayError
                    moved, or a few seconds old: read again

A store on plain PostgreSQL has a single node, the hosts in its URL. On Citus, each partition is on one node. Each node
has connection pools of its own, so that a node that does not answer holds up no requests to the others.

A statement goes directly to the node that has its tables, because a detour would double the time it takes. The
exception is a transaction over several partitions: all its statements go through the node of its connection, which
forwards those for tables on other nodes.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import structlog

from config.settings import Settings
from storage.errors import PartitionAwayError, StoreAwayError, StoreBusyError, StoreUnsupportedError
from storage.meter import Meter

from .breaker import Breaker, EndWait
from .connection_pool import ConnectionPool
from .partitions import Address, PlacementCheck, ShardAwayError, find_shards, read_node_map
from .postgres_connection import DRIVER_ERRORS, Connector, Kind, PostgresConnection, hosts_of, is_lost, replace_host

log = structlog.get_logger(__name__)
PROBE_S_MAX = 0.8  # with the breaker's `SILENCE_S`, a node that does not answer is noticed within two seconds
# On Citus, a transaction that waits for a lock is tried again after this time. If the holder of the lock tells another
# node to commit, and that node is frozen, only a new attempt sees that the holder has committed.
LOCK_S_MAX = 0.8
MAP_S_MAX = 2.0  # a process reads the map again when it is older
SHARDS_MAX = 20_000  # a process knows the shards of about this many tables


class Node:
    def __init__(
        self, name: str, url: str, limits: Settings, meter: Meter, counts: Counter[str], *, on_citus: bool
    ) -> None:
        """Prepare the connection pools. All nodes of a store share `counts`, because metrics are sums over the nodes.

        `on_citus` means that the node has only some of the partitions, and that an operator may move them.
        """
        self.name = name
        self.placements = PlacementCheck() if on_citus else None
        self._connect = Connector(url, limits, "read")
        self._asking: PostgresConnection | None = None  # a connection for probes only

        def report(change: int) -> None:
            counts["away"] += change
            meter.set("rankcurve_store_nodes_away", counts["away"])

        report(0)
        # A process that knows several hosts may have to try each of them.
        probe_s_max = PROBE_S_MAX + limits.connect_timeout_s * (len(hosts_of(url)) - 1)
        refusal = PartitionAwayError if on_citus else StoreAwayError
        self.breaker = Breaker(name, self._probe, probe_s_max=probe_s_max, report=report, refusal=refusal)

        def make_pool(kind: Kind, connections: int) -> ConnectionPool:
            connect = self._connect if kind == "read" else Connector(url, limits, kind)
            return ConnectionPool(kind, connect, connections, limits, meter, self.breaker, counts, on_citus=on_citus)

        self.writers = make_pool("write", limits.writer_connections)
        self.light = make_pool("read", limits.reader_connections)
        self.heavy = make_pool("heavy", limits.heavy_reader_connections)

    async def _probe(self) -> None:
        connection, self._asking = self._asking, None
        try:
            if connection is not None and not connection.is_closed():
                try:
                    return await self._ask(connection)
                except DRIVER_ERRORS as error:
                    if not is_lost(error):
                        raise
            await self._ask(await self._connect())
        except asyncpg.PostgresError:  # a server that has no connection left, or starts, answers
            pass

    async def _ask(self, connection: PostgresConnection) -> None:
        try:
            await connection.execute("SELECT 1")
        except BaseException:
            connection.terminate()
            raise
        self._asking = connection

    async def close(self) -> None:
        # A transaction of `writers` may run again on another node, so `writers` is closed first.
        for pool in (self.writers, self.light, self.heavy):
            await pool.close()
        await self.breaker.close()
        if self._asking is not None:
            self._asking.terminate()


class Nodes:
    """All nodes of a store, and the map from the schemas of partitions to nodes."""

    def __init__(self, url: str, limits: Settings, meter: Meter) -> None:
        self._url, self._limits, self._meter = url, limits, meter
        self._counts = Counter[str]()
        # The node that the URL leads to. It leads to every partition, but maybe in two steps.
        self.entry = Node("the store", url, limits, meter, self._counts, on_citus=False)
        self._by_address: dict[Address, Node] = {}
        self._of_schema: dict[str, Node] = {}  # the map
        self.coordinator: Node | None = None  # None: the store is not on Citus
        self._shards: dict[tuple[str, str], int] = {}  # by schema and table
        self._sought: set[str] = set()  # names of tables whose shards the next reading of the map looks up
        self._read_s = 0.0  # when the map was read, by the clock of the event loop
        self._reading: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()  # close dead nodes

    def find_node(self, schema: str | None) -> Node:
        if self.coordinator is None or schema is None:
            return self.entry
        if asyncio.get_running_loop().time() - self._read_s > MAP_S_MAX:
            self.renew()
        return self._of_schema.get(schema, self.entry)

    def find_shard(self, schema: str, table: str) -> int:
        """Find the number of a table's shard. Raise ShardAwayError if it is unknown until the map is next read."""
        shard = self._shards.get((schema, table))
        if shard is None:
            if len(self._sought) < SHARDS_MAX:
                self._sought.add(table)
            raise ShardAwayError
        return shard

    async def distribute(self) -> None:
        """Read the map, so that from now on each statement goes to its partition's node.

        Raises:
            StoreUnsupportedError: no operator has told Citus the address of the coordinator.
        """
        await self._read_map()
        if self.coordinator is None:
            raise StoreUnsupportedError("Citus does not know its coordinator: call citus_set_coordinator_host there")

    def renew(self) -> None:
        """Start reading the map again, unless that is under way: it is old, or a partition was moved or added."""
        if self.coordinator is None or self._reading is not None:
            return
        for node in self._by_address.values():
            if node.placements is not None:
                node.placements.forget()  # there may be a new partition
        self._reading = asyncio.create_task(self._reread(), name="node-map")

    async def _reread(self) -> None:
        try:
            await self._read_map()
        except StoreBusyError as error:
            log.warning("node_map_unknown", detail=error.detail)
        finally:
            self._read_s = asyncio.get_running_loop().time()  # after a failure, too: do not try all the time
            self._reading = None

    async def _read_map(self) -> None:
        # A node that has left the map may no longer belong to the cluster, and then knows only an old map.
        living = [node for node in self.list_used() if not node.breaker.is_open]
        for node in [*living, self.entry]:
            try:
                found = await node.light.run(read_node_map)
                if self._sought:
                    await node.light.run(self._find_shards)
                break
            except StoreBusyError:
                if node is self.entry:
                    raise
        self._of_schema = {schema: self._find_or_make(address) for schema, address in found.schemas.items()}
        if found.coordinator is not None:
            self.coordinator = self._find_or_make(found.coordinator)
        for node in self._by_address.values():
            theirs = [schema.rpartition("_")[2].lstrip("p") for schema, each in self._of_schema.items() if each is node]
            node.breaker.name = f"{node.name} (partitions {', '.join(sorted(theirs))})"
        self._close_dead()
        self._read_s = asyncio.get_running_loop().time()

    async def _find_shards(self, connection: PostgresConnection) -> None:
        sought, self._sought = self._sought, set()
        if len(self._shards) >= SHARDS_MAX:
            self._shards.clear()
        self._shards |= await find_shards(connection, sought)

    def _find_or_make(self, address: Address) -> Node:
        if address not in self._by_address:
            name = f"the database server {address.host}:{address.port}"
            lock_timeout_s = min(self._limits.lock_timeout_s, LOCK_S_MAX)
            limits = self._limits.model_copy(update={"lock_timeout_s": lock_timeout_s})
            url = replace_host(self._url, *address)
            self._by_address[address] = Node(name, url, limits, self._meter, self._counts, on_citus=True)
        return self._by_address[address]

    def _close_dead(self) -> None:
        """Close the nodes that have left the map and do not answer, because a standby has taken their place.

        A node that still answers stays open even without partitions, because retried transactions may begin there.
        """
        used = self.list_used()
        for address, node in list(self._by_address.items()):
            if node not in used and node.breaker.is_open:
                del self._by_address[address]
                task = asyncio.create_task(node.close(), name="close-node")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    @contextmanager
    def reach(self, node: Node, end: EndWait) -> Iterator["Reach"]:
        """Watch the other nodes that a transaction waits for, while it runs on a connection to `node`.

        If one of them becomes unreachable, `end` is called and has to end the statement or the connection.
        """
        reach = Reach(self, node, end)
        try:
            yield reach
        except (*DRIVER_ERRORS, StoreAwayError):
            for other in reach.others:
                other.breaker.check()  # if it does not answer, the transaction failed for this reason
            raise
        finally:
            for other in reach.others:
                other.breaker.leave(reach)

    def list_used(self) -> set[Node]:
        """List the nodes in the map, which are those that have a partition, and the coordinator."""
        coordinators = () if self.coordinator is None else (self.coordinator,)
        return {*self._of_schema.values(), *coordinators}

    def list_nodes(self) -> list[Node]:
        return [self.entry, *self._by_address.values()]

    async def close(self) -> None:
        if self._reading is not None:
            await asyncio.wait([self._reading])
        for node in self.list_nodes():
            await node.close()
        await asyncio.gather(*self._closing)


class Reach:
    """Tracks which nodes, other than that of its connection, one transaction waits for."""

    def __init__(self, nodes: Nodes, node: Node, end: EndWait) -> None:
        self._nodes, self._node, self._end = nodes, node, end
        self.others: list[Node] = []
        self.uses_citus = False  # whether a statement went through Citus, so that a move may have changed what it read

    def go_to(self, schema: str | None) -> None:
        """Watch the node of this schema, which a statement needs. Raise `PartitionAwayError` if it is unreachable."""
        self._add(self._nodes.find_node(schema))

    def go_everywhere(self) -> None:
        """Watch all nodes, because a statement that creates or changes tables needs every one of them."""
        for other in self._nodes.list_used():
            self._add(other)

    def _add(self, other: Node) -> None:
        if other is not self._node and other not in self.others:
            other.breaker.check()
            other.breaker.enter(self, self._end)
            self.others.append(other)
