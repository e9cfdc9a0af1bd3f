"""Apply one group of posts in one transaction: read the rows, merge in memory in order, write if no row has changed.

A post is applied to all its boards or to none, except that a board whose period is closed refuses only its own part of
the post. If a row no longer has the version that was read, the race is lost. Then the program raises `LostRaceError`,
the transaction is rolled back, and the writer runs the whole group again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from querybuilder import Dialect
from storage.boards.boards import ALL_ENTRIES, CHANGES
from storage.boards.closed_boards import Closure, hold_closures
from storage.boards.total_shares import count_shares
from storage.entries.conditional_writes import RowWrites
from storage.entries.entries import Entries, add_totals, lock_rows_keys, read_live_epochs
from storage.entries.hidden_owners import HiddenEntry, hidden_statements
from storage.errors import (
    LostRaceError,
    PeriodClosedError,
    PostError,
    PostIdConflictError,
    PostRejectedError,
    UnknownBoardError,
)
from storage.log.bundles import BundleDraft
from storage.log.cells import Cell
from storage.log.change_log import change_log
from storage.log.log_record import ChangeKind, record_of_post
from storage.log.merging import Merger
from storage.records import BoardPost, Entry, Family, PartOutcome, Post, PostStatus
from storage.store import Program

from .post_ids import PostIds, RememberedFamilyPost, RememberedPost


@dataclass(slots=True)
class TransactionResult:
    """Outcomes in the order of the posts, and how many rows were written."""

    outcomes: list[list[PartOutcome]]
    rows_written: dict[int, int]  # by board key
    logged: int  # number of changes that the transaction has logged


class PostTransaction:
    """The state of one group of posts, and the program that applies the group."""

    def __init__(
        self,
        dialect: Dialect,
        boards: Iterable[tuple[Entries, Merger]],
        post_ids: PostIds,
        now_us: int,
        *,
        check_boards: bool,
        logged: bool = True,  # False: nothing is logged, for measurements
    ) -> None:
        # Every process locks and inserts rows in the order of board and owner, so that groups never deadlock. The table
        # of totals, which every group of a board changes, comes last.
        by_key = sorted(boards, key=lambda board: board[0].board.key)
        self._boards = {
            entries.board.key: BoardState(entries, merger, entries.board.rows_key) for entries, merger in by_key
        }
        self._dialect, self._post_ids = dialect, post_ids
        self._now_us = now_us
        self._logged = logged
        self._hidden: set[str] = set()  # hidden owners, whose new rows go to the hidden table
        self._hides = False  # whether any owner or row of the group is hidden
        # The keys of `_seen` and `_fresh` are the board key and then the post hash. `_seen` holds the remembered
        # earlier posts. `_fresh` holds the fingerprint and the outcome of each post of this group.
        self._seen: dict[int, dict[str, RememberedPost]] = defaultdict(dict)
        self._fresh: dict[int, dict[str, tuple[str, PartOutcome]]] = defaultdict(dict)
        # `_in_families` holds the remembered posts to families, by family key and post hash. `_fresh_in_families` holds
        # the rows to store for the posts of this group.
        self._in_families: dict[int, dict[str, RememberedFamilyPost]] = defaultdict(dict)
        self._fresh_in_families: list[tuple[int, str, str, Sequence[PartOutcome]]] = []
        # False: assume that all boards exist. If one does not, the store raises `UnknownBoardError`.
        self._check_boards = check_boards

    def apply_posts(self, posts: Sequence[Post]) -> Program[TransactionResult]:
        """Read what the posts need, apply them in order, and write the result.

        Raises:
            LostRaceError: a row changed meanwhile; the transaction has to be rolled back.
            UnknownBoardError: a board was deleted, and `check_boards` is not set.
        """
        yield from self._read(posts)
        outcomes = [self._apply(post) for post in posts]
        rows_written = yield from self._write()
        logged = sum(len(state.log.changes) for state in self._boards.values() if state.log is not None)
        return TransactionResult(outcomes, rows_written, logged)

    def _find_hidden(self, owners: dict[int, dict[str, None]]) -> Program[None]:
        """Find the hidden rows of the owners, after the rows on boards were read. `hidden_owners` gives the reason."""
        keys = [key for key, state in self._boards.items() if state.exists]
        names = dict.fromkeys(owner for key in keys for owner in owners[key])
        if not names:
            return
        self._hidden, changing, found = yield from hidden_statements.find_for_write(
            keys, list(names), now_us=self._now_us
        )
        self._hides = bool(self._hidden or found)
        for each in found:
            state = self._boards[each.board_key]
            entry = each.widen_cells(len(state.entries.board.spec.columns))
            state.rows.setdefault(entry.owner, TransactionRow(entry, entry.updated_at_us, is_hidden=True))
        if self._hidden or changing:
            yield from self._check_new(owners, changing.keys())

    def _check_new(self, owners: Mapping[int, Iterable[str]], changing: Set[str]) -> Program[None]:
        for writes, states in self._tables():
            absent = {
                state.entries.board.key: set(owners[state.entries.board.key]) - state.rows.keys() for state in states
            }
            if any(new & changing for new in absent.values()):
                raise LostRaceError("an owner is being hidden or shown")
            new = {key: names & self._hidden for key, names in absent.items()}
            if any(new.values()) and (yield from _hold(writes, states, new)):
                raise LostRaceError("an owner was shown and hidden again between two reads")

    def _read(self, posts: Sequence[Post]) -> Program[None]:
        owners: dict[int, dict[str, None]] = defaultdict(dict)
        hashes: dict[int, dict[str, None]] = defaultdict(dict)
        of_families: dict[int, dict[str, None]] = defaultdict(dict)
        for post in posts:
            owner, post_hash = post.owner, post.post_hash
            for part in post.parts:
                owners[part.board.key][owner] = None
            if post_hash is not None and post.family is not None:
                of_families[post.family.key][post_hash] = None
            elif post_hash is not None:
                for part in post.parts:
                    hashes[part.board.key][post_hash] = None
        if owners and self._check_boards:
            named = [key for key in owners if not self._boards[key].entries.layout.shared]
            alive = (yield from read_live_epochs(named)) if named else {}
            for key in named:
                self._boards[key].exists = key in alive
        yield from self._find_moved()
        yield from self._find_shut()
        for writes, states in self._tables():
            yield from _hold_rows(writes, states, owners)
        if owners and self._dialect.transaction and not any(state.rows for state in self._boards.values()):
            # A transaction without a locked row has no id yet, so a process that hides an owner would not wait for it.
            yield from hidden_statements.take_transaction_id()
        # Look up post ids only after the rows are locked. By then, every other transaction with the same post has
        # ended.
        for family_key, asked in of_families.items():
            self._in_families[family_key] = yield from self._post_ids.find_in_family(family_key, asked)
        for key, asked in hashes.items():
            state = self._boards[key]
            if state.exists:
                assumed = state.entries.board.epoch
                state.epoch, self._seen[key] = yield from self._post_ids.find_known(key, assumed, asked)
        yield from self._find_hidden(owners)

    def _find_moved(self) -> Program[None]:
        """Read and lock the current keys of boards' rows in shared tables. Rows of families' boards never move."""
        movable = [key for key, state in self._boards.items() if state.entries.board.has_movable_rows]
        if movable:
            found = yield from lock_rows_keys(movable)
            for key in movable:
                self._boards[key].exists = key in found
                self._boards[key].rows_key = found.get(key, 0)

    def _find_shut(self) -> Program[None]:
        """Read which boards still take posts, and which times these posts may have."""
        may_close = [state.entries.board for state in self._boards.values() if state.entries.board.may_close]
        if may_close:
            found = yield from hold_closures(may_close, now_us=self._now_us)
            for board in may_close:
                state = self._boards[board.key]
                state.closure = found.get(board.key)
                state.exists = state.exists and state.closure is not None

    def _tables(self) -> list[tuple[RowWrites, list[BoardState]]]:
        """Return the boards that may take posts, by table, in an order that all writers share."""
        tables: dict[RowWrites, list[BoardState]] = defaultdict(list)
        for state in self._boards.values():
            if state.exists and not (state.closure is not None and state.closure.shut):
                tables[state.entries.writes].append(state)
        return sorted(tables.items(), key=lambda table: table[1][0].table_key)

    def _apply(self, post: Post) -> list[PartOutcome]:
        at_us = self._now_us if post.at_us is None else post.at_us
        if post.family is not None:
            return self._apply_in_family(post, post.family, at_us)
        if len(post.parts) == 1:
            return [self._apply_to_one(post, post.parts[0], at_us)]
        return self._apply_to_all(post, at_us)

    def _apply_in_family(self, post: Post, family: Family, at_us: int) -> list[PartOutcome]:
        """Apply a post to boards of a family. The family remembers the post, because a retry may reach other boards."""
        seen = self._in_families[family.key]
        if post.post_hash is not None and (known := seen.get(post.post_hash)) is not None:
            if known.fingerprint == post.fingerprint:
                return [replace(part, status=PostStatus.DUPLICATE) for part in known.parts]
            conflict = PostIdConflictError(pointer="/post_id")
            return [PartOutcome(PostStatus.REJECTED, error=conflict) for _ in range(max(1, len(post.parts)))]
        outcomes = self._apply_to_all(post, at_us)
        taken = [outcome for outcome in outcomes if outcome.status is not PostStatus.REJECTED]
        if post.post_hash is not None and taken:
            seen[post.post_hash] = RememberedFamilyPost(post.fingerprint, taken)
            self._fresh_in_families.append((family.key, post.post_hash, post.fingerprint, taken))
        return outcomes

    def _apply_to_all(self, post: Post, at_us: int) -> list[PartOutcome]:
        plans: list[tuple[BoardState, PartOutcome | dict[int, Cell] | PostError]] = []
        refused = False
        for part in post.parts:
            state = self._boards[part.board.key]
            try:
                plans.append((state, self._plan(state, post, part, at_us)))
            except PeriodClosedError as error:  # only this board refuses the post
                plans.append((state, _refused(state, error)))
            except PostError as error:
                plans.append((state, error))
                refused = True
        if refused:
            return [_refused(state, plan) for state, plan in plans]
        return [
            self._take(state, post, part, plan) if isinstance(plan, dict) else plan  # type: ignore[misc]  # no error
            for part, (state, plan) in zip(post.parts, plans, strict=True)
        ]

    def _apply_to_one(self, post: Post, part: BoardPost, at_us: int) -> PartOutcome:
        state = self._boards[part.board.key]
        try:
            plan = self._plan(state, post, part, at_us)
        except PostError as error:
            return _refused(state, error)
        return self._take(state, post, part, plan) if isinstance(plan, dict) else plan

    def _plan(self, state: BoardState, post: Post, part: BoardPost, at_us: int) -> PartOutcome | dict[int, Cell]:
        """Return the outcome of an earlier post with this id, or else the cells that the post changes."""
        if not state.exists:
            raise UnknownBoardError(f"no leaderboard {part.board.id!r}")
        if post.post_hash is not None and post.family is None:
            known = self._known(part.board.key, post, post.post_hash)
            if known is not None:
                return known
        if state.closure is not None:
            state.closure.check(state.entries.board, at_us)
        row = state.rows.get(post.owner)
        return state.merger.merge_changes(None if row is None else row.entry.cells, part.changes, at_us)

    def _known(self, board_key: int, post: Post, post_hash: str) -> PartOutcome | None:
        if (fresh := self._fresh[board_key].get(post_hash)) is not None:
            fingerprint, first = fresh
            found = PartOutcome(PostStatus.DUPLICATE, first.updated_at_us, first.stats)
        elif (remembered := self._seen[board_key].get(post_hash)) is not None:
            fingerprint = remembered.fingerprint
            found = PartOutcome(PostStatus.DUPLICATE, remembered.updated_at_us, remembered.stats)
        else:
            return None
        if fingerprint != post.fingerprint:
            raise PostIdConflictError(pointer="/post_id")
        return found

    def _take(self, state: BoardState, post: Post, part: BoardPost, changed: dict[int, Cell]) -> PartOutcome:
        row = state.rows.get(post.owner)
        status = PostStatus.APPLIED if changed or row is None else PostStatus.UNCHANGED
        if row is None:
            empty: list[Cell] = [None] * len(state.entries.board.spec.columns)
            row = state.rows[post.owner] = TransactionRow(Entry(post.owner, self._now_us, empty), None)
            row.is_hidden = post.owner in self._hidden
        entry = row.entry
        cells = entry.cells
        if self._logged and row.ranked is None and not row.is_hidden:
            row.ranked = state.entries.ranked_cells.join_cells(cells)
        if changed:
            if row.changed is None:
                row.changed = changed
                if row.expected is not None:
                    entry.updated_at_us = max(self._now_us, row.expected + 1)
            else:
                row.changed |= changed
            for index, cell in changed.items():
                if cells[index] is None and index in state.entries.pattern.sorted_indexes:
                    row.first_values += (index,)
                cells[index] = cell
        if self._logged:
            self._log(state, row, post, part, status)
        stats, board_key = state.merger.decode_stats(cells), part.board.key
        outcome = PartOutcome(status, entry.updated_at_us, stats, board_key=board_key)
        if post.post_hash is not None and post.family is None:
            self._fresh[board_key][post.post_hash] = (post.fingerprint, outcome)
        return outcome

    def _log(self, state: BoardState, row: TransactionRow, post: Post, part: BoardPost, status: PostStatus) -> None:
        entry, ranked = row.entry, state.entries.ranked_cells
        if status is PostStatus.UNCHANGED:
            record = record_of_post(ChangeKind.UNCHANGED, part.changes, post.post_id, post.at_us, (), None)
            state.begin_draft().add_change(entry.owner, "", "", record)
            return
        happened, after, cells = ChangeKind.APPLIED, ranked.none, entry.cells
        if row.is_hidden:
            happened, cells = ChangeKind.UNSEEN, [*cells]
        else:
            after, cells = ranked.join_cells(cells), [cells[index] for index in ranked.others] if ranked.others else []
        before = after if row.ranked is None else row.ranked
        version = None if entry.updated_at_us == self._now_us else entry.updated_at_us
        record = record_of_post(happened, part.changes, post.post_id, post.at_us, cells, version)
        state.begin_draft().add_change(entry.owner, before, after, record)
        row.ranked = after

    def _write(self) -> Program[dict[int, int]]:
        totals: dict[int, dict[int, int]] = {}
        for writes, states in self._tables():
            changes = TableChanges()
            for state in states:
                changes.add_board(state, totals)
            yield from changes.write_rows(writes)
        yield from self._write_hidden()
        if remembered := [
            (key, self._boards[key].epoch, post_hash, *fresh)
            for key in sorted(self._fresh)
            for post_hash, fresh in self._fresh[key].items()
        ]:
            yield from self._post_ids.remember_posts(sorted(remembered, key=lambda row: row[:3]), self._now_us)
        if self._fresh_in_families:
            yield from self._post_ids.remember_posts_in_family(
                sorted(self._fresh_in_families, key=_family_and_hash), self._now_us
            )
        if changed := [state.log for state in self._boards.values() if state.log is not None]:
            # Log after all writes to owners' rows, so that an owner's changes are numbered in the order of commits.
            yield from change_log.append_drafts(changed, now_us=self._now_us)
        if totals:
            yield from add_totals(totals, share=self._now_us % count_shares(self._dialect))
        return {key: by_index[CHANGES] for key, by_index in totals.items()}

    def _write_hidden(self) -> Program[None]:
        new: list[HiddenEntry] = []
        changed: list[tuple[HiddenEntry, int]] = []
        for key, state in self._boards.items() if self._hides else ():
            for row in state.rows.values():
                if row.is_hidden and row.expected is None:
                    new.append(HiddenEntry(key, row.entry))
                elif row.is_hidden and row.changed and row.expected is not None:
                    changed.append((HiddenEntry(key, row.entry), row.expected))
        if changed:
            _check_all_written((yield from hidden_statements.update_rows(changed)), len(changed))
        if new:
            _check_all_written((yield from hidden_statements.insert_rows(new)), len(new))


@dataclass(slots=True)
class TransactionRow:
    """An entry as the group of posts will leave it."""

    entry: Entry
    expected: int | None  # the version that was read; None: there was no row
    changed: dict[int, Cell] | None = None  # changed cells by column index; None: no change
    first_values: tuple[int, ...] = ()  # indexes of the ranked columns in which the entry had no value before
    ranked: str | None = None  # the ranked cells in the form of the log, see `RankedCells`; None: not computed yet
    is_hidden: bool = False  # the owner is hidden, so no ranking holds the entry


@dataclass(slots=True)
class BoardState:
    entries: Entries
    merger: Merger
    rows_key: int  # the board's key in its table of rows
    exists: bool = True
    closure: Closure | None = None  # set for a board that may close
    epoch: int = 0  # the stored epoch; set only if post ids are looked up
    rows: dict[str, TransactionRow] = field(default_factory=dict)
    log: BundleDraft | None = None  # None: nothing to log

    def begin_draft(self) -> BundleDraft:
        if self.log is None:
            self.log = BundleDraft(self.entries.board.key)
        return self.log

    @property
    def table_key(self) -> int:
        board = self.entries.board
        return board.key if board.table_key is None else board.table_key


@dataclass(slots=True)
class TableChanges:
    new: list[tuple[int, Entry]] = field(default_factory=list)  # pairs (the board's key in the table, entry)
    # By the indexes of the changed columns: (the board's key in the table, entry, expected version).
    updates: dict[tuple[int, ...], list[tuple[int, Entry, int]]] = field(default_factory=lambda: defaultdict(list))

    def add_board(self, state: BoardState, totals: dict[int, dict[int, int]]) -> None:
        """Add a board's changed rows, and add their effect to `totals`, by board key and column index."""
        rows_key, changes = state.rows_key, 0
        more: dict[int, int] = {}
        for row in state.rows.values():
            if row.is_hidden:
                continue
            if row.expected is None:
                self.new.append((rows_key, row.entry))
                _count_new(state, row, more)
            elif row.changed:
                indexes = tuple(row.changed) if len(row.changed) == 1 else tuple(sorted(row.changed))
                self.updates[indexes].append((rows_key, row.entry, row.expected))
                for index in row.first_values:
                    more[index] = more.get(index, 0) + 1
            else:
                continue
            changes += 1
        if changes:
            more[CHANGES] = changes
            totals[state.entries.board.key] = more

    def write_rows(self, writes: RowWrites) -> Program[None]:
        """Write all these rows. Raise `LostRaceError` if another transaction changed one of them meanwhile."""
        for indexes, changed in self.updates.items():
            _check_all_written((yield from writes.update_rows(indexes, changed)), len(changed))
        if self.new:
            _check_all_written((yield from writes.insert_rows(self.new)), len(self.new))


