"""The change log: what each applied post changed, written in its transaction, read in an order that every commit keeps.

The rule: a reader counts by a `Mark`, which is what one snapshot saw and nothing else. Numbers are given before the
commit, so a later number may be seen before an earlier one: on PostgreSQL a mark is the oldest transaction that still
ran and, of the later ones, those that had ended. SQLite has one writer at a time, and the rows' own numbers do.

A change that another one follows has the smaller `seq`: that orders the changes of an owner. (`position`, `seq`) does
not, since a transaction may begin before and change the owner after another one; it orders pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Condition,
    Dialect,
    all_of,
    any_of,
    asc,
    coalesce,
    col,
    count,
    delete,
    insert,
    lit,
    max_,
    min_,
    not_,
    oldest_transaction,
    param,
    plus,
    select,
    union_all,
)

from .errors import ChangesUnordered
from .migrate import CHANGE_LOG, SEQUENCES
from .store import Program

PRUNED = "changes_pruned"  # the sequence that holds the lowest position of which nothing is pruned
SEEN_MAX = 10_000  # transactions past the oldest one still running; a second has some hundred


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a reader has come: every change at a lower position, and those of the transactions seen past it."""

    position: int
    seen: tuple[int, ...] = ()  # ascending


class Change(NamedTuple):
    """What one post changed on one board, or an erasure."""

    position: int
    seq: int
    board_key: int
    owner: str
    previous: str  # see `RankedCells`
    next: str


class Appended(NamedTuple):
    """A change as its writer hands it over."""

    board_key: int
    owner: str
    updated_at_us: int
    previous: str
    next: str


class ChangeLog:
    """The statements of the log, for one dialect; see `change_log`."""

    def __init__(self, dialect: Dialect) -> None:
        self._in_order = not dialect.transaction
        self.position = col("seq" if self._in_order else "position")
        order = (asc(self.position),) if self._in_order else (asc(self.position), asc(col("seq")))
        self._append = (
            insert(CHANGE_LOG)
            .rows(param("rows"), board_key=INTEGER, owner=TEXT, updated_at=INTEGER, previous=TEXT, next=TEXT)
            .compile(dialect)
        )
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
        page = select(self.position, *(col(name) for name in ("seq", "board_key", "owner", "previous", "next")))
        between = page.from_(CHANGE_LOG).where(beyond, self.after(), until)
        of_boards = between.where(col("board_key").in_(param("boards")))
        self._between = between.order_by(*order).limit(param("limit")).packed().compile(dialect)
        self._between_of_boards = of_boards.order_by(*order).limit(param("limit")).packed().compile(dialect)
        self._any_between = (
            select(lit(1)).from_(CHANGE_LOG).where(beyond, self.after(), until).limit(1).compile(dialect)
        )
        self.pruned_before = select(col("next")).from_(SEQUENCES).where(col("name").eq(PRUNED))
        self._pruned = self.pruned_before.compile(dialect)
        oldest = select(self.position.as_("position"), col("updated_at")).from_(CHANGE_LOG).order_by(*order)
        head = oldest.limit(param("rows"))
        self._ages = select(
            select(min_(col("position"))).from_(head).where(col("updated_at").ge(param("before_us"))).scalar(),
            select(max_(col("position"))).from_(head).scalar(),
            select(min_(col("position"))).from_(head).scalar(),
            select(count()).from_(head).scalar(),
        ).compile(dialect)
        self._delete = delete(CHANGE_LOG).where(self.position.lt(param("boundary"))).compile(dialect)
        self._set_pruned = (
            insert(SEQUENCES)
            .values(name=PRUNED, next=param("boundary"))
            .on_conflict("name")
            .overwrite()
            .compile(dialect)
        )

    def after(self) -> Condition:
        """Changes that a mark does not count: what `mark_parameters` has to be bound with."""
        past = self.position.ge(param("mark_position"))
        return past if self._in_order else all_of(past, not_(self.position.in_(param("mark_seen"))))

    def mark_parameters(self, mark: Mark) -> dict[str, object]:
        """A mark as the parameters of `after`."""
        return {"mark_position": mark.position} | ({} if self._in_order else {"mark_seen": mark.seen})

    def append(self, changes: Iterable[Appended]) -> Built:
        """Log changes, in this order, in the transaction that makes them and after it has the rows."""
        return self._append.bind(rows=changes)

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
    ) -> Program[list[Change]]:
        """What `until` counts and `done` does not, past a place (position, seq), in this order, up to `limit`.

        `boards`: only theirs. Every row that is read looks through the keys, so there should be few.
        """
        bound = self._between_parameters(done, until, past) | {"limit": limit}
        if boards is None:
            rows = yield self._between.bind(**bound)
        else:
            rows = yield self._between_of_boards.bind(**bound, boards=list(boards))
        return [Change(*row) for row in rows]

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
        """Remove the oldest changes as long as they are older than `before_us`; answers how many.

        About `rows_max` at a time, nothing from the position `keep_from` on, and never the last one: the numbers that
        follow are counted from it.
        """
        rows = yield self._ages.bind(before_us=before_us, rows=rows_max + 1)
        young, last, first, found = rows[0]
        if not found:
            return 0
        # A transaction may be longer than a step: it goes as a whole, unless it is the last one.
        boundary = last if last > first or found <= rows_max else last + 1
        boundary = min(boundary, (yield from self.horizon()))
        for bound in (young, keep_from):
            boundary = boundary if bound is None else min(boundary, bound)
        if boundary <= first:
            return 0
        rows = yield self._delete.bind(boundary=boundary)
        yield self._set_pruned.bind(boundary=boundary)
        return int(rows[0][0])


@lru_cache
def change_log(dialect: Dialect) -> ChangeLog:
    """The log's statements, compiled once."""
    return ChangeLog(dialect)
