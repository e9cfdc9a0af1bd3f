"""What a transaction does to resources, written with its journal and its counts at once where a statement can.

The rule: journal and counts tell what was done, all of it or nothing. Where some resource was no longer as it was found
they are left out, and whoever decides again tells what came of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from querybuilder import INTEGER, Built, Dialect, chained, count, param, select

from .lease_counts import Region, adding, lease_counts
from .lease_journal import telling, told
from .lease_records import Happening, RegionCounts
from .lease_resources import Change, Key, lease_resources, written
from .store import Program, Rows

_CHANGED = "changed"


class LeaseWrites:
    """The statement, for one dialect that has it; see `lease_writes`."""

    def __init__(self, dialect: Dialect) -> None:
        self._counts = lease_counts(dialect)
        writing, changes = lease_resources(dialect).writing, param("changes", INTEGER)
        telling_, adding_ = telling("happened"), adding("counts")
        all_changed = select(count()).from_(_CHANGED).scalar().eq(changes)
        self._write = chained(_CHANGED, writing, telling_.where(all_changed), adding_.where(all_changed)).compile(
            dialect
        )
        self._write_all = chained(_CHANGED, writing, telling_, adding_).exactly(changes).compile(dialect)

    def write(
        self,
        changes: Sequence[Change],
        happened: Sequence[Happening],
        counts: Mapping[Region, RegionCounts],
        rng: random.Random,
    ) -> Program[set[Key]]:
        """Change resources, those that are still as they were found; which these were, by pool and name.

        Where it was all of them, what happened is told and counted too: all that this transaction has to tell.
        """
        changed: Rows = yield self._write.bind(**self._bound(changes, happened, counts, rng))
        return {(row[0], row[1]) for row in changed}

    def all_of(
        self,
        changes: Sequence[Change],
        happened: Sequence[Happening],
        counts: Mapping[Region, RegionCounts],
        rng: random.Random,
    ) -> Built:
        """A query for `Store.write_one`, which changes all of them, and tells and counts it, or fails."""
        return self._write_all.bind(**self._bound(changes, happened, counts, rng))

    def _bound(
        self,
        changes: Sequence[Change],
        happened: Sequence[Happening],
        counts: Mapping[Region, RegionCounts],
        rng: random.Random,
    ) -> dict[str, object]:
        rows = self._counts.rows(counts, rng)
        return {"rows": written(changes), "changes": len(changes), "happened": told(happened), "counts": rows}


@lru_cache
def lease_writes(dialect: Dialect) -> LeaseWrites | None:
    """The statement, compiled once; None where a statement changes one table."""
    return LeaseWrites(dialect) if dialect.chains else None
