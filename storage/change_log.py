"""The change log: what each applied post changed, written in its transaction, read in an order that every commit keeps.

Its rows are bundles of changes, see `bundles`.

The rule: a reader counts by a `Mark`, which is what one snapshot saw and nothing else. Numbers are given before the
commit, so a later number may be seen before an earlier one: on PostgreSQL a mark is the oldest transaction that still
ran and, of the later ones, those that had ended. SQLite has one writer at a time, and the rows' own numbers do.

A bundle that another one follows has the smaller `seq`: that orders the changes of an owner. (`position`, `seq`) does
not, since a transaction may begin before and change the owner after another one; it orders pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Column,
    Condition,
    Dialect,
    Ordering,
    Statement,
    all_of,
    any_of,
    asc,
    coalesce,
    col,
    delete,
    insert,
    lit,
    max_,
    not_,
    oldest_transaction,
    param,
    plus,
    select,
    union_all,
)

from .bundles import Bundle, Draft
from .errors import ChangesUnordered
from .migrate import CHANGE_LOG, PRUNED, SEQUENCES
from .posted import Said
from .store import Program

SEEN_MAX = 10_000  # transactions past the oldest one still running; a second has some hundred


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a reader has come: every change at a lower position, and those of the transactions seen past it."""

    position: int
    seen: tuple[int, ...] = ()  # ascending

    def has(self, position: int) -> bool:
        """Whether the changes at a position are counted."""
        return position < self.position or position in self.seen


class Appended(NamedTuple):
    """A change as its writer hands it over."""

    board_key: int
    owner: str
    previous: str  # see `RankedCells`
    next: str  # as long
    said: Said  # see `posted`


