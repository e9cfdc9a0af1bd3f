"""How a column's curve is made: sampled in milliseconds, or scanned and certified in seconds.

    skip ──> seeks in one snapshot ─────────────> lines; cubics where knots are few and cubics proved closer
    scan ──> every value in one snapshot ──> fit on a thread of its own ──> lines or cubics, measured: a certificate
    auto ──> skip, until a sampled curve's bound passes `scan_bound_ratio` on a board that is quiet enough

The rule: what is pure runs neither on the event loop nor on a connection of the store. Quiet enough is a board that
changes by less than `scan_changes_ratio` of its entries while it is scanned: what the scan certifies still holds
about so well when it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from predictor import Curve, RankCurve, Tally
from storage.boards import OpenBoards
from storage.change_log import Mark, change_log
from storage.curve_marks import CurveMark, curve_marks
from storage.errors import ChangesUnordered
from storage.leaderboards import CHANGES, count_entries
from storage.records import Board, Method
from storage.sampling import sample_curve
from storage.scanning import ScanLimits, scan_column
from storage.store import Program, Store

log = structlog.get_logger(__name__)

# Sampled brackets past the exact top that are no wider gained nothing from cubics: a thousand samples of eight boards
# stayed as wrong at worst, and a mean of 0.01 % fell by a tenth. At 50 samples the mean fell by two thirds.
ROUGH_BRACKET = 0.02
AGE_S_MIN = 0.001  # of a curve: two clocks may tell the same time


@dataclass(frozen=True, slots=True)
class FittingLimits:
    """The bounds of fits; each is a setting of the same name."""

    scan: ScanLimits
    gap_rows_max: int
    scan_bound_ratio: float
    scan_changes_ratio: float
    scan_rows_per_s: int


class FittingObserver(Protocol):
    """What fits tell their operators."""

    def scan_read(self, entries: int, *, left: int) -> None:
        """So many more entries were read by scans; `left`: how many those under way have yet to read, about."""


class Seen(NamedTuple):
    """What the snapshot of a fit saw."""

    changes: int  # the board's count of them
    mark: Mark | None  # in the change log; None: it can't be told, and the curve is not kept live


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a column before its fit."""

    entries: int
    changes: int
    mark: CurveMark | None


