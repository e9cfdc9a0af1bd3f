"""Whether boards still take posts, asked within the transaction of the posts.

    post ──> holds what says that its boards are open ──> rows ──> commit
    closing ──> changes that: waits for those posts, and no later one gets in ──> freezes the board

The rule: a board is shut by a write that every post to it reads and holds, never by a clock alone: whoever closes it
sees all that was taken before. The boards of a family are shut together, by one mark that says until when.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from querybuilder import Dialect, Lock, Statement, asc, col, param, select

from .errors import BoardChanged, NotOpenYet, PeriodClosed, UnknownBoard
from .families import family_spec
from .family_ids import parse_board_id
from .migrate import BOARDS, FAMILIES
from .records import Board, Family, FamilySpec
from .store import Program


class Closure(NamedTuple):
    """When a board takes posts, as it stays until the transaction ends."""

    shut: bool  # nothing gets in any more, whatever its time
    opens_us: int | None = None
    ends_us: int | None = None

    def check(self, board: Board, at_us: int) -> None:
        """Raises PeriodClosed, NotOpenYet: the board does not take a post of this time."""
        if self.shut or (self.ends_us is not None and at_us >= self.ends_us):
            what = "the leaderboard" if board.family_key is None else "the period of"
            raise PeriodClosed(f"{what} {board.id!r} is closed", pointer="/at")
        if self.opens_us is not None and at_us < self.opens_us:
            raise NotOpenYet(f"the leaderboard {board.id!r} has not opened by then", pointer="/at")


def known_closure(board: Board, now_us: int) -> Closure:
    """As far as a copy of the board tells, which may be an old one."""
    shut = board.closed_us is not None or (board.closes_us is not None and board.closes_us <= now_us)
    season = board.spec.season
    return Closure(shut) if season is None else Closure(shut, season.opens_us, season.ends_us)


def is_closed(board: Board, family: Family | None, now_us: int) -> bool:
    """Return whether a board is closed: one that stands alone once a job closed it, a family's with its period."""
    named = parse_board_id(board.id)
    if family is None or named is None:
        return board.closed_us is not None
    return family.is_closed(named.period, now_us)


def held_closures(dialect: Dialect, boards: Iterable[Board], *, now_us: int) -> Program[dict[int, Closure]]:
    """By board key, of those that may close. One that stands alone and is not answered was deleted."""
    families: dict[int, list[Board]] = {}
    alone: list[int] = []
    for board in boards:
        if board.family_key is not None and board.closes_us is not None:
            families.setdefault(board.family_key, []).append(board)
        elif board.spec.season is not None:
            alone.append(board.key)
    found: dict[int, Closure] = {}
    if families:
        rows = yield _closed_through(dialect).bind(keys=sorted(families))
        through = {row[0]: (row[1], row[2]) for row in rows}
        for key, theirs in families.items():
            closed_through_us, text = through.get(key, (0, ""))
            shut_us, spec = max(now_us, closed_through_us), family_spec(text) if text else None
            if spec is None or spec.first_grace_seconds is None:
                found.update({board.key: Closure((board.closes_us or 0) <= shut_us) for board in theirs})
            else:  # a copy of a board may be of before the grace was shortened
                found.update({board.key: Closure(_closes_us(spec, board) <= shut_us) for board in theirs})
    if alone:
        for key, opens_us, ends_us, closes_us, closed_us in (yield _seasons(dialect).bind(keys=sorted(alone))):
            shut = closed_us is not None or (closes_us is not None and closes_us <= now_us)
            found[key] = Closure(shut, opens_us, ends_us)
    return found


def _closes_us(spec: FamilySpec, board: Board) -> int:
    named = parse_board_id(board.id)
    closes_us = board.closes_us if named is None else spec.closes_us(named.period)
    return closes_us or 0


@lru_cache
def _closed_through(dialect: Dialect) -> Statement:
    through = select(col("family_key"), col("closed_through"), col("spec")).from_(FAMILIES)
    through = through.where(col("family_key").in_(param("keys")))
    return through.locked(Lock.SHARE, asc(col("family_key"))).compile(dialect)


@lru_cache
def _seasons(dialect: Dialect) -> Statement:
    names = ("board_key", "opens_at", "ends_at", "closes_at", "closed_at")
    seasons = select(*map(col, names)).from_(BOARDS).where(col("board_key").in_(param("keys")))
    return seasons.locked(Lock.SHARE, asc(col("board_key"))).compile(dialect)


def hold_rows(dialect: Dialect, board: Board) -> Program[int]:
    """The key of a board's rows in their table, held so: they are neither archived nor emptied meanwhile.

    Raises:
        UnknownBoard: it was deleted.
        BoardChanged: it was archived.
    """
    rows = yield _rows_keys(dialect).bind(keys=[board.key])
    if not rows:
        raise UnknownBoard(f"no leaderboard {board.id!r}")
    if rows[0][2] is not None:
        raise BoardChanged
    return rows[0][1] or 0


def boards_with_rows(dialect: Dialect, board_keys: Iterable[int]) -> Program[set[int]]:
    """Those of these boards that exist and are not archived, held so."""
    rows = yield _rows_keys(dialect).bind(keys=sorted(board_keys))
    return {row[0] for row in rows if row[2] is None}


@lru_cache
def _rows_keys(dialect: Dialect) -> Statement:
    found = select(col("board_key"), col("rows_key"), col("archived_at")).from_(BOARDS)
    found = found.where(col("board_key").in_(param("keys")))
    return found.locked(Lock.SHARE, asc(col("board_key"))).compile(dialect)
