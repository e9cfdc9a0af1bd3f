"""Hides owners by moving their rows to the hidden table, where posts still merge into them but no ranking sees them.

The table `hidden_owners` stores owner states: HIDDEN, SHADOWED or SHOWING. Nearly all owners have no state. An owner
who was merged into another one is MERGED, MERGED_HIDDEN or MERGED_SHADOWED, and keeps this state.

    no state ── store_state ──> HIDDEN ── hide_owner, one transaction after the other ──> all rows in the hidden table
                                │    ^
       store_state(hide=False)  v    │  store_state(hide=True)
                                SHOWING ── show_owner, one transaction after the other ──> all rows with their boards
    no state <── forget_state ──┘

    state      a new row goes to     rows may be in               who moves rows
    none       the board's table     the board's table            nobody
    HIDDEN     the hidden table      either table                 `hide_owner`
    SHOWING    the board's table     either table                 `show_owner`
    MERGED     posts are refused     either table                 `histories.owner_merges`, to the other owner

SHADOWED is like HIDDEN for writers, and for other owners' ranks. But a read about the owner itself gets the hidden row
as a `ShadowEntry` (`find_unseen`), and ranks it among the board's rows. The same holds in the state SHOWING, so that an
owner who was shadowed is never told of being hidden.

An owner's row on a board is in one of the two tables. Without a state, the owner has no row in the hidden table, so a
post looks there only for owners with a state, and needs no query if none of its owners has one.

Every partition stores all states, so that a post reads them in its own partition. A process remembers them until the
number `facts` in the counter of the change log changes (see `posting.group_facts`). A post compares this number while
it holds the counter. If the number has changed, the process forgets the states, and the post runs again.

A transaction that moves rows locks the owner's state. So while the state is SHOWING, no row is moved into the hidden
table, and while it is HIDDEN, no row is moved out. A post reads the board's table first and the hidden table second. If
a row is moved in between, the post finds it in the hidden table, or fails to write it and loses the race.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Bound,
    Lock,
    all_of,
    any_of,
    asc,
    col,
    delete,
    insert,
    null,
    param,
    select,
    union_all,
    update,
)
from storage.errors import BoardChangedError, LostRaceError
from storage.log.bundles import ChangeKind, record_of_event
from storage.log.cells import Cell
from storage.log.change_log import NewChange
from storage.records import Entry, Leaf, ShadowEntry
from storage.schema.creation import hold_partitions, in_each_partition
from storage.schema.placement import TABLES, prepare_put_rows
from storage.schema.sequences import count_fact
from storage.schema.tables import HIDDEN_ENTRIES, HIDDEN_OWNERS, LOG_COUNTER
from storage.store import Program, in_partition

from .entries import Entries, RankingChange, log_ranking_changes
from .gates import hold_rows_key
from .totals import CHANGES

HIDDEN, SHADOWED, SHOWING = "hidden", "shadowed", "showing"  # the states of an owner
MERGED, MERGED_HIDDEN, MERGED_SHADOWED = "merged", "merged, hidden", "merged, shadowed"
HIDING = (HIDDEN, SHADOWED)  # new rows of such an owner are hidden
TOLD = (HIDDEN, MERGED_HIDDEN)  # answers about such an owner say so
UNSEEN = (*TOLD, SHADOWED, MERGED_SHADOWED)
REFUSED = (MERGED, MERGED_HIDDEN, MERGED_SHADOWED)  # no post of such an owner is applied
# A process remembers at most this many states of a partition. With more, each group of posts reads its owners' states.
STATES_MAX = 20_000
STATES_A_PAGE = 1_000  # how many states one step copies to a new partition
Concerns = Callable[[int], bool]  # whether a partition is among those that a program changes
_ALIAS = "v"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Cell]).decode


class HiddenEntry(NamedTuple):
    leaf_key: int
    entry: Entry

    def widen_cells(self, columns: int) -> Entry:
        """Extend the entry to one cell for every column, because columns may have been added since it was written."""
        self.entry.cells.extend([None] * (columns - len(self.entry.cells)))
        return self.entry


_row = TABLES[HIDDEN_ENTRIES].kinds
_rows = select(*map(col, _row)).from_(HIDDEN_ENTRIES)
_theirs = col("owner").eq(param("owner"))
_of_owners = col("owner").in_(param("owners"))
_FIND = _rows.where(col("leaf_key").in_(param("keys")), _of_owners).packed().prepared()
_states = select(col("owner"), col("state")).from_(HIDDEN_OWNERS)
_STATES_OF = _states.where(_of_owners).packed().prepared()
_HELD_STATES = _states.where(_of_owners).packed().locked(Lock.SHARE, asc(col("owner"))).prepared()
_counted = select(null(TEXT), null(TEXT), col("facts")).from_(LOG_COUNTER)
_beside = select(col("owner"), col("state"), null(INTEGER)).from_(HIDDEN_OWNERS)
_ALL_STATES = union_all(_counted, _beside.limit(STATES_MAX + 1)).packed().prepared()
_FACTS_AND_STATES = union_all(_counted, _beside.where(_of_owners)).packed().prepared()
_OF_OWNER = _rows.where(_theirs).order_by(asc(col("leaf_key"))).limit(param("limit")).packed().prepared()
_INSERT = insert(HIDDEN_ENTRIES).rows(param("rows"), **_row).on_conflict("leaf_key", "owner").do_nothing().prepared()
_UPDATE = (
    update(HIDDEN_ENTRIES)
    .set(updated_at=col("updated_at", _ALIAS), cells=col("cells", _ALIAS))
    .from_rows(_ALIAS, param("rows"), expected=INTEGER, **_row)
    .where(
        *(col(name, HIDDEN_ENTRIES).eq(col(name, _ALIAS)) for name in ("leaf_key", "owner")),
        col("updated_at", HIDDEN_ENTRIES).eq(col("expected", _ALIAS)),
    )
    .prepared()
)
_PAGE = _states.where(col("owner").gt(param("after"))).order_by(asc(col("owner"))).limit(param("limit")).prepared()
_here = delete(HIDDEN_ENTRIES).where(_theirs, col("leaf_key").eq(param("key")))
_TAKE = _here.returning(col("updated_at"), col("cells")).prepared()
_STORE = prepare_put_rows(HIDDEN_OWNERS)
_SHOW = update(HIDDEN_OWNERS).set(state=SHOWING).where(_theirs, col("state").in_(param("hiding"))).prepared()
_refused = any_of(*(col("state").eq(state) for state in REFUSED))
_merged = all_of(col("owner").in_(param("merged")), _refused)
_FORGET = delete(HIDDEN_OWNERS).where(any_of(all_of(_theirs, col("state").eq(SHOWING)), _merged)).prepared()


def read_states(owners: Sequence[str] | None = None) -> Program[tuple[int, dict[str, str]]]:
    """Read the partition's number `facts` (see `group_facts`) and the states by owner, from the same snapshot.

    `owners`: read only these owners' states. If it is None, at most `STATES_MAX` + 1 states are read.
    """
    rows = yield _ALL_STATES.bind() if owners is None else _FACTS_AND_STATES.bind(owners=owners)
    [facts] = [number for owner, _, number in rows if owner is None]
    return facts, {owner: state for owner, state, _ in rows if owner is not None}


def find_hidden_entries(leaf_keys: Sequence[int], owners: Sequence[str]) -> Program[list[HiddenEntry]]:
    rows = yield _FIND.bind(keys=leaf_keys, owners=owners)
    return [HiddenEntry(row[0], _entry(*row[1:])) for row in rows]


def find_unseen(leaves: Iterable[Leaf], owners: Sequence[str]) -> Program[list[HiddenEntry]]:
    """Find these owners' hidden entries on leaves, as `ShadowEntry` unless answers tell that the owner is hidden.

    Run this program in the partition of the leaves. Archived leaves have no such entries.
    """
    columns = {leaf.key: len(leaf.spec.columns) for leaf in leaves}
    rows = yield from find_hidden_entries([*columns], owners)
    states = (yield _STATES_OF.bind(owners=[row.entry.owner for row in rows])) if rows else []
    told = {owner for owner, state in states if state in TOLD}
    found = []
    for row in rows:
        entry = row.widen_cells(columns[row.leaf_key])
        if entry.owner not in told:
            entry = ShadowEntry(entry.owner, entry.updated_at_us, entry.cells)
        found.append(HiddenEntry(row.leaf_key, entry))
    return found


def find_shadow(leaf: Leaf, owner: str) -> Program[ShadowEntry | None]:
    """Find a shadowed owner's entry on a leaf, or None. Run this program in the partition of the leaf."""
    found = yield from find_unseen([leaf], [owner])
    return next((entry for _, entry in found if isinstance(entry, ShadowEntry)), None)


