"""One group of posts as one transaction: read the rows, merge in memory in order, write if nothing changed meanwhile.

A post is all or nothing over its boards. A row whose version is no longer the one read means a lost race: the program
raises `LostRace`, the transaction is rolled back, and the writer runs the group again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from querybuilder import Dialect

from .change_log import change_log
from .closures import held_closures
from .entries import Entries, add_totals, held_rows_keys, live_epochs
from .errors import LostRace, PeriodClosed, PostError, PostIdConflict, PostRejected, UnknownBoard
from .group_state import BoardState, GroupRow
from .hidden import HiddenEntry, hidden
from .leaderboards import CHANGES
from .merging import Cell, Merger
from .post_ids import PostIds, Remembered, RememberedParts
from .posted import Happened, said_of_post
from .records import BoardPost, Entry, Family, PartOutcome, Post, Status
from .row_writes import RowWrites
from .store import Program
from .table_changes import TableChanges, all_or_lost


@dataclass(slots=True)
class GroupResult:
    """Outcomes in the order of the posts, and how many rows were written."""

    outcomes: list[list[PartOutcome]]
    rows_written: dict[int, int]  # by board key
    logged: int  # changes in the log, whose places are taken


class Group:
    """The state of one group while its program runs."""

    def __init__(
        self,
        boards: Iterable[tuple[Entries, Merger]],
        post_ids: PostIds,
        now_us: int,
        *,
        check_boards: bool,
        logged: bool = True,  # False is for measuring
    ) -> None:
        # By key: rows are locked, and new ones written, by board and owner, so that groups of several processes never
        # deadlock. The table of totals, which every group of a board changes, comes last.
        by_key = sorted(boards, key=lambda board: board[0].board.key)
        self._boards = {
            entries.board.key: BoardState(entries, merger, entries.board.rows_key) for entries, merger in by_key
        }
        self._post_ids = post_ids
        self._now_us = now_us
        self._logged = logged
        self._hidden: set[str] = set()  # owners whose new rows no ranking has
        self._hides = False  # some row of the group is one that no ranking has
        self._seen: dict[int, dict[str, Remembered]] = defaultdict(dict)  # by board key and post hash
        self._fresh: dict[int, dict[str, tuple[str, PartOutcome]]] = defaultdict(dict)  # fingerprint and outcome
        self._in_families: dict[int, dict[str, RememberedParts]] = defaultdict(dict)  # by family key and post hash
        self._fresh_in_families: list[tuple[int, str, str, Sequence[PartOutcome]]] = []
        self._check_boards = check_boards  # False: all are taken to live, and the store says where one does not

    @property
    def _dialect(self) -> Dialect:
        return next(iter(self._boards.values())).entries.dialect

    def run(self, posts: Sequence[Post]) -> Program[GroupResult]:
        """Apply the posts in order."""
        yield from self._read(posts)
        outcomes = [self._apply(post) for post in posts]
        rows_written = yield from self._write()
        logged = sum(len(state.log.changes) for state in self._boards.values() if state.log is not None)
        return GroupResult(outcomes, rows_written, logged)

    def _find_hidden(self, owners: dict[int, dict[str, None]]) -> Program[None]:
        """Rows that boards don't show, after those that they do: see `hidden`."""
        keys = [key for key, state in self._boards.items() if state.alive]
        names = dict.fromkeys(owner for key in keys for owner in owners[key])
        if not names:
            return
        statements = hidden(self._dialect)
        self._hidden, changing, found = yield from statements.find_settled(keys, list(names), now_us=self._now_us)
        self._hides = bool(self._hidden or found)
        for each in found:
            state = self._boards[each.board_key]
            entry = each.widened(len(state.entries.board.spec.columns))
            state.rows.setdefault(entry.owner, GroupRow(entry, entry.updated_at_us, hidden=True))
        if self._hidden or changing:
            yield from self._check_new(owners, changing.keys())

    def _check_new(self, owners: Mapping[int, Iterable[str]], changing: Set[str]) -> Program[None]:
        for writes, states in self._tables():
            absent = {
                state.entries.board.key: set(owners[state.entries.board.key]) - state.rows.keys() for state in states
            }
            if any(new & changing for new in absent.values()):
                raise LostRace("an owner is being hidden or shown")
            new = {key: names & self._hidden for key, names in absent.items()}
            if any(new.values()) and (yield from _hold(writes, states, new)):
                raise LostRace("a row was shown and hidden again between two looks for it")

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
            alive = (yield from live_epochs(self._dialect, named)) if named else {}
            for key in named:
                self._boards[key].alive = key in alive
        yield from self._find_moved()
        yield from self._find_shut()
        for writes, states in self._tables():
            yield from _hold_rows(writes, states, owners)
        if owners and self._dialect.transaction and not any(state.rows for state in self._boards.values()):
            # Whoever holds no row has no number yet, and who hides an owner would not wait for it.
            yield from hidden(self._dialect).number_transaction()
        # After the rows are held: who writes the same post at this moment has ended by then.
        for family_key, asked in of_families.items():
            self._in_families[family_key] = yield from self._post_ids.find_in_family(family_key, asked)
        for key, asked in hashes.items():
            state = self._boards[key]
            if state.alive:
                assumed = state.entries.board.epoch
                state.epoch, self._seen[key] = yield from self._post_ids.find(key, assumed, asked)
        yield from self._find_hidden(owners)

    def _find_moved(self) -> Program[None]:
        """Where the rows of boards in shared tables are by now. Those of families leave theirs with the table only."""
        alone = [key for key, state in self._boards.items() if state.entries.board.is_guest]
        if alone:
            found = yield from held_rows_keys(self._dialect, alone)
            for key in alone:
                self._boards[key].alive = key in found
                self._boards[key].rows_key = found.get(key, 0)

    def _find_shut(self) -> Program[None]:
        """Which boards take posts, and of what time."""
        may_close = [state.entries.board for state in self._boards.values() if state.entries.board.may_close]
        if may_close:
            found = yield from held_closures(self._dialect, may_close, now_us=self._now_us)
            for board in may_close:
                state = self._boards[board.key]
                state.closure = found.get(board.key)
                state.alive = state.alive and state.closure is not None

    def _tables(self) -> list[tuple[RowWrites, list[BoardState]]]:
        """The boards that may take posts, by table, in one order for all who write."""
        tables: dict[RowWrites, list[BoardState]] = defaultdict(list)
        for state in self._boards.values():
            if state.alive and not (state.closure is not None and state.closure.shut):
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
        """To boards of a family, which remembers the post once: it may reach other boards when it is sent again."""
        seen = self._in_families[family.key]
        if post.post_hash is not None and (known := seen.get(post.post_hash)) is not None:
            if known.fingerprint == post.fingerprint:
                return [replace(part, status=Status.DUPLICATE) for part in known.parts]
            conflict = PostIdConflict(pointer="/post_id")
            return [PartOutcome(Status.REJECTED, error=conflict) for _ in range(max(1, len(post.parts)))]
        outcomes = self._apply_to_all(post, at_us)
        taken = [outcome for outcome in outcomes if outcome.status is not Status.REJECTED]
        if post.post_hash is not None and taken:
            seen[post.post_hash] = RememberedParts(post.fingerprint, taken)
            self._fresh_in_families.append((family.key, post.post_hash, post.fingerprint, taken))
        return outcomes

    def _apply_to_all(self, post: Post, at_us: int) -> list[PartOutcome]:
        plans: list[tuple[BoardState, PartOutcome | dict[int, Cell] | PostError]] = []
        refused = False
        for part in post.parts:
            state = self._boards[part.board.key]
            try:
                plans.append((state, self._plan(state, post, part, at_us)))
            except PeriodClosed as error:  # of this board alone
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
        """What became of the post before, or the cells that it changes."""
        if not state.alive:
            raise UnknownBoard(f"no leaderboard {part.board.id!r}")
        if post.post_hash is not None and post.family is None:
            known = self._known(part.board.key, post, post.post_hash)
            if known is not None:
                return known
        if state.closure is not None:
            state.closure.check(state.entries.board, at_us)
        row = state.rows.get(post.owner)
        return state.merger.merge(None if row is None else row.entry.cells, part.changes, at_us)

    def _known(self, board_key: int, post: Post, post_hash: str) -> PartOutcome | None:
        if (fresh := self._fresh[board_key].get(post_hash)) is not None:
            fingerprint, first = fresh
            found = PartOutcome(Status.DUPLICATE, first.updated_at_us, first.stats)
        elif (remembered := self._seen[board_key].get(post_hash)) is not None:
            fingerprint = remembered.fingerprint
            found = PartOutcome(Status.DUPLICATE, remembered.updated_at_us, remembered.stats)
        else:
            return None
        if fingerprint != post.fingerprint:
            raise PostIdConflict(pointer="/post_id")
        return found

    def _take(self, state: BoardState, post: Post, part: BoardPost, changed: dict[int, Cell]) -> PartOutcome:
        row = state.rows.get(post.owner)
        status = Status.APPLIED if changed or row is None else Status.UNCHANGED
        if row is None:
            empty: list[Cell] = [None] * len(state.entries.board.spec.columns)
            row = state.rows[post.owner] = GroupRow(Entry(post.owner, self._now_us, empty), None)
            row.hidden = post.owner in self._hidden
        entry = row.entry
        cells = entry.cells
        if self._logged and row.ranked is None and not row.hidden:
            row.ranked = state.entries.ranked_cells.text(cells)
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
        stats, board_key = state.merger.stats(cells), part.board.key
        outcome = PartOutcome(status, entry.updated_at_us, stats, board_key=board_key)
        if post.post_hash is not None and post.family is None:
            self._fresh[board_key][post.post_hash] = (post.fingerprint, outcome)
        return outcome

    def _log(self, state: BoardState, row: GroupRow, post: Post, part: BoardPost, status: Status) -> None:
        entry, ranked = row.entry, state.entries.ranked_cells
        if status is Status.UNCHANGED:
            said = said_of_post(Happened.UNCHANGED, part.changes, post.post_id, post.at_us, (), None)
            state.draft().add(entry.owner, "", "", said)
            return
        happened, after, cells = Happened.APPLIED, ranked.none, entry.cells
        if row.hidden:
            happened, cells = Happened.UNSEEN, [*cells]
        else:
            after, cells = ranked.text(cells), [cells[index] for index in ranked.others] if ranked.others else []
        before = after if row.ranked is None else row.ranked
        version = None if entry.updated_at_us == self._now_us else entry.updated_at_us
        said = said_of_post(happened, part.changes, post.post_id, post.at_us, cells, version)
        state.draft().add(entry.owner, before, after, said)
        row.ranked = after

    def _write(self) -> Program[dict[int, int]]:
        totals: dict[int, dict[int, int]] = {}
        for writes, states in self._tables():
            changes = TableChanges()
            for state in states:
                changes.add(state, totals)
            yield from changes.write(writes)
        yield from self._write_hidden()
        if remembered := [
            (key, self._boards[key].epoch, post_hash, *fresh)
            for key in sorted(self._fresh)
            for post_hash, fresh in self._fresh[key].items()
        ]:
            yield self._post_ids.remember(sorted(remembered, key=lambda row: row[:3]), self._now_us)
        if self._fresh_in_families:
            yield self._post_ids.remember_parts(sorted(self._fresh_in_families, key=_family_and_hash), self._now_us)
        if changed := [state.log for state in self._boards.values() if state.log is not None]:
            # Last of what is written by owner: an owner's changes are numbered as they were committed.
            yield change_log(self._dialect).append_drafts(changed, now_us=self._now_us)
        if totals:
            yield add_totals(self._dialect, totals, spread=self._now_us)
        return {key: by_index[CHANGES] for key, by_index in totals.items()}

    def _write_hidden(self) -> Program[None]:
        new: list[HiddenEntry] = []
        changed: list[tuple[HiddenEntry, int]] = []
        for key, state in self._boards.items() if self._hides else ():
            for row in state.rows.values():
                if row.hidden and row.expected is None:
                    new.append(HiddenEntry(key, row.entry))
                elif row.hidden and row.changed and row.expected is not None:
                    changed.append((HiddenEntry(key, row.entry), row.expected))
        if changed:
            yield from all_or_lost(hidden(self._dialect).update_changed(changed), len(changed))
        if new:
            yield from all_or_lost(hidden(self._dialect).insert_new(new), len(new))


def _hold_rows(writes: RowWrites, states: list[BoardState], owners: Mapping[int, Iterable[str]]) -> Program[None]:
    rows = {state.rows_key: state.rows for state in states}
    for rows_key, entry in (yield from _hold(writes, states, owners)):
        rows[rows_key][entry.owner] = GroupRow(entry, entry.updated_at_us)


def _hold(
    writes: RowWrites, states: list[BoardState], owners: Mapping[int, Iterable[str]]
) -> Program[list[tuple[int, Entry]]]:
    wanted = [(state.rows_key, owner) for state in states for owner in owners[state.entries.board.key]]
    return (yield from writes.hold(wanted))


def _refused(state: BoardState, plan: PartOutcome | dict[int, Cell] | PostError) -> PartOutcome:
    """What becomes of one part of a post that is not applied."""
    if isinstance(plan, PartOutcome):
        return plan
    error = plan if isinstance(plan, PostError) else PostRejected()
    return PartOutcome(Status.REJECTED, error=error, board_key=state.entries.board.key)


def _family_and_hash(remembered: tuple[int, str, str, Sequence[PartOutcome]]) -> tuple[int, str]:
    return remembered[:2]
