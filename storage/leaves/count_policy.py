"""Decides whether a rank is counted or read off a curve, and how much a count may read.

The mode of the request decides first. A gap is the range between two neighbouring knots of the curve:

    auto      counts near the top, in short gaps, without a curve, and in longer gaps while this process is not busy
    exact     always counts
    estimate  never counts where a curve exists

This module reads nothing: callers pass what they know of a rank. Everyone who finds ranks asks here: locators, the
reads of entries with their counts, the counts of a statement, boards with segments, and the values at ranks.
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
    """Choose the most entries of a gap in which `auto` counts, if a request wants this many ranks.

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
        """Return whether `auto` counts a rank although there is a curve.

        `low`: the best rank that the curve allows. `gap_rows`: how many entries are between the two nearest knots, or 0
        if the curve knows the exact rank or no count can start at a knot. `gap_rows_max`: see `limit_gap_rows`.
        """
        return low <= self.exact_top or 0 < gap_rows <= gap_rows_max

    def choose_cells(
        self, curve: AnyCurve, padding: Padding, cells: Iterable[CellOf], gap_rows_max: int, *, knots: bool = False
    ) -> list[CellOf]:
        """Choose those of the cells whose ranks `auto` counts. `knots`: also those that the curve knows exactly."""
        chosen = []
        for cell in cells:
            key = padding.key_of_cell(cell[0])
            _, worse, better_count, gap_rows = curve.find_gap(key)
            if self.should_count(1 + better_count, (0 if key == worse else gap_rows) or int(knots), gap_rows_max):
                chosen.append(cell)
        return chosen

    def should_read_row(self, rank: int, gap_rows: int | None, rows_left: int) -> bool:
        """Return whether the value at a rank comes from a row although there is a curve.

        `gap_rows`: how many entries are between the two knots around the row; None: no search can start at a knot.
        """
        return rank <= self.exact_top or (gap_rows is not None and gap_rows <= rows_left)

    def limit_changes(self, mode: RankMode) -> int:
        """Choose how many changes may follow the curve's mark, so that a count starts at a knot.

        In the mode `auto`, these are at most as many as a count from the top reads rows. If more changes follow, that
        count is cheaper.
        """
        if mode != "auto":
            return self.changes_max
        return min(self.changes_max, max(DEFAULT_CHANGES_MAX, COUNT_SLACK * self.exact_top))

    @property
    def top_rows_max(self) -> int:
        """How many rows a count from the top reads at most if the curve can give the rank instead."""
        return max(1, self.exact_top) * COUNT_SLACK
