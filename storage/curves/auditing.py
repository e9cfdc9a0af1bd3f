"""Audits a curve by comparing it with the exact ranks of random entries at the curve's moment.

A curve's moment is the time for which it gives ranks: its `as_of`.

    a curve and its moment ──> one snapshot ─┬─ random rows, counted one by one from the best
                                             └─ what has changed since that moment, subtracted from the counts

A false alarm would teach operators to ignore audits. Entries are counted at the time of the snapshot, whereas the
curve's brackets hold for the curve's moment. So the two are compared only if every change in between is known: either
the board has not changed, or the change log holds the changes.

Unlike the walk that made the curve, the counts neither start at knots nor skip rows. Otherwise an audit could repeat an
error of that walk instead of finding it.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from config.settings import JobSettings
from predictor import AnyCurve, Curve, SummedCurve
from storage.leaves.entries import Entries
from storage.leaves.row_rankings import RowRanking
from storage.leaves.totals import CHANGES, read_totals
from storage.log.cells import Padding, RankedCells
from storage.log.change_log import change_log
from storage.meter import AuditOutcome
from storage.records import Leaf
from storage.store import Program, in_partition

from .curve_book import ServedCurve
from .live_counts import list_bundles_after
from .stored_curves import find_listed_curves


@dataclass(frozen=True, slots=True)
class Compared:
    """One entry's rank at the curve's moment, and the rank and bracket that the curve gives it."""

    cell: str
    true_rank: int
    rank: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """The difference between the curve's rank and the true rank, divided by the true rank."""
        return abs(self.rank - self.true_rank) / self.true_rank

    @property
    def broken(self) -> bool:
        """Return True if the true rank lies outside the bracket, so that either the curve or the count is wrong."""
        return not self.low <= self.true_rank <= self.high


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. `outcome` is `changed` if changes since the curve's moment are unknown or too many."""

    outcome: AuditOutcome
    curve: AnyCurve
    compared: list[Compared] = field(default_factory=list)

    @property
    def broken(self) -> list[Compared]:
        return [each for each in self.compared if each.broken]

    @property
    def beyond_certificate(self) -> list[Compared]:
        certificate = self.curve.certificate
        if certificate is None:
            return []
        # A certificate is a quotient of floats, so the comparison tolerates a difference in rounding.
        return [each for each in self.compared if each.error > certificate * (1 + 1e-9)]


class AuditedPart(NamedTuple):
    """A leaf of the audited board, with the curve that this process serves for the leaf's audited column."""

    entries: Entries
    served: ServedCurve
    mark: int | None  # the mark of the curve before the audit's snapshots; None: unknown


class _Known(NamedTuple):
    """A leaf's number of entries, and the sorted keys of the entries that came or went since the curve's moment."""

    entries: int
    came: Sequence[int]
    went: Sequence[int]


