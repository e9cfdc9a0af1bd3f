"""Decides what happens to each post of a group: a pure function from `GroupFacts` and posts to outcomes and changes.

Because it does no I/O, tests can present it with any situation. A post has one part for each of its boards. It is
applied to all boards or to none, except that a board whose period is closed (`PeriodClosedError`) rejects only its own
part. The posts of a group are decided one after the other, so each sees the values left by the posts before it. The
reasons for which a board rejects a post are listed in `rules`.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from storage.boards.acts import Act, ActName
from storage.errors import (
    OutdatedFactsError,
    PeriodClosedError,
    PostError,
    PostHeldError,
    PostLimitError,
    PostRejectedError,
)
from storage.leagues.seats import SeatChanges
from storage.leaves.entrants import COUNT, EntrantsPlace
from storage.leaves.entries import Entries, TableRows
from storage.leaves.hidden_owners import HiddenEntry
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.limits.gains import GainKey, Gains, add_gain
from storage.limits.held_posts import HeldPost, hold_post
from storage.log.bundles import BundleDraft, ChangeKind, record_of_post
from storage.log.cells import Cell
from storage.records import BoardPost, Entry, PartOutcome, Post, PostStatus, TracedOutcome

from .group_facts import BoardFacts, GroupFacts
from .post_ids import PostKey, RememberedPost
from .rules import Attempt, find_refusal, list_rules


class ChangedEntry(Entry):
    expected: int | None = None  # the row's version when it was read; None: there was no row
    changed: dict[int, Cell] | None = None  # changed cells by column index; None: no change
    counted: tuple[
        tuple[int, int], ...
    ] = ()  # (index, 1) for each ranked column that got a value, (index, -1): lost it
    ranked: str | None = None  # the ranked cells as `RankedCells` joins them for the log; None: not computed yet
    is_hidden: bool = False  # the owner is hidden, so no ranking holds the entry


class EntrantChanges(msgspec.Struct):
    """Collects a group's changes to the owners of a board with entry rules, for all of its segments together."""

    owners: int  # how many owners take part
    posts: dict[str, int]  # how many posts of each owner were accepted; without owners that have no row
    changed: dict[str, int]  # what is to be stored, as `entrants.store_posts` takes it

    def describe(self, attempt: Attempt, owner: str, *, has_entry: bool) -> Attempt:
        posts = self.posts.get(owner)
        return attempt._replace(is_entrant=has_entry or posts is not None, posts=posts or 0, owners=self.owners)

    def add_post(self, owner: str, *, has_entry: bool) -> None:
        """Count an accepted post. An owner with neither an entry nor a row starts taking part with it."""
        if owner not in self.posts and not has_entry:
            self.owners += 1
            self.changed[COUNT] = self.owners
        self.posts[owner] = self.changed[owner] = self.posts.get(owner, 0) + 1


class BoardChanges(msgspec.Struct):
    entries: Entries
    rows_key: int
    attempt: Attempt  # what is known of the board, for the rules
    is_judged: bool  # whether any rule judges the posts to this board
    log: BundleDraft
    rows: dict[str, ChangedEntry]  # by owner
    applied: int = 0  # posts that the group applies to the board
    totals: dict[int, int] = {}  # what the group adds to the board's totals, by column index
    entrants: EntrantChanges | None = None  # None: the board has no entry rules
    seats: SeatChanges | None = None  # None: nobody takes a seat, because the board is in no league, or all have one
    gains: dict[str, Gains] = {}  # by owner, if the board limits gains
    held: int = 0  # how many posts of the board are held


class TableChanges(msgspec.Struct):
    """The rows that a group writes to one table. Each entry is stored with its board's key in this table."""

    partition: int
    table: TableRows
    new: list[tuple[int, Entry]] = []
    # By the indexes of the changed columns: (key, entry, expected version).
    updates: dict[tuple[int, ...], list[tuple[int, Entry, int]]] = {}


