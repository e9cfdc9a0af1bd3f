"""Closing boards: shut to posts, frozen with their final curves, archived once they need not keep their rows.

    open ── closes_at ──> shut: no post gets in ──> frozen: final curves are stored ── keep ──> archived (`archiving`)

The rule: each step is one short transaction that finds out for itself what is left to do, so that a job may be late, be
killed anywhere, or run twice. `due_at` says when a board is looked at next, and nothing else: a look at the wrong time
does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache

from querybuilder import Dialect, Lock, Statement, asc, col, param, select, update

from .families import family_by_key
from .family_ids import parse_board_id
from .leaderboards import COLUMNS, board_of, count_entries, existing
from .migrate import BOARDS, FAMILIES
from .periods import later
from .records import Board, Family
from .store import Program


class Stage(IntEnum):
    """What was done with a board last."""

    OPEN = 0  # next it is shut
    SHUT = 1  # next its final curves are fitted
    FROZEN = 2  # next it is archived, if it ever is
    ARCHIVED = 3


def due_boards(dialect: Dialect, stage: Stage, *, now_us: int, limit: int) -> Program[list[tuple[int, Board]]]:
    """Boards at a stage with which something is to be done, and since when, the longest first."""
    rows = yield _due(dialect).bind(stage=int(stage), now_us=now_us, limit=limit)
    return [(row[0], board_of(row[1:])) for row in rows]


@lru_cache
def _due(dialect: Dialect) -> Statement:
    due = select(col("due_at"), *COLUMNS).from_(BOARDS).where(col("due_at").not_null())
    due = due.where(col("stage").eq(param("stage")), col("due_at").le(param("now_us")))
    return due.order_by(asc(col("due_at"))).limit(param("limit")).compile(dialect)


def shut_boards(dialect: Dialect, boards: Sequence[Board], *, now_us: int) -> Program[list[Board]]:
    """Have these boards take no more posts, those of them whose time has come; answers them.

    The ones on which every rank is counted anyway need no curve, and are frozen at once.
    """
    closed: list[Board] = []
    for family_key in sorted({board.family_key for board in boards if board.family_key is not None}):
        theirs = [board.key for board in boards if board.family_key == family_key]
        # Waits for the posts that hold the family's row. What they wrote is seen by whoever comes after this.
        yield (
            update(FAMILIES)
            .set(closed_through=now_us)
            .where(col("family_key").eq(param("key")), col("closed_through").lt(now_us))
            .build(dialect, key=family_key)
        )
        closed += yield from _shut(dialect, theirs, now_us)
    for key in sorted(board.key for board in boards if board.family_key is None):
        closed += yield from _shut(dialect, [key], now_us)
    totals = yield from count_entries(dialect, [board.key for board in closed])
    yield from freeze(dialect, [board for board in closed if not columns_to_fit(board, totals[board.key])])
    return closed


def _shut(dialect: Dialect, keys: Sequence[int], now_us: int) -> Program[list[Board]]:
    open_ones = col("stage").eq(int(Stage.OPEN)), col("closes_at").le(param("now_us"))  # an end may have been moved
    rows = yield (
        update(BOARDS)
        .set(closed_at=param("now_us"), stage=int(Stage.SHUT), due_at=0)
        .where(col("board_key").in_(param("keys")), *open_ones)
        .returning(*COLUMNS)
        .build(dialect, keys=list(keys), now_us=now_us)
    )
    return [board_of(row) for row in rows]


def columns_to_fit(board: Board, totals: dict[int, int]) -> list[int]:
    """The ranked columns of a closed board that need a final curve: on the others every rank is counted."""
    exact_top = board.spec.predictor.exact_top
    return [index for index in board.sorted_indexes if totals.get(index, 0) > exact_top]


def freeze(dialect: Dialect, boards: Iterable[Board]) -> Program[None]:
    """Note that the final curves of shut boards are stored, and when the boards give up their rows."""
    families: dict[int, Family | None] = {}
    for board in boards:
        due_us = yield from _archive_us(dialect, board, families)
        yield (
            update(BOARDS)
            .set(stage=int(Stage.FROZEN), due_at=param("due_at"))
            .where(col("board_key").eq(param("key")), col("stage").eq(int(Stage.SHUT)))
            .build(dialect, key=board.key, due_at=due_us)
        )


def to_archive(dialect: Dialect, boards: Iterable[Board], *, now_us: int) -> Program[list[Board]]:
    """Those of these frozen boards that give up their rows now; the others are looked at when they will."""
    families: dict[int, Family | None] = {}
    found = []
    for board in boards:
        due_us = yield from _archive_us(dialect, board, families)
        if due_us is not None and due_us <= now_us:
            found.append(board)
        else:
            yield from look_again(dialect, board, at_us=due_us)
    return found


def look_again(dialect: Dialect, board: Board, *, at_us: int | None) -> Program[None]:
    """Have a closed board looked at then; None: once something is changed."""
    yield (
        update(BOARDS)
        .set(due_at=param("at_us"))
        .where(col("board_key").eq(param("key")), col("stage").lt(int(Stage.ARCHIVED)), col("closed_at").not_null())
        .build(dialect, key=board.key, at_us=at_us)
    )


def _archive_us(dialect: Dialect, board: Board, families: dict[int, Family | None]) -> Program[int | None]:
    """When a closed board gives up its rows; None: never. `families` remembers those that were read.

    What says so is held: whoever changes it has the board looked at again, after this transaction.
    """
    if board.family_key is None:
        season = (yield from existing(dialect, board.id, lock=Lock.UPDATE)).spec.season
        if season is None or season.keep_seconds is None or season.closes_us is None:
            return None
        return season.closes_us + season.keep_seconds * 1_000_000
    if board.family_key not in families:
        families[board.family_key] = yield from family_by_key(dialect, board.family_key, lock=Lock.SHARE)
    family = families[board.family_key]
    return None if family is None else _keeps_until_us(family, board)


def _keeps_until_us(family: Family, board: Board) -> int | None:
    """When as many later periods have closed as keep their rows."""
    named = parse_board_id(board.id)
    count = dict(family.spec.keep).get(named.period.kind) if named is not None else None
    last = later(named.period, count) if named is not None and count is not None else None
    return None if last is None else family.spec.closes_us(last)