def audit_curve(
    parts: Sequence[AuditedPart],
    column_index: int,
    limits: JobSettings,
    *,
    rng: random.Random,
    monotonic: Callable[[], float],
) -> Program[Audit]:
    """Compare up to `audit_owners_max` random entries with a column's curve.

    `parts` has an item for each leaf. The curves of several segments are summed; each segment has its own snapshot.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: this process's copy of the board is outdated.
    """
    started_s = monotonic()
    curves = [part.served.curve for part in parts]
    curve = curves[0] if len(parts) == 1 else SummedCurve(curves)
    known: list[_Known] = []
    for part in parts:
        finding = _find_known(part, column_index, limits)
        if (its := (yield from in_partition(part.served.partition, finding))) is None:
            return Audit("changed", curve)
        known.append(its)
    if not any(its.entries for its in known):
        return Audit("empty", curve)
    rankings = [part.entries.rankings[column_index] for part in parts]
    padding = rankings[0].padding
    # The database reads these rows twice, to find the cells and to count. So all parts together get half of the limit.
    rows_max = max(1, limits.audit_rows_max // 2 // len(parts))
    drawn: list[str] = []
    for part, ranking, its in zip(parts, rankings, known, strict=True):
        rows = min(its.entries, rows_max)
        row_numbers = sorted(rng.sample(range(rows), min(rows, -(-limits.audit_owners_max // len(parts)))))
        drawing = _find_cells(ranking, row_numbers, lambda: monotonic() > started_s + limits.audit_s_max / 2)
        drawn += yield from in_partition(part.served.partition, drawing)
    drawn = sorted(rng.sample(drawn, min(len(drawn), limits.audit_owners_max)), key=padding.key_of_cell)
    counts = []
    for part, ranking, its in zip(parts, rankings, known, strict=True):
        counting = _count_better_then(ranking, drawn, its, lambda: monotonic() > started_s + limits.audit_s_max)
        counts.append((yield from in_partition(part.served.partition, counting)))
    compared = []
    for cell, *better_then in zip(drawn, *counts, strict=False):  # if the time ran out, some parts have fewer counts
        bracket = curve.locate(padding.key_of_cell(cell))
        compared.append(Compared(cell, 1 + sum(better_then), bracket.rank, bracket.low, bracket.high))
    return Audit("compared", curve, compared)


def _find_known(part: AuditedPart, column_index: int, limits: JobSettings) -> Program[_Known | None]:
    """Find a leaf's entry count, and its changes since the curve's moment, or None if they are unknown or too many."""
    leaf, served = part.entries.leaf, part.served
    totals = (yield from read_totals([leaf]))[leaf.key]
    entries = totals.get(column_index, 0)
    if isinstance(served.curve, Curve):
        stored = (yield from find_listed_curves([leaf.key])).get((leaf.key, column_index))
        if stored is not None and (stored.version, stored.changes) == (served.version, totals.get(CHANGES, 0)):
            return _Known(entries, (), ())
    if part.mark is None:
        return None
    if not (yield from change_log.read_counter()).holds_changes_since(part.mark):
        return None  # the changes were pruned, or the store was restored from a backup
    changes_max = limits.audit_changes_max
    bundles = yield from list_bundles_after(part.mark, changes_max=changes_max + 1, boards=[leaf.key])
    changes = [(before, after) for bundle in bundles for _, _, before, after in bundle.changes() if after]
    if len(changes) > changes_max:
        return None
    came, went = [after for _, after in changes], [before for before, _ in changes]
    return _Known(entries, _sorted_keys(leaf, column_index, came), _sorted_keys(leaf, column_index, went))


def _find_cells(ranking: RowRanking, row_numbers: Iterable[int], is_late: Callable[[], bool]) -> Program[list[str]]:
    cells: list[str] = []
    past_rows = 0  # how many rows have the last found cell or a better one
    for row_number in row_numbers:
        if is_late():
            break
        if not cells or row_number >= past_rows:
            found = yield from ranking.sample_row(row_number - past_rows, cells[-1] if cells else None)
            if found is None:
                break
            past_rows = row_number - found.ties_before + found.ties
            cells.append(found.cell)
        else:
            cells.append(cells[-1])
    return cells


def _count_better_then(
    ranking: RowRanking, cells: Iterable[str], known: _Known, is_late: Callable[[], bool]
) -> Program[list[int]]:
    """Count, for each of `cells` (best first), the entries that were better at the curve's moment.

    Count all entries one by one, starting with the best. Once `is_late` returns True, stop and return fewer counts than
    cells.
    """
    counts = []
    above: str | None = None
    better_count = 0
    for cell in cells:
        if is_late():
            break
        if cell != above:
            better_count += yield from _count_between(ranking, above, cell)
            above = cell
        key = ranking.padding.key_of_cell(cell)
        counts.append(better_count - bisect_left(known.came, key) + bisect_left(known.went, key))
    return counts


def _count_between(ranking: RowRanking, above: str | None, cell: str) -> Program[int]:
    # `count_range` includes `least` and excludes `past`. A cell followed by "0" sorts directly after the cell, so this
    # text excludes the cell as `least`, and includes the cell as `past`.
    if ranking.padding.high:
        return (yield from ranking.count_range(least=cell + "0", past=":" if above is None else above + "0"))
    return (yield from ranking.count_range(least=above or "", past=cell))


def _sorted_keys(leaf: Leaf, column_index: int, texts: Iterable[str]) -> list[int]:
    cells, padding = RankedCells(leaf.spec), Padding(leaf.spec, leaf.spec.columns[column_index])
    found = (cells.extract_cell(text, column_index) for text in texts)
    return sorted(padding.keys_of_cells(cell for cell in found if cell is not None))