class Decision(msgspec.Struct):
    group: GroupFacts
    boards: dict[int, BoardChanges]  # by leaf key
    known: dict[PostKey, RememberedPost]  # posts whose id is stored, or that this group applies
    outcomes: list[list[PartOutcome]] = []  # for each post, in order, its outcome on each of its boards
    fresh: dict[int, list[RememberedPost]] = {}  # posts whose ids the group stores, by partition
    tables: list[TableChanges] = []
    refuses_ids: bool = False  # whether a post with an id is refused
    # Whether a post finds no row of its owner, or its owner was merged, or entry rules or limits refuse or hold it.
    relies_on_states: bool = False
    acts: list[Act] = []  # of the posts that overwrite values
    entrants: dict[EntrantsPlace, EntrantChanges] = {}
    seats: list[SeatChanges] = []
    held: list[HeldPost] = []  # what the group holds
    accepted: list[tuple[str, RememberedPost]] = []  # held posts that the group applies, each with its owner
    gains: dict[GainKey, Gains] = {}  # what owners have lately gained, if the group changes it


def decide_posts(group: GroupFacts, posts: Sequence[Post]) -> Decision:
    """Decide the posts in their order, and collect the changes to write. Neither argument is changed.

    Raises:
        OutdatedFactsError: a post to be rejected may have been applied earlier, so its id must be looked up first.
    """
    boards = {key: _begin_board(group, facts) for key, facts in group.boards.items()}
    decision = Decision(group, boards, {**group.known})
    if group.entrants:
        _begin_entrants(decision)
    for key, seats in group.seats.items():
        boards[key].seats = taken = SeatChanges(seats, decision.seats)
        decision.seats.append(taken)
    decision.outcomes = [_decide_post(decision, post) for post in posts]
    if decision.refuses_ids and not group.looks_up:
        learned = msgspec.structs.replace(group.learned, ids_known=True)
        raise OutdatedFactsError("a post that would be refused may have been applied before", learned=learned)
    for partition, table, states in group.tables:
        each = TableChanges(partition, table)
        decision.tables.append(each)
        for state in states:
            _add_rows(each, boards[state.entries.leaf.key])
    return decision


def _begin_board(group: GroupFacts, facts: BoardFacts) -> BoardChanges:
    leaf = facts.entries.leaf
    rows = {
        owner: ChangedEntry(owner, entry.updated_at_us, [*entry.cells], entry.updated_at_us)
        for owner, entry in facts.rows.items()
    }
    for owner, entry in facts.hidden_rows.items():
        version = entry.updated_at_us
        rows[owner] = ChangedEntry(owner, version, [*entry.cells], version, is_hidden=True)
    deleted = None if facts.exists else f"no leaderboard {leaf.id!r}"
    attempt = Attempt(
        None,
        group.now_us,
        leaf.id,
        leaf.family_key is not None,
        "",
        None,
        None,
        deleted,
        False,
        facts.gate,
        facts.reset_us,
    )
    board = BoardChanges(facts.entries, facts.rows_key, attempt, bool(list_rules(attempt)), BundleDraft(leaf.key), rows)
    board.gains, board.held = {**facts.gains}, facts.held
    board.is_judged |= bool(leaf.limited)
    return board


def _begin_entrants(decision: Decision) -> None:
    for place, each in decision.group.entrants.items():
        posts = {owner: row.posts for owner, row in each.rows.items()}
        decision.entrants[place] = EntrantChanges(each.owners, posts, {})
    for board in decision.boards.values():
        rules = board.entries.leaf.spec.entry
        board.entrants = None if rules is None else decision.entrants.get(board.entries.leaf.entrants_place)
        if board.entrants is not None:
            board.attempt, board.is_judged = board.attempt._replace(entry=rules), True