def _count_new(state: BoardState, row: TransactionRow, more: dict[int, int]) -> None:
    more[ALL_ENTRIES] = more.get(ALL_ENTRIES, 0) + 1
    for index in state.entries.pattern.sorted_indexes:
        if row.entry.cells[index] is not None:
            more[index] = more.get(index, 0) + 1


def _check_all_written(written: int, expected: int) -> None:
    if written != expected:
        raise LostRaceError(f"{expected - written} of {expected} rows changed between their read and their write")


def _hold_rows(writes: RowWrites, states: list[BoardState], owners: Mapping[int, Iterable[str]]) -> Program[None]:
    rows = {state.rows_key: state.rows for state in states}
    for rows_key, entry in (yield from _hold(writes, states, owners)):
        rows[rows_key][entry.owner] = TransactionRow(entry, entry.updated_at_us)


def _hold(
    writes: RowWrites, states: list[BoardState], owners: Mapping[int, Iterable[str]]
) -> Program[list[tuple[int, Entry]]]:
    wanted = [(state.rows_key, owner) for state in states for owner in owners[state.entries.board.key]]
    return (yield from writes.lock_rows(wanted))


def _refused(state: BoardState, plan: PartOutcome | dict[int, Cell] | PostError) -> PartOutcome:
    if isinstance(plan, PartOutcome):
        return plan
    error = plan if isinstance(plan, PostError) else PostRejectedError()
    return PartOutcome(PostStatus.REJECTED, error=error, board_key=state.entries.board.key)


def _family_and_hash(remembered: tuple[int, str, str, Sequence[PartOutcome]]) -> tuple[int, str]:
    return remembered[:2]