class ChangeLog:
    """The statements of the log, for one dialect; see `change_log`."""

    def __init__(self, dialect: Dialect) -> None:
        self._in_order = not dialect.transaction
        self.position = col("seq" if self._in_order else "position")
        order = (asc(self.position),) if self._in_order else (asc(self.position), asc(col("seq")))
        row = {
            "board_key": INTEGER,
            "updated_at": INTEGER,
            "changes": INTEGER,
            "owners": TEXT,
            "cells": TEXT,
            "posts": TEXT,
        }
        placed = row if self._in_order else row | {"place": INTEGER}
        self._append = insert(CHANGE_LOG).rows(param("rows"), **placed).compile(dialect)
        next_number = select(plus(coalesce(max_(self.position), 0), 1)).from_(CHANGE_LOG)
        self.horizon_now = next_number if self._in_order else select(oldest_transaction())
        self._horizon = self.horizon_now.compile(dialect)
        seen = select(self.position).from_(CHANGE_LOG).group_by(self.position).limit(SEEN_MAX + 1)
        self._mark = (
            self._horizon
            if self._in_order
            else union_all(self.horizon_now, seen.where(self.position.ge(oldest_transaction()))).compile(dialect)
        )
        beyond = self.position.gt(param("past_position"))
        until = self.position.lt(param("until"))
        if not self._in_order:
            beyond = all_of(self.position.ge(param("past_position")), any_of(beyond, col("seq").gt(param("past_seq"))))
            until = any_of(until, self.position.in_(param("until_seen")))
        between = beyond, self.after(), until
        self._sizes, self._between = self._pages(dialect, order, between)
        self._sizes_of_boards, self._between_of_boards = self._pages(
            dialect, order, (*between, col("board_key").in_(param("boards")))
        )
        self._any_between = select(lit(1)).from_(CHANGE_LOG).where(*between).limit(1).compile(dialect)
        self.pruned_before = select(col("next")).from_(SEQUENCES).where(col("name").eq(PRUNED))
        self._pruned = self.pruned_before.compile(dialect)
        oldest = select(self.position, col("updated_at"), col("changes")).from_(CHANGE_LOG).order_by(*order)
        self._ages = oldest.limit(param("rows")).packed().compile(dialect)
        self._delete = delete(CHANGE_LOG).where(self.position.lt(param("boundary"))).compile(dialect)
        self._set_pruned = (
            insert(SEQUENCES)
            .values(name=PRUNED, next=param("boundary"))
            .on_conflict("name")
            .overwrite()
            .compile(dialect)
        )

    def _pages(
        self, dialect: Dialect, order: tuple[Ordering, ...], between: tuple[Condition, ...]
    ) -> tuple[Statement, Statement]:
        """The numbers of changes of the bundles there, and the bundles."""

        def compiled(*columns: Column) -> Statement:
            found = select(*columns).from_(CHANGE_LOG).where(*between).order_by(*order)
            return found.limit(param("limit")).packed().compile(dialect)

        return compiled(col("changes")), compiled(*self.bundle())

    def after(self) -> Condition:
        """Changes that a mark does not count: what `mark_parameters` has to be bound with."""
        past = self.position.ge(param("mark_position"))
        return past if self._in_order else all_of(past, not_(self.position.in_(param("mark_seen"))))

    def mark_parameters(self, mark: Mark) -> dict[str, object]:
        """A mark as the parameters of `after`."""
        return {"mark_position": mark.position} | ({} if self._in_order else {"mark_seen": mark.seen})

    def bundle(self) -> tuple[Column, ...]:
        """What a `Bundle` is read from."""
        return (self.position, *map(col, ("seq", "board_key", "owners", "cells", "changes")))

    def append(self, changes: Iterable[Appended], *, now_us: int, place: int = 0) -> Built:
        """Log changes, in this order on each board, in the transaction that makes them and after it has the rows.

        `place`: how many the transaction has logged before.
        """
        drafts: dict[int, Draft] = {}
        for board_key, owner, previous, following, said in changes:
            drafts.setdefault(board_key, Draft(board_key)).add(owner, previous, following, said)
        return self.append_drafts(list(drafts.values()), now_us=now_us, place=place)

    def append_drafts(self, drafts: Sequence[Draft], *, now_us: int, place: int = 0) -> Built:
        """As `append`."""
        rows = [draft.row(now_us) for draft in drafts]
        if self._in_order:
            return self._append.bind(rows=rows)
        places = accumulate((len(draft.changes) for draft in drafts), initial=place)
        return self._append.bind(rows=[(*row, at) for row, at in zip(rows, places, strict=False)])

    def horizon(self) -> Program[int]:
        """Every transaction below this position has ended, and whatever it changed is in this snapshot."""
        rows = yield self._horizon.bind()
        return int(rows[0][0])

    def mark_now(self) -> Program[Mark]:
        """What this snapshot sees; on a standby too.

        Raises:
            ChangesUnordered: a transaction has been running for so long that what came after it can't be told apart.
        """
        rows = yield self._mark.bind()
        position, *seen = sorted(row[0] for row in rows)  # the oldest that runs is below all that ended after it
        if len(seen) > SEEN_MAX:
            raise ChangesUnordered
        return Mark(position, tuple(seen))

    def changes_between(
        self,
        done: Mark,
        until: Mark,
        *,
        limit: int,
        past: tuple[int, int] = (0, 0),
        boards: Collection[int] | None = None,
    ) -> Program[list[Bundle]]:
        """What `until` counts and `done` does not, past a place (position, seq), in this order.

        Whole bundles that together have `limit` changes or a few more; fewer changes: that is all. `boards`: only
        theirs. Every row that is read looks through the keys, so there should be few.
        """
        bound = self._between_parameters(done, until, past)
        sizes_of, page_of = self._sizes, self._between
        if boards is not None:
            sizes_of, page_of, bound["boards"] = self._sizes_of_boards, self._between_of_boards, list(boards)
        sizes = yield sizes_of.bind(**bound, limit=limit)
        if not sizes:
            return []
        rows = yield page_of.bind(**bound, limit=rows_for(sizes, limit))
        return [Bundle(*row) for row in rows]

    def any_between(self, done: Mark, until: Mark) -> Program[bool]:
        """Whether `until` counts anything that `done` does not."""
        rows = yield self._any_between.bind(**self._between_parameters(done, until, (0, 0)))
        return bool(rows)

    def _between_parameters(self, done: Mark, until: Mark, past: tuple[int, int]) -> dict[str, object]:
        bound = self.mark_parameters(done) | {"past_position": past[0], "until": until.position}
        return bound if self._in_order else bound | {"past_seq": past[1], "until_seen": until.seen}

    def pruned(self) -> Program[int]:
        """The lowest position of which nothing is pruned: a mark below it has missed changes."""
        rows = yield self._pruned.bind()
        return int(rows[0][0]) if rows else 0

    def prune(self, *, before_us: int, keep_from: int | None, rows_max: int) -> Program[int]:
        """Remove the oldest bundles as long as they are older than `before_us`; answers how many.

        About `rows_max` changes at a time, nothing from the position `keep_from` on, and never the last one: the
        numbers that follow are counted from it.
        """
        rows = yield self._ages.bind(rows=rows_max + 1)
        if not rows:
            return 0
        head = rows[: rows_for([row[2:] for row in rows], rows_max + 1)]
        first, last = head[0][0], head[-1][0]
        young = next((position for position, updated_at_us, _ in head if updated_at_us >= before_us), None)
        # A transaction may be longer than a step: it goes as a whole, unless it is the last one.
        every = len(head) == len(rows) <= rows_max
        boundary = last if last > first or every else last + 1
        boundary = min(boundary, (yield from self.horizon()))
        for bound in (young, keep_from):
            boundary = boundary if bound is None else min(boundary, bound)
        if boundary <= first:
            return 0
        rows = yield self._delete.bind(boundary=boundary)
        yield self._set_pruned.bind(boundary=boundary)
        return int(rows[0][0])


def rows_for(sizes: Sequence[Sequence[int]], changes: int) -> int:
    """How many rows, from the first on, hold so many changes; all of them where they hold fewer. Sizes are rows too."""
    held = 0
    for rows, (size,) in enumerate(sizes, 1):
        held += size
        if held >= changes:
            return rows
    return len(sizes)


@lru_cache
def change_log(dialect: Dialect) -> ChangeLog:
    """The log's statements, compiled once."""
    return ChangeLog(dialect)
