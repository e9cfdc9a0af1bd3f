"""One group of posts as one transaction: read the rows, merge in memory in order, write if nothing changed meanwhile.

A post is all or nothing over its boards. A row whose version is no longer the one read means a lost race: the program
raises `LostRace`, the transaction is rolled back, and the writer runs the group again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from querybuilder import Built, Dialect

from .change_log import Appended, change_log
from .entries import Entries, add_totals, live_epochs
from .errors import LostRace, PostError, PostIdConflict, PostRejected, UnknownBoard
from .hidden import HiddenEntry, hidden
from .leaderboards import ALL_ENTRIES, CHANGES
from .merging import Cell, Merger
from .post_ids import PostIds, Remembered
from .posted import Happened, posted_text
from .records import BoardPost, Entry, PartOutcome, Post, Status
from .store import Program


@dataclass(slots=True)
class _Row:
    """An entry as the group will leave it."""

    entry: Entry
    expected: int | None  # the version that was read; None: absent
    changed: set[int] = field(default_factory=set)
    first_values: set[int] = field(default_factory=set)  # ranked columns that had no value before
    ranked: str | None = None  # its ranked cells as the log has them; None: not asked for yet
    hidden: bool = False  # no ranking has it


@dataclass(slots=True)
class _BoardState:
    """One board within a group."""

    entries: Entries
    merger: Merger
    alive: bool = True
    epoch: int = 0  # as the store has it; known where post ids are looked for
    rows: dict[str, _Row] = field(default_factory=dict)
    seen: dict[str, Remembered] = field(default_factory=dict)
    fresh: dict[str, tuple[str, PartOutcome]] = field(default_factory=dict)  # post hash -> fingerprint, outcome


@dataclass(slots=True)
class GroupResult:
    """Outcomes in the order of the posts, and how many rows were written."""

    outcomes: list[list[PartOutcome]]
    rows_written: dict[int, int]  # by board key


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
        self._boards = {entries.board.key: _BoardState(entries, merger) for entries, merger in by_key}
        self._post_ids = post_ids
        self._now_us = now_us
        self._logged = logged
        self._changes: list[Appended] = []
        self._hidden: set[str] = set()  # owners whose new rows no ranking has
        self._check_boards = check_boards  # False: all are taken to live, and the store says where one does not

    @property
    def _dialect(self) -> Dialect:
        return next(iter(self._boards.values())).entries.dialect

    def run(self, posts: Sequence[Post]) -> Program[GroupResult]:
        """Apply the posts in order."""
        yield from self._read(posts)
        outcomes = [self._apply(post) for post in posts]
        rows_written = yield from self._write()
        return GroupResult(outcomes, rows_written)

    def _find_hidden(self, owners: dict[int, dict[str, None]]) -> Program[None]:
        """Rows that boards don't show, after those that they do: see `hidden`."""
        keys = [key for key, state in self._boards.items() if state.alive]
        names = dict.fromkeys(owner for key in keys for owner in owners[key])
        self._hidden, found = yield from hidden(self._dialect).find(keys, list(names))
        for each in found:
            state = self._boards[each.board_key]
            entry = each.widened(len(state.entries.board.spec.columns))
            state.rows.setdefault(entry.owner, _Row(entry, entry.updated_at_us, hidden=True))

    def _read(self, posts: Sequence[Post]) -> Program[None]:
        owners: dict[int, dict[str, None]] = defaultdict(dict)
        hashes: dict[int, dict[str, None]] = defaultdict(dict)
        for post in posts:
            for part in post.parts:
                owners[part.board.key][post.owner] = None
                if post.post_hash is not None:
                    hashes[part.board.key][post.post_hash] = None
        if not owners:
            return
        if self._check_boards:
            alive = yield from live_epochs(self._dialect, list(owners), writing=True)
            for key, state in self._boards.items():
                state.alive = key in alive
        for key, state in self._boards.items():
            if not state.alive:
                continue
            found = yield from state.entries.hold_owners(list(owners[key]))
            state.rows = {owner: _Row(entry, entry.updated_at_us) for owner, entry in found.items()}
            if hashes[key]:
                assumed = state.entries.board.epoch
                state.epoch, state.seen = yield from self._post_ids.find(key, assumed, hashes[key])
        yield from self._find_hidden(owners)

    def _apply(self, post: Post) -> list[PartOutcome]:
        at_us = self._now_us if post.at_us is None else post.at_us
        if len(post.parts) == 1:
            return [self._apply_to_one(post, post.parts[0], at_us)]
        plans: list[tuple[_BoardState, PartOutcome | None, dict[int, Cell]]] = []
        errors: dict[int, PostError] = {}
        for index, part in enumerate(post.parts):
            state = self._boards[part.board.key]
            try:
                known, changed = self._plan(state, post, part, at_us)
            except PostError as error:
                errors[index] = error
                known, changed = None, {}
            plans.append((state, known, changed))
        if errors:
            refused = PostRejected()
            return [
                known if known is not None else PartOutcome(Status.REJECTED, error=errors.get(index, refused))
                for index, (_, known, _) in enumerate(plans)
            ]
        return [
            known if known is not None else self._take(state, post, part, changed)
            for part, (state, known, changed) in zip(post.parts, plans, strict=True)
        ]

    def _apply_to_one(self, post: Post, part: BoardPost, at_us: int) -> PartOutcome:
        state = self._boards[part.board.key]
        try:
            known, changed = self._plan(state, post, part, at_us)
        except PostError as error:
            return PartOutcome(Status.REJECTED, error=error)
        return known if known is not None else self._take(state, post, part, changed)

    def _plan(
        self, state: _BoardState, post: Post, part: BoardPost, at_us: int
    ) -> tuple[PartOutcome | None, dict[int, Cell]]:
        if not state.alive:
            raise UnknownBoard(f"no leaderboard {part.board.id!r}")
        known = self._known(state, post)
        if known is not None:
            return known, {}
        row = state.rows.get(post.owner)
        return None, state.merger.merge(row.entry.cells if row else None, part.changes, at_us)

    def _known(self, state: _BoardState, post: Post) -> PartOutcome | None:
        if post.post_hash is None:
            return None
        if post.post_hash in state.fresh:
            fingerprint, first = state.fresh[post.post_hash]
            found = PartOutcome(Status.DUPLICATE, first.updated_at_us, first.stats)
        elif post.post_hash in state.seen:
            remembered = state.seen[post.post_hash]
            fingerprint = remembered.fingerprint
            found = PartOutcome(Status.DUPLICATE, remembered.updated_at_us, remembered.stats)
        else:
            return None
        if fingerprint != post.fingerprint:
            raise PostIdConflict(pointer="/post_id")
        return found

    def _take(self, state: _BoardState, post: Post, part: BoardPost, changed: dict[int, Cell]) -> PartOutcome:
        row = state.rows.get(post.owner)
        if row is None:
            cells: list[Cell] = [None] * len(state.entries.board.spec.columns)
            row = state.rows[post.owner] = _Row(Entry(post.owner, self._now_us, cells), None)
            row.hidden = post.owner in self._hidden
            status = Status.APPLIED
        else:
            status = Status.APPLIED if changed else Status.UNCHANGED
        if self._logged and status is Status.APPLIED and row.ranked is None and not row.hidden:
            row.ranked = state.entries.ranked_cells.text(row.entry.cells)
        if changed:
            if row.expected is not None and not row.changed:
                row.entry.updated_at_us = max(self._now_us, row.expected + 1)
            row.changed.update(changed)
            for index, cell in changed.items():
                if row.entry.cells[index] is None and index in state.entries.rankings:
                    row.first_values.add(index)
                row.entry.cells[index] = cell
        if self._logged:
            self._log(state, row, post, part, status)
        outcome = PartOutcome(status, row.entry.updated_at_us, state.merger.stats(row.entry.cells))
        if post.post_hash is not None:
            state.fresh[post.post_hash] = (post.fingerprint, outcome)
        return outcome

    def _log(self, state: _BoardState, row: _Row, post: Post, part: BoardPost, status: Status) -> None:
        entries, entry = state.entries, row.entry
        if status is Status.UNCHANGED:
            detail = posted_text(Happened.UNCHANGED, part.changes, post.post_id, post.at_us, ())
            self._changes.append(Appended(entries.board.key, entry.owner, self._now_us, "", "", detail))
            return
        happened, after, said = Happened.UNSEEN, entries.ranked_cells.none, entry.cells
        if not row.hidden:
            happened, after = Happened.APPLIED, entries.ranked_cells.text(entry.cells)
            said = [entry.cells[index] for index in entries.ranked_cells.others]
        detail = posted_text(happened, part.changes, post.post_id, post.at_us, said)
        before = after if row.ranked is None else row.ranked
        self._changes.append(Appended(entries.board.key, entry.owner, entry.updated_at_us, before, after, detail))
        row.ranked = after

    def _write(self) -> Program[dict[int, int]]:
        written: dict[int, int] = {}
        totals: dict[int, dict[int, int]] = {}
        remembered: list[tuple[int, int, str, str, PartOutcome]] = []
        for key, state in self._boards.items():
            written[key] = yield from self._write_board(state, totals.setdefault(key, defaultdict(int)))
            remembered += [(key, state.epoch, post_hash, *fresh) for post_hash, fresh in state.fresh.items()]
        yield from self._write_hidden()
        if remembered:
            yield self._post_ids.remember(sorted(remembered, key=lambda row: row[:3]), self._now_us)
        if self._changes:  # last of what is written by owner: an owner's changes are numbered as they were committed
            yield change_log(self._dialect).append(self._changes)
        if any(count for by_index in totals.values() for count in by_index.values()):
            yield add_totals(self._dialect, totals, spread=self._now_us)
        return written

    def _write_hidden(self) -> Program[None]:
        new: list[HiddenEntry] = []
        changed: list[tuple[HiddenEntry, int]] = []
        for key, state in self._boards.items():
            for row in state.rows.values():
                if row.hidden and row.expected is None:
                    new.append(HiddenEntry(key, row.entry))
                elif row.hidden and row.changed and row.expected is not None:
                    changed.append((HiddenEntry(key, row.entry), row.expected))
        if changed:
            yield from _all_or_lost(hidden(self._dialect).update_changed(changed), len(changed))
        if new:
            yield from _all_or_lost(hidden(self._dialect).insert_new(new), len(new))

    def _write_board(self, state: _BoardState, totals: dict[int, int]) -> Program[int]:
        new: list[Entry] = []
        updates: dict[tuple[int, ...], list[tuple[Entry, int]]] = defaultdict(list)
        for row in state.rows.values():
            if row.hidden:
                continue
            if row.expected is None:
                new.append(row.entry)
                totals[ALL_ENTRIES] += 1
                for index in state.entries.rankings:
                    totals[index] += row.entry.cells[index] is not None
            elif row.changed:
                updates[tuple(sorted(row.changed))].append((row.entry, row.expected))
                for index in row.first_values:
                    totals[index] += 1
        for indexes, changed in updates.items():
            yield from _all_or_lost(state.entries.update_changed(indexes, changed), len(changed))
        if new:
            new.sort(key=lambda entry: entry.owner)
            yield from _all_or_lost(state.entries.insert_new(new), len(new))
        written = len(new) + sum(len(changed) for changed in updates.values())
        totals[CHANGES] += written
        return written


def _all_or_lost(query: Built, expected: int) -> Program[None]:
    rows = yield query
    if rows[0][0] != expected:
        raise LostRace(f"{expected - rows[0][0]} of {expected} rows changed between their read and their write")
