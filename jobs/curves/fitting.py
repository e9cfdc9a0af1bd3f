"""Fits a column's curve, by the method that its board chose (skip, scan or auto), from lines or cubics.

    skip ──> read some values in one snapshot ──> lines, or cubics if brackets are wide and cubics fit clearly better
    scan ──> read every value in one snapshot ──> fit on a thread: lines, with a certificate
    auto ──> like skip; on a quiet board like scan, once the curve's error bound exceeds `scan_bound_ratio`

A curve has a line or a cubic between each two knots. Sampling (`skip`) takes milliseconds, while a scan takes seconds.
The certificate is the curve's largest relative error, measured on all values of the scan. A board is quiet if at most
`scan_changes_ratio` of its entries change during a scan, so that the certificate is still nearly right when the curve
is stored.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import structlog

from jobs.job_context import JobContext
from predictor import Curve, RankCurve, Tally
from storage.curves.sampling import sample_curve, scan_column
from storage.curves.stored_curves import ListedCurve, find_listed_curves
from storage.leaves.totals import CHANGES, find_totals
from storage.log.change_log import change_log, date_snapshot
from storage.records import Leaf, RefreshMethod
from storage.store import Program

log = structlog.get_logger(__name__)

# A sampled curve gets cubics only if a bracket beyond `exact_top` is wider than this fraction of the rank at its start.
# With few samples, cubics reduced the mean error. With many, brackets are narrow, and the worst error did not shrink.
ROUGH_BRACKET = 0.02
AGE_S_MIN = 0.001  # the age of a younger curve is set to this, so that nothing is divided by zero


class FitSnapshot(NamedTuple):
    changes: int  # how many changes the leaf's totals had counted
    mark: int  # the first log position that is not in the snapshot
    as_of_us: int  # the time at which the snapshot was the current state


@dataclass(frozen=True, slots=True)
class ColumnState:
    """A column's state in the store before a fit: how many entries and changes it has, and its present curve."""

    entries: int
    changes: int
    listed: ListedCurve | None