def _decide_post(decision: Decision, post: Post) -> list[PartOutcome]:
    if post.scope is not None:
        return _decide_family_post(decision, post, post.scope.key)
    if len(post.parts) == 1:  # nearly every post
        part = post.parts[0]
        if post.terms is not None:
            board = decision.boards[part.leaf.key]
            row = board.rows.get(post.owner)
            change = board.entries.merger.settle_terms(None if row is None else row.cells, part.changes[0], post.terms)
            if change is None:
                decision.relies_on_states |= row is None
                return [PartOutcome(PostStatus.UNCHANGED, leaf_key=part.leaf.key)]
            part = BoardPost(part.leaf, [change])
        plan = _plan(decision, post, part)
        if isinstance(plan, dict):
            return [_take(decision, post, part, plan)]
        return [_hold(decision, post, part, plan) if isinstance(plan, PostHeldError) else plan]
    return _decide_parts(decision, post)


def _decide_family_post(decision: Decision, post: Post, key: int) -> list[PartOutcome]:
    # Its id is stored for the family, not for single boards, because a retry may go to other boards of the family.
    if (repeated := _find_repeated(decision, key, post)) is not None:
        return repeated
    outcomes = _decide_parts(decision, post)
    _remember(decision, key, post, [each for each in outcomes if each.status is not PostStatus.REJECTED])
    return outcomes


def _decide_parts(decision: Decision, post: Post) -> list[PartOutcome]:
    plans = [_plan(decision, post, part) for part in post.parts]
    errors = [plan.error for plan in plans if isinstance(plan, PartOutcome) and plan.error is not None]
    refused = not all(isinstance(error, PeriodClosedError) for error in errors)
    why = next((plan for plan in plans if isinstance(plan, PostHeldError)), None)
    outcomes: list[PartOutcome] = []
    for part, plan in zip(post.parts, plans, strict=True):
        if isinstance(plan, PartOutcome):
            outcomes.append(plan)
        elif refused:
            outcomes.append(_refuse(decision, post, part, PostRejectedError()))
        elif why is not None:  # what one board holds, all of them hold
            outcomes.append(_hold(decision, post, part, why))
        elif isinstance(plan, dict):
            outcomes.append(_take(decision, post, part, plan))
    return outcomes


def _find_repeated(decision: Decision, key: int, post: Post) -> list[PartOutcome] | None:
    if post.post_hash is None or (known := decision.known.get((key, post.post_hash))) is None:
        return None
    is_held = any(part.status is PostStatus.HELD for part in known.parts)
    if post.is_accepted and is_held:
        return None
    error = find_refusal(Attempt(post.at_us, decision.group.now_us, fingerprint=post.fingerprint, known=known))
    if error is None:
        status = PostStatus.HELD if is_held else PostStatus.DUPLICATE
        return [msgspec.structs.replace(part, status=status) for part in known.parts]
    return [PartOutcome(PostStatus.REJECTED, error=error) for _ in range(max(1, len(post.parts)))]


def _remember(decision: Decision, key: int, post: Post, parts: list[PartOutcome]) -> None:
    if parts and post.post_hash is not None:
        fresh = RememberedPost(key, post.post_hash, post.fingerprint, parts)
        decision.known[key, post.post_hash] = fresh
        if post.is_accepted:
            decision.accepted.append((post.owner, fresh))
        else:
            decision.fresh.setdefault(decision.group.places[key], []).append(fresh)


def _plan(decision: Decision, post: Post, part: BoardPost) -> PartOutcome | PostHeldError | dict[int, Cell]:
    """Return the cells that the post changes, or the reason why it must be held.

    If the post is rejected or was applied before, return its outcome instead.
    """
    board, now_us = decision.boards[part.leaf.key], decision.group.now_us
    if decision.known and post.scope is None:
        repeated = _find_repeated(decision, part.leaf.key, post)
        if repeated is not None:
            return repeated[0]
    merged = decision.group.has_states and _is_merged(decision, post, part)
    if board.is_judged or merged or post.asks_hold:
        attempt = board.attempt._replace(named_us=post.at_us, now_us=post.accepted_us or now_us, is_merged=merged)
        if board.entrants is not None:
            attempt = board.entrants.describe(attempt, post.owner, has_entry=post.owner in board.rows)
        if (board.entries.leaf.limited or post.asks_hold) and not post.is_accepted:
            attempt = _describe_limits(board, post, part, attempt)
        if (error := find_refusal(attempt)) is not None:
            if isinstance(error, PostHeldError):
                return error
            decision.relies_on_states |= board.entrants is not None or bool(attempt.limited)
            return _refuse(decision, post, part, error)
    row = board.rows.get(post.owner)
    if row is None:
        decision.relies_on_states = True
    at_us = now_us if post.at_us is None else post.at_us
    try:
        return board.entries.merger.merge_changes(None if row is None else row.cells, part.changes, at_us)
    except PostError as error:
        return _refuse(decision, post, part, error)