def find_hidden_owners(owners: Sequence[str], *, held: bool = False) -> Program[dict[str, str]]:
    """Find which of these owners are hidden, with their states. `held`: lock the states until the transaction ends."""
    rows = yield (_HELD_STATES if held else _STATES_OF).bind(owners=owners)
    return {owner: state for owner, state in rows if state in UNSEEN}


def insert_rows(rows: Iterable[HiddenEntry]) -> Program[int]:
    inserted = yield _INSERT.bind(rows=sorted(map(_encode_row, rows)))
    return int(inserted[0][0])


def update_rows(rows: Iterable[tuple[HiddenEntry, int]]) -> Program[int]:
    written = yield _UPDATE.bind(
        rows=[(expected, *row) for row, expected in sorted((_encode_row(row), expected) for row, expected in rows)]
    )
    return int(written[0][0])


def _encode_row(row: HiddenEntry) -> tuple[int, str, int, str]:
    key, entry = row
    return key, entry.owner, entry.updated_at_us, _encode(entry.cells).decode()


def store_state(
    owner: str, *, now_us: int, hide: bool, shadow: bool = False, concerns: Concerns = lambda _: True
) -> Program[None]:
    """Store that an owner is hidden or, with `hide=False`, is being shown again. Other programs move the rows later.

    `shadow`: hide the owner without its noticing. `concerns`: store the state only in the partitions that this function
    accepts. The state holds for all present and future boards. With `hide=False`, nothing changes if the owner is not
    hidden. Call this last in its transaction.
    """
    hiding = [(owner, SHADOWED if shadow else HIDDEN)]
    storing = _STORE.bind(rows=hiding) if hide else _SHOW.bind(owner=owner, hiding=list(HIDING))
    yield from _change_states(storing, now_us, concerns)


