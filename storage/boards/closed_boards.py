"""Checks, within the transaction that applies a post, whether the post's boards still take posts.

    post        locks the row that says whether its board is open (FOR SHARE) ──> writes rows ──> commits
    closing     updates that row: waits for those posts, and rejects all later ones ──> freezes the board

A board is closed by the update of a row that every post to the board reads and locks, never by a clock alone. So the
transaction that closes a board sees every post that the board took before. For boards of a family, the row is the
family's row, and its column `closed_through` closes several boards together. A board outside a family is closed by the
column `closed_at` of its own row.
"""

from collections.abc import Iterable
from typing import NamedTuple

from querybuilder import Lock, advisory_lock, asc, col, param, select
from storage.errors import BoardChangedError, NotOpenYetError, PeriodClosedError, UnknownBoardError
from storage.records import Board, Family, FamilySpec
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program

from .boards import BOARD_LOCK, FAMILY_SPECS, decode_spec
from .family_ids import parse_board_id


class Closure(NamedTuple):
    """Says which posts a board takes, depending on their times.

    A closure from `hold_closures` stays true until the transaction ends, because the row behind it is locked.
    """

    shut: bool  # the board takes no more posts, whatever their times
    opens_us: int | None = None
    ends_us: int | None = None

    def check(self, board: Board, at_us: int) -> None:
        """Check that the board takes a post with the time `at_us`.

        Raises:
            PeriodClosedError: the board is closed, or the time is at or after the board's end.
            NotOpenYetError: the time is before the board opens.
        """
        if self.shut or (self.ends_us is not None and at_us >= self.ends_us):
            what = "the leaderboard" if board.family_key is None else "the period of"
            raise PeriodClosedError(f"{what} {board.id!r} is closed", pointer="/at")
        if self.opens_us is not None and at_us < self.opens_us:
            raise NotOpenYetError(f"the leaderboard {board.id!r} opens after the time of the post", pointer="/at")


def derive_closure(board: Board, now_us: int) -> Closure:
    """Return which posts a board takes, according to this copy of the board, which may be outdated."""
    shut = board.closed_us is not None or (board.closes_us is not None and board.closes_us <= now_us)
    season = board.spec.season
    return Closure(shut) if season is None else Closure(shut, season.opens_us, season.ends_us)


def is_closed(board: Board, family: Family | None, now_us: int) -> bool:
    """Return whether a board is closed. A board of a family is closed together with its period."""
    named = parse_board_id(board.id)
    if family is None or named is None:
        return board.closed_us is not None
    return family.is_closed(named.period, now_us)


def hold_closures(boards: Iterable[Board], *, now_us: int) -> Program[dict[int, Closure]]:
    """Lock the rows that say whether boards take posts. Return, by board key, the closures of boards that may close.

    If a board outside a family has a season and is missing in the result, the board was deleted.
    """
    families: dict[int, list[Board]] = {}
    alone: list[int] = []
    for board in boards:
        if board.family_key is not None and board.closes_us is not None:
            families.setdefault(board.family_key, []).append(board)
        elif board.spec.season is not None:
            alone.append(board.key)
    found: dict[int, Closure] = {}
    if families:
        rows = yield _CLOSED_THROUGH.bind(keys=sorted(families))
        through = {row[0]: (row[1], row[2]) for row in rows}
        for key, theirs in families.items():
            closed_through_us, text = through.get(key, (0, ""))
            shut_us = max(now_us, closed_through_us)
            spec = decode_spec(text, FAMILY_SPECS, "a family") if text else None
            if spec is None or spec.first_grace_seconds is None:
                found.update({board.key: Closure((board.closes_us or 0) <= shut_us) for board in theirs})
            else:  # use the family's spec: the grace was shortened, perhaps after the boards were read
                found.update({board.key: Closure(_closes_us(spec, board) <= shut_us) for board in theirs})
    if alone:
        for key, opens_us, ends_us, closes_us, closed_us in (yield _SEASONS.bind(keys=sorted(alone))):
            shut = closed_us is not None or (closes_us is not None and closes_us <= now_us)
            found[key] = Closure(shut, opens_us, ends_us)
    return found


