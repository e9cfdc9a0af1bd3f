"""Applies a group of posts in one transaction: reads the rows, merges the posts, writes if no row has changed.

A post has a part for each of its boards. The post is applied to all boards or to none, except that a board whose period
is closed refuses only its own part. If a row no longer has the version that was read, another transaction has changed
it. Then the program raises `LostRaceError`, the transaction is rolled back, and the writer runs the whole group again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import TypeVar

import msgspec

from config.settings import PostingSettings
from querybuilder import BULK_ALIAS, chained, col, count, plus, select
from storage.errors import (
    BeforeResetError,
    LostRaceError,
    OutdatedFactsError,
    PeriodClosedError,
    PostError,
    PostIdConflictError,
    PostRejectedError,
    PostVoidedError,
    UnknownBoardError,
)
from storage.leaves import hidden_owners
from storage.leaves.catalog_rows import find_posted_leaves
from storage.leaves.entries import Entries, RowId, TableRows, add_totals, build_totals_upsert, total_rows
from storage.leaves.gates import admit_accepted, hold_gates, read_gates
from storage.leaves.hidden_owners import HiddenEntry
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.log.bundles import BundleDraft
from storage.log.cells import Cell
from storage.log.change_log import NewChange, build_log_insert, build_position_taking, bundle_rows, change_log
from storage.log.log_record import ChangeKind, record_of_post
from storage.reads.open_boards import OpenBoards
from storage.records import BoardPost, Entry, Gate, Leaf, PartOutcome, Post, PostStatus
from storage.store import Program, Store, in_partition

from .known_facts import Facts, KnownFacts, remember_fact
from .post_ids import PostKey, RememberedPost, find_known, remember_posts

T = TypeVar("T")


@dataclass(slots=True)
class TransactionResult:
    outcomes: list[list[PartOutcome]]  # for each post, in order, its outcome on each of its boards
    # By partition, how many posts were applied. A post counts once for each board to which it was applied.
    applied: dict[int, int]


def open_boards_of(posts: Iterable[Post], open_boards: OpenBoards) -> list[Entries]:
    # If a column was added to a leaf, a group may have posts that were parsed before this, and posts parsed after it.
    # Their `Leaf` objects differ. For all these posts, use the one with more columns.
    leaves: dict[int, Leaf] = {}
    for post in posts:
        for part in post.parts:
            known = leaves.get(part.leaf.key)
            if known is None or len(known.spec.columns) < len(part.leaf.spec.columns):
                leaves[part.leaf.key] = part.leaf
    return list(map(open_boards.open_rows, leaves.values()))


def draw_pause_s(limits: PostingSettings, races_lost: int, rng: random.Random) -> float:
    """Return the pause after a lost race. It is random, so that the losers of a race do not all retry at once."""
    longest_s = min(limits.write_backoff_s_max, limits.write_backoff_base_s * 2 ** (races_lost - 1))
    return rng.uniform(0, longest_s)


class PostTransaction:
    """One attempt to apply a group of posts: its state in memory, and the program that applies the group.

    Every transaction locks and inserts rows in the same order: by partition, table, board and owner. After all rows, it
    locks in each partition the log's counter and then the totals. So groups never deadlock.
    """

    def __init__(
        self,
        store: Store,
        boards: Iterable[Entries],
        known_facts: KnownFacts,
        now_us: int,
        *,
        check_boards: bool,
        accepted_us: int | None = None,
    ) -> None:
        """Prepare to apply a group of posts to `boards`. The caller runs `apply_posts` with the `write` of `store`.

        `accepted_us`: when the first of the posts was accepted, if they were queued. Boards that closed after the time
        in `Post.accepted_us` then still take the post.
        """
        self._accepted_us = accepted_us
        self._store, self._known_facts, self._now_us = store, known_facts, now_us
        self._check_boards = check_boards  # False: if a board does not exist, the store raises `UnknownBoardError`
        self._boards: dict[int, BoardState] = {}  # by board key, in ascending order of the keys
        self._places: dict[int, int] = {}  # by key of a board or a family: its partition
        self._partitions: dict[int, list[BoardState]] = {}  # by partition: its boards
        self._home: int | None = None  # the partition in which `store` runs programs; None: no board is there
        for entries in sorted(boards, key=attrgetter("leaf.key")):
            leaf = entries.leaf
            state = self._boards[leaf.key] = BoardState(entries, leaf.rows_key, BundleDraft(leaf.key))
            self._places[leaf.key] = leaf.partition
            if leaf.partition not in self._partitions:
                self._partitions[leaf.partition] = []
                if store.at(leaf.partition) is store:
                    self._home = leaf.partition
            self._partitions[leaf.partition].append(state)
        self._tables: list[tuple[int, TableRows, list[BoardState]]] = []  # see `_list_tables`
        self._facts: dict[int, Facts] = {}  # by partition
        self._any_hidden = False  # whether an owner of the group is hidden or is being shown again
        self._is_dated = False  # whether a post names its time, so that the group relies on times of resets
        self._has_absent = False  # whether a post found no row of its owner
        self._looks_up = False  # whether the group looks up its post ids
        self._refuses_ids = False  # whether a post with an id was refused
        self._known: dict[PostKey, RememberedPost] = {}  # posts whose id is stored, or that this group has applied
        self._epochs: dict[int, int] = {}  # by board key: its epoch now; post ids of earlier epochs are not valid
        self._fresh: dict[int, list[RememberedPost]] = {}  # posts whose ids the group will store, by partition
        self._further: dict[int, dict[int, BundleDraft]] = {}  # what `log_too` added, by partition and board key
        self._applied: dict[int, int] = {}  # see `TransactionResult`

    def apply_posts(self, posts: Sequence[Post]) -> Program[TransactionResult]:
        """Read the rows of the posts, apply the posts in order, and write the result.

        Raises:
            LostRaceError: a row or a known fact has changed, or post ids must be looked up; roll the transaction back.
            UnknownBoardError: a board was deleted, and `check_boards` is False.
        """
        outcomes = yield from self.plan_posts(posts)
        return (yield from self.write_changes(outcomes))

    def plan_posts(self, posts: Sequence[Post]) -> Program[list[list[PartOutcome]]]:
        """Read the rows of the posts, apply the posts in memory, and return their outcomes. This writes nothing.

        If the transaction has other writes, make them before `write_changes`, which locks the counters of the logs.
        """
        yield from self._read(posts)
        if self._looks_up:
            yield from self._look_up(posts)
            self._known_facts.ids_known = bool(self._known)
        outcomes = list(map(self._apply, posts))
        if self._refuses_ids:
            self._known_facts.ids_known = True
            if not self._looks_up:
                raise OutdatedFactsError("a post that would be refused may have been applied before")
        return outcomes

    def log_too(self, partition: int, change: NewChange) -> None:
        """Let `write_changes` also log a change that is not from the group, such as the rejection of a queued post."""
        drafts = self._further.setdefault(partition, {})
        draft = drafts.setdefault(change.board_key, BundleDraft(change.board_key))
        draft.add_change(change.owner, change.previous, change.next, change.record)

    def _find_hidden(self, owners: dict[int, dict[str, None]]) -> Program[None]:
        """Read rows from the hidden table (see `hidden_owners`). Call this only after reading the boards' own rows."""
        for partition, facts in self._facts.items():
            states = [state for state in self._partitions[partition] if state.exists]
            names = {owner for state in states for owner in owners[state.entries.leaf.key]}
            moving = list(names & facts.owner_states.keys())
            if not moving:
                continue
            self._any_hidden = True
            finding = hidden_owners.find_hidden_entries([state.entries.leaf.key for state in states], moving)
            for each in (yield from self._at(partition, finding)):
                state = self._boards[each.board_key]
                entry = each.widen_cells(len(state.entries.leaf.spec.columns))
                state.rows.setdefault(entry.owner, TransactionRow(entry, entry.updated_at_us, is_hidden=True))

    def _read(self, posts: Sequence[Post]) -> Program[None]:
        owners: dict[int, dict[str, None]] = defaultdict(dict)
        dated: set[int] = set()  # keys of boards with posts that name a time
        remembering: set[int] = set()  # keys of boards and families for which ids of the group are to be stored
        for post in posts:
            for part in post.parts:
                owners[part.leaf.key][post.owner] = None
                if post.at_us is not None:
                    dated.add(part.leaf.key)
                if post.post_hash is not None and post.scope is None:
                    remembering.add(part.leaf.key)
            if post.post_hash is not None and post.scope is not None:
                remembering.add(post.scope.key)
                self._places[post.scope.key] = post.scope.partition
                self._looks_up |= not post.parts  # no board takes the post now, but it may repeat an earlier post
        copies = map(attrgetter("entries.leaf"), self._boards.values())
        gates = yield from hold_gates(copies, now_us=self._now_us, check_all=self._check_boards)
        if self._accepted_us is not None:
            yield from admit_accepted(gates, self._accepted_us)
        for key, leaf in gates.items():
            state = self._boards[key]
            state.exists = leaf is not None
            if leaf is not None:
                state.gate, state.rows_key, state.shut = (
                    leaf.gate,
                    leaf.rows_key,
                    leaf.gate.is_shut(self._accepted_us or self._now_us),
                )
        self._tables = self._list_tables()
        has_states = False
        for partition, _, states in self._tables:
            facts = self._facts.get(partition) or self._known_facts.facts.get(partition)
            if facts is None:
                facts = yield from self._known_facts.read_facts(partition, owners.values())
            self._facts[partition] = facts
            has_states |= bool(facts.owner_states)
            if dated:
                yield from self._find_resets(facts, states, dated)
            for state in states:
                key = state.entries.leaf.key
                epoch = facts.epochs.get((key, state.rows_key))
                if epoch is not None:
                    self._epochs[key] = epoch
                elif key in remembering:
                    self._looks_up = True
        self._looks_up |= bool(remembering) and self._known_facts.ids_known
        for partition, table, states in self._tables:
            yield from self._at(partition, _hold_rows(table, states, owners))
        if has_states:
            yield from self._find_hidden(owners)

    def _find_resets(self, facts: Facts, states: Sequence[BoardState], dated: set[int]) -> Program[None]:
        """Find when those boards of a partition that get posts with a time of their own were last emptied.

        `dated`: the keys of such boards. A process reads the time once for each board and version of the facts.
        """
        theirs = {state.entries.leaf.key: state for state in states if state.entries.leaf.key in dated}
        self._is_dated |= bool(theirs)
        for key, state in theirs.items():
            state.reset_us = facts.resets.get(key, 0)
        unknown = [key for key in theirs if key not in facts.resets]
        if unknown:
            gates = yield from read_gates(states[0].entries.leaf.partition, unknown)
            for key, (_, gate) in gates.items():
                theirs[key].reset_us = gate.reset_us or 0
                remember_fact(facts.resets, key, theirs[key].reset_us)

    def _look_up(self, posts: Sequence[Post]) -> Program[None]:
        """Find which posts were applied before. `_read` has locked existing rows, so nobody else writes to them."""
        asked: dict[PostKey, None] = {}
        for post in posts:
            keys = [part.leaf.key for part in post.parts] if post.scope is None else [post.scope.key]
            if post.post_hash is not None:
                asked |= dict.fromkeys((key, post.post_hash) for key in keys)
        for partition in sorted(set(self._places.values())):
            yield from self._at(partition, self._find_known(partition, asked))
        for state in self._boards.values():
            if state.exists and state.entries.leaf.archived_us is not None:
                yield from self._find_in_segments(state.entries.leaf, asked)

    def _find_known(self, partition: int, asked: Iterable[PostKey]) -> Program[None]:
        """Look up the ids of `asked` in a partition. Add those that are stored, with their outcomes, to `_known`."""
        gone = [key for key, state in self._boards.items() if not state.exists]
        theirs = [each for each in asked if self._places[each[0]] == partition and each[0] not in gone]
        epochs = {key: self._boards[key].entries.leaf.epoch for key, _ in theirs if key in self._boards}
        if not theirs:
            return
        known = yield from find_known(theirs, epochs)
        self._known |= known.posts
        self._epochs |= known.epochs
        if partition in self._facts:
            for key, epoch in known.epochs.items():
                remember_fact(self._facts[partition].epochs, (key, self._boards[key].rows_key), epoch)

    def _find_in_segments(self, leaf: Leaf, asked: Iterable[PostKey]) -> Program[None]:
        """Look up posts to an archived board among the ids that are stored for its former segments."""
        hashes = [post_hash for key, post_hash in asked if key == leaf.key]
        for part in (yield from find_posted_leaves(leaf)) if hashes else ():
            finding = find_known([(part.key, post_hash) for post_hash in hashes], {part.key: part.epoch})
            known = yield from in_partition(part.partition, finding)
            self._known |= {(leaf.key, post_hash): post for (_, post_hash), post in known.posts.items()}

    def _at(self, partition: int, program: Program[T]) -> Program[T]:
        return program if partition == self._home else in_partition(partition, program)

    def _list_tables(self) -> list[tuple[int, TableRows, list[BoardState]]]:
        """Return triples (partition, table, the table's boards that take posts). All writers use the same order."""
        tables: dict[tuple[int, int, TableRows], list[BoardState]] = {}
        for state in self._boards.values():
            if state.exists and not state.shut:
                leaf, table = state.entries.leaf, state.entries.table
                table_key = leaf.key if leaf.table_key is None else leaf.table_key
                tables.setdefault((leaf.partition, table_key, table), []).append(state)
        return [(key[0], key[2], tables[key]) for key in sorted(tables, key=itemgetter(0, 1))]

    def _apply(self, post: Post) -> list[PartOutcome]:
        at_us = self._now_us if post.at_us is None else post.at_us
        scope = post.scope
        # Its id is stored for the family, not for single boards, because a retry may go to other boards of the family.
        if scope is not None and (repeated := self._find_repeated(scope.key, post)) is not None:
            return repeated
        if len(post.parts) == 1 and scope is None:  # nearly every post
            plan = self._plan(post, post.parts[0], at_us)
            return [self._take(post, post.parts[0], plan) if isinstance(plan, dict) else plan]
        plans = [self._plan(post, part, at_us) for part in post.parts]
        errors = [plan.error for plan in plans if isinstance(plan, PartOutcome) and plan.error is not None]
        # A board whose period is closed refuses only its own part of the post. Any other error refuses the whole post.
        if errors and not all(isinstance(error, PeriodClosedError) for error in errors):
            refusals = [self._refuse(post, part, PostRejectedError()) for part in post.parts]
            return [refusals[at] if isinstance(plan, dict) else plan for at, plan in enumerate(plans)]
        outcomes = [
            self._take(post, part, plan) if isinstance(plan, dict) else plan
            for part, plan in zip(post.parts, plans, strict=True)
        ]
        if scope is not None and post.post_hash is not None:
            self._remember(scope.key, post, [each for each in outcomes if each.status is not PostStatus.REJECTED])
        return outcomes

    def _find_repeated(self, key: int, post: Post) -> list[PartOutcome] | None:
        """Return the outcomes of a post if its id is stored for the board or family with this key, otherwise None."""
        if post.post_hash is None or (known := self._known.get((key, post.post_hash))) is None:
            return None
        error: PostError = PostIdConflictError(pointer="/post_id")
        if known.is_voided:
            error = PostVoidedError(pointer="/post_id")
        elif known.fingerprint == post.fingerprint:
            return [msgspec.structs.replace(part, status=PostStatus.DUPLICATE) for part in known.parts]
        return [PartOutcome(PostStatus.REJECTED, error=error) for _ in range(max(1, len(post.parts)))]

    def _remember(self, key: int, post: Post, parts: list[PartOutcome]) -> None:
        if parts and post.post_hash is not None:
            fresh = RememberedPost(key, post.post_hash, post.fingerprint, parts)
            self._known[key, post.post_hash] = fresh
            self._fresh.setdefault(self._places[key], []).append(fresh)

    def _plan(self, post: Post, part: BoardPost, at_us: int) -> PartOutcome | dict[int, Cell]:
        """Return the cells that the post changes. If the post is refused or was applied before, return its outcome."""
        state = self._boards[part.leaf.key]
        if not state.exists:
            return self._refuse(post, part, UnknownBoardError(f"no leaderboard {part.leaf.id!r}"))
        if self._known and post.scope is None:
            repeated = self._find_repeated(part.leaf.key, post)
            if repeated is not None:
                return repeated[0]
        try:
            if state.gate is not None:
                state.gate.check_post(state.entries.leaf, at_us, post.accepted_us or self._now_us)
            if post.at_us is not None and post.at_us < state.reset_us:
                raise BeforeResetError(f"{part.leaf.id!r} was emptied after the time of the post", pointer="/at")
            row = state.rows.get(post.owner)
            if row is None:
                self._has_absent = True
            return state.entries.merger.merge_changes(None if row is None else row.entry.cells, part.changes, at_us)
        except PostError as error:
            return self._refuse(post, part, error)

    def _refuse(self, post: Post, part: BoardPost, error: PostError) -> PartOutcome:
        self._refuses_ids |= post.post_hash is not None
        return PartOutcome(PostStatus.REJECTED, error=error, board_key=part.leaf.key)

    def _take(self, post: Post, part: BoardPost, changed: dict[int, Cell]) -> PartOutcome:
        state = self._boards[part.leaf.key]
        row = state.rows.get(post.owner)
        is_first = row is None
        status = PostStatus.APPLIED if changed or is_first else PostStatus.UNCHANGED
        state.applied += status is PostStatus.APPLIED
        if row is None:
            empty: list[Cell] = [None] * len(state.entries.leaf.spec.columns)
            row = state.rows[post.owner] = TransactionRow(Entry(post.owner, self._now_us, empty), None)
            row.is_hidden = self._any_hidden and self._facts[state.entries.leaf.partition].is_hidden(post.owner)
            row.ranked = None if row.is_hidden else state.entries.ranked_cells.none
        entry = row.entry
        cells = entry.cells
        if row.ranked is None and not row.is_hidden:
            row.ranked = state.entries.ranked_cells.join_cells(cells)
        if changed:
            if row.changed is None:
                row.changed = changed
                if row.expected is not None:
                    entry.updated_at_us = max(self._now_us, row.expected + 1)
            else:
                row.changed |= changed
            for index, cell in changed.items():
                if (cell is None or cells[index] is None) and index in state.entries.leaf.sorted_indexes:
                    row.counted += ((index, -1 if cell is None else 1),)
                cells[index] = cell
        self._log(state, row, post, part, status, is_first=is_first)
        stats, board_key = state.entries.merger.decode_stats(cells), part.leaf.key
        outcome = PartOutcome(status, entry.updated_at_us, stats, board_key=board_key)
        if post.post_hash is not None and post.scope is None:
            self._remember(board_key, post, [outcome])
        return outcome

    def _log(
        self, state: BoardState, row: TransactionRow, post: Post, part: BoardPost, status: PostStatus, *, is_first: bool
    ) -> None:
        entry, ranked = row.entry, state.entries.ranked_cells
        if status is PostStatus.UNCHANGED:
            record = record_of_post(ChangeKind.UNCHANGED, part.changes, post.post_id, post.at_us, (), None)
            state.log.add_change(entry.owner, "", "", record)
            return
        happened, after, cells = ChangeKind.FIRST if is_first else ChangeKind.APPLIED, ranked.none, entry.cells
        if row.is_hidden:
            happened, cells = ChangeKind.FIRST_UNSEEN if is_first else ChangeKind.UNSEEN, [*cells]
        else:
            after, cells = ranked.join_cells(cells), [cells[index] for index in ranked.others] if ranked.others else []
        before = after if row.ranked is None else row.ranked
        version = None if entry.updated_at_us == self._now_us else entry.updated_at_us
        record = record_of_post(happened, part.changes, post.post_id, post.at_us, cells, version)
        state.log.add_change(entry.owner, before, after, record)
        row.ranked = after

    def write_changes(self, outcomes: list[list[PartOutcome]]) -> Program[TransactionResult]:
        """Write the changes that `plan_posts` has planned. `outcomes`: what `plan_posts` returned."""
        changes = [TableChanges(partition, table) for partition, table, _ in self._tables]
        for each, (_, _, states) in zip(changes, self._tables, strict=True):
            for state in states:
                each.add_rows(state)
        # An insert waits for a transaction that changes the row. So insert before the first change: else two groups,
        # each of which inserts what the other one has changed, would wait for each other.
        for each in changes:
            if each.new:
                yield from self._at(each.partition, each.insert())
        for each in changes:
            if each.updates:
                yield from self._at(each.partition, each.update())
        for partition in sorted({*self._partitions, *self._fresh}):
            if self._any_hidden and partition in self._partitions:
                yield from self._at(partition, self._write_hidden(self._partitions[partition]))
            if partition in self._fresh:
                yield from self._at(partition, self._store_ids(self._fresh[partition]))
        # A transaction that holds the counter of a log delays all writers of the partition, so lock the counters last.
        for partition in sorted({*self._partitions, *self._further}):
            yield from self._at(partition, self._finish(partition))
        return TransactionResult(outcomes, self._applied)

    def _store_ids(self, fresh: Sequence[RememberedPost]) -> Program[None]:
        stored = yield from remember_posts(fresh, self._epochs, repeat(self._now_us))
        if stored != len(fresh):
            self._known_facts.ids_known = True
            raise OutdatedFactsError("a post was applied before, or another transaction applies it")

    def _finish(self, partition: int) -> Program[None]:
        """Log a partition's changes and add to its totals. Raise an error if the group relied on facts that changed."""
        changed = [*self._further.get(partition, {}).values()]
        totals: dict[int, dict[int, int]] = {}
        for state in self._partitions.get(partition, ()):
            self._applied[partition] = self._applied.get(partition, 0) + state.applied
            if state.log.changes:
                changed.append(state.log)
            if state.totals:
                totals[state.entries.leaf.key] = state.totals
        facts, version = self._facts.get(partition), None
        if changed and self._store.dialect.chains:  # one statement for log and totals locks the counter briefly
            rows = bundle_rows(changed, now_us=self._now_us, next_position=0)
            bound = {"bundle_rows": rows, "total_rows": total_rows(totals), "now_us": self._now_us}
            [[_, version]] = yield _RECORD.bind(bundles=len(rows), **bound)
        elif changed:
            version = (yield from change_log.append_drafts(changed, now_us=self._now_us)).facts
            yield from add_totals(totals)
        elif self._has_absent:  # nothing to log; check whether a post was rejected because its owner was just hidden
            version = yield from change_log.read_facts()
        if facts is not None and version is not None and version != facts.version:
            self._known_facts.facts.pop(partition, None)
            if self._has_absent or self._is_dated or (self._fresh and not self._looks_up):
                raise OutdatedFactsError("an owner was hidden or shown, or a board was emptied, since the group began")

    def _write_hidden(self, states: Iterable[BoardState]) -> Program[None]:
        new: list[HiddenEntry] = []
        changed: list[tuple[HiddenEntry, int]] = []
        for state in states:
            for row in state.rows.values():
                hidden = HiddenEntry(state.entries.leaf.key, row.entry)
                if row.is_hidden and row.expected is None:
                    new.append(hidden)
                elif row.is_hidden and row.changed and row.expected is not None:
                    changed.append((hidden, row.expected))
        if new:
            _check_all_written((yield from hidden_owners.insert_rows(new)), len(new))
        if changed:
            _check_all_written((yield from hidden_owners.update_rows(changed)), len(changed))