def store_merged(owner: str, into: str, *, now_us: int) -> Program[None]:
    """Store that an owner was merged into another one. If the owner is hidden, `into` is hidden from now on, too.

    `into` is shadowed unless answers tell that one of the two is hidden. The owner's rows stay where they are until
    they are merged. Call this last in its transaction.
    """
    found = yield from in_partition(0, find_hidden_owners([owner, into]))
    states = [(owner, MERGED)]
    if owner in found:
        told = HIDDEN in found.values()
        states = [(owner, MERGED_HIDDEN if found[owner] == HIDDEN else MERGED_SHADOWED)]
        states.append((into, HIDDEN if told else SHADOWED))
    yield from _change_states(_STORE.bind(rows=states), now_us, lambda _: True)


def forget_state(
    owner: str, *, now_us: int, concerns: Concerns = lambda _: True, merged: Sequence[str] = ()
) -> Program[None]:
    """Remove the state of an owner whose rows were all moved back, unless the owner was hidden again.

    `concerns`: remove it only in the partitions that this function accepts. `merged`: owners whose merged state is
    removed as well.

    Raises:
        BoardChangedError: the owner still has a hidden row, because its board has moved in the meantime.
    """
    forgotten = yield from _change_states(_FORGET.bind(owner=owner, merged=merged), now_us, concerns)
    if not forgotten:
        return
    left = yield from in_each_partition(partial(list_hidden_boards, owner, limit=1), concerns)
    if any(left.values()):
        raise BoardChangedError