def _closes_us(spec: FamilySpec, board: Board) -> int:
    named = parse_board_id(board.id)
    closes_us = board.closes_us if named is None else spec.closes_us(named.period)
    return closes_us or 0


_CLOSED_THROUGH = (
    select(col("family_key"), col("closed_through"), col("spec"))
    .from_(FAMILIES)
    .where(col("family_key").in_(param("keys")))
    .locked(Lock.SHARE, asc(col("family_key")))
    .prepared()
)
_SEASONS = (
    select(*map(col, ("board_key", "opens_at", "ends_at", "closes_at", "closed_at")))
    .from_(BOARDS)
    .where(col("board_key").in_(param("keys")))
    .locked(Lock.SHARE, asc(col("board_key")))
    .prepared()
)


def hold_rows_key(board: Board) -> Program[int]:
    """Lock the catalog's row of a board, and return its `rows_key`.

    Until the transaction ends, no other transaction archives, moves or removes the board's rows.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: the board was archived, or moved to another partition.
    """
    rows = yield _HELD_BOARDS.bind(keys=[board.key])
    if not rows:
        raise UnknownBoardError(f"no leaderboard {board.id!r}")
    [(_, _, rows_key, partition, archived_at, *_)] = rows
    if archived_at is not None or partition != board.partition:
        raise BoardChangedError
    return rows_key or 0


def hold_boards_with_rows(board_keys: Iterable[int]) -> Program[dict[int, int]]:
    """Lock the catalog's rows of these boards.

    Return the partitions of the boards that exist and are not archived, by board key.
    """
    rows = yield _HELD_BOARDS.bind(keys=sorted(board_keys))
    return {key: partition for key, _, _, partition, archived_at, *_ in rows if archived_at is None}


def lock_rows_keys(boards: Iterable[Board]) -> Program[dict[int, int]]:
    """Lock the keys of the boards' rows in shared tables until the transaction ends, and return them by board key.

    Leave out boards that were deleted, moved to another partition, or got an end that their copies here do not have.

    A board that leaves a shared table, or is emptied there, leaves its old rows behind. Without the lock, a write to
    these old rows would be lost. A board in a table of its own needs no lock: a write to a dropped table fails.
    """
    copies = {board.key: board for board in boards}
    rows = yield _HELD_BOARDS.bind(keys=list(copies))
    return {
        key: rows_key
        for key, _, rows_key, partition, _, ends_us, *_ in rows
        if partition == copies[key].partition and (ends_us is None or copies[key].spec.season is not None)
    }


class LiveBoard(NamedTuple):
    """The properties that a copy shares with its board before its tables are written."""

    epoch: int
    partition: int
    rows_key: int
    ends: bool  # whether the board has an end, which it may get later

    @classmethod
    def of(cls, board: Board) -> "LiveBoard":
        season = board.spec.season
        return cls(board.epoch, board.partition, board.rows_key, season is not None and season.ends_us is not None)


def read_live_boards(board_keys: Iterable[int], *, held: bool = False) -> Program[dict[int, LiveBoard]]:
    """Return the boards that still exist, by board key. `held`: lock these boards in the catalog."""
    rows = yield (_HELD_BOARDS if held else _LIVE_BOARDS).bind(keys=list(board_keys))
    return {
        key: LiveBoard(epoch, partition, rows_key or 0, ends_us is not None)
        for key, epoch, rows_key, partition, _, ends_us, *_ in rows
    }


_LIVE = tuple(map(col, ("board_key", "epoch", "rows_key", "partition", "archived_at", "ends_at")))
_AMONG = col("board_key").in_(param("keys")), col("segment").ge(0)  # a board with segments has no rows itself
_LIVE_BOARDS = select(*_LIVE).from_(BOARDS).where(*_AMONG).packed().prepared()
# Posts share the rows of boards. They queue for the advisory locks first, so that they do not overtake a transaction
# that waits for a row alone. All of them take these locks in one order.
_QUEUED, _IN_ORDER = advisory_lock(BOARD_LOCK, shared=True), (asc(BOARD_LOCK), asc(col("board_key")))
_HELD_BOARDS = select(*_LIVE, _QUEUED).from_(BOARDS).where(*_AMONG).packed().locked(Lock.SHARE, *_IN_ORDER).prepared()
