"""The change log: what each applied post changed, written in the post's own transaction. Its rows are `bundles`.

    take_mark ──> mark ── list_bundles_between(mark, next mark) ──> bundles to count, each exactly once ──> next mark

A reader counts by marks, because a row gets its numbers before its transaction commits: a greater number may become
visible before a smaller one. On PostgreSQL, a mark names the oldest transaction that was still running, and the later
transactions that had already ended. SQLite has one writer at a time, so a mark is just the number of a row.

There are two orders. `seq` orders the changes of an owner: of two bundles with the same owner, the earlier one has the
smaller `seq`. Pages are ordered by (`position`, `seq`), which does not order the changes of an owner. A transaction may
begin before another one, and still change the owner after that one did.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Select,
    Term,
    all_of,
    any_of,
    asc,
    coalesce,
    col,
    delete,
    if_dialect,
    insert,
    lit,
    max_,
    not_,
    oldest_transaction,
    param,
    plus,
    query_if_dialect,
    select,
    union_all,
)
from storage.errors import ChangesUnorderedError
from storage.schema.tables import CHANGE_LOG, CHANGES_PRUNED, SEQUENCES
from storage.store import Program

from .bundles import Bundle, BundleDraft
from .log_record import RecordFields

SEEN_MAX = 10_000  # the most ended transactions that a mark lists; a few hundred transactions start per second


@dataclass(frozen=True, slots=True)
class LogMark:
    """The progress of a reader. The mark covers the changes before `position` and those at the positions `seen`."""

    position: int
    seen: tuple[int, ...] = ()  # positions above `position`, ascending

    def covers(self, position: int) -> bool:
        return position < self.position or position in self.seen


class NewChange(NamedTuple):
    board_key: int
    owner: str
    previous: str  # the ranked cells before the change, see `RankedCells`
    next: str  # the ranked cells after the change; as long as `previous`
    record: RecordFields  # see `log_record`


# The column that orders the log. Where transactions have no numbers, one writes at a time, so `seq` is that order.
POSITION = if_dialect("transaction", col("position"), col("seq"))
_next_number = select(plus(coalesce(max_(col("seq")), 0), 1)).from_(CHANGE_LOG)
HORIZON = if_dialect("transaction", select(oldest_transaction()).scalar(), _next_number.scalar())
BUNDLE_COLUMNS = (POSITION, *map(col, ("seq", "board_key", "owners", "cells", "changes")))
LOG_ORDER = (asc(POSITION), asc(col("seq")))
# The condition that a mark does not cover a row; `mark_parameters` returns its parameters.
_past_mark = POSITION.ge(param("mark_position"))
AFTER_MARK = if_dialect("transaction", all_of(_past_mark, not_(POSITION.in_(param("mark_seen")))), _past_mark)
PRUNED_BEFORE = select(col("next")).from_(SEQUENCES).where(col("name").eq(CHANGES_PRUNED))


def mark_parameters(mark: LogMark) -> dict[str, object]:
    return {"mark_position": mark.position, "mark_seen": mark.seen}


def _select_between(*columns: Term) -> Select:
    beyond, until = POSITION.gt(param("past_position")), POSITION.lt(param("until"))
    same_or_beyond = all_of(POSITION.ge(param("past_position")), any_of(beyond, col("seq").gt(param("past_seq"))))
    return (
        select(*columns)
        .from_(CHANGE_LOG)
        .where(
            if_dialect("transaction", same_or_beyond, beyond),
            AFTER_MARK,
            if_dialect("transaction", any_of(until, POSITION.in_(param("until_seen"))), until),
        )
    )


class ChangeLog:
    """Programs over the change log."""

    def __init__(self) -> None:
        row = dict.fromkeys(("board_key", "updated_at", "changes"), INTEGER)
        row |= dict.fromkeys(("owners", "cells", "posts"), TEXT) | {"place": INTEGER}
        self._append = insert(CHANGE_LOG).rows(param("rows"), **row).only_numbered("place").prepared()
        self._horizon = select(HORIZON).prepared()
        seen = select(POSITION).from_(CHANGE_LOG).group_by(POSITION).limit(SEEN_MAX + 1)
        self._mark = query_if_dialect(
            "transaction",
            union_all(select(oldest_transaction()), seen.where(POSITION.ge(oldest_transaction()))),
            select(HORIZON),
        ).prepared()
        sizes, bundles = (
            _select_between(*columns).order_by(*LOG_ORDER).limit(param("limit")).packed()
            for columns in ((col("changes"),), BUNDLE_COLUMNS)
        )
        of_boards = col("board_key").in_(param("boards"))
        self._sizes, self._sizes_of_boards = sizes.prepared(), sizes.where(of_boards).prepared()
        self._between, self._between_of_boards = bundles.prepared(), bundles.where(of_boards).prepared()
        self._any_between = _select_between(lit(1)).limit(1).prepared()
        self._pruned = PRUNED_BEFORE.prepared()
        oldest = select(POSITION, col("updated_at"), col("changes")).from_(CHANGE_LOG).order_by(*LOG_ORDER)
        self._ages = oldest.limit(param("rows")).packed().prepared()
        self._delete = delete(CHANGE_LOG).where(POSITION.lt(param("boundary"))).prepared()
        self._set_pruned = (
            insert(SEQUENCES)
            .values(name=CHANGES_PRUNED, next=param("boundary"))
            .on_conflict("name")
            .overwrite()
            .prepared()
        )

    def append_changes(self, changes: Iterable[NewChange], *, now_us: int, place: int = 0) -> Program[None]:
        """Log changes in the transaction that makes them. The changes of each board keep their order.

        The transaction has to hold the locks of the changed rows. `place`: how many changes it has already logged.
        """
        drafts: dict[int, BundleDraft] = {}
        for board_key, owner, previous, following, record in changes:
            drafts.setdefault(board_key, BundleDraft(board_key)).add_change(owner, previous, following, record)
        yield from self.append_drafts(list(drafts.values()), now_us=now_us, place=place)

    def append_drafts(self, drafts: Sequence[BundleDraft], *, now_us: int, place: int = 0) -> Program[None]:
        places = accumulate((len(draft.changes) for draft in drafts), initial=place)
        yield self._append.bind(
            rows=[(*draft.encode_row(now_us), at) for draft, at in zip(drafts, places, strict=False)]
        )

    def find_horizon(self) -> Program[int]:
        """Return the horizon. All transactions at positions before it have ended, and this snapshot sees them."""
        rows = yield self._horizon.bind()
        return int(rows[0][0])

    def take_mark(self) -> Program[LogMark]:
        """Return the mark that covers exactly the changes in this snapshot. This works on a standby too.

        Raises:
            ChangesUnorderedError: more than `SEEN_MAX` transactions logged changes since the oldest running one began.
        """
        rows = yield self._mark.bind()
        position, *seen = sorted(row[0] for row in rows)  # the oldest running transaction has the lowest position
        if len(seen) > SEEN_MAX:
            raise ChangesUnorderedError
        return LogMark(position, tuple(seen))

    def list_bundles_between(
        self,
        done: LogMark,
        until: LogMark,
        *,
        limit: int,
        past: tuple[int, int] = (0, 0),
        boards: Collection[int] | None = None,
    ) -> Program[list[Bundle]]:
        """Return the bundles that `until` covers and `done` does not, ordered by (position, seq).

        `past`: only bundles after this (position, seq), for the next page. `boards`: only bundles of boards with these
        keys; each row that is read is compared with them, so pass few keys. The bundles of a page together hold `limit`
        changes or a few more. If they hold fewer, there are no further bundles.
        """
        bound = self._between_parameters(done, until, past)
        sizes_of, page_of = self._sizes, self._between
        if boards is not None:
            sizes_of, page_of, bound["boards"] = self._sizes_of_boards, self._between_of_boards, list(boards)
        sizes = yield sizes_of.bind(**bound, limit=limit)
        if not sizes:
            return []
        rows = yield page_of.bind(**bound, limit=count_rows_holding(sizes, limit))
        return [Bundle(*row) for row in rows]

    def has_changes_between(self, done: LogMark, until: LogMark) -> Program[bool]:
        rows = yield self._any_between.bind(**self._between_parameters(done, until, (0, 0)))
        return bool(rows)

    def _between_parameters(self, done: LogMark, until: LogMark, past: tuple[int, int]) -> dict[str, object]:
        bound = {"past_position": past[0], "past_seq": past[1], "until": until.position, "until_seen": until.seen}
        return mark_parameters(done) | bound

    def find_pruned_position(self) -> Program[int]:
        """Return the position before which all bundles were pruned, or 0. A reader with an earlier mark missed some."""
        rows = yield self._pruned.bind()
        return int(rows[0][0]) if rows else 0

    def oldest_us(self) -> Program[int | None]:
        rows = yield self._ages.bind(rows=1)
        return int(rows[0][1]) if rows else None

    def prune(self, *, before_us: int, keep_from: int | None, rows_max: int) -> Program[int]:
        """Remove the oldest bundles if they were logged before `before_us`. Return how many were removed.

        One call removes about `rows_max` changes, and nothing at or after the position `keep_from`. It never removes
        the last bundle, because the numbers of the next bundles are counted from there.
        """
        rows = yield self._ages.bind(rows=rows_max + 1)
        if not rows:
            return 0
        head = rows[: count_rows_holding([row[2:] for row in rows], rows_max + 1)]
        first, last = head[0][0], head[-1][0]
        young = next((position for position, updated_at_us, _ in head if updated_at_us >= before_us), None)
        # If one transaction has more than `rows_max` changes, remove all of them together, unless it is the last
        # transaction in the log.
        every = len(head) == len(rows) <= rows_max
        boundary = last if last > first or every else last + 1
        boundary = min(boundary, (yield from self.find_horizon()))
        for bound in (young, keep_from):
            boundary = boundary if bound is None else min(boundary, bound)
        if boundary <= first:
            return 0
        rows = yield self._delete.bind(boundary=boundary)
        yield self._set_pruned.bind(boundary=boundary)
        return int(rows[0][0])


def count_rows_holding(sizes: Sequence[Sequence[int]], changes: int) -> int:
    """Return how many of the first rows together hold at least `changes` changes; all rows if they hold fewer."""
    held = 0
    for rows, (size,) in enumerate(sizes, 1):
        held += size
        if held >= changes:
            return rows
    return len(sizes)


change_log = ChangeLog()
