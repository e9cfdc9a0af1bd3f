"""The gates of boards: which posts a board takes, and where its rows are, as the catalog has it now.

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

from querybuilder import Lock, advisory_lock, asc, col, param, select
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Board, Gate
from storage.schema.tables import BOARDS
from storage.store import Program

from .boards import BOARD_LOCK
from .families import find_families_by_key


def hold_gates(boards: Iterable[Board], *, now_us: int, check_all: bool) -> Program[dict[int, Gate | None]]:
    """Lock the gates of boards until the transaction ends.

    Return, by board key, the gates that refuse posts of some times, or that differ from the copies. None: the board was
    deleted or split, its rows are in another partition, or its table has another name. `check_all`: look for every
    board, even if its gate need not be locked.

    A board that leaves a shared table, or is emptied there, leaves its old rows behind. Without the lock, a write to
    these old rows would be lost. All transactions lock the rows of boards before those of families.
    """
    found: dict[int, Gate | None] = {}
    families: dict[int, list[Board]] = {}
    held: dict[int, Board] = {}
    others: dict[int, Board] = {}
    for board in boards:
        if board.family_key is not None and board.ends_us is not None:
            families.setdefault(board.family_key, []).append(board)
        if board.family_key is None and (board.table_key is not None or board.spec.season is not None):
            held[board.key] = board
        elif check_all:
            others[board.key] = board
    gates = (yield from read_gates(held, held=True)) if held else {}
    if families:
        for key, family in (yield from find_families_by_key(sorted(families), held=True)).items():
            shut_us = family.shut_through_us(now_us)
            for board in families[key]:
                if board.ends_us is not None and board.ends_us <= shut_us:
                    found[board.key] = board.gate._replace(closed_us=now_us)
    if others:
        gates |= yield from read_gates(others)
    for key, board in (held | others).items():
        gate = gates.get(key)
        is_renamed = gate is not None and board.table_key is None and gate.rows_key != board.rows_key
        if gate is None or gate.partition != board.partition or is_renamed:
            found[key] = None
        elif key in held and (gate != board.gate or board.spec.season is not None):
            found[key] = gate
    return found


def read_gates(board_keys: Iterable[int], *, held: bool = False) -> Program[dict[int, Gate]]:
    """Return the gates of the boards that exist, by board key. `held`: lock these boards in the catalog."""
    rows = yield (_HELD_GATES if held else _GATES).bind(keys=list(board_keys))
    return {row[0]: Gate(*row[1:_WIDTH]) for row in rows}


def hold_rows_key(board: Board) -> Program[int]:
    """Lock the catalog's row of a board, and return its `rows_key`.

    Until the transaction ends, no other transaction archives, moves or removes the board's rows.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: the board was archived, or moved to another partition.
    """
    gate = (yield from read_gates([board.key], held=True)).get(board.key)
    if gate is None:
        raise UnknownBoardError(f"no leaderboard {board.id!r}")
    if gate.archived_us is not None or gate.partition != board.partition:
        raise BoardChangedError
    return gate.rows_key


# In the order of the fields of `Gate`.
_COLUMNS = "epoch", "partition", "rows_key", "opens_at", "ends_at", "closes_at", "closed_at", "archived_at"
_WIDTH = 1 + len(_COLUMNS)
_OUTPUTS = tuple(map(col, ("board_key", *_COLUMNS)))
_AMONG = col("board_key").in_(param("keys")), col("segment").ge(0)  # a board with segments has no rows itself
_GATES = select(*_OUTPUTS).from_(BOARDS).where(*_AMONG).packed().prepared()
# Posts share the rows of boards. They queue for the advisory locks first, so that they do not overtake a transaction
# that waits for a row alone. All of them take these locks in one order.
_QUEUED, _IN_ORDER = advisory_lock(BOARD_LOCK, shared=True), (asc(BOARD_LOCK), asc(col("board_key")))
_HELD_GATES = select(*_OUTPUTS, _QUEUED).from_(BOARDS).where(*_AMONG).packed().locked(Lock.SHARE, *_IN_ORDER).prepared()
