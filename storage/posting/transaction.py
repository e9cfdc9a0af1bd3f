"""Applies a group of posts in a single transaction, in three steps.

    `group_facts` reads what the group needs ──> `decision` decides, without I/O ──> this module writes the changes

If a row no longer has the version that was read, another transaction has changed it. The program then raises
`LostRaceError`, so that the transaction is rolled back and the writer runs the whole group again.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple, TypeVar

import msgspec

from querybuilder import BULK_ALIAS, chained, col, count, plus, select
from storage.boards.acts import store_acts
from storage.errors import LostRaceError, OutdatedFactsError
from storage.leagues.seats import store_seats
from storage.leaves import hidden_owners
from storage.leaves.entrants import store_posts
from storage.leaves.entries import Entries, add_totals, build_totals_upsert, total_rows
from storage.limits.gains import store_gains
from storage.limits.held_posts import remove_held, store_held
from storage.log.bundles import BundleDraft
from storage.log.change_log import NewChange, build_log_insert, build_position_taking, bundle_rows, change_log
from storage.reads.open_boards import OpenBoards
from storage.records import Leaf, PartOutcome, Post
from storage.store import Program, Store, in_partition

from .decision import BoardChanges, Decision, decide_posts, list_hidden_changes
from .group_facts import GroupFacts, KnownFacts, Learned, read_group
from .post_ids import RememberedPost, remember_posts, replace_outcome

T = TypeVar("T")


class TransactionResult(NamedTuple):
    outcomes: list[list[PartOutcome]]  # for each post, in order, its outcome on each of its boards
    # By partition, how many posts were applied. A post counts once for each board to which it was applied.
    applied: dict[int, int]
    learned: Learned


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


def apply_posts(
    store: Store,
    boards: Iterable[Entries],
    posts: Sequence[Post],
    known_facts: KnownFacts,
    now_us: int,
    *,
    check_boards: bool,
) -> Program[TransactionResult]:
    """Apply posts to `boards`: read what they need, decide them in order, and write the changes.

    Raises:
        LostRaceError: a row has changed since it was read; roll the transaction back.
        OutdatedFactsError: a known fact has changed, or post ids must be looked up; roll the transaction back.
        UnknownBoardError: a board was deleted, and `check_boards` is False.
    """
    group = yield from read_group(store, boards, posts, known_facts, now_us, check_boards=check_boards)
    return (yield from write_changes(store, decide_posts(group, posts)))


def write_changes(
    store: Store, decision: Decision, further: Sequence[tuple[int, NewChange]] = ()
) -> Program[TransactionResult]:
    """Write the changes of a decision. `further`: other changes to log, such as rejections, each with its partition.

    If the transaction has other writes, make them first, because this locks the counters of the change logs.
    """
    yield from _write_rows(decision)
    if decision.entrants:
        yield from store_posts({place: each.changed for place, each in decision.entrants.items() if each.changed})
    for partition in sorted({each.leaf.partition for each in decision.seats}):
        taken = [each for each in decision.seats if each.leaf.partition == partition]
        yield from _at(decision.group, partition, store_seats(taken))
    if decision.acts:
        yield from store_acts(decision.acts)
    if decision.held or decision.accepted or decision.gains:
        yield from _write_limits(decision)
    boards: dict[int, list[BoardChanges]] = {}
    for board in decision.boards.values():
        boards.setdefault(board.entries.leaf.partition, []).append(board)
    group = decision.group
    for partition in sorted({*boards, *decision.fresh}):
        if group.has_states and partition in boards:
            yield from _at(group, partition, _write_hidden(boards[partition]))
        if partition in decision.fresh:
            yield from _at(group, partition, _store_ids(decision, decision.fresh[partition]))
    others = _draft_bundles(further) if further else {}
    # A transaction that holds the counter of a log delays all writers of the partition, so lock the counters last.
    for partition in sorted({*boards, *others}):
        theirs, rejections = boards.get(partition, []), others.get(partition, [])
        yield from _at(group, partition, _finish(store, decision, partition, theirs, rejections))
    applied = {partition: sum([board.applied for board in theirs]) for partition, theirs in boards.items()}
    return TransactionResult(decision.outcomes, applied, group.learned)


def _write_rows(decision: Decision) -> Program[None]:
    # An insert waits for a transaction that changes the row. So insert before the first change: else two groups,
    # each of which inserts what the other one has changed, would wait for each other.
    group = decision.group
    written = expected = 0
    for each in decision.tables:
        if each.new:
            written += yield from _at(group, each.partition, each.table.insert_rows(each.new))
            expected += len(each.new)
    for each in decision.tables:
        for indexes, changed in each.updates.items():
            written += yield from _at(group, each.partition, each.table.update_rows(indexes, changed))
            expected += len(changed)
    if written != expected:
        raise LostRaceError(f"{expected - written} of {expected} rows changed between their read and their write")


def _at(group: GroupFacts, partition: int, program: Program[T]) -> Program[T]:
    return program if partition == group.home else in_partition(partition, program)


def _write_limits(decision: Decision) -> Program[None]:
    """Store the held posts and the owners' gains, and remove the held posts that the group accepts."""
    group = decision.group
    for partition in sorted({*group.places.values()}):
        held = [each for each in decision.held if group.places[each.leaf_key] == partition]
        gains = {key: each for key, each in decision.gains.items() if group.places[key[0]] == partition}
        if held:
            yield from _at(group, partition, store_held(held))
        if gains:
            yield from _at(group, partition, store_gains(gains, group.now_us))
    for owner, post in decision.accepted:
        yield from _at(group, group.places[post.key], _accept(group, owner, post))


