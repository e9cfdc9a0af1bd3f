"""Holds curves against the rows at random, so that operators learn of a wrong bracket before a player does.

The rule: an audit is one bounded read on the connections for counts. Of several job processes one audits, once an
interval; an operator may ask any front end for one at any time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import structlog

from storage.auditing import Audit, AuditLimits, Moment, audit
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.curves import CurveBook
from storage.errors import BoardChanged, LeaseTaken, NoCurve, StorageError, UnknownBoard
from storage.records import Board
from storage.store import Store

from .ownership import Held, Ownership
from .prune import POOL, REST_RATIO
from .runner import Sleep

log = structlog.get_logger(__name__)

RESOURCE = "audit"
DRAWS_MAX = 100  # boards drawn in search of one that has a curve
BROKEN_LOGGED_MAX = 10  # a curve that is wrong is wrong at many places


class AuditObserver(Protocol):
    """What audits tell operators."""

    def audited(self, found: Audit) -> None:
        """An audit ended."""

    def audit_failed(self) -> None:
        """An audit could not read what it needed."""


class Auditor:
    """Audits columns, for the job and for operators."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        book: CurveBook,
        limits: AuditLimits,
        observer: AuditObserver,
        *,
        monotonic: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._book = store, boards, book
        self._limits, self._observer = limits, observer
        self._monotonic, self._rng = monotonic, rng

    async def audit(self, board: Board, column_index: int, *, owners: int | None = None) -> Audit:
        """Compare random entries, fewer than the limit where `owners` says so, with the curve that serves here.

        Raises:
            NoCurve: there is none yet.
            UnknownBoard, BoardChanged: see `storage.auditing.audit`.
            StoreBusy: the store did not answer within its bounds.
        """
        served = self._book.served(board, column_index)
        if served is None:
            raise NoCurve(f"{board.spec.columns[column_index].name!r} of {board.id!r} has no curve yet")
        moment = Moment(served.curve, served.mark, served.version)
        entries, _ = self._boards.open(board)
        limits = self._limits
        if owners is not None:
            limits = replace(limits, audit_owners_max=min(owners, limits.audit_owners_max))
        dialect = self._store.dialect
        found = await self._store.of(board.id).read(
            lambda: audit(dialect, entries, column_index, moment, limits, rng=self._rng, monotonic=self._monotonic),
            heavy=True,
        )
        self._observer.audited(found)
        for each in found.broken[:BROKEN_LOGGED_MAX]:
            log.error(
                "bracket_broken",
                board=board.id,
                column_index=column_index,
                cell=each.cell,
                true_rank=each.true_rank,
                rank=each.rank,
                low=each.low,
                high=each.high,
                as_of_us=found.curve.as_of_us,
            )
        return found

    def failed(self, board: Board, column_index: int, error: Exception) -> None:
        """Tell of an audit that raised."""
        self._observer.audit_failed()
        log.error("audit_failed", board=board.id, column_index=column_index, exc_info=error)


class AuditJob:
    """Audits a random column at every interval."""

    def __init__(
        self,
        catalog: Catalog,
        book: CurveBook,
        auditor: Auditor,
        ownership: Ownership,
        *,
        audit_interval_s: float,
        sleep: Sleep,
        rng: random.Random,
    ) -> None:
        self._catalog, self._book, self._auditor, self._ownership = catalog, book, auditor, ownership
        self._audit_interval_s, self._sleep, self._rng = audit_interval_s, sleep, rng

    async def run(self) -> None:
        """Audit at every interval, for ever."""
        while True:
            await self._sleep(self._audit_interval_s)
            try:
                await self._ownership.run(POOL, RESOURCE, self._audit, rests_s=self._audit_interval_s * REST_RATIO)
            except LeaseTaken:
                continue

    async def _audit(self, _held: Held) -> None:
        drawn = self.draw()
        if drawn is None:
            return
        board, column_index = drawn
        try:
            await self._auditor.audit(board, column_index)
        except (NoCurve, UnknownBoard, BoardChanged):
            return  # emptied or deleted meanwhile
        except StorageError as error:
            self._auditor.failed(board, column_index, error)

    def draw(self) -> tuple[Board, int] | None:
        """A random column that has a curve; None where a bounded number of draws met none."""
        boards = self._catalog.boards()
        for _ in range(DRAWS_MAX if boards else 0):
            board = self._rng.choice(boards)
            if board.sorted_indexes:
                column_index = self._rng.choice(board.sorted_indexes)
                if self._book.served(board, column_index) is not None:
                    return board, column_index
        return None