_RECORD = chained(
    "taken",
    build_position_taking(),
    build_log_insert().compute_from("taken", position=plus(col("position", BULK_ALIAS), col("next", "taken"))),
    # The condition reads `taken`, which locks the log's counter. So the counter is locked before the totals.
    build_totals_upsert().where(select(count()).from_("taken").scalar().eq(1)),
).prepared()


class TransactionRow(msgspec.Struct):
    """An owner's entry on a board, with the changes of the group's posts so far."""

    entry: Entry
    expected: int | None  # the row's version when it was read; None: there was no row
    changed: dict[int, Cell] | None = None  # changed cells by column index; None: no change
    counted: tuple[
        tuple[int, int], ...
    ] = ()  # (index, 1) for a ranked column that got a value, (index, -1) that lost it
    ranked: str | None = None  # the ranked cells as `RankedCells` joins them for the log; None: not computed yet
    is_hidden: bool = False  # the owner is hidden, so no ranking holds the entry


@dataclass(slots=True)
class BoardState:
    entries: Entries
    rows_key: int  # the board's key in its table of rows
    log: BundleDraft  # the board's changes that the group will log
    exists: bool = True  # False: the board was deleted, or its rows are in another partition or table
    gate: Gate | None = None  # None: `hold_gates` returned no gate to check, so the board takes the posts
    shut: bool = False  # True: the board takes no posts now
    reset_us: int = 0  # when the board was last emptied; set only if a post of the group names a time
    applied: int = 0  # posts that the group applied to the board
    rows: dict[str, TransactionRow] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)  # what the group adds to the board's totals, by column index


