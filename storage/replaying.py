"""A board made anew from the posts of the journal since a number, whichever board of its name took them.

    find the earlier boards of that name ──> empty the board ──> merge their posts and its own, in order ──> store rows

`rebuilding` copies the row that each owner's last post left. A board that was deleted and created again begins with
nothing, so the rows that its posts left lack what the earlier board held. Here every post is merged again.

The rule: each post counts once. The board begins a new epoch, which voids its post ids, and remembers those of the
posts that are merged: of two posts with one id the second one is left out, and a retry is a duplicate. Resets and
deletions after the number are passed over: whoever gives an older number wants the posts before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from querybuilder import Dialect

from .entries import Entries
from .errors import JournalIncomplete, NothingReplayed, SpecConflict, StoreBusy, ValueOutOfRange
from .hidden import hidden
from .journal import JournalRow, journal
from .leaderboards import begin_epoch, with_state
from .merging import Cell
from .post_ids import PostIds
from .posted import Happened, Posted
from .rebuilding import PAGE_ROWS, OwnerRow, Rebuilt, store_rows, take_rows_away
from .records import Board, Change, PartOutcome, Status
from .store import Program

# Of a post to a board: owner, board, changes, `at`. See `Post.fingerprint`.
FingerprintOf = Callable[[str, Board, Sequence[Change], int | None], str]

WAITING_MAX = 100_000  # changes that are held back, because an earlier one may follow on a later page
_POSTS = (Happened.APPLIED, Happened.UNCHANGED, Happened.UNSEEN)


@dataclass(slots=True)
class _OwnerState:
    """An owner's row as far as posts are merged; `cells` None: erased."""

    order: int
    updated_at_us: int
    cells: list[Cell] | None


def replay_board(
    dialect: Dialect, post_ids: PostIds, fingerprint_of: FingerprintOf, *, board_id: str, since: int, now_us: int
) -> Program[Rebuilt]:
    """Make the board's rows anew from the posts with the number `since` and later; memory grows with its owners.

    Raises:
        UnknownBoard: there is none.
        JournalIncomplete: the journal begins after `since`.
        NothingReplayed: it has no such post.
        SpecConflict: an earlier board of that name had a column that this one does not have.
        StoreBusy: an owner is being hidden or shown.
        Archived: its rows are gone on purpose.
    """
    log = journal(dialect)
    begins_after = yield from log.begins_after()
    if since <= begins_after:
        raise JournalIncomplete(f"the journal begins after {begins_after}: the posts since {since} are not all there")
    board, done, changes = yield from take_rows_away(dialect, board_id)
    board = yield from begin_epoch(dialect, board)
    boards = {board.key: board, **(yield from log.deleted_boards(board_id, since=since))}
    entries, in_order = Entries(dialect, board), _InOrder()
    replay = _Replay(entries, boards, fingerprint_of, done)
    waiting_max = WAITING_MAX if dialect.transaction else 0  # elsewhere commits stand in line
    after: int | None = since - 1
    while after is not None:
        rows = yield from log.page(after, limit=PAGE_ROWS, boards=list(boards), held=True)
        done.rows += len(rows)
        after = rows[-1].number if len(rows) == PAGE_ROWS else None
        ready = in_order.take(rows, keep=0 if after is None else waiting_max)
        for start in range(0, len(ready), PAGE_ROWS):
            page = ready[start : start + PAGE_ROWS]
            known = yield from _known_ids(post_ids, board, page)
            if fresh := replay.merge(page, known, post_ids):
                yield post_ids.remember(fresh, now_us)
    if not done.replayed:
        raise NothingReplayed(f"the journal has no post to {board_id!r} since {since}")
    yield from store_rows(entries, (yield from _owner_rows(dialect, replay.owners)), changes, done)
    yield from with_state(dialect, board)
    return done


