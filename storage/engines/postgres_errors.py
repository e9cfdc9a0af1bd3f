"""Sorts the errors of a PostgreSQL server or connection into classes, by which a connection pool knows what to retry.

- Lost: the connection is useless, but the attempt may succeed on another connection. If a node of Citus has lost
  another node, the connection stays useful.
- Raced: another transaction interfered. The failed transaction may succeed if it runs again.
- Moving: Citus moves the partition at the moment. The failed transaction may succeed once the move has ended.
- Late: the server did not answer in time.
- Board deleted: the table of a board does not exist.

`translate_error` turns these and all other errors into errors of the store.
"""

import asyncpg

from storage.errors import PartitionAwayError, StoreAwayError, StoreBusyError, StoreFullError, UnknownBoardError

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
    """Return whether a transaction failed because Citus moves a partition to another node."""
    return isinstance(error, asyncpg.PostgresError) and any(text in describe_error(error) for text in _MOVING)


def is_board_deleted(error: BaseException) -> bool:
    return isinstance(error, asyncpg.UndefinedTableError) and "entries_" in str(error)


def describe_error(error: BaseException) -> str:
    """Return the first line of the driver's message. Later lines may quote a row, which must not reach a log."""
    return str(error).partition("\n")[0] or type(error).__name__


def translate_error(error: BaseException, *, node: str | None = None) -> Exception:
    """Return the error of the store for an error of the driver. `node` names a server that has only some partitions."""
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
