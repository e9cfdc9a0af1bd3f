"""Opens sessions with a PostgreSQL server for connection pools, and runs built queries (SQL with arguments) in them.

Every wait in a session has a time limit, whether for a statement, a lock, an idle transaction or an unresponsive
network, because a session without limits could hang for ever while holding its locks.

Errors from the server or the connection are sorted into classes that tell a connection pool what to retry:

- Lost: the connection is useless, but the attempt may succeed on another connection. If a node of Citus has lost
  another node, the connection stays useful.
- Raced: another transaction interfered. The failed transaction may succeed if it runs again.
- Moving: Citus is moving the partition. The failed transaction may succeed once the move has ended.
- Late: the server did not answer in time.
- Board deleted: the table of a board does not exist.

`translate_error` turns these and all other errors into errors of the store.
"""

import asyncio
import socket
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from config.settings import Settings
from querybuilder import POSTGRES, Built, col, count, lit, param, select
from storage.errors import PartitionAwayError, StoreAwayError, StoreBusyError, StoreFullError, UnknownBoardError
from storage.store import Rows

# All errors that the driver raises. TimeoutError is an OSError.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # driver and server disagree about the protocol, or no host accepts writes
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # the host became a standby after the connection was opened
)
_RACED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    # Two transactions created the same thing at the same time: a post id, a board, or a table of the schema.
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateColumnError,
    asyncpg.DuplicateObjectError,
    asyncpg.InvalidCachedStatementError,  # the columns of the table changed
)
# Citus has no codes of its own for these errors. Each is raised before anything is committed.
_MOVING = (
    "could not acquire the lock required to",  # a statement that creates a table waits for no move
    "could not find the intermediate result file",
    "failure on connection marked as essential",
    'unique constraint "changes_pkey',  # a transaction saw the counter of the log as it was before the move
)
# Another transaction or a high load delays the server. After such an error, the attempt is not run again, because other
# posts would wait even longer. Only on Citus, an attempt is run again after LockNotAvailableError.
_LATE = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.InsufficientResourcesError)


def is_lost(error: BaseException) -> bool:
    # If the driver refused an argument, the error is also a ValueError, and the connection is still usable.
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)
    return isinstance(error, _LOST)


def is_node_away(error: BaseException) -> bool:
    """Return whether a node of Citus reports that it lost another node. The connection stays useful."""
    return isinstance(error, asyncpg.PostgresConnectionError) and error.severity_en == "ERROR"


def is_raced(error: BaseException) -> bool:
    return isinstance(error, _RACED)


def is_moving(error: BaseException) -> bool:
    """Return whether a transaction failed because Citus is moving a partition to another node."""
    return isinstance(error, asyncpg.PostgresError) and any(text in describe_error(error) for text in _MOVING)


def is_board_deleted(error: BaseException) -> bool:
    return isinstance(error, asyncpg.UndefinedTableError) and "entries_" in str(error)


def describe_error(error: BaseException) -> str:
    """Return the first line of the driver's message. Later lines may quote a row, which must not reach a log."""
    return str(error).partition("\n")[0] or type(error).__name__


