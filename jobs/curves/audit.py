"""Audits curves: compares the ranks that a curve gives for random entries with counted ranks.

A wrong bracket would mean that the service lies, and operators should learn of it before players do. One job process
audits a column in each interval, and operators may request further audits. An audit is one bounded read on the
connections for long reads, so that point reads never wait for it.
"""

import random
from collections.abc import Callable
from dataclasses import asdict

import structlog

from config.settings import JobSettings
from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.curves.auditing import Audit, AuditedPart, audit_curve
from storage.curves.curve_book import CurveBook
from storage.errors import BoardChangedError, NoCurveError, StorageError, UnknownBoardError
from storage.meter import Meter
from storage.reads.open_boards import OpenBoards
from storage.records import Board
from storage.store import Store

log = structlog.get_logger(__name__)

RESOURCE = "audit"
DRAWS_MAX = 100  # how many random boards are tried, at most, until one has a curve
BROKEN_LOGGED_MAX = 10  # one audit logs at most this many wrong brackets; a wrong curve may have many more


class Auditor:
    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        book: CurveBook,
        limits: JobSettings,
        meter: Meter,
        *,
        monotonic: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._book = store, boards, book
        self._limits, self.meter = limits, meter
        self._monotonic, self._rng = monotonic, rng

    async def audit_column(self, board: Board, column_index: int, *, owners: int | None = None) -> Audit:
        """Compare the curve in use with counted ranks of `owners` random entries, but at most `audit_owners_max`.

        Raises:
            NoCurveError: the column has no curve yet.
            UnknownBoardError, BoardChangedError: the board was deleted, or this process's memory of it is outdated.
            StoreBusyError: the store did not answer within its bounds.
        """
        parts = []
        for leaf in board.leaves:
            served = self._book.find_served(leaf, column_index)
            if served is None:
                raise NoCurveError(f"{board.spec.columns[column_index].name!r} of {board.id!r} has no curve yet")
            parts.append(AuditedPart(self._boards.open_rows(leaf), served, served.mark))
        limits = self._limits
        if owners is not None:
            limits = limits.model_copy(update={"audit_owners_max": min(owners, limits.audit_owners_max)})
        found = await self._store.at(board.reading_partition).read(
            lambda: audit_curve(parts, column_index, limits, rng=self._rng, monotonic=self._monotonic),
            heavy=True,
        )
        self._report_audit(found)
        for each in found.broken[:BROKEN_LOGGED_MAX]:
            facts = {"board": board.id, "column_index": column_index, "as_of_us": found.curve.as_of_us}
            log.error("bracket_broken", **facts, **asdict(each))
        return found

    def _report_audit(self, found: Audit) -> None:
        self.meter.add("rankcurve_audits", 1, found.outcome)
        for each in found.compared:
            self.meter.observe("rankcurve_audit_error_ratio", each.error)
            if found.curve.certificate is not None:
                self.meter.observe("rankcurve_audit_certificate_ratio", found.curve.certificate)
        self.meter.add("rankcurve_audit_brackets_broken", len(found.broken))
        self.meter.add("rankcurve_audit_certificates_broken", len(found.beyond_certificate))


class AuditJob:
    def __init__(self, context: JobContext, auditor: Auditor) -> None:
        self._catalog, self._book, self._rng = context.catalog, context.book, context.rng
        self._auditor, self._ownership = auditor, Ownership(context)
        self._interval_s, self._sleep = context.limits.audit_interval_s, context.make_sleep(RESOURCE)

    async def run_forever(self) -> None:
        await self._ownership.run_rounds(RESOURCE, self._audit, interval_s=self._interval_s, sleep=self._sleep)

    async def _audit(self, _held: HeldLease) -> None:
        drawn = self.draw_column()
        if drawn is None:
            return
        board, column_index = drawn
        try:
            await self._auditor.audit_column(board, column_index)
        except (NoCurveError, UnknownBoardError, BoardChangedError):
            return  # the board has been changed, emptied or deleted
        except StorageError as error:
            self._auditor.meter.add("rankcurve_audits", 1, "failed")
            log.error("audit_failed", board=board.id, column_index=column_index, exc_info=error)

    def draw_column(self) -> tuple[Board, int] | None:
        """Draw a random board and column that have a curve, or return None if `DRAWS_MAX` draws found none."""
        boards = self._catalog.list_boards()
        for _ in range(DRAWS_MAX if boards else 0):
            board = self._rng.choice(boards)
            if board.sorted_indexes and board.gate.archived_us is None:
                column_index = self._rng.choice(board.sorted_indexes)
                if self._book.find_curve(board, column_index) is not None:
                    return board, column_index
        return None