def _describe_limits(board: BoardChanges, post: Post, part: BoardPost, attempt: Attempt) -> Attempt:
    return attempt._replace(
        changes=part.changes,
        limited=board.entries.leaf.limited,
        gains=board.gains.get(post.owner, {}),
        asks_hold=post.asks_hold,
        held=board.held,
    )


def _hold(decision: Decision, post: Post, part: BoardPost, why: PostHeldError) -> PartOutcome:
    """Hold the post for review on one board, and return its outcome. A post without an id is rejected instead."""
    if post.post_hash is None:
        return _refuse(decision, post, part, PostLimitError(why.detail))
    leaf_key, decision.relies_on_states = part.leaf.key, True
    decision.held.append(hold_post(post, part, why.detail, decision.group.now_us))
    decision.boards[leaf_key].held += 1
    outcome = PartOutcome(PostStatus.HELD, leaf_key=leaf_key)
    if post.scope is None:
        _remember(decision, leaf_key, post, [outcome])
    return outcome


def _is_merged(decision: Decision, post: Post, part: BoardPost) -> bool:
    facts = decision.group.facts.get(part.leaf.partition)
    merged = facts is not None and facts.is_merged(post.owner)
    decision.relies_on_states |= merged
    return merged


def _refuse(decision: Decision, post: Post, part: BoardPost, error: PostError) -> PartOutcome:
    decision.refuses_ids |= post.post_hash is not None
    return PartOutcome(PostStatus.REJECTED, error=error, leaf_key=part.leaf.key)


def _take(decision: Decision, post: Post, part: BoardPost, changed: dict[int, Cell]) -> PartOutcome:
    board, now_us = decision.boards[part.leaf.key], decision.group.now_us
    entries, row = board.entries, board.rows.get(post.owner)
    is_first = row is None
    status = PostStatus.APPLIED if changed or is_first else PostStatus.UNCHANGED
    board.applied += status is PostStatus.APPLIED
    if row is None:
        row = board.rows[post.owner] = ChangedEntry(post.owner, now_us, [None] * len(entries.leaf.spec.columns))
        row.is_hidden = decision.group.has_states and decision.group.facts[entries.leaf.partition].is_hidden(post.owner)
        row.ranked = None if row.is_hidden else entries.ranked_cells.none
        if board.seats is not None:
            board.seats.take_seat(post.owner)
    elif row.ranked is None and not row.is_hidden:
        row.ranked = entries.ranked_cells.join_cells(row.cells)
    if board.entrants is not None:
        board.entrants.add_post(post.owner, has_entry=not is_first)
    if entries.leaf.limited and status is PostStatus.APPLIED and not post.is_accepted:
        _add_gains(decision, board, post, part)
    before = [*row.cells] if post.tells_before else None
    if changed:
        _change_entry(row, entries, changed, now_us)
    if (act := post.act) is not None and (post.is_accepted or (changed and (act.reason is not None or not is_first))):
        name: ActName = "post.accepted" if post.is_accepted else "entry.set"
        decision.acts.append(Act(now_us, name, act.key, post.owner, entries.leaf.id, act.reason, act.detail))
    _log(board, row, post, part, status, now_us, is_first=is_first)
    outcome = PartOutcome(status, row.updated_at_us, entries.merger.decode_stats(row.cells), leaf_key=entries.leaf.key)
    if post.post_hash is not None and post.scope is None:
        _remember(decision, entries.leaf.key, post, [outcome])
    if before is None:
        return outcome
    return TracedOutcome(status, outcome.updated_at_us, outcome.stats, None, outcome.leaf_key, before)