class Fitting:
    """Makes curves."""

    def __init__(
        self,
        store: Store,
        sampled: Store,
        open_boards: OpenBoards,
        limits: FittingLimits,
        observer: FittingObserver,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._store, self._sampled, self._open_boards = store, sampled, open_boards
        self._limits, self._observer = limits, observer
        self._now_us, self._monotonic = now_us, monotonic
        self._rows_per_s = float(limits.scan_rows_per_s)  # as the last scan went
        self._left: dict[tuple[int, int], int] = {}  # entries to read, by column that is being scanned

    async def fit(self, board: Board, column_index: int, present: RankCurve | None) -> tuple[Curve, Seen]:
        """The column's next curve, by its board's method. `present`: the one that serves."""
        method = board.spec.predictor.method
        if method is not Method.SKIP:
            look = await self._store.read(lambda: self._look(board, column_index))
            if method is Method.SCAN or (present is not None and self._quiet(look) and self._worth(board, present)):
                return await self._scan(board, column_index, look)
        return await self._sample(board, column_index)

    async def scan(self, board: Board, column_index: int) -> tuple[Curve, Seen]:
        """The column's certified curve, whatever its board's method."""
        look = await self._store.read(lambda: self._look(board, column_index))
        return await self._scan(board, column_index, look)

    def certifies(self, board: Board, present: RankCurve | None, look: Look) -> bool:
        """Whether the sampled curve of a board that leaves the choice to the service is to be replaced by a scan."""
        if board.spec.predictor.method is not Method.AUTO or present is None or present.method == "scan":
            return False
        return self._quiet(look) and self._worth(board, present)

    def _look(self, board: Board, column_index: int) -> Program[Look]:
        totals = (yield from count_entries(self._store.dialect, [board.key]))[board.key]
        marks = yield from curve_marks(self._store.dialect, [board.key])
        mark = marks.get((board.key, column_index))
        return Look(totals.get(column_index, 0), totals.get(CHANGES, 0), mark)

    def _worth(self, board: Board, present: RankCurve) -> bool:
        # One that was scanned is scanned again: a sampled curve would be worse, and take it back at once.
        bound = present.drift(1 + board.spec.predictor.exact_top).bound
        return present.method == "scan" or bound > self._limits.scan_bound_ratio

    def _quiet(self, look: Look) -> bool:
        """Whether the board changes little while it is scanned, at the rate of its changes since the present curve."""
        mark = look.mark
        if mark is None or mark.changes is None or look.entries == 0:
            return False
        age_s = max((self._now_us() - mark.as_of_us) / 1e6, AGE_S_MIN)
        changes = (look.changes - mark.changes) / age_s * (look.entries / self._rows_per_s)
        return changes <= self._limits.scan_changes_ratio * look.entries

    def _seen(self, board: Board) -> Program[Seen]:
        dialect = self._store.dialect
        totals = yield from count_entries(dialect, [board.key])
        try:
            mark = yield from change_log(dialect).mark_now()
        except ChangesUnordered:  # somebody's transaction has been running for long: the curve is as true without
            mark = None
        return Seen(totals[board.key].get(CHANGES, 0), mark)

    async def _sample(self, board: Board, column_index: int) -> tuple[Curve, Seen]:
        entries, _ = self._open_boards.open(board)
        dialect, gap_rows_max = self._store.dialect, self._limits.gap_rows_max
        # Before the snapshot, which may be a replica's: no write acknowledged before `as_of` is missing from the curve.
        now_us = self._now_us()

        def sampled() -> Program[tuple[Curve, Seen]]:
            seen = yield from self._seen(board)
            curve = yield from sample_curve(dialect, entries, column_index, gap_rows_max=gap_rows_max, now_us=now_us)
            return curve, seen

        curve, seen = await self._sampled.of(board.id).read(sampled, heavy=True)
        if curve.drift(1 + board.spec.predictor.exact_top).bracket > ROUGH_BRACKET:
            curve = await asyncio.to_thread(_shaped, curve)
        return curve, seen

    async def _scan(self, board: Board, column_index: int, look: Look) -> tuple[Curve, Seen]:
        entries, _ = self._open_boards.open(board)
        now_us = self._now_us()  # before the snapshot, as above
        slot, loop = (board.key, column_index), asyncio.get_running_loop()

        def progress(read: int) -> None:  # on a thread of the store's
            loop.call_soon_threadsafe(self._progress, slot, read)

        def scanned() -> Program[tuple[Tally, Seen]]:
            seen = yield from self._seen(board)
            tally = yield from scan_column(entries, column_index, self._limits.scan, progress=progress)
            return tally, seen

        log.info("scan_began", board=board.id, column_index=column_index, entries=look.entries)
        self._left[slot] = look.entries
        self._progress(slot, 0)
        started = self._monotonic()
        try:
            tally, seen = await self._sampled.of(board.id).read(scanned, heavy=True)
            read_s = self._monotonic() - started
            samples, gap_rows_max = board.spec.predictor.samples, self._limits.gap_rows_max
            curve = await asyncio.to_thread(_fitted, tally, samples, gap_rows_max, now_us)
        finally:
            del self._left[slot]
            self._observer.scan_read(0, left=sum(self._left.values()))
        took_s = self._monotonic() - started
        if took_s > 0 and tally.total:
            self._rows_per_s = tally.total / took_s
        log.info(
            "scan_ended",
            board=board.id,
            column_index=column_index,
            entries=tally.total,
            read_s=round(read_s, 3),
            fit_s=round(took_s - read_s, 3),
            knots=len(curve.knots),
            certificate=curve.certificate,
        )
        return curve, seen

    def _progress(self, slot: tuple[int, int], read: int) -> None:
        if slot in self._left:
            self._left[slot] = max(0, self._left[slot] - read)
        self._observer.scan_read(read, left=sum(self._left.values()))


def _fitted(tally: Tally, samples: int, gap_rows_max: int, as_of_us: int) -> Curve:
    from predictor.fit import fit  # numpy and scipy are for processes that scan

    return fit(tally, knots_max=max(2, samples), gap_rows_max=gap_rows_max, as_of_us=as_of_us)


def _shaped(curve: Curve) -> Curve:
    from predictor.fit import shaped  # as above

    return shaped(curve)
