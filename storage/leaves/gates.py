"""Reads and locks gates, the rows that say which posts a leaf accepts and until when, including late ones.

    post        locks the row of the gate (FOR SHARE) ──> writes rows ──> commits
    closing     updates the same row: waits for these posts, and rejects all later posts ──> freezes the board

A gate is a copy, in the leaf's partition, of what the catalog says about the leaf, so that a post needs no partition
but its own. A transaction that changes a board locks the board's row in the catalog, then the gates of its leaves, and
writes both.

A board is never closed by a clock alone. Closing updates a row that every post to the board reads and locks, so the
closing transaction sees every post that the board accepted before. All boards of a family share one gate, in the
family's partition. To close boards, a time T is written to the gate's column `closed_through`: each board whose end
plus grace time (for late posts) is T or earlier is then closed.

Posts do not read the gate of a board that has its own table and no season. If such a board is deleted, moved, split, or
gets a season, its table is dropped or renamed, so a post based on an outdated copy of the board fails to write to it.
"""

from collections.abc import Iterable
from dataclasses import replace

from querybuilder import Lock, advisory_lock, asc, col, param, select, update
from storage.errors import BoardChangedError
from storage.records import Board, Family, Gate, Leaf, Place, by_partition
from storage.schema.placement import prepare_put
from storage.schema.tables import FAMILY_GATES, GATES
from storage.store import Program

from .catalog_rows import BOARD_LOCK, GATE


def hold_gates(leaves: Iterable[Leaf], *, now_us: int, check_all: bool) -> Program[dict[int, Leaf | None]]:
    """Lock the gates of leaves until the transaction ends. Return, by key, the leaves that the caller must check.

    A leaf that is closed, has a season, or differs from its item in `leaves` is returned in its current state. A leaf
    that was deleted, whose rows are in another partition, or whose table has another name is returned as None.

    `check_all`: also look for leaves to return as None among the leaves whose gates a post does not lock.

    A board that moves out of a shared table, or is emptied there, leaves old rows behind. Without the lock, a post
    could be written to old rows and lost. All transactions lock the gates of boards before the gates of families.
    """
    held, others, in_periods = _sort_leaves(leaves)
    gates = (yield from read_gates_of(held, held=True)) if held else {}
    found = (yield from _hold_family_gates(in_periods, now_us)) if in_periods else {}
    for leaf in held:
        current = _update_leaf(leaf, *gates.get(leaf.key, (None, leaf.gate)))
        if current is not leaf:
            found[leaf.key] = current
    if check_all and others:
        gates = yield from read_gates_of(others)
        there = (_update_leaf(leaf, *gates.get(leaf.key, (None, leaf.gate))) for leaf in others)
        found |= {leaf.key: None for leaf, current in zip(others, there, strict=True) if current is None}
    return found


def _sort_leaves(leaves: Iterable[Leaf]) -> tuple[list[Leaf], list[Leaf], list[Leaf]]:
    """Sort leaves into those whose own gate a post locks, all others, and those others whose period has an end."""
    held: list[Leaf] = []
    others: list[Leaf] = []
    for leaf in leaves:
        has_gate = leaf.family_key is None and (leaf.table_key is not None or leaf.spec.season is not None)
        (held if has_gate else others).append(leaf)
    return held, others, [leaf for leaf in others if leaf.family_key is not None and leaf.gate.ends_us is not None]


def _update_leaf(leaf: Leaf, place: Place | None, gate: Gate) -> Leaf | None:
    """Update a leaf from its gate. Return `leaf` itself if a post need not check the gate, or None if it is gone."""
    if place is None or (leaf.table_key is None and place.rows_key != leaf.rows_key):
        return None
    if leaf.spec.season is None and (place, gate) == (leaf.place, leaf.gate):
        return leaf
    return replace(leaf, place=place, gate=gate)


def _hold_family_gates(leaves: Iterable[Leaf], now_us: int) -> Program[dict[int, Leaf | None]]:
    found: dict[int, Leaf | None] = {}
    for partition, theirs in by_partition(leaves):
        keys = list({leaf.family_key for leaf in theirs})
        gates = yield _HELD_FAMILIES.bind(keys=keys).at(partition)
        shut_us = {key: max(now_us, through_us) - grace_us for key, through_us, grace_us in gates}
        for leaf in theirs:
            if (leaf.gate.ends_us or 0) <= shut_us.get(leaf.family_key, 0):
                found[leaf.key] = replace(leaf, gate=leaf.gate._replace(closed_us=now_us))
    return found


def admit_accepted(leaves: dict[int, Leaf | None], accepted_us: int) -> Program[set[int]]:
    """Adjust the result of `hold_gates` for queued posts, which a leaf takes if they were accepted before it closed.

    Leave a leaf shut if it is archived, or if it closed before `accepted_us`, when the first of the posts was accepted.
    Return the keys of the leaves that take such posts although the closing job has shut them.
    """
    admitted = set[int]()
    shut = [leaf for leaf in leaves.values() if leaf is not None and leaf.gate.closed_us is not None]
    held = (yield from read_gates_of(shut, held=True)) if shut else {}  # the lock keeps the leaves from being archived
    for leaf in shut:
        place, gate = held.get(leaf.key, (None, leaf.gate))
        if place == leaf.place and gate.archived_us is None and gate.closes_us and gate.closes_us > accepted_us:
            leaves[leaf.key] = replace(leaf, gate=gate._replace(closed_us=None))
            if gate.closed_us is not None:
                admitted.add(leaf.key)
    return admitted


