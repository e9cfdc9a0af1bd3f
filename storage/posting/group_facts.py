"""Reads what a group of posts needs before it can be decided, and keeps what groups have learned for later ones.

    read_group: lock gates ──> look up facts ──> lock rows ──> find hidden rows ──> look up post ids ──> `GroupFacts`
                (boards with entry rules: lock the counts of their owners before the rows, see `leaves.entrants`;
                leagues: then find seats for owners without rows, see `storage.leagues`)

Most groups need few look-ups in the store, because each process remembers facts from earlier groups:

    of a partition    which owners are hidden, are being shown again, or were merged, see `hidden_owners`
                      the current epoch of each board; post ids of earlier epochs are not valid, see `post_ids`
                      when each board was last emptied; posts with an earlier time are refused
                      each board's computed columns and entry rules; a process that knows others reads the board again
    of all callers    whether some callers currently send posts again, with ids that are already stored

The row that holds the counter of a partition's change log also has `facts`, the version of the partition's facts. A
transaction that changes a fact increments this version as its last write. A group of posts that logs changes locks the
counter before it commits. If the version is still the same, the facts have been true since the group began, and they
stay true until the commit. Otherwise the group relied on outdated facts: the process forgets them and runs it again.

If callers have sent no stored ids recently, a group stores its ids without a look-up. The group runs again with a
look-up if one of the ids is stored already, or if the group would reject a post with an id, because that post may have
been applied earlier, when there was no reason to reject it.

A group never changes the remembered facts itself. It returns or raises what it learned, for `KnownFacts.keep` to store.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from storage.errors import BoardChangedError, OutdatedFactsError
from storage.leagues.seats import AskedSeats, Seats, hold_seats
from storage.leaves import hidden_owners
from storage.leaves.catalog_rows import find_posted_leaves
from storage.leaves.entrants import Entrants, EntrantsPlace, hold_entrants
from storage.leaves.entries import Entries, RowId, TableRows
from storage.leaves.gates import admit_accepted, hold_gates, read_gates
from storage.leaves.hidden_owners import HIDING, REFUSED, STATES_MAX, read_states
from storage.leaves.totals import find_demands
from storage.limits.gains import Gains, read_gains
from storage.limits.held_posts import count_held
from storage.records import Entry, Gate, Leaf, Post
from storage.store import Program, Store, in_partition

from .post_ids import PostKey, RememberedPost, find_known

BOARDS_MAX = 100_000  # the most boards of a partition whose epochs, or times of resets, a process remembers
K = TypeVar("K")
T = TypeVar("T")


class Facts(NamedTuple):
    version: int  # the version of the facts when they were read: `facts` in the counter of the change log
    owner_states: dict[str, str]  # such as `HIDDEN`, by owner, see `hidden_owners`
    epochs: dict[tuple[int, int], int]  # by (leaf key, `rows_key` of its `Place`); filled when post ids are looked up
    resets: dict[int, int]  # when boards were last emptied, by leaf key; 0: never; filled by posts that name a time
    demands: dict[int, str]  # by leaf key, its `Leaf.demands`; filled by posts

    def is_hidden(self, owner: str) -> bool:
        return self.owner_states.get(owner) in HIDING

    def is_merged(self, owner: str) -> bool:
        return self.owner_states.get(owner) in REFUSED


class Learned(msgspec.Struct):
    """The facts that a group has learned. `KnownFacts.keep` remembers them whether or not the group was applied."""

    facts: dict[int, Facts] = {}  # by partition: facts that were read; its last three dicts have only what is new
    unbounded: set[int] = set()  # partitions in which more than `STATES_MAX` owners have a state
    outdated: dict[int, int] = {}  # by partition: the version of facts that no longer holds
    ids_known: bool | None = None  # whether the next groups have to look up their ids; None: as before


class KnownFacts:
    """The facts that a writer, or the job for queued posts, remembers. Only `keep` changes them, after each group."""

    def __init__(self) -> None:
        self.facts: dict[int, Facts] = {}  # by partition
        self.unbounded: set[int] = set()  # see `Learned`
        self.ids_known = False  # whether groups look up their ids, because a post was lately sent again or refused

    def keep(self, learned: Learned) -> None:
        for partition, facts in learned.facts.items():
            kept = self.facts.get(partition)
            if kept is None or kept.version < facts.version:
                self.facts[partition] = facts
            elif kept.version == facts.version:
                _add_facts(kept.epochs, facts.epochs)
                _add_facts(kept.resets, facts.resets)
                _add_facts(kept.demands, facts.demands)
        for partition, version in learned.outdated.items():
            if partition in self.facts and self.facts[partition].version <= version:
                del self.facts[partition]
        self.unbounded |= learned.unbounded
        if learned.ids_known is not None:
            self.ids_known = learned.ids_known


def _add_facts(kept: dict[K, T], new: dict[K, T]) -> None:
    if len(kept) + len(new) > BOARDS_MAX:
        kept.clear()
    kept |= new


class BoardFacts(msgspec.Struct):
    entries: Entries
    rows_key: int  # the board's key in its table of rows
    exists: bool = True  # False: the board was deleted, or its rows are in another partition or table
    gate: Gate | None = None  # None: `hold_gates` returned no gate to check, so the board takes the posts
    shut: bool = False  # True: the board rejects posts now
    is_late: bool = False  # True: the board was shut, and still takes queued posts that were accepted before
    reset_us: int = 0  # when the board was last emptied; set only if a post of the group names a time
    rows: dict[str, Entry] = {}  # by owner
    hidden_rows: dict[str, Entry] = {}  # of owners who are hidden, so no ranking holds them
    gains: dict[str, Gains] = {}  # by owner, if the board limits gains
    held: int = 0  # how many posts of the board are held, if the group may hold more


class GroupFacts(msgspec.Struct):
    """Everything needed to decide the posts of a group. It is not changed once `read_group` has returned it."""

    now_us: int
    home: int | None  # the partition in which the store runs programs; None: no board is there
    boards: dict[int, BoardFacts]  # by leaf key, in ascending order of the keys
    places: dict[int, int]  # by key of a board or a family: its partition
    tables: list[tuple[int, TableRows, list[BoardFacts]]] = []  # (partition, table, boards that take posts), in order
    facts: dict[int, Facts] = {}  # by partition
    entrants: dict[EntrantsPlace, Entrants] = {}  # who takes part in boards with entry rules
    seats: dict[int, Seats] = {}  # in leagues, by leaf key
    has_states: bool = False  # whether any owner is hidden, is being shown again, or was merged
    looks_up: bool = False  # whether the ids of the posts were looked up
    known: dict[PostKey, RememberedPost] = {}  # posts of the group whose id is stored
    epochs: dict[int, int] = {}  # by leaf key: its epoch now; post ids of earlier epochs are not valid
    learned: Learned = msgspec.field(default_factory=Learned)


def _at(group: GroupFacts, partition: int, program: Program[T]) -> Program[T]:
    return program if partition == group.home else in_partition(partition, program)


class _Needs(msgspec.Struct):
    owners: dict[int, dict[str, None]]  # the owners whose rows they change
    dated: set[int] = set()  # boards with posts that name a time
    remembering: set[int] = set()  # boards for which ids of the group are to be stored
    ids: dict[PostKey, None] = {}  # the ids that are to be stored for the board or family with the key
    places: dict[int, int] = {}  # by key of a board or a family: its partition
    must_look_up: bool = False  # whether a post reaches no board now, or was held: it repeats an earlier post
    holding: set[int] = set()  # boards of posts that ask to be held


def _list_needs(posts: Iterable[Post]) -> _Needs:
    needs = _Needs(defaultdict(dict))
    for post in posts:
        scope = post.scope
        for part in post.parts:
            key = part.leaf.key
            needs.owners[key][post.owner] = None
            if post.at_us is not None:
                needs.dated.add(key)
            if post.asks_hold:
                needs.holding.add(key)
            if post.post_hash is not None and scope is None:
                needs.remembering.add(key)
                needs.ids[key, post.post_hash] = None
        if post.post_hash is not None and scope is not None:
            needs.ids[scope.key, post.post_hash] = None
            needs.places[scope.key] = scope.partition
            needs.must_look_up |= not post.parts
        needs.must_look_up |= post.is_accepted
    return needs


def read_group(
    store: Store,
    boards: Iterable[Entries],
    posts: Sequence[Post],
    known_facts: KnownFacts,
    now_us: int,
    *,
    check_boards: bool,
    accepted_us: int | None = None,
) -> Program[GroupFacts]:
    """Lock the gates and rows that a group of posts to `boards` changes, and return the facts to decide them by.

    Run this with the `write` of `store`. It locks by partition, table, board and owner, the order that all transactions
    use.

    `check_boards`: find out which boards were deleted. Otherwise a deleted board makes the store raise an error.
    `accepted_us`: for queued posts, when the first of them was accepted. Boards that closed after the time in
    `Post.accepted_us` then still take the post.

    Raises:
        UnknownBoardError: a board was deleted, and `check_boards` is False.
    """
    needs = _list_needs(posts)
    opened: dict[int, BoardFacts] = {}
    for each in sorted(boards, key=attrgetter("leaf.key")):
        opened[each.leaf.key] = BoardFacts(each, each.leaf.rows_key)
        needs.places[each.leaf.key] = each.leaf.partition
    home = [partition for partition in {*needs.places.values()} if store.at(partition) is store]
    group = GroupFacts(now_us, home[0] if home else None, opened, needs.places)
    yield from _hold_gates(group, check_boards=check_boards, accepted_us=accepted_us)
    group.tables = _list_tables(group.boards.values())
    group.looks_up = needs.must_look_up or (known_facts.ids_known and bool(needs.ids))
    for partition, _, theirs in group.tables:
        yield from _read_facts(group, partition, theirs, needs, known_facts, queued=accepted_us is not None)
    ruled = [board for *_, theirs in group.tables for board in theirs if board.entries.leaf.spec.entry is not None]
    if ruled:
        asked = [(each.entries.leaf, needs.owners[each.entries.leaf.key]) for each in ruled]
        group.entrants = yield from hold_entrants(asked)
    for partition, table, theirs in group.tables:
        yield from _at(group, partition, _hold_rows(table, theirs, needs.owners))
    if group.has_states:
        yield from _find_hidden_rows(group, needs.owners)
    leagues = [board for *_, theirs in group.tables for board in theirs if board.entries.leaf.spec.league is not None]
    if leagues:
        yield from _hold_seats(group, leagues, needs, posts)
    for partition, _, theirs in group.tables:
        limited = [each for each in theirs if each.entries.leaf.limited or each.entries.leaf.key in needs.holding]
        if limited:
            yield from _at(group, partition, _read_limited(limited, needs))
    if group.looks_up:
        yield from _look_up(group, needs.ids)
        group.learned.ids_known = bool(group.known)
    return group


def _hold_gates(group: GroupFacts, *, check_boards: bool, accepted_us: int | None) -> Program[None]:
    copies = map(attrgetter("entries.leaf"), group.boards.values())
    gates = yield from hold_gates(copies, now_us=group.now_us, check_all=check_boards)
    late = (yield from admit_accepted(gates, accepted_us)) if accepted_us is not None else ()
    for key, leaf in gates.items():
        board = group.boards[key]
        board.is_late = key in late
        board.exists = leaf is not None
        if leaf is not None:
            board.gate, board.rows_key = leaf.gate, leaf.rows_key
            board.shut = leaf.gate.is_shut(accepted_us or group.now_us)


def _list_tables(boards: Iterable[BoardFacts]) -> list[tuple[int, TableRows, list[BoardFacts]]]:
    """List triples (partition, table, the table's boards that take posts). All writers use the same order."""
    tables: dict[tuple[int, int, TableRows], list[BoardFacts]] = {}
    for board in boards:
        if board.exists and not board.shut:
            leaf, table = board.entries.leaf, board.entries.table
            table_key = leaf.key if leaf.table_key is None else leaf.table_key
            tables.setdefault((leaf.partition, table_key, table), []).append(board)
    return [(key[0], key[2], tables[key]) for key in sorted(tables, key=itemgetter(0, 1))]


def _read_facts(
    group: GroupFacts,
    partition: int,
    boards: Sequence[BoardFacts],
    needs: _Needs,
    known_facts: KnownFacts,
    *,
    queued: bool,
) -> Program[None]:
    """Find the owners' states, and the boards' epochs and last resets, reading only those that are not remembered."""
    facts = group.facts.get(partition) or known_facts.facts.get(partition)
    if facts is None:
        facts = yield from read_facts(partition, needs.owners.values(), known_facts.unbounded, group.learned)
    group.facts[partition] = facts
    group.has_states |= bool(facts.owner_states)
    unknown: list[BoardFacts] = []
    for board in boards:
        key, demands = board.entries.leaf.key, board.entries.leaf.demands
        if (known := facts.demands.get(key)) is None:
            unknown.append(board)
        elif known != demands:  # the fact is outdated, or the copy of the board
            group.learned.outdated[partition] = facts.version
            raise OutdatedFactsError("a board has other computed columns or entry rules", learned=group.learned)
        if (epoch := facts.epochs.get((key, board.rows_key))) is not None:
            group.epochs[key] = epoch
        elif key in needs.remembering:
            group.looks_up = True
    if unknown:
        yield from _confirm_copies(group, partition, unknown, queued=queued)
    if needs.dated:
        theirs = {key: board for board in boards if (key := board.entries.leaf.key) in needs.dated}
        yield from _find_resets(group, partition, facts, theirs)


def _confirm_copies(group: GroupFacts, partition: int, boards: Sequence[BoardFacts], *, queued: bool) -> Program[None]:
    """Check that the process knows the boards' current computed columns and rules.

    If it does not, it must read the board again.

    Raises:
        BoardChangedError: it does not know them, and the posts were `queued`. Other posts are rejected and sent again.
    """
    demands = yield from in_partition(partition, find_demands(board.entries.leaf.key for board in boards))
    for board in boards:
        leaf = board.entries.leaf
        if demands.get(leaf.key, leaf.demands) == leaf.demands:
            continue
        if queued:
            raise BoardChangedError
        board.exists = False
    _learn(group, partition, {}, {}, demands)


def _find_resets(group: GroupFacts, partition: int, facts: Facts, boards: dict[int, BoardFacts]) -> Program[None]:
    unknown = [key for key in boards if key not in facts.resets]
    gates = (yield from read_gates(partition, unknown)) if unknown else {}
    resets = {key: gate.reset_us or 0 for key, (_, gate) in gates.items()}
    _learn(group, partition, {}, resets, {})
    for key, board in boards.items():
        board.reset_us = resets.get(key, facts.resets.get(key, 0))


def read_facts(
    partition: int, owners: Iterable[Iterable[str]], unbounded: set[int], learned: Learned
) -> Program[Facts]:
    """Read which owners of a partition are hidden, shown again or merged, and add the result to `learned`.

    If more than `STATES_MAX` owners have such a state, record only that fact, and return the states of `owners`.
    """
    if partition not in unbounded | learned.unbounded:
        found = Facts(*(yield from in_partition(partition, read_states())), {}, {}, {})
        if len(found.owner_states) <= STATES_MAX:
            learned.facts[partition] = found
            return found
        learned.unbounded.add(partition)
    asked = sorted(set[str]().union(*owners))
    return Facts(*(yield from in_partition(partition, read_states(asked))), {}, {}, {})


def _learn(
    group: GroupFacts,
    partition: int,
    epochs: dict[tuple[int, int], int],
    resets: dict[int, int],
    demands: dict[int, str],
) -> None:
    """Add facts about boards to those that the group has learned.

    Do nothing if the partition has too many owner states for any of its facts to be remembered.
    """
    facts = group.facts.get(partition)
    if facts is None or partition in group.learned.unbounded or not (epochs or resets or demands):
        return
    learned = group.learned.facts.setdefault(partition, facts._replace(epochs={}, resets={}, demands={}))
    learned.epochs.update(epochs)
    learned.resets.update(resets)
    learned.demands.update(demands)


def _hold_rows(table: TableRows, boards: Sequence[BoardFacts], owners: dict[int, dict[str, None]]) -> Program[None]:
    rows: dict[int, dict[str, Entry]] = {}
    wanted: list[RowId] = []
    for board in boards:
        rows[board.rows_key] = board.rows
        wanted += [(board.rows_key, owner) for owner in owners[board.entries.leaf.key]]
    for rows_key, entry in (yield from table.lock_rows(wanted)):
        rows[rows_key][entry.owner] = entry


def _read_limited(boards: Sequence[BoardFacts], needs: _Needs) -> Program[None]:
    """Read what boards with limits need: the owners' recent gains, and how many posts each board already holds."""
    gaining, holding = dict[int, BoardFacts](), dict[int, BoardFacts]()
    for board in boards:
        key, limits = board.entries.leaf.key, [column.limits for _, column in board.entries.leaf.limited]
        if any(each is not None and each.gain_scaled is not None for each in limits):
            gaining[key] = board
        if key in needs.holding or any(each is not None and each.holds for each in limits):
            holding[key] = board
    if gaining:
        owners = set[str]().union(*(needs.owners[key] for key in gaining))
        for (key, owner), gains in (yield from read_gains(gaining, owners)).items():
            gaining[key].gains[owner] = gains
    for key, posts in (yield from count_held(holding)).items():
        holding[key].held = posts


def _find_hidden_rows(group: GroupFacts, owners: dict[int, dict[str, None]]) -> Program[None]:
    """Read rows from the hidden table (see `hidden_owners`). Call this only after reading the boards' own rows."""
    for partition, facts in group.facts.items():
        theirs = [key for key, board in group.boards.items() if board.exists and group.places[key] == partition]
        stated = list({owner for key in theirs for owner in owners[key]} & facts.owner_states.keys())
        if not stated:
            continue
        for each in (yield from _at(group, partition, hidden_owners.find_hidden_entries(theirs, stated))):
            board = group.boards[each.leaf_key]
            entry = each.widen_cells(len(board.entries.leaf.spec.columns))
            if entry.owner not in board.rows:
                board.hidden_rows[entry.owner] = entry


def _hold_seats(group: GroupFacts, boards: Iterable[BoardFacts], needs: _Needs, posts: Sequence[Post]) -> Program[None]:
    """Find seats for owners without an entry. A period that was shut gives no more, because it is being settled."""
    wanted = {post.owner: post.division for post in reversed(posts) if post.division is not None}
    asked: dict[int, list[AskedSeats]] = {}
    for board in boards:
        leaf = board.entries.leaf
        owners = needs.owners[leaf.key].keys() - board.rows.keys() - board.hidden_rows.keys()
        if owners and not board.is_late:
            asked.setdefault(leaf.partition, []).append(AskedSeats(leaf, owners, wanted))
    for partition, theirs in sorted(asked.items()):
        group.seats |= yield from _at(group, partition, hold_seats(theirs))


def _look_up(group: GroupFacts, asked: Iterable[PostKey]) -> Program[None]:
    """Find which posts were applied before. Their existing rows are locked, so no other transaction writes to them."""
    for partition in sorted(set(group.places.values())):
        yield from _at(group, partition, _find_known(group, partition, asked))
    for board in group.boards.values():
        if board.exists and board.entries.leaf.archived_us is not None:
            yield from _find_in_segments(group, board.entries.leaf, asked)


def _find_known(group: GroupFacts, partition: int, asked: Iterable[PostKey]) -> Program[None]:
    deleted = {key for key, board in group.boards.items() if not board.exists}
    theirs = [each for each in asked if group.places[each[0]] == partition and each[0] not in deleted]
    if not theirs:
        return
    known = yield from find_known(
        theirs, {key: group.boards[key].entries.leaf.epoch for key, _ in theirs if key in group.boards}
    )
    group.known |= known.posts
    group.epochs |= known.epochs
    _learn(group, partition, {(key, group.boards[key].rows_key): each for key, each in known.epochs.items()}, {}, {})


def _find_in_segments(group: GroupFacts, leaf: Leaf, asked: Iterable[PostKey]) -> Program[None]:
    hashes = [post_hash for key, post_hash in asked if key == leaf.key]
    for part in (yield from find_posted_leaves(leaf)) if hashes else ():
        finding = find_known([(part.key, post_hash) for post_hash in hashes], {part.key: part.epoch})
        known = yield from in_partition(part.partition, finding)
        group.known |= {(leaf.key, post_hash): post for (_, post_hash), post in known.posts.items()}
