"""Scanning: reads every distinct value of a ranked column with its ties, page by page, in one snapshot.

The rule: a page is small. Its decoding holds the interpreter, and whoever else waits for it must not notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from predictor import Tally

from .entries import Entries
from .store import Program
from .tallying import Tallying


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The bounds of a scan; each is a setting of the same name."""

    scan_page_values: int
    scan_memory_values_max: int


def scan_column(
    entries: Entries, column_index: int, limits: ScanLimits, *, progress: Callable[[int], None] = lambda entries: None
) -> Program[Tally]:
    """The whole column. `progress` is told after every page how many entries have been read since the last."""
    ranking = entries.rankings[column_index]
    key_of = ranking.padding.key
    tallying = Tallying(memory_values_max=limits.scan_memory_values_max)
    below: str | None = None
    while True:
        rows = yield from ranking.tallied(limits.scan_page_values, below)
        read = tallying.total
        tallying.add([key_of(row[0]) for row in rows], [row[1] for row in rows])
        progress(tallying.total - read)
        if len(rows) < limits.scan_page_values:
            return tallying.tally()
        below = rows[-1][0]
