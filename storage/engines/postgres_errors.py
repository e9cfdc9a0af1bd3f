"""What a PostgreSQL server, or the way to it, can refuse, sorted by what helps: lost, raced, late, or nothing."""

from __future__ import annotations

import asyncpg

from storage.errors import StoreAwayError, StoreBusyError, StoreFullError, UnknownBoardError

# All that the driver raises. TimeoutError is an OSError.
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
    # Two transactions created the same thing at once: a post id, a board, a table of the schema.
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateColumnError,
    asyncpg.DuplicateObjectError,
    asyncpg.InvalidCachedStatementError,  # the table changed its shape
)


# Another transaction or the load delays the server. Posts that wait with this one would be delayed too.
_LATE = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.InsufficientResourcesError)


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is useless after this error."""
    if isinstance(error, asyncpg.InterfaceError):  # also raised for a refused argument, then it is a ValueError too
        return not isinstance(error, ValueError)
    return isinstance(error, _LOST)


def is_raced(error: BaseException) -> bool:
    """Return whether another transaction came between, so that the same transaction may succeed now."""
    return isinstance(error, _RACED)


def is_failed_check(error: BaseException) -> bool:
    """Return whether the check of a single statement failed: `Chained.require_changes` divides by zero then."""
    return isinstance(error, asyncpg.DivisionByZeroError)


def is_board_deleted(error: BaseException) -> bool:
    """Return whether the table of a board does not exist."""
    return isinstance(error, asyncpg.UndefinedTableError) and "entries_" in str(error)


def describe_error(error: BaseException) -> str:
    """Return the first line of the driver's message. Later lines may quote a row, which must not reach a log."""
    return str(error).partition("\n")[0] or type(error).__name__


def translate_error(error: BaseException) -> Exception:
    """Return the store's error for an error of the driver."""
    if is_board_deleted(error):
        return UnknownBoardError("the leaderboard was deleted meanwhile")
    text = describe_error(error)
    if is_lost(error):
        return StoreAwayError(f"the store cannot be reached: {text}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFullError()
    if isinstance(error, _LATE):
        return StoreAwayError(f"the store did not answer in time: {text}")
    return StoreBusyError(f"the store failed: {text}")