def read_gates(partition: int, keys: Iterable[int], *, held: bool = False) -> Program[dict[int, tuple[Place, Gate]]]:
    """Read, by leaf key, where each leaf's rows are in this partition, and its gate. `held`: lock the gates.

    Leave out leaves that were deleted or moved to another partition.
    """
    rows = yield (_HELD_GATES if held else _GATES).bind(keys=list(keys)).at(partition)
    return {row[0]: (Place(partition, *row[1:_WIDTH]), Gate(*row[_WIDTH : _WIDTH + len(GATE)])) for row in rows}


def read_gates_of(leaves: Iterable[Leaf], *, held: bool = False) -> Program[dict[int, tuple[Place, Gate]]]:
    gates: dict[int, tuple[Place, Gate]] = {}
    for partition, theirs in by_partition(leaves):
        gates |= yield from read_gates(partition, sorted({leaf.key for leaf in theirs}), held=held)
    return gates


def hold_rows_key(leaf: Leaf) -> Program[int]:
    """Lock a leaf's gate, and return the `rows_key` that identifies the leaf's rows in a shared table.

    Until the transaction ends, no other transaction archives, moves or removes the leaf's rows.

    Raises:
        BoardChangedError: the leaf was deleted, archived, or moved to another partition.
    """
    place, gate = (yield from read_gates(leaf.partition, [leaf.key], held=True)).get(leaf.key, (None, leaf.gate))
    if place is None or gate.archived_us is not None:
        raise BoardChangedError
    return place.rows_key


def shut_out_posts(board: Board, *, queued: bool) -> Program[None]:
    """Lock the gates of a board's leaves against posts, in a transaction that has locked the board's catalog row.

    Posts share the lock on a gate, so overlapping posts could keep this transaction waiting forever. `queued` therefore
    also takes the advisory lock of a board in a shared table, which makes later posts wait until this transaction ends.
    """
    for partition, leaves in by_partition(board.leaves):
        locking = _SHUT_OUT_QUEUED if queued else _SHUT_OUT
        yield locking.bind(keys=[leaf.key for leaf in leaves]).at(partition)


def close_gates(leaves: Iterable[Leaf], *, now_us: int) -> Program[None]:
    """Shut leaves: wait for the posts that hold their gates, then reject all later posts."""
    for partition, theirs in by_partition(leaves):
        yield _CLOSE.bind(keys=[leaf.key for leaf in theirs], now_us=now_us).at(partition)


def store_family_gate(family: Family) -> Program[None]:
    """Store a family's gate in its partition. Call this when the family is created, or when its grace time changes."""
    storing = _STORE_FAMILY.bind(
        family_key=family.key, closed_through=family.closed_through_us, grace=family.spec.grace_us
    )
    yield storing.at(family.partition)


def close_family_gate(key: int, partition: int, *, now_us: int) -> Program[None]:
    """Shut the family's boards that close at `now_us` or earlier, as `close_gates` shuts leaves."""
    yield _CLOSE_FAMILY.bind(key=key, now_us=now_us).at(partition)


_NAMES = "leaf_key", "table_key", "rows_key", *GATE
_OUTPUTS = tuple(map(col, _NAMES))
_WIDTH = 3
_AMONG = col("leaf_key").in_(param("keys"))
_GATES = select(*_OUTPUTS).from_(GATES).where(_AMONG).packed().prepared()
# Posts share the lock on a gate. If new posts always got it at once, a transaction that needs the gate exclusively
# would wait forever. So both wait for an advisory lock first. All transactions take these locks in the same order.
_IN_ORDER = asc(BOARD_LOCK), asc(col("leaf_key"))
_QUEUED = advisory_lock(BOARD_LOCK, shared=True)
_HELD_GATES = select(*_OUTPUTS, _QUEUED).from_(GATES).where(_AMONG).packed().locked(Lock.SHARE, *_IN_ORDER).prepared()
_shut_out = select(col("leaf_key"), advisory_lock(BOARD_LOCK, shared=False)).from_(GATES).where(_AMONG)
_SHUT_OUT_QUEUED = _shut_out.packed().locked(Lock.UPDATE, *_IN_ORDER).prepared()
_SHUT_OUT = select(col("leaf_key")).from_(GATES).where(_AMONG).packed().locked(Lock.UPDATE, *_IN_ORDER).prepared()
_CLOSE = update(GATES).set(closed_at=param("now_us")).where(_AMONG).prepared()
_family_key, _through = col("family_key"), col("closed_through")
_held_families = select(_family_key, _through, col("grace")).from_(FAMILY_GATES)
_held_families = _held_families.where(_family_key.in_(param("keys"))).packed()
_HELD_FAMILIES = _held_families.locked(Lock.SHARE, asc(_family_key)).prepared()
_STORE_FAMILY = prepare_put(FAMILY_GATES)
_CLOSE_FAMILY = (
    update(FAMILY_GATES)
    .set(closed_through=param("now_us"))
    .where(_family_key.eq(param("key")), _through.lt(param("now_us")))
    .prepared()
)
