"""Runs an attempt on a lent connection. After a lost race or a lost connection, runs it again, within bounds.

    attempt ── success ──> its result
       │
       ├── lost (the connection is useless, or none could be opened) ── pause ──> again, on another connection
       ├── a node of Citus lost another node ── pause ──> again, once
       ├── raced (another transaction changed the same rows) ── pause ──> again, which may succeed
       ├── the board's table is missing ── pause ──> again, once: the transaction then sees that the board was deleted
       ├── lost during COMMIT ──> OutcomeUnknownError
       └── any other error, or no attempts left ──> the error of the store that describes it

A COMMIT whose answer was lost is never repeated, because the server may have committed the transaction.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncpg
import structlog

from config.settings import PostgresSettings
from storage.errors import OutcomeUnknownError, StoreBusyError
from storage.meter import Meter

from .connection_pool import ConnectionPool
from .postgres_connection import PostgresConnection
from .postgres_errors import (
    DRIVER_ERRORS,
    describe_error,
    is_board_deleted,
    is_lost,
    is_node_away,
    is_raced,
    translate_error,
)

T = TypeVar("T")
Attempt = Callable[[PostgresConnection], Coroutine[Any, Any, T]]
log = structlog.get_logger(__name__)
# The statement timeout must not end the server's wait for a synchronous standby server. After such a timeout, the
# server would confirm the COMMIT and only warn that the standby may not have the data.
COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"
NO_TIMEOUT_S = 10 * 365 * 86_400.0


class Retrier:
    """Runs attempts on the connections of one database. All connection pools of the database share one `Retrier`."""

    def __init__(self, limits: PostgresSettings, *, rng: random.Random, meter: Meter) -> None:
        self._limits, self._rng, self.meter = limits, rng, meter
        # Set on Citus. There, transactions and the move of a partition may wait for each other until a lock times out.
        self.retries_late_locks = False

    async def run(self, pool: ConnectionPool, attempt: Attempt[T]) -> T:
        """Run an attempt on a connection of `pool` and return its result. Run it again if that may help.

        Raises:
            StoreBusyError: the store is closed, `pool` lends no connection in time, or the server reports an error
                that is not listed here.
            StoreAwayError: the server can't be reached or does not answer in time.
            StoreFullError: the server's disk is full.
            UnknownBoardError: the board's table does not exist.
            OutcomeUnknownError: see `commit`.
        """
        tries = 0
        while True:
            try:
                return await self._once(pool, attempt)
            except DRIVER_ERRORS as error:
                tries += 1
                # If a board was deleted meanwhile, the second attempt finds that in the catalog. If a node of Citus had
                # an old connection to another node, the second attempt opens a new one. So two are enough.
                twice = is_board_deleted(error) or is_node_away(error)
                tries_max = 2 if twice else self._limits.store_attempts_max
                if tries >= tries_max or not self._may_pass(error):
                    raise translate_error(error) from error
                self.meter.add("rankcurve_store_retries")
                log.info("transaction_retried", pool=pool.name, detail=describe_error(error))
            await asyncio.sleep(self._pause_s(tries - 1))

    def _may_pass(self, error: BaseException) -> bool:
        """Return whether the same attempt may succeed after this error."""
        late_lock = self.retries_late_locks and isinstance(error, asyncpg.LockNotAvailableError)
        return late_lock or is_lost(error) or is_raced(error) or is_board_deleted(error)

    async def _once(self, pool: ConnectionPool, attempt: Attempt[T]) -> T:
        connection = await pool.lend_connection()
        cancelled = False
        try:
            return await attempt(connection)
        except asyncio.CancelledError:
            cancelled = True
            raise
        except BaseException as error:
            if isinstance(error, OutcomeUnknownError) or (is_lost(error) and not is_node_away(error)):
                connection.terminate()
            elif connection.is_in_transaction():
                await _roll_back(connection)
            raise
        finally:
            pool.take_back(connection, cancelled=cancelled)

    async def commit(self, connection: PostgresConnection) -> None:
        """Commit the transaction of a connection.

        Raises:
            StoreBusyError: the server rolled the transaction back instead.
            OutcomeUnknownError: the connection was lost before the answer came, or no answer came in time, or the
                server warned that the commit may be lost.
        """
        # If an operator cancels the server's wait for a standby, the server confirms the COMMIT, but sends a warning.
        warnings: list[object] = []

        def warned(_connection: object, message: object) -> None:
            warnings.append(message)

        connection.add_log_listener(warned)
        # The driver's own timeout would also cancel the server's wait for a standby. So if no answer comes in time,
        # terminate the connection instead.
        expiry = asyncio.get_running_loop().call_later(self._limits.commit_timeout_s, connection.terminate)
        try:
            status = await connection.execute(COMMIT, timeout=NO_TIMEOUT_S)
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise OutcomeUnknownError from error
            raise
        finally:
            expiry.cancel()
            connection.remove_log_listener(warned)
        if warnings:
            raise OutcomeUnknownError(f"the store warned while it committed, so the commit may be lost: {warnings[0]}")
        if status != "COMMIT":
            raise StoreBusyError("the store rolled the transaction back")

    def _pause_s(self, pauses_before: int) -> float:
        # The pause is random (full jitter), so that transactions of one race do not all run again at the same moment.
        longest = min(self._limits.store_backoff_s_max, self._limits.store_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)


async def _roll_back(connection: PostgresConnection) -> None:
    try:
        await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()  # the server rolls a transaction back when its client disconnects
        if not isinstance(error, DRIVER_ERRORS):
            raise