def _accept(group: GroupFacts, owner: str, post: RememberedPost) -> Program[None]:
    if not (yield from remove_held(owner, post.post_hash, post.key)):
        raise OutdatedFactsError("another verdict came first", learned=group.learned)
    yield from replace_outcome(post, group.epochs, group.now_us)


def _draft_bundles(changes: Iterable[tuple[int, NewChange]]) -> dict[int, list[BundleDraft]]:
    drafts: dict[tuple[int, int], BundleDraft] = {}
    for partition, change in changes:
        draft = drafts.setdefault((partition, change.leaf_key), BundleDraft(change.leaf_key))
        draft.add_change(change.owner, change.previous, change.next, change.record)
    by_partition: dict[int, list[BundleDraft]] = {}
    for (partition, _), draft in drafts.items():
        by_partition.setdefault(partition, []).append(draft)
    return by_partition


def _store_ids(decision: Decision, fresh: Sequence[RememberedPost]) -> Program[None]:
    group = decision.group
    stored = yield from remember_posts(fresh, group.epochs, repeat(group.now_us))
    if stored != len(fresh):
        learned = msgspec.structs.replace(group.learned, ids_known=True)
        raise OutdatedFactsError("a post was applied before, or another transaction applies it", learned=learned)


def _finish(
    store: Store, decision: Decision, partition: int, boards: Sequence[BoardChanges], others: list[BundleDraft]
) -> Program[None]:
    changed = [*others, *[board.log for board in boards if board.log.changes]]
    totals = {board.entries.leaf.key: board.totals for board in boards if board.totals}
    now_us, version = decision.group.now_us, None
    if changed and store.dialect.chains:  # one statement for log and totals locks the counter briefly
        rows = bundle_rows(changed, now_us=now_us, next_position=0)
        bound = {"bundle_rows": rows, "total_rows": total_rows(totals), "now_us": now_us}
        [[_, version]] = yield _RECORD.bind(bundles=len(rows), **bound)
    elif changed:
        version = (yield from change_log.append_drafts(changed, now_us=now_us)).facts
        yield from add_totals(totals)
    elif decision.relies_on_states:  # nothing to log; check whether a post was rejected for a state that has changed
        version = yield from change_log.read_facts()
    facts = decision.group.facts.get(partition)
    if facts is not None and version not in (None, facts.version):
        _forget_facts(decision, partition, facts.version)


def _forget_facts(decision: Decision, partition: int, version: int) -> None:
    decision.group.learned.outdated[partition] = version
    detail = "an owner was hidden or merged, or a board was emptied or got computed columns, since the group began"
    raise OutdatedFactsError(detail, learned=decision.group.learned)


def _write_hidden(boards: Sequence[BoardChanges]) -> Program[None]:
    new, changed = list_hidden_changes(boards)
    written = (yield from hidden_owners.insert_rows(new)) if new else 0
    written += (yield from hidden_owners.update_rows(changed)) if changed else 0
    if written != len(new) + len(changed):
        raise LostRaceError("the entry of a hidden owner changed between its read and its write")


_RECORD = chained(
    "taken",
    build_position_taking(),
    build_log_insert().compute_from("taken", position=plus(col("position", BULK_ALIAS), col("next", "taken"))),
    # The condition reads `taken`, which locks the log's counter. So the counter is locked before the totals.
    build_totals_upsert().where(select(count()).from_("taken").scalar().eq(1)),
).prepared()