@dataclass(slots=True)
class TableChanges:
    """What a group writes to one table. Each entry comes with its board's key in this table."""

    partition: int
    table: TableRows
    new: list[tuple[int, Entry]] = field(default_factory=list)
    # By the indexes of the changed columns: (key, entry, expected version).
    updates: dict[tuple[int, ...], list[tuple[int, Entry, int]]] = field(default_factory=lambda: defaultdict(list))

    def add_rows(self, state: BoardState) -> None:
        """Add the changed rows of a board. Note in its `BoardState` how its totals change."""
        inserted, changes = len(self.new), 0
        more: dict[int, int] = defaultdict(int)
        for row in state.rows.values():
            if row.is_hidden:
                continue
            if row.expected is None:
                self.new.append((state.rows_key, row.entry))
            elif row.changed:
                indexes = tuple(row.changed) if len(row.changed) == 1 else tuple(sorted(row.changed))
                self.updates[indexes].append((state.rows_key, row.entry, row.expected))
            else:
                continue
            changes += 1
            for index, change in row.counted:
                more[index] += change
        if changes:
            state.totals = {**more, ALL_ENTRIES: len(self.new) - inserted, CHANGES: changes}

    def insert(self) -> Program[None]:
        _check_all_written((yield from self.table.insert_rows(self.new)), len(self.new))

    def update(self) -> Program[None]:
        for indexes, changed in self.updates.items():
            _check_all_written((yield from self.table.update_rows(indexes, changed)), len(changed))


def _check_all_written(written: int, expected: int) -> None:
    if written != expected:
        raise LostRaceError(f"{expected - written} of {expected} rows changed between their read and their write")


def _hold_rows(table: TableRows, states: list[BoardState], owners: Mapping[int, Iterable[str]]) -> Program[None]:
    rows: dict[int, dict[str, TransactionRow]] = {}
    wanted: list[RowId] = []
    for state in states:
        rows[state.rows_key] = state.rows
        wanted += [(state.rows_key, owner) for owner in owners[state.entries.leaf.key]]
    for rows_key, entry in (yield from table.lock_rows(wanted)):
        rows[rows_key][entry.owner] = TransactionRow(entry, entry.updated_at_us)
