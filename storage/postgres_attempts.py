"""Runs something on a lent connection, and runs it again after a lost race or connection, within bounds.

The rule: a COMMIT whose answer was lost is never run again here: that transaction may have happened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from querybuilder import Built

from .errors import LostRace, OutcomeUnknown, StoreBusy
from .observing import StoreObserver
from .pool import Pool
from .postgres_connection import PostgresConnection
from .postgres_errors import DRIVER_ERRORS, is_board_gone, is_lost, is_otherwise, is_raced, said, translated
from .store import Rows

T = TypeVar("T")
Attempt = Callable[[PostgresConnection], Coroutine[Any, Any, T]]
log = structlog.get_logger(__name__)

# Waiting for a synchronous standby must not end by a timeout of the server: it would answer that all is well, with a
# warning that the standby may not have it.
COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"
NO_TIMEOUT_S = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """The bounds of trying again; each is a setting of the same name."""

    connect_timeout_s: float
    commit_timeout_s: float
    store_attempts_max: int
    store_backoff_base_s: float
    store_backoff_s_max: float


class Attempts:
    """What every way to one database shares: bounds, chance, and what still runs when the store is closed."""

    def __init__(self, limits: AttemptLimits, *, rng: random.Random, observer: StoreObserver) -> None:
        self._limits, self._rng, self.observer = limits, rng, observer
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._background: set[asyncio.Task[None]] = set()

    async def run(self, pool: Pool[PostgresConnection], attempt: Attempt[T]) -> T:
        """The outcome of an attempt.

        Raises:
            StoreBusy: closed, or the server refused; StoreAway where it can't be reached or does not answer in time.
            UnknownBoard: the board's table is gone.
            OutcomeUnknown: see `commit`.
        """
        if self._closed:
            raise StoreBusy("the store is closed")
        self._running += 1
        self._idle.clear()
        try:
            return await self._run_again(pool, attempt)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _run_again(self, pool: Pool[PostgresConnection], attempt: Attempt[T]) -> T:
        tries = 0
        while True:
            try:
                return await self._once(pool, attempt)
            except DRIVER_ERRORS as error:
                tries += 1
                # A board that is gone is seen to be so by the transaction that runs again: once is enough.
                tries_max = 2 if is_board_gone(error) else self._limits.store_attempts_max
                if tries >= tries_max or not (is_lost(error) or is_raced(error) or is_board_gone(error)):
                    raise translated(error) from error
                self.observer.tried_again()
                log.info("store_tried_again", pool=pool.name, detail=said(error))
            await asyncio.sleep(self._pause_s(tries - 1))

    async def _once(self, pool: Pool[PostgresConnection], attempt: Attempt[T]) -> T:
        connection = await pool.take()
        try:
            return await attempt(connection)
        except asyncio.CancelledError:
            # The driver asks the server to stop what it does; until it has, the connection is of no use.
            self._in_background(_close(connection, self._limits.connect_timeout_s))
            raise
        except BaseException as error:
            if is_lost(error) or isinstance(error, OutcomeUnknown):
                connection.terminate()
            elif connection.is_in_transaction():
                await _roll_back(connection)
            raise
        finally:
            pool.give_back(connection)

    async def commit(self, connection: PostgresConnection) -> None:
        """End a transaction.

        Raises:
            OutcomeUnknown: see `_vouched`.
        """
        status = await self._vouched(connection, lambda: connection.execute(COMMIT, timeout=NO_TIMEOUT_S))
        if status != "COMMIT":
            raise StoreBusy("the store rolled the transaction back")

    async def alone(self, connection: PostgresConnection, query: Built) -> Rows:
        """Run a statement that is a transaction of its own.

        Raises:
            LostRace: another transaction came between, or the statement says so itself.
            OutcomeUnknown: see `_vouched`.
        """
        try:
            # The server's bound on a statement ends where its commit begins.
            return await self._vouched(connection, lambda: connection.run(query, timeout_s=NO_TIMEOUT_S))
        except DRIVER_ERRORS as error:
            if is_raced(error) or is_otherwise(error):
                raise LostRace("another transaction came between") from error
            raise

    async def _vouched(self, connection: PostgresConnection, commit: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of what commits.

        Raises:
            OutcomeUnknown: the connection was lost before the answer, none came in time, or the server warned that
                what was committed may be lost.
        """
        # Where an operator cancels the wait for a standby, the server says COMMIT all the same, and warns.
        warnings: list[object] = []

        def warned(_connection: object, message: object) -> None:
            warnings.append(message)

        connection.add_log_listener(warned)
        # Not the driver's timeout: it would cancel that wait. Without an answer the connection goes.
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._limits.commit_timeout_s, connection.terminate)
        try:
            answer = await commit()
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise OutcomeUnknown from error
            raise
        finally:
            expiry.cancel()
            connection.remove_log_listener(warned)
        if warnings:
            raise OutcomeUnknown(f"the store does not vouch for what it committed: {warnings[0]}")
        return answer

    def _pause_s(self, pauses_before: int) -> float:
        # Full jitter: losers of one race don't meet again at the same moment.
        longest = min(self._limits.store_backoff_s_max, self._limits.store_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Begin nothing more, and return when what has begun is done."""
        self._closed = True
        await self._idle.wait()
        await asyncio.gather(*self._background)


async def _roll_back(connection: PostgresConnection) -> None:
    try:
        await connection.execute("ROLLBACK")
    except BaseException as error:
        connection.terminate()  # the server rolls back what has no client
        if not isinstance(error, DRIVER_ERRORS):
            raise


async def _close(connection: PostgresConnection, timeout_s: float) -> None:
    try:
        await connection.close(timeout=timeout_s)
    except DRIVER_ERRORS:
        connection.terminate()
