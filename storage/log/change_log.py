"""The change log: what each applied post changed, written in the post's own transaction. Its rows are `bundles`.

A single counter assigns log positions to bundles. A transaction takes positions after its other writes, and holds the
counter until it commits. So positions have no gaps and follow the order of the commits: a reader that sees a bundle
also sees all bundles before it. A *mark* is the first position that a snapshot does not hold. `LogPages` reads what was
logged since a mark, or after a change's number; `following` delivers each change exactly once to each follower.

The counter also stores the latest time at which a logging transaction began. `date_snapshot` uses this time.

A transaction takes the counter after all its other writes, except those to the totals, which come last. If it waited
for another lock while holding the counter, it could deadlock with a transaction that needs the counter.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Bound,
    Condition,
    Insert,
    Prepared,
    Update,
    any_of,
    asc,
    col,
    delete,
    desc,
    insert,
    larger_of,
    max_,
    param,
    plus,
    select,
    update,
)
from querybuilder import rows as rows_of
from storage.records import INT64_MAX
from storage.schema.tables import CHANGE_LOG, LOG_COUNTER
from storage.store import Program, Row, in_partition

from .bundles import PLACES, BundleDraft, ChangeKind, RecordFields, record_of_board_event


class NewChange(NamedTuple):
    leaf_key: int
    owner: str
    previous: str  # the ranked cells before the change, see `RankedCells`
    next: str  # the ranked cells after the change; this text has the same length as `previous`
    record: RecordFields  # see `bundles`


class BoardEvent(NamedTuple):
    """An event that concerns a whole board and changes no entry. `ChangeKind` lists these events."""

    kind: ChangeKind
    board_id: str
    leaf_key: int  # of a curve that begins to serve: the key of its leaf
    partition: int  # in whose log the event is recorded: the board's home
    column_index: int | None = None


class LogState(NamedTuple):
    mark: int  # the first position that the snapshot does not hold
    changed_us: int  # the latest start time of the transactions whose changes the snapshot holds, see `date_snapshot`
    pruned_before: int  # the position before which all bundles were pruned, or 0

    def holds_changes_since(self, mark: int) -> bool:
        """Return whether the log still holds every change since a mark.

        If not, bundles were pruned, or the store was restored from a backup whose log ends before the mark.
        """
        return self.pruned_before <= mark <= self.mark


class Logged(NamedTuple):
    next: int  # the position that the next bundle will get, in this or a later transaction
    facts: int  # changes whenever an owner is hidden or shown, or a board gets a new epoch, see `posting.group_facts`


_ASKED = "b"
PROBES_MAX = 4_096  # the most positions whose times one statement of `find_positions` reads
LATEST_ROWS = 100  # bundles that `find_later_mark` reads at once; more than differing clocks put out of order
POSITION = col("position")
COUNTED_ROWS = 10_000  # the most bundles that one call of `count_changes_after` reads
# The first position that this snapshot does not hold.
NEXT_POSITION = select(col("next")).from_(LOG_COUNTER).scalar()
PRUNED_BEFORE = select(col("pruned_before")).from_(LOG_COUNTER)
CHANGED_AT = select(col("changed_at")).from_(LOG_COUNTER)
AFTER_MARK = POSITION.ge(param("mark"))  # the condition that a mark does not cover a bundle
OF_ENTRIES = col("leaf_key").not_null()  # the condition that a bundle may change entries, see `bundles.ChangeKind`
_only_row = col("counter_key").eq(0)
_BUNDLE_ROW = dict.fromkeys(("position", "leaf_key", "updated_at", "changes"), INTEGER)
_BUNDLE_ROW |= dict.fromkeys(("owners", "cells", "posts"), TEXT)


def date_snapshot(changed_us: int, asked_us: int, now_us: Callable[[], int]) -> int:
    """Choose a time t such that a snapshot shows the store as it was at t. `asked_us`: a time before the snapshot.

    The snapshot has every post that was answered before t, and no post that arrived after t. The time t is not in the
    future, even if a clock was set back. `changed_us`: see `LogState`.
    """
    return asked_us if changed_us <= asked_us else max(asked_us, min(changed_us, now_us()))


def build_position_taking() -> Update:
    """Build the part of a statement that takes positions, with the parameters `bundles` (how many) and `now_us`."""
    following, changed_at = plus(col("next"), param("bundles", INTEGER)), larger_of(col("changed_at"), param("now_us"))
    taken = update(LOG_COUNTER).set(next=following, changed_at=changed_at).where(_only_row)
    return taken.returning(col("next"), col("facts"))


def build_log_insert() -> Insert:
    """Build the part of a statement that appends the rows in the parameter `bundle_rows` to the log."""
    return insert(CHANGE_LOG).rows(param("bundle_rows"), **_BUNDLE_ROW)


def bundle_rows(drafts: Sequence[BundleDraft], *, now_us: int, next_position: int) -> list[tuple[object, ...]]:
    """Encode these bundles as rows with consecutive positions, the last of which is `next_position` - 1."""
    return [(at, *draft.encode_row(now_us)) for at, draft in enumerate(drafts, next_position - len(drafts))]


class _Size(NamedTuple):
    position: int
    changes: int
    logged_us: int
    pruned_before: int


class BundleSizes(NamedTuple):
    """The sizes of the bundles on a page, which starts after the first `skipped` changes of the first bundle."""

    rows: list[_Size]
    skipped: int

    def sized(self) -> Iterator[tuple[int, int]]:
        """Yield, for each bundle, the time at which it was logged, and how many of its changes are not skipped.

        Writers' clocks differ. If a bundle has an earlier time than one before it, yield the latest time so far.
        """
        counts = [row.changes - (0 if index else self.skipped) for index, row in enumerate(self.rows)]
        return zip(accumulate((row.logged_us for row in self.rows), max), counts, strict=True)


class LogPages:
    """Programs that read a partition's log page by page, in commit order. Everything that follows the log uses them.

    A page starts after the change with the number `after`; for a mark, pass `last_number_before(mark)`. With `boards`,
    it has only bundles of leaves with these keys. Pass few keys, because each row is compared with them.
    """

    def __init__(self, *columns: str, where: Condition | None = None) -> None:
        at, conditions = param("position"), () if where is None else (where,)
        later = (POSITION.ge(at), any_of(POSITION.gt(at), col("changes").gt(param("next"))), *conditions)
        read = [select(POSITION, col("changes"), col("updated_at"), PRUNED_BEFORE.scalar()), select(*map(col, columns))]
        of_boards = (), (col("leaf_key").eq(param("board")),), (col("leaf_key").in_(param("boards")),)
        self._sizes, self._rows = (
            [
                each.from_(CHANGE_LOG)
                .where(*later, *theirs)
                .order_by(asc(POSITION))
                .limit(param("limit"))
                .packed()
                .prepared()
                for theirs in of_boards
            ]
            for each in read
        )

    def read_sizes(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[BundleSizes]:
        """Read the sizes of the first `limit` bundles that have a change numbered above `after`."""
        rows = [_Size(*row) for row in (yield _bind(self._sizes, after, limit, boards))]
        position, place = divmod(after, PLACES)
        return BundleSizes(rows, place + 1 if rows and rows[0].position == position else 0)

    def read_rows(self, after: int, *, limit: int, boards: Sequence[int] | None = None) -> Program[list[Row]]:
        return (yield _bind(self._rows, after, limit, boards)) if limit else []

    def read_page(self, after: int, *, changes_max: int, boards: Sequence[int] | None = None) -> Program[list[Row]]:
        """Read bundles that together hold `changes_max` changes after `after`, or slightly more.

        If they hold fewer, no bundles are left. Otherwise, continue after the position of the last bundle.
        """
        sizes = yield from self.read_sizes(after, limit=changes_max, boards=boards)
        wanted = count_rows_holding([(changes,) for _, changes in sizes.sized()], changes_max)
        return (yield from self.read_rows(after, limit=wanted, boards=boards))


def _bind(statements: Sequence[Prepared], after: int, limit: int, boards: Sequence[int] | None) -> Bound:
    position, place = divmod(after, PLACES)
    bound = {"position": position, "next": place + 1, "limit": limit}
    if boards is None:
        return statements[0].bind(**bound)
    if len(boards) == 1:
        return statements[1].bind(**bound, board=boards[0])
    return statements[2].bind(**bound, boards=boards)


def last_number_before(position: int) -> int:
    """Return the greatest number that a change before this log position can have. `position` may be a mark."""
    return position * PLACES - 1


class ChangeLog:
    """Programs that append to a partition's change log, find positions and times in it, and prune it."""

    def __init__(self) -> None:
        self._take = build_position_taking().prepared()
        self._facts = select(col("facts")).from_(LOG_COUNTER).prepared()
        self._set_pruned = update(LOG_COUNTER).where(_only_row).set(pruned_before=param("boundary")).prepared()
        self._append = build_log_insert().prepared()
        one = {name: param(name, kind) for name, kind in _BUNDLE_ROW.items()}
        self._append_one = insert(CHANGE_LOG).values(**one).prepared()  # Citus plans it in half the time
        self._counter = select(*map(col, ("next", "changed_at", "pruned_before"))).from_(LOG_COUNTER).prepared()
        key = col("leaf_key", _ASKED)
        last = select(col("updated_at")).from_(CHANGE_LOG).where(col("leaf_key", CHANGE_LOG).eq(key))
        last = last.order_by(desc(POSITION)).limit(1)
        asked = rows_of(_ASKED, param("keys"), leaf_key=INTEGER)
        self._last_changes = select(key, last.scalar()).from_(asked).packed().prepared()
        oldest = select(POSITION, col("updated_at"), col("changes")).from_(CHANGE_LOG).order_by(asc(POSITION))
        self._ages = oldest.limit(param("rows")).packed().prepared()
        latest = select(POSITION, col("updated_at")).from_(CHANGE_LOG).order_by(desc(POSITION))
        latest = latest.where(col("leaf_key").eq(param("key")), POSITION.lt(param("before")))
        self._latest = latest.limit(param("limit")).packed().prepared()
        times = select(POSITION, col("updated_at")).from_(CHANGE_LOG).where(POSITION.in_(param("positions")))
        self._recent = LogPages("position", "leaf_key", "changes", where=OF_ENTRIES)
        self._times = times.packed().prepared()
        self._last_of_entries = select(max_(POSITION)).from_(CHANGE_LOG).where(OF_ENTRIES).prepared()
        self._delete = delete(CHANGE_LOG).where(POSITION.lt(param("boundary"))).prepared()

    def append_changes(self, changes: Iterable[NewChange], *, now_us: int) -> Program[Logged]:
        """Log changes at the end of the transaction that makes them. Each board's changes stay in order."""
        drafts: dict[int, BundleDraft] = {}
        for leaf_key, owner, previous, following, record in changes:
            drafts.setdefault(leaf_key, BundleDraft(leaf_key)).add_change(owner, previous, following, record)
        return (yield from self.append_drafts(list(drafts.values()), now_us=now_us))

    def append_drafts(self, drafts: Sequence[BundleDraft], *, now_us: int) -> Program[Logged]:
        taken = yield self._take.bind(bundles=len(drafts), now_us=now_us)
        logged = Logged(*taken[0])
        rows = bundle_rows(drafts, now_us=now_us, next_position=logged.next)
        if len(rows) == 1:
            yield self._append_one.bind(**dict(zip(_BUNDLE_ROW, rows[0], strict=True)))
        elif rows:
            yield self._append.bind(bundle_rows=rows)
        return logged

    def read_facts(self) -> Program[int]:
        [[facts]] = yield self._facts.bind()
        return int(facts)

    def take_mark(self) -> Program[int]:
        """Read the mark that covers exactly the changes in this snapshot. This also works on a standby."""
        return (yield from self.read_counter()).mark

    def read_counter(self) -> Program[LogState]:
        [row] = yield self._counter.bind()
        return LogState(*row)

    def find_positions(self, times_us: Sequence[int]) -> Program[list[int]]:
        """Find, for each time, the position of the first bundle that was logged at or after it.

        The result is only as exact as the writers' clocks, which differ.
        """
        log = yield from self.read_counter()
        spans = [(log.pruned_before, log.mark)] * len(times_us)
        while any(first < last for first, last in spans):
            probed = [range(first, last, (last - first) * len(spans) // PROBES_MAX + 1) for first, last in spans]
            rows = yield self._times.bind(positions=sorted(set(chain(*probed))))
            logged: dict[int, int] = {int(position): int(at_us) for position, at_us in rows}
            for index, (at_us, positions) in enumerate(zip(times_us, probed, strict=True)):
                earlier = bisect_left(positions, at_us, key=lambda position: logged.get(position, 0))
                first, last = spans[index]
                spans[index] = (
                    positions[earlier - 1] + 1 if earlier else first,
                    positions[earlier] if earlier < len(positions) else last,
                )
        return [first for first, _ in spans]

    def find_last_changes(self, leaf_keys: Sequence[int]) -> Program[dict[int, int]]:
        """Find when each of these boards of a partition last changed, in microseconds since 1970, by leaf key.

        Leave out boards without a change in the log. Each board costs one index search.
        """
        rows = yield self._last_changes.bind(keys=[(key,) for key in leaf_keys])
        return {key: changed_us for key, changed_us in rows if changed_us is not None}

    def find_later_mark(self, leaf_key: int, since_us: int) -> Program[int | None]:
        """Find the position of a board's first bundle that was logged after `since_us`, or None if there is none."""
        found, before = None, INT64_MAX
        while True:
            rows = yield self._latest.bind(key=leaf_key, before=before, limit=LATEST_ROWS)
            later = [int(position) for position, changed_us in rows if changed_us > since_us]
            found = min(later, default=found)
            if not later or len(rows) < LATEST_ROWS:
                return found
            before = int(rows[-1][0])

    def count_changes_after(self, mark: int | None) -> Program[tuple[dict[int, int], int]]:
        """Count each leaf's changes since a mark, by leaf key. Also return the mark from which to continue later.

        One call reads at most `COUNTED_ROWS` bundles. Without a mark, or if the log no longer reaches back to it,
        return no changes.
        """
        log = yield from self.read_counter()
        found: dict[int, int] = {}
        if mark is None or mark == log.mark or not log.holds_changes_since(mark):
            return found, log.mark
        rows = yield from self._recent.read_rows(last_number_before(mark), limit=COUNTED_ROWS)
        for _, leaf_key, changes in rows:
            found[leaf_key] = found.get(leaf_key, 0) + changes
        return found, rows[-1][0] + 1 if len(rows) == COUNTED_ROWS else log.mark

    def oldest_us(self) -> Program[int | None]:
        rows = yield self._ages.bind(rows=1)
        return int(rows[0][1]) if rows else None

    def prune(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Remove the oldest bundles if they were logged before `before_us`. Return how many were removed.

        One call removes about `rows_max` changes. It never removes the last bundle, because a rebuild takes the time of
        the oldest bundle as the start of the log. Nor does it remove the last bundle that belongs to a leaf: see
        `journal.read_page`.
        """
        rows = yield self._ages.bind(rows=rows_max + 1)
        head = rows[: count_rows_holding([row[2:] for row in rows], rows_max) + 1]
        if not head:
            return 0
        first, last = head[0][0], head[-1][0]
        boundary = next((position for position, updated_at_us, _ in head if updated_at_us >= before_us), last)
        if boundary <= first:
            return 0
        [[last_of_entries]] = yield self._last_of_entries.bind()
        boundary = min(boundary, last_of_entries or boundary)
        rows = yield self._delete.bind(boundary=boundary)
        yield self._set_pruned.bind(boundary=boundary)
        return int(rows[0][0])


def log_board_events(events: Iterable[BoardEvent], *, now_us: int) -> Program[None]:
    """Log events in the transaction that causes them, after its other writes. Each partition gets one bundle."""
    home = attrgetter("partition")
    for partition, theirs in groupby(sorted(events, key=home), home):
        records = [record_of_board_event(*each[:3], each.column_index) for each in theirs]
        draft = BundleDraft(None, [("", "", record) for record in records])
        yield from in_partition(partition, change_log.append_drafts([draft], now_us=now_us))


def count_rows_holding(sizes: Sequence[Sequence[int]], changes: int) -> int:
    """Count how many of the first rows it takes to hold `changes` changes, or count all if they hold fewer."""
    held = 0
    for rows, (size,) in enumerate(sizes, 1):
        held += size
        if held >= changes:
            return rows
    return len(sizes)


change_log = ChangeLog()
