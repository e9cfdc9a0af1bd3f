"""The times of a board that stands alone: when it opens, ends and closes, and what of them may still be changed.

The rule: what was decided about posts is not decided anew. A board that has opened does not open later, one that was
closed stays closed, and an end moves to a time that is still to come.
"""

from __future__ import annotations

from querybuilder import Dialect, col, param, update

from .errors import SpecConflict
from .migrate import BOARDS
from .records import Board, Season
from .store import Program


def times_of(season: Season | None) -> dict[str, int | None]:
    """The times as the catalog has them in columns of their own."""
    if season is None:
        return {"opens_at": None, "ends_at": None, "closes_at": None}
    return {"opens_at": season.opens_us, "ends_at": season.ends_us, "closes_at": season.closes_us}


def check_times(board: Board, wanted: Season | None, *, now_us: int) -> None:
    """Whether a board may have these times from now on.

    Raises:
        SpecConflict: it may not.
    """
    stored = board.spec.season
    if wanted == stored:
        return
    if stored is None or wanted is None:
        raise SpecConflict("a leaderboard has times from its beginning or never", pointer="/closes_at")
    if wanted.opens_us != stored.opens_us:
        for opens_us in (stored.opens_us, wanted.opens_us):
            if opens_us is None or opens_us <= now_us:
                raise SpecConflict("the leaderboard has opened, or would have by now", pointer="/opens_at")
    if (wanted.ends_us, wanted.grace_seconds) == (stored.ends_us, stored.grace_seconds):
        return
    if board.closed_us is not None or _is_over(stored.closes_us, now_us):
        raise SpecConflict("the leaderboard is closed", pointer="/closes_at")
    if wanted.ends_us != stored.ends_us and _is_over(wanted.ends_us, now_us):
        raise SpecConflict("posts may have counted that came after this end", pointer="/closes_at")
    if _is_over(wanted.closes_us, now_us):
        raise SpecConflict("posts may have counted that came after this time of grace", pointer="/grace_seconds")


def _is_over(time_us: int | None, now_us: int) -> bool:
    return time_us is not None and time_us < now_us


def store_times(dialect: Dialect, board: Board) -> Program[None]:
    """Write a board's times beside its specification, and when something is to be done with it."""
    times = times_of(board.spec.season)
    yield (
        update(BOARDS)
        .set(due_at=param("due_at"), **{name: param(name) for name in times})
        .where(col("board_key").eq(param("key")), col("archived_at").is_null())
        .build(dialect, key=board.key, due_at=due_us(board), **times)
    )


def due_us(board: Board) -> int | None:
    """When something is to be done with a board that stands alone: it is closed, then looked at again at once."""
    return board.closes_us if board.closed_us is None else 0