class _InOrder:
    """Puts changes into the order in which they were made.

    Pages come by the numbers of transactions. Of two that ran at the same time the later one may have changed an
    owner first.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, JournalRow]] = []

    def take(self, rows: Iterable[JournalRow], *, keep: int) -> list[JournalRow]:
        """Add some changes and return the first ones, all but `keep`."""
        for row in rows:
            heappush(self._waiting, (row.order, row))
        return [heappop(self._waiting)[1] for _ in range(len(self._waiting) - keep)]


class _Replay:
    """Merges the posts of several boards into the rows of one."""

    def __init__(
        self, entries: Entries, boards: Mapping[int, Board], fingerprint_of: FingerprintOf, done: Rebuilt
    ) -> None:
        self._board, self._merger = entries.board, entries.pattern.merger
        self._boards, self._fingerprint_of, self._done = boards, fingerprint_of, done
        self._columns = {key: _column_map(board, entries.board) for key, board in boards.items()}
        self.owners: dict[str, _OwnerState] = {}

    def merge(
        self, rows: Iterable[JournalRow], known: set[str], post_ids: PostIds
    ) -> list[tuple[int, int, str, str, PartOutcome]]:
        """Merge some changes but posts whose id is `known`; returns the ids to remember, see `PostIds.remember`."""
        fresh: list[tuple[int, int, str, str, PartOutcome]] = []
        for row in rows:
            if row.owner is None or row.posted is None:
                continue
            if row.posted.happened is Happened.ERASED:
                self.owners[row.owner] = _OwnerState(row.order, 0, None)
            if row.posted.happened not in _POSTS:
                continue
            post_hash = None if row.posted.post_id is None else post_ids.hash(row.posted.post_id)
            if post_hash in known:
                self._done.duplicates += 1
                continue
            changes = self._changes(row.board_key, row.posted)
            try:
                outcome = self._merge_post(row, row.owner, row.posted, changes)
            except ValueOutOfRange:
                self._done.rejected += 1
                continue
            self._done.replayed += 1
            if post_hash is not None:
                known.add(post_hash)
                fingerprint = self._fingerprint_of(row.owner, self._board, changes, row.posted.at_us)
                fresh.append((self._board.key, self._board.epoch, post_hash, fingerprint, outcome))
        return fresh

    def _changes(self, board_key: int, posted: Posted) -> list[Change]:
        columns, changes = self._columns[board_key], []
        for change in posted.changes:
            index = columns[change.index]
            if index is None:
                name = self._boards[board_key].spec.columns[change.index].name
                detail = (
                    f"an earlier {self._board.id!r} had a column {name!r} that this one does not have, or otherwise"
                )
                raise SpecConflict(f"{detail}: create the leaderboard with the columns that it had")
            changes.append(Change(index, change.value, change.overwrite))
        return changes

    def _merge_post(self, row: JournalRow, owner: str, posted: Posted, changes: Sequence[Change]) -> PartOutcome:
        state = self.owners.get(owner)
        if state is not None and row.order < state.order:
            raise JournalIncomplete("the journal's order is not known: a transaction was beside too many others")
        at_us = row.logged_us if posted.at_us is None else posted.at_us
        before = None if state is None else state.cells
        changed = self._merger.merge(before, changes, at_us)
        if state is None or before is None:
            before = [None] * len(self._board.spec.columns)
            state = self.owners[owner] = _OwnerState(row.order, row.at_us, before)
            status = Status.APPLIED
        else:
            status = Status.APPLIED if changed else Status.UNCHANGED
        state.order = row.order
        if changed:
            state.updated_at_us = max(state.updated_at_us, row.at_us)
        for index, cell in changed.items():
            before[index] = cell
        return PartOutcome(status, state.updated_at_us, self._merger.stats(before))


def _column_map(earlier: Board, board: Board) -> list[int | None]:
    """Return the places of an earlier board's columns; None for one that is absent or holds something else."""
    found: list[int | None] = []
    for column in earlier.spec.columns:
        index = board.column_index.get(column.name)
        now = None if index is None else board.spec.columns[index]
        same = now is not None and (now.kind, now.scale) == (column.kind, column.scale)
        found.append(index if same else None)
    return found


def _known_ids(post_ids: PostIds, board: Board, rows: Iterable[JournalRow]) -> Program[set[str]]:
    """The hashes of the posts that were merged before."""
    named = (row.posted.post_id for row in rows if row.posted is not None)
    hashes = {post_ids.hash(post_id) for post_id in named if post_id is not None}
    if not hashes:
        return set()
    _, known = yield from post_ids.find(board.key, board.epoch, hashes)
    return set(known)


def _owner_rows(dialect: Dialect, owners: Mapping[str, _OwnerState]) -> Program[dict[str, OwnerRow]]:
    """The rows, told apart by whether their owners are hidden now."""
    names, hidden_owners = list(owners), set[str]()
    for start in range(0, len(names), PAGE_ROWS):
        found = yield from hidden(dialect).find([], names[start : start + PAGE_ROWS])
        if found.changing:
            raise StoreBusy("an owner is being hidden or shown: rebuild the leaderboard once that is done")
        hidden_owners |= found.hidden
    return {
        owner: OwnerRow(state.order, state.updated_at_us, state.cells, owner in hidden_owners)
        for owner, state in owners.items()
    }