class Fitting:
    def __init__(self, context: JobContext) -> None:
        self._store, self._open_boards = context.store, context.open_boards
        self._limits, self._now_us, self._monotonic = context.limits, context.now_us, context.monotonic

    async def fit_curve(self, leaf: Leaf, column_index: int, present: RankCurve | None) -> tuple[Curve, FitSnapshot]:
        """Fit a new curve, and return it with the state that it describes. `present` is the curve in use."""
        method = leaf.spec.predictor.method
        if method is not RefreshMethod.SKIP:
            state = await self._store.at(leaf.partition).read(partial(_read_state, leaf, column_index))
            if method is RefreshMethod.SCAN or self._scan_pays(leaf, present, state):
                return await self._scan(leaf, column_index, state)
        return await self._sample(leaf, column_index)

    async def scan_curve(self, leaf: Leaf, column_index: int) -> tuple[Curve, FitSnapshot]:
        """Scan a column, even if its board's method is not `scan`, and return a curve with a certificate.

        If the method is not `scan` and the column has over `scan_entries_max` entries, return a sampled curve instead.
        """
        state = await self._store.at(leaf.partition).read(partial(_read_state, leaf, column_index))
        if leaf.spec.predictor.method is not RefreshMethod.SCAN and state.entries > self._limits.scan_entries_max:
            return await self._sample(leaf, column_index)
        return await self._scan(leaf, column_index, state)

    def should_certify(self, leaf: Leaf, present: RankCurve | None, state: ColumnState) -> bool:
        """Return whether the board's method is `auto` and a scan should replace the sampled curve `present`."""
        if leaf.spec.predictor.method is not RefreshMethod.AUTO or present is None or present.method == "scan":
            return False
        return self._scan_pays(leaf, present, state)

    def _scan_pays(self, leaf: Leaf, present: RankCurve | None, state: ColumnState) -> bool:
        """Return whether a scan pays: few entries would change during it, and `present` is inaccurate or from a scan.

        The number of changes is estimated from their rate since the last fit. For a very large column, return False.
        """
        listed = state.listed
        if listed is None or listed.changes is None or not 0 < state.entries <= self._limits.scan_entries_max:
            return False
        age_s = max((self._now_us() - listed.as_of_us) / 1e6, AGE_S_MIN)
        changes = (state.changes - listed.changes) / age_s * (state.entries / self._limits.scan_rows_per_s)
        if present is None or changes > self._limits.scan_changes_ratio * state.entries:
            return False
        # If `present` is from a scan, scan again: a sampled curve is less accurate and would soon cause another scan.
        bound = present.estimate_drift(1 + leaf.spec.predictor.exact_top).bound
        return present.method == "scan" or bound > self._limits.scan_bound_ratio

    def _read_snapshot(self, leaf: Leaf, asked_us: int) -> Program[FitSnapshot]:
        totals = yield from find_totals([leaf.key])
        log = yield from change_log.read_counter()
        as_of_us = date_snapshot(log.changed_us, asked_us, self._now_us)
        return FitSnapshot(totals[leaf.key].get(CHANGES, 0), log.mark, as_of_us)

    async def _sample(self, leaf: Leaf, column_index: int) -> tuple[Curve, FitSnapshot]:
        entries = self._open_boards.open_rows(leaf)
        store = self._store.at(leaf.partition)
        dialect, gap_rows_max = store.dialect, self._limits.gap_rows_max
        asked_us = self._now_us()

        def sampled() -> Program[tuple[Curve, FitSnapshot]]:
            seen = yield from self._read_snapshot(leaf, asked_us)
            curve = yield from sample_curve(
                dialect, entries, column_index, gap_rows_max=gap_rows_max, now_us=seen.as_of_us
            )
            return curve, seen

        curve, seen = await store.read(sampled, heavy=True)
        if curve.estimate_drift(1 + leaf.spec.predictor.exact_top).bracket > ROUGH_BRACKET:
            curve = await asyncio.to_thread(_add_cubics, curve)
        return curve, seen

    async def _scan(self, leaf: Leaf, column_index: int, state: ColumnState) -> tuple[Curve, FitSnapshot]:
        entries = self._open_boards.open_rows(leaf)
        asked_us = self._now_us()

        def scanned() -> Program[tuple[Tally, FitSnapshot]]:
            seen = yield from self._read_snapshot(leaf, asked_us)
            tally = yield from scan_column(entries, column_index, self._limits)
            return tally, seen

        log.info("scan_began", board=leaf.id, column_index=column_index, entries=state.entries)
        started = self._monotonic()
        tally, seen = await self._store.at(leaf.partition).read(scanned, heavy=True)
        read_s = self._monotonic() - started
        samples, gap_rows_max = leaf.spec.predictor.samples, self._limits.gap_rows_max
        curve = await asyncio.to_thread(_fit, tally, samples, gap_rows_max, seen.as_of_us)
        took_s = self._monotonic() - started
        log.info(
            "scan_ended",
            board=leaf.id,
            column_index=column_index,
            entries=tally.total,
            read_s=round(read_s, 3),
            fit_s=round(took_s - read_s, 3),
            knots=len(curve.knots),
            certificate=curve.certificate,
        )
        return curve, seen


def _read_state(leaf: Leaf, column_index: int) -> Program[ColumnState]:
    totals = (yield from find_totals([leaf.key]))[leaf.key]
    listed = (yield from find_listed_curves([leaf.key])).get((leaf.key, column_index))
    return ColumnState(totals.get(column_index, 0), totals.get(CHANGES, 0), listed)


def _fit(tally: Tally, samples: int, gap_rows_max: int, as_of_us: int) -> Curve:
    from predictor.fit import fit_curve  # imported here, because it loads numpy

    return fit_curve(tally, knots_max=max(2, samples), gap_rows_max=gap_rows_max, as_of_us=as_of_us)


def _add_cubics(curve: Curve) -> Curve:
    from predictor.cubic import add_cubics  # imported here, because it loads numpy and scipy

    return add_cubics(curve)
