"""What a PostgreSQL server or the way to it can refuse, sorted by what helps.

lost      the connection is of no more use, or there is none: try again on another one
raced     another transaction came between: the same transaction again may succeed
the rest  trying again would meet the same answer
"""

from __future__ import annotations

import asyncpg

from .errors import StoreAway, StoreBusy, StoreFull, UnknownBoard

# Whatever the driver raises; TimeoutError is an OSError.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # the protocol is out of step, or no host takes writes
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # the host became a standby under the connection
)
_RACED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    # Two made the same thing at once: a post id, a board, a table of the schema.
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateColumnError,
    asyncpg.DuplicateObjectError,
    asyncpg.InvalidCachedStatementError,  # the table changed its shape
)


# Another transaction, or the load, keeps the server: posts that wait with this one would meet the same.
_LATE = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.InsufficientResourcesError)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is of no more use."""
    if isinstance(error, asyncpg.InterfaceError):  # a refused argument is one too, and is a ValueError
        return not isinstance(error, ValueError)
    return isinstance(error, _LOST)


def is_raced(error: BaseException) -> bool:
    """Whether another transaction came between."""
    return isinstance(error, _RACED)


def is_otherwise(error: BaseException) -> bool:
    """Whether a statement of its own found something else than it was made for."""
    return isinstance(error, asyncpg.DivisionByZeroError)  # see `Chained.exactly`


def is_board_gone(error: BaseException) -> bool:
    """Whether a board's table is not there."""
    return isinstance(error, asyncpg.UndefinedTableError) and "entries_" in str(error)


def said(error: BaseException) -> str:
    """What the driver says in one line. The lines after it may quote a row, which is nobody's business."""
    return str(error).partition("\n")[0] or type(error).__name__


def translated(error: BaseException) -> Exception:
    """The error of the store that says so."""
    if is_board_gone(error):
        return UnknownBoard("the leaderboard was deleted meanwhile")
    text = said(error)
    if is_lost(error):
        return StoreAway(f"the store cannot be reached: {text}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull()
    if isinstance(error, _LATE):
        return StoreAway(f"the store did not answer in time: {text}")
    return StoreBusy(f"the store failed: {text}")
