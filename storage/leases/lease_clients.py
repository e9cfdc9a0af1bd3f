"""Clients, the owners of pools. Making a pool also makes its client if the client does not exist."""

from typing import NamedTuple

from querybuilder import asc, col, count, delete, insert, param, select, update
from storage.errors import UnknownClientError
from storage.schema.lease_tables import LEASE_CLIENTS, LEASE_POOLS, build_pool_drop
from storage.store import Program


class Client(NamedTuple):
    client_id: str
    name: str  # a name for people to read
    created_at_us: int
    pools: int


class LeaseClients:
    def __init__(self) -> None:
        client_id = col("client_id", "c")
        theirs = (col("client_id", "p").eq(client_id), col("deleted_at", "p").is_null())
        pools = select(count()).from_(LEASE_POOLS, "p").where(*theirs).scalar()
        clients = select(client_id, col("name", "c"), col("created_at", "c"), pools).from_(LEASE_CLIENTS, "c")
        self._find = clients.where(client_id.eq(param("client_id"))).prepared()
        after = clients.where(client_id.gt(param("after"))).order_by(asc(client_id))
        self._listed = after.limit(param("limit")).prepared()
        new = insert(LEASE_CLIENTS).values(client_id=param("client_id"), name=param("name"), created_at=param("now_us"))
        self._insert = new.on_conflict("client_id").do_nothing().prepared()
        by_id = col("client_id").eq(param("client_id"))
        self._rename = update(LEASE_CLIENTS).set(name=param("name")).where(by_id).prepared()
        self._delete = delete(LEASE_CLIENTS).where(by_id).prepared()
        self._drop_pools = build_pool_drop().where(by_id, col("deleted_at").is_null()).prepared()

    def ensure_client(self, client_id: str, *, now_us: int, name: str = "") -> Program[bool]:
        """Make a client unless it exists; return whether it is new."""
        rows = yield self._insert.bind(client_id=client_id, name=name, now_us=now_us)
        return bool(rows[0][0])

    def create_or_rename_client(self, client_id: str, name: str | None, *, now_us: int) -> Program[tuple[Client, bool]]:
        """Make a client, or rename the existing one if a name is given. Return the client and whether it is new."""
        made = yield from self.ensure_client(client_id, now_us=now_us, name=name or "")
        if not made and name is not None:
            yield self._rename.bind(client_id=client_id, name=name)
        return (yield from self.read_client(client_id)), made

    def read_client(self, client_id: str) -> Program[Client]:
        """Return one client, or raise `UnknownClientError`."""
        rows = yield self._find.bind(client_id=client_id)
        if not rows:
            raise UnknownClientError(f"there is no client {client_id!r}")
        return Client(*rows[0])

    def list_clients(self, *, after: str, limit: int) -> Program[list[Client]]:
        """Return up to `limit` clients after the id `after`, ordered by id."""
        rows = yield self._listed.bind(after=after, limit=limit)
        return [Client(*row) for row in rows]

    def drop_client(self, client_id: str, *, now_us: int) -> Program[None]:
        """Drop a client with all its pools and every lease in them, or raise `UnknownClientError`."""
        yield from self.read_client(client_id)
        yield self._drop_pools.bind(client_id=client_id, now_us=now_us)
        yield self._delete.bind(client_id=client_id)


lease_clients = LeaseClients()
