"""The gates of leaves: which posts a leaf takes, and where its rows are, as the catalog has it now.

    post        locks the row of the gate (FOR SHARE) ──> writes rows ──> commits
    closing     updates that row: waits for those posts, and rejects all later ones ──> freezes the board

A board is closed by the update of a row that every post to the board reads and locks, never by a clock alone. So the
transaction that closes a board sees every post that the board took before. The boards of a family have one gate, the
family's row: its column `closed_through` and its grace close several boards together. The gate of another board is its
own row in the catalog.

Posts do not read the gate of a board with a table of its own and without times. If such a board is deleted, moved,
split, or gets times, its table is dropped or renamed, so a write to the table fails.
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
    """Lock the gates of leaves until the transaction ends.

    Return, by key, the leaves as they are now if their gates refuse posts of some times or differ from the copies.
    None: the leaf was deleted, its rows are in another partition, or its table has another name. `check_all`: look for
    every leaf, even if its gate need not be locked.

    A board that leaves a shared table, or is emptied there, leaves its old rows behind. Without the lock, a write to
    these old rows would be lost. All transactions lock the rows of boards before those of families.
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
    """Return the places and the gates of the leaves that exist, by key. `held`: lock these leaves in the catalog."""
    rows = yield (_HELD_GATES if held else _GATES).bind(keys=list(keys))
    return {row[0]: (Place(*row[1:_WIDTH]), Gate(*row[_WIDTH : _WIDTH + len(GATE)])) for row in rows}


def hold_rows_key(leaf: Leaf) -> Program[int]:
    """Lock the catalog's row of a leaf, and return its `rows_key`.

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
_AMONG = col("board_key").in_(param("keys")), col("segment").ge(0)  # a board with segments has no rows itself
_GATES = select(*_OUTPUTS).from_(BOARDS).where(*_AMONG).packed().prepared()
# Posts share the rows of boards. They queue for the advisory locks first, so that they do not overtake a transaction
# that waits for a row alone. All of them take these locks in one order.
_QUEUED, _IN_ORDER = advisory_lock(BOARD_LOCK, shared=True), (asc(BOARD_LOCK), asc(col("board_key")))
_HELD_GATES = select(*_OUTPUTS, _QUEUED).from_(BOARDS).where(*_AMONG).packed().locked(Lock.SHARE, *_IN_ORDER).prepared()