def _add_gains(decision: Decision, board: BoardChanges, post: Post, part: BoardPost) -> None:
    limited = dict(board.entries.leaf.limited)
    for change in part.changes:
        column = limited.get(change.index)
        if column is None or column.limits is None or column.limits.gain_scaled is None or change.overwrite:
            continue
        if isinstance(change.value, int) and change.value > 0:
            before = board.gains.get(post.owner, {})
            gains = add_gain(before, change.index, change.value, decision.group.now_us)
            board.gains[post.owner] = decision.gains[part.leaf.key, post.owner] = gains


def _change_entry(row: ChangedEntry, entries: Entries, changed: dict[int, Cell], now_us: int) -> None:
    if row.changed is not None:
        row.changed |= changed
    else:
        row.changed = changed
        if row.expected is not None:
            row.updated_at_us = max(now_us, row.expected + 1)
    cells = row.cells
    for index, cell in changed.items():
        if (cell is None or cells[index] is None) and index in entries.leaf.sorted_indexes:
            row.counted += ((index, -1 if cell is None else 1),)
        cells[index] = cell


def _log(
    board: BoardChanges,
    row: ChangedEntry,
    post: Post,
    part: BoardPost,
    status: PostStatus,
    now_us: int,
    *,
    is_first: bool,
) -> None:
    ranked = board.entries.ranked_cells
    if status is PostStatus.UNCHANGED:
        record = record_of_post(ChangeKind.UNCHANGED, part.changes, post.post_id, post.at_us, (), None)
        board.log.add_change(row.owner, "", "", record)
        return
    happened, after, cells = ChangeKind.FIRST if is_first else ChangeKind.APPLIED, ranked.none, row.cells
    if row.is_hidden:
        happened, cells = ChangeKind.FIRST_UNSEEN if is_first else ChangeKind.UNSEEN, [*cells]
    else:
        after, cells = ranked.join_cells(cells), [cells[index] for index in ranked.others] if ranked.others else []
    before = after if row.ranked is None else row.ranked
    version = None if row.updated_at_us == now_us else row.updated_at_us
    record = record_of_post(happened, part.changes, post.post_id, post.at_us, cells, version)
    board.log.add_change(row.owner, before, after, record)
    row.ranked = after


def _add_rows(table: TableChanges, board: BoardChanges) -> None:
    inserted, changes = len(table.new), 0
    more: dict[int, int] = defaultdict(int)
    for row in board.rows.values():
        if row.is_hidden:
            changes += row.expected is None or bool(row.changed)  # an entity tag of a hidden entry changes with it
            continue
        if row.expected is None:
            table.new.append((board.rows_key, row))
        elif row.changed:
            indexes = tuple(row.changed) if len(row.changed) == 1 else tuple(sorted(row.changed))
            table.updates.setdefault(indexes, []).append((board.rows_key, row, row.expected))
        else:
            continue
        changes += 1
        for index, change in row.counted:
            more[index] += change
    if changes:
        board.totals = {**more, ALL_ENTRIES: len(table.new) - inserted, CHANGES: changes}


def list_hidden_changes(
    boards: Sequence[BoardChanges],
) -> tuple[list[HiddenEntry], list[tuple[HiddenEntry, int]]]:
    """List the new rows of hidden owners, and their changed rows, each with the version that it is expected to have."""
    rows = [(board.entries.leaf.key, row) for board in boards for row in board.rows.values() if row.is_hidden]
    new = [HiddenEntry(key, row) for key, row in rows if row.expected is None]
    changed = [(HiddenEntry(key, row), row.expected) for key, row in rows if row.changed and row.expected is not None]
    return new, changed
