"""Reads and locks gates. A gate is a row of the catalog that says which posts a leaf takes, and where its rows are.

    post        locks the row of the gate (FOR SHARE) ──> writes rows ──> commits
    closing     updates the same row: waits for these posts, and rejects all later posts ──> freezes the board

A board is not closed by a clock alone: a transaction updates a row that every post to the board reads and locks. So
this transaction sees every post that the board took before. All boards of a family share one gate, the family's row. To
close boards, a time T is written to this row's column `closed_through`: each board whose end plus grace time (for late
posts) is T or earlier is then closed. The gate of any other board is the board's own row in the catalog.

Posts do not read the gate of a board that has its own table and no season. If such a board is deleted, moved, split, or
gets a season, its table is dropped or renamed. So a post that does not know of this fails to write to the table.
"""

from collections.abc import Iterable
from dataclasses import replace

from querybuilder import Lock, advisory_lock, asc, col, param, select
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Gate, Leaf, Place
from storage.schema.tables import BOARDS
from storage.store import Program

from .catalog_rows import BOARD_LOCK, GATE, PLACE, find_families_by_key


def hold_gates(leaves: Iterable[Leaf], *, now_us: int, check_all: bool) -> Program[dict[int, Leaf | None]]:
    """Lock the gates of leaves until the transaction ends. Return, by key, the leaves that the caller must check.

    A leaf that is closed, has a season, or differs from its item in `leaves` is returned in its current state. A leaf
    that was deleted, whose rows are in another partition, or whose table has another name is returned as None.
    `check_all`: also look for leaves to return as None among the leaves whose gates a post does not lock.

    A board that moves out of a shared table, or is emptied there, leaves old rows behind. Without the lock, a post
    could be written to old rows and lost. All transactions lock the rows of boards before the rows of families.
    """
    found: dict[int, Leaf | None] = {}
    families: dict[int, list[Leaf]] = {}
    held: dict[int, Leaf] = {}
    others: dict[int, Leaf] = {}
    for leaf in leaves:
        if leaf.family_key is not None and leaf.gate.ends_us is not None:
            families.setdefault(leaf.family_key, []).append(leaf)
        if leaf.family_key is None and (leaf.table_key is not None or leaf.spec.season is not None):
            held[leaf.key] = leaf
        elif check_all:
            others[leaf.key] = leaf
    gates = (yield from read_gates(held, held=True)) if held else {}
    if families:
        for key, family in (yield from find_families_by_key(sorted(families), held=True)).items():
            shut_us = family.shut_through_us(now_us)
            for leaf in families[key]:
                if leaf.gate.ends_us is not None and leaf.gate.ends_us <= shut_us:
                    found[leaf.key] = replace(leaf, gate=leaf.gate._replace(closed_us=now_us))
    if others:
        gates |= yield from read_gates(others)
    for key, leaf in (held | others).items():
        place, gate = gates.get(key, (None, leaf.gate))
        is_renamed = place is not None and leaf.table_key is None and place.rows_key != leaf.rows_key
        if place is None or place.partition != leaf.partition or is_renamed:
            found[key] = None
        elif key in held and ((place, gate) != (leaf.place, leaf.gate) or leaf.spec.season is not None):
            found[key] = replace(leaf, place=place, gate=gate)
    return found


def read_gates(keys: Iterable[int], *, held: bool = False) -> Program[dict[int, tuple[Place, Gate]]]:
    """Return, by leaf key, where the rows of each existing leaf are, and its gate. `held`: lock the catalog rows."""
    rows = yield (_HELD_GATES if held else _GATES).bind(keys=list(keys))
    return {row[0]: (Place(*row[1:_WIDTH]), Gate(*row[_WIDTH : _WIDTH + len(GATE)])) for row in rows}


def hold_rows_key(leaf: Leaf) -> Program[int]:
    """Lock the catalog's row of a leaf. Return its `rows_key`, which identifies the leaf's rows in a shared table.

    Until the transaction ends, no other transaction archives, moves or removes the leaf's rows.

    Raises:
        UnknownBoardError: the leaf was deleted.
        BoardChangedError: the leaf was archived, or moved to another partition.
    """
    place, gate = (yield from read_gates([leaf.key], held=True)).get(leaf.key, (None, leaf.gate))
    if place is None:
        raise UnknownBoardError(f"no leaderboard {leaf.id!r}")
    if gate.archived_us is not None or place.partition != leaf.partition:
        raise BoardChangedError
    return place.rows_key


_OUTPUTS = tuple(map(col, ("board_key", *PLACE, *GATE)))
_WIDTH = 1 + len(PLACE)
_AMONG = col("board_key").in_(param("keys")), col("segment").ge(0)  # >= 0: no segments, or a current segment
_GATES = select(*_OUTPUTS).from_(BOARDS).where(*_AMONG).packed().prepared()
# Posts share the lock of a board's row. If new posts always got it at once, a transaction that needs the row for itself
# would wait for ever. So both wait for an advisory lock first. All transactions take these locks in the same order.
_QUEUED, _IN_ORDER = advisory_lock(BOARD_LOCK, shared=True), (asc(BOARD_LOCK), asc(col("board_key")))
_HELD_GATES = select(*_OUTPUTS, _QUEUED).from_(BOARDS).where(*_AMONG).packed().locked(Lock.SHARE, *_IN_ORDER).prepared()