def _change_states(changing: Bound, now_us: int, concerns: Concerns) -> Program[int]:
    partitions, changed = [*filter(concerns, range((yield from hold_partitions())))], 0
    for partition in partitions:
        [[written]] = yield changing.at(partition)
        changed += written
    for partition in partitions if changed else ():
        yield from in_partition(partition, count_fact(now_us))
    return changed


def copy_states(number: int) -> Program[None]:
    """Copy all owner states to a new partition, in the transaction that adds the partition."""
    after: str | None = ""
    while after is not None:
        states = yield _PAGE.bind(after=after, limit=STATES_A_PAGE).at(0)
        if states:
            yield _STORE.bind(rows=[tuple(row) for row in states]).at(number)
        after = states[-1][0] if len(states) == STATES_A_PAGE else None


def hide_owner(boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
    """Move the owner's rows on these boards to the hidden table, unless the owner is no longer hidden or shadowed."""
    if not (yield from _hold_state(owner, *HIDING)):
        return
    moved: list[HiddenEntry] = []
    # Rows that are hidden already stay. But answers about them may change, so streams and entity tags must notice.
    there = {entries.leaf.key: entries for entries in boards}
    changes = [
        _change_of(there[row.leaf_key], row.entry, ChangeKind.HIDDEN, row.entry.cells)
        for row in (yield from find_hidden_entries([*there], [owner]))
    ]
    for entries in boards:
        change = yield from entries.remove_entry(owner, ChangeKind.HIDDEN)
        if change is not None:
            changes.append(change)
            moved.append(HiddenEntry(entries.leaf.key, change.entry))
    if moved:
        inserted = yield from insert_rows(moved)
        if inserted != len(moved):
            raise LostRaceError(f"{owner!r} has a hidden row already")
    yield from log_ranking_changes(changes, now_us=now_us)


def show_owner(boards: Sequence[Entries], owner: str, *, now_us: int) -> Program[None]:
    """Move the owner's hidden rows back to the tables of these boards, unless the owner was hidden again.

    Raises:
        BoardChangedError: a board was archived, or moved to another partition.
    """
    if not (yield from _hold_state(owner, SHOWING)):
        return
    changes: list[RankingChange] = []
    for entries in boards:
        if not entries.leaf.is_unreached:
            yield from hold_rows_key(entries.leaf)
        for row in (yield _TAKE.bind(owner=owner, key=entries.leaf.key)):
            found = HiddenEntry(entries.leaf.key, _entry(owner, *row))
            changes.append((yield from entries.restore_entry(found.widen_cells(len(entries.leaf.spec.columns)))))
    yield from log_ranking_changes(changes, now_us=now_us)


def _hold_state(owner: str, *wanted: str) -> Program[bool]:
    return any(state in wanted for _, state in (yield _HELD_STATES.bind(owners=[owner])))


def list_hidden_boards(owner: str, *, limit: int) -> Program[list[int]]:
    rows = yield _OF_OWNER.bind(owner=owner, limit=limit)
    return [row[0] for row in rows]


def erase_hidden_entry(entries: Entries, owner: str) -> Program[RankingChange | None]:
    """Erase an owner's hidden row on a board. Return the change to log, or None if there is no such row."""
    rows = yield _TAKE.bind(owner=owner, key=entries.leaf.key)
    if not rows:
        return None
    return _change_of(entries, _entry(owner, *rows[0]), ChangeKind.ERASED)


def _change_of(entries: Entries, entry: Entry, kind: ChangeKind, cells: Sequence[Cell] = ()) -> RankingChange:
    """Describe a change to a hidden entry, which is in no ranking before or after the change."""
    none, version = entries.ranked_cells.none, entry.updated_at_us if cells else None
    change = NewChange(entries.leaf.key, entry.owner, none, none, record_of_event(kind, cells, version))
    return RankingChange(entry, change, {CHANGES: 1})


def _entry(owner: str, updated_at_us: int, cells: str) -> Entry:
    return Entry(owner, updated_at_us, _decode(cells))