def translate_error(error: BaseException, *, node: str | None = None) -> Exception:
    """Translate a driver error into a store error. `node` names a server that has only some of the partitions."""
    if is_board_deleted(error):
        return UnknownBoardError("the leaderboard was deleted meanwhile")
    text = describe_error(error)
    if is_lost(error):
        if node is None:
            return StoreAwayError(f"the store cannot be reached: {text}")
        name = "another database server" if is_node_away(error) else node
        return PartitionAwayError(f"{name} cannot be reached: {text}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFullError()
    if isinstance(error, _LATE):
        return StoreAwayError(f"the store did not answer in time: {text}")
    return StoreBusyError(f"the store failed: {text}")


APPLICATION_NAME = "rankcurve"
READER_NAME = "rankcurve --read-only"  # of a process that never writes
KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
CANCEL_S_MAX = 1.0  # a server that works ends a cancelled statement within this time
Kind = Literal["write", "read", "heavy"]  # the use of a session; heavy: long reads, such as scans


def _describe_array(oid: int, element_oid: int, element: str) -> dict[str, object]:
    none = ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
    named = {"oid": oid, "ns": "pg_catalog", "name": f"_{element}", "kind": b"b", "depth": 0}
    return {**named, "elemtype": element_oid, "elemtype_name": element, "elemdelim": ",", **dict.fromkeys(none)}


_CITUS = select(lit(1)).from_("pg_extension").where(col("extname").eq("citus")).prepared()
_named = (col("application_name").eq(param("name")), col("datname").eq(param("database")))
_OTHER_WRITERS = select(count()).from_("pg_stat_activity").where(*_named, col("pid").ne(param("pid"))).prepared()
# Without this list, each new connection asks the server for these types, which takes seconds on a busy Citus cluster.
_ARRAYS = [
    _describe_array(oid, element_oid, element)
    for oid, element_oid, element in ((1001, 17, "bytea"), (1003, 19, "name"), (1009, 25, "text"), (1016, 20, "int8"))
]


class PostgresConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A session with a PostgreSQL server, which runs built queries (SQL with arguments)."""

    __slots__ = ()

    async def run_query(self, query: Built) -> Rows:
        """Run a query and return its rows.

        A write without RETURNING returns one row, which holds the number of rows written. For a DDL statement, the row
        holds -1. After the session's timeout, the driver asks the server to cancel the query.
        """
        if query.returns_rows:
            rows: Rows = await self.fetch(query.sql, *query.arguments)
            return rows
        status: str = await self.execute(query.sql, *query.arguments)
        touched = status.rpartition(" ")[2]
        return [(int(touched) if touched.isdigit() else -1,)]

    def cancel_statement(self) -> None:
        """Ask the server to cancel the running statement. If it does not end in time, end the connection."""
        loop = asyncio.get_running_loop()
        self._cancel_current_command(loop.create_future())
        loop.call_later(CANCEL_S_MAX, self._end_stuck, self._protocol.queries_count)

    def _end_stuck(self, queries_before: int) -> None:
        if not self.is_closed() and self._protocol.queries_count == queries_before:
            self.terminate()

    async def count_other_writers(self) -> int:
        asked = {"name": APPLICATION_NAME, "pid": self.get_server_pid()}
        asked["database"] = await self.fetchval("SELECT current_database()")
        [[sessions]] = await self.run_query(_OTHER_WRITERS.bind(**asked).build(POSTGRES))
        return int(sessions)

    async def has_citus(self) -> bool:
        return bool(await self.run_query(_CITUS.bind().build(POSTGRES)))


def hosts_of(url: str) -> list[str]:
    """Split a URL that may name several hosts into one URL for each host, in the same order."""
    parts = urlsplit(url)
    if "," not in parts.netloc:
        return [url]
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


def replace_host(url: str, host: str, port: int) -> str:
    """Replace the host and port of a URL, and keep its user, database and parameters."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    named = f"[{host}]" if ":" in host else host
    return urlunsplit(parts._replace(netloc=f"{user}{at}{named}:{port}"))


class Connector:
    """Opens sessions, trying first the host that accepted the last one, then the other hosts in the URL's order.

    The driver could try the hosts itself, but it has a single timeout for all of them. A host that drops packets would
    use up that whole timeout and leave no time for the next host.
    """

    def __init__(self, url: str, limits: Settings, kind: Kind) -> None:
        self._urls = hosts_of(url)
        self._limits = limits
        self._kind = kind
        self._timeout_s = limits.heavy_statement_timeout_s if kind == "heavy" else limits.statement_timeout_s
        self._first = 0
        # Only one of several hosts accepts writes. `target_session_attrs` makes the driver refuse the other hosts.
        # If the URL contains this attribute, the driver uses the URL's value.
        self._attributes = {"target_session_attrs": "read-write"} if len(self._urls) > 1 else {}
        if "target_session_attrs=" in url:
            self._attributes = {}

    async def __call__(self) -> PostgresConnection:
        """Open a session. If every host fails, raise the error of the last host."""
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
            # This timeout of the driver ends the wait for a server that does not answer. If the server works, its own
            # timeout ends a long statement earlier.
            command_timeout=self._timeout_s + limits.connect_timeout_s,
            statement_cache_size=limits.statement_cache,
            max_cached_statement_lifetime=0,
            **self._attributes,
        )
        try:
            _keep_alive(connection)
            connection._protocol.get_settings().register_data_types(_ARRAYS)
            await connection.execute(self._session_settings())
            if self._kind == "read":
                # Planning a short read takes as long as running it, so plan each statement only once. The plan fits all
                # parameters, because short reads use an index.
                await connection.execute("SET plan_cache_mode = force_generic_plan")
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _session_settings(self) -> str:
        # Use SET, because a connection pooler in front of the server would refuse unknown start-up parameters.
        settings: dict[str, Any] = {
            "application_name": f"'{READER_NAME if self._limits.read_only else APPLICATION_NAME}'",
            "statement_timeout": round(self._timeout_s * 1000),
            "lock_timeout": round(self._limits.lock_timeout_s * 1000),
            # If a process stops or loses the network inside a transaction, the server must release the process's locks.
            "idle_in_transaction_session_timeout": round(self._timeout_s * 1000),
            "client_min_messages": "warning",  # a warning is the only sign of an unsafe COMMIT
            "jit": "off",  # compiling a statement takes longer than the compiled code saves
            # Every join of this service should look up keys in an index. If statistics are missing or old, the planner
            # assumes that a table is small. It would then read the whole table to join a few thousand rows.
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
        }
        if self._kind != "write" or self._limits.read_only:
            settings["default_transaction_read_only"] = "on"
        if self._kind != "heavy":
            # The server plans to read a small table as a whole, and keeps this plan until it updates the table's
            # statistics. If the table then grows, each query reads all of it, which takes milliseconds.
            settings["enable_seqscan"] = "off"
        return "; ".join(f"SET {name} = {value}" for name, value in settings.items())


def _keep_alive(connection: PostgresConnection) -> None:
    # The driver has no option for keep-alive. Without keep-alive, an idle connection never notices a lost server.
    transport = connection._transport
    found = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        # Without this option, the kernel repeats unanswered packets for 15 minutes before it ends the connection.
        ("TCP_USER_TIMEOUT", 1000 * (KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_PROBES)),
    ):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
