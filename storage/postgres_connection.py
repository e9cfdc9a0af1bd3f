"""How a session with a PostgreSQL server begins, and how it runs one built query.

The rule: every session bounds what it waits for: a statement, a lock, an idle transaction, a silent network.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from querybuilder import Built

from .postgres_errors import DRIVER_ERRORS, is_lost
from .store import Rows

APPLICATION_NAME = "rankcurve"
KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The bounds of one kind of session."""

    connect_timeout_s: float
    statement_timeout_s: float
    lock_timeout_s: float
    statement_cache: int
    read_only: bool
    whole_tables: bool  # may be read, where that looks cheaper than by an index


@lru_cache(maxsize=4096)
def _answers_rows(sql: str) -> bool:
    # Only built text comes here: its words stand where the builder puts them.
    return sql.startswith(("SELECT", "WITH")) or " RETURNING " in sql


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A session that takes built queries."""

    __slots__ = ()

    async def run(self, query: Built, *, timeout_s: float | None = None) -> Rows:
        """The rows of a query; without RETURNING one row: the number of rows that a write touched, -1 of a DDL.

        `timeout_s`: after which the driver has the server stop; None is the session's.
        """
        if _answers_rows(query.sql):
            rows: Rows = await self.fetch(query.sql, *query.arguments, timeout=timeout_s)
            return rows
        status: str = await self.execute(query.sql, *query.arguments, timeout=timeout_s)
        touched = status.rpartition(" ")[2]
        return [(int(touched) if touched.isdigit() else -1,)]


def hosts_of(url: str) -> list[str]:
    """One URL for each host of a multi-host URL, in order."""
    parts = urlsplit(url)
    if "," not in parts.netloc:
        return [url]
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


class Connector:
    """Opens sessions: on the host that took the last one first, then on the others in their order.

    The hosts are walked here because the driver has one timeout for all of them: a host that swallows packets would
    keep it from the next one.
    """

    def __init__(self, url: str, limits: SessionLimits) -> None:
        self._urls = hosts_of(url)
        self._limits = limits
        self._first = 0
        # Of several hosts one takes writes. The driver reads the attribute from the URL, where it stands there.
        self._attributes = {"target_session_attrs": "read-write"} if len(self._urls) > 1 else {}
        if "target_session_attrs=" in url:
            self._attributes = {}

    async def __call__(self) -> PostgresConnection:
        """A session.

        Raises:
            What the last host answered, where none takes it.
        """
        failure: BaseException | None = None
        for step in range(len(self._urls)):
            index = (self._first + step) % len(self._urls)
            try:
                connection = await self._open(self._urls[index])
            except DRIVER_ERRORS as error:
                if not is_lost(error) and len(self._urls) == 1:
                    raise
                failure = error
                continue
            self._first = index
            return connection
        assert failure is not None
        raise failure

    async def _open(self, url: str) -> PostgresConnection:
        limits = self._limits
        connection: PostgresConnection = await asyncpg.connect(
            url,
            connection_class=PostgresConnection,
            timeout=limits.connect_timeout_s,
            # For a server that has gone silent; a server that works ends the statement itself before.
            command_timeout=limits.statement_timeout_s + limits.connect_timeout_s,
            statement_cache_size=limits.statement_cache,
            max_cached_statement_lifetime=0,
            **self._attributes,
        )
        try:
            _keep_alive(connection)
            await connection.execute(_session_settings(limits))
        except BaseException:
            connection.terminate()
            raise
        return connection


def _session_settings(limits: SessionLimits) -> str:
    # SET, not start-up parameters: poolers between here and the server refuse those that they don't know.
    settings: dict[str, Any] = {
        "application_name": f"'{APPLICATION_NAME}'",
        "statement_timeout": round(limits.statement_timeout_s * 1000),
        "lock_timeout": round(limits.lock_timeout_s * 1000),
        # A process that is stopped or cut off within a transaction must not keep its locks.
        "idle_in_transaction_session_timeout": round(limits.statement_timeout_s * 1000),
        "client_min_messages": "warning",  # a COMMIT that the server does not vouch for says so by a warning only
        "cursor_tuple_fraction": 0,  # a cursor follows an index, however many of its rows are skipped: it never sorts
        "jit": "off",  # compiling costs more than any statement here gains
        # Every join here looks up keys that an index has. By fresh rows, or none yet, in its statistics the planner
        # takes a table for small and reads all of it to join a few thousand.
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }
    if limits.read_only:
        settings["default_transaction_read_only"] = "on"
    if not limits.whole_tables:
        # The server keeps the plan of a statement that was prepared while its table was small, until it has counted
        # the rows again: to read all of them meanwhile would take a growing board's reads milliseconds.
        settings["enable_seqscan"] = "off"
    return "; ".join(f"SET {name} = {value}" for name, value in settings.items())


def _keep_alive(connection: PostgresConnection) -> None:
    # The driver has no option for it, and an idle connection would never learn that its peer is gone.
    transport = connection._transport
    found = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        # Without it what was sent is sent again for a quarter of an hour before the peer counts as gone.
        ("TCP_USER_TIMEOUT", 1000 * (KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_PROBES)),
    ):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


Connect = Callable[[], Awaitable[PostgresConnection]]
