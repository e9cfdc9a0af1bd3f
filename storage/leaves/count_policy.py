"""Decides whether a rank is counted or read off a curve, and how much a count may read.

The request's mode decides first. A gap is the range between two neighbouring knots of the curve:

    auto      counts near the top, in short gaps, without a curve, and in longer gaps while this process is not busy
    exact     always counts
    estimate  never counts where a curve exists

This module reads nothing itself: callers pass what they know about a rank. All code that finds ranks decides here:
locators, reads of entries with counts, the counts of a statement, boards with segments, and lookups of the value at a
rank.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from predictor import AnyCurve
from storage.log.cells import CellOf, Padding

RankMode = Literal["auto", "exact", "estimate"]
SHORT_GAP_ROWS = 50  # `auto` counts in gaps of up to this many entries even while many requests come
COUNT_SLACK = 2  # `auto` counts at most COUNT_SLACK * `exact_top` rows from the top; for worse ranks it uses the curve
# `auto` counts while up to this many changes follow the curve's mark, however small the board's top is. With more, it
# counts in short gaps only.
DEFAULT_CHANGES_MAX = 100


def limit_gap_rows(gap_rows_max: int, *, ranks: int = 1, crowded: bool) -> int:
    """Choose the largest gap, in entries, in which `auto` counts if a request wants this many ranks.

    `gap_rows_max` is the limit for a single rank while the process is not busy. `crowded`: whether it is busy.
    """
    short = min(gap_rows_max, SHORT_GAP_ROWS)
    return short if crowded else max(short, gap_rows_max // max(1, ranks))


class CountPolicy(NamedTuple):
    exact_top: int  # `auto` counts every rank up to this one
    changes_max: int = 0  # if more changes than this follow a curve's mark, no count starts at its knots
    archived: bool = False  # an archive counts every rank, which is exact and reads only a few blocks

    def uses_curve(self, mode: RankMode) -> bool:
        return mode != "exact" and not self.archived

    def should_count(self, low: int, gap_rows: int, gap_rows_max: int) -> bool:
        """Return whether `auto` counts a rank even though there is a curve.

        `low`: the best rank that the curve allows. `gap_rows`: how many entries are between the two nearest knots, or 0
        if the curve knows the exact rank or no count can start at a knot. `gap_rows_max`: see `limit_gap_rows`.
        """
        return low <= self.exact_top or 0 < gap_rows <= gap_rows_max

    def choose_cells(
        self, curve: AnyCurve, padding: Padding, cells: Iterable[CellOf], gap_rows_max: int, *, knots: bool = False
    ) -> list[CellOf]:
        """Choose the cells whose ranks `auto` counts. `knots`: include those whose ranks the curve knows exactly."""
        chosen = []
        for cell in cells:
            key = padding.key_of_cell(cell[0])
            _, worse, better_count, gap_rows = curve.find_gap(key)
            if self.should_count(1 + better_count, (0 if key == worse else gap_rows) or int(knots), gap_rows_max):
                chosen.append(cell)
        return chosen

    def should_read_row(self, rank: int, gap_rows: int | None, rows_left: int) -> bool:
        """Return whether to read the value at a rank from a row even though there is a curve.

        `gap_rows`: how many entries are between the two knots around the row; None: no search can start at a knot.
        """
        return rank <= self.exact_top or (gap_rows is not None and gap_rows <= rows_left)

    def limit_changes(self, mode: RankMode) -> int:
        """Choose how many changes may follow the curve's mark for a count to still start at a knot.

        In `auto` mode, that is at most as many changes as a count from the top would read rows, because with more
        changes the count from the top is cheaper.
        """
        if mode != "auto":
            return self.changes_max
        return min(self.changes_max, max(DEFAULT_CHANGES_MAX, COUNT_SLACK * self.exact_top))

    @property
    def top_rows_max(self) -> int:
        """The most rows that a count from the top reads where the curve can give the rank instead."""
        return max(1, self.exact_top) * COUNT_SLACK
