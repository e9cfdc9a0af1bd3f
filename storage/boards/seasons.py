"""The times of a season: when a board outside a family opens, ends and closes, and which of these times may change.

A time may change only if every earlier decision to take or refuse a post stays right. Once a board has opened, its
opening time stays. A closed board stays closed. The end of an open board moves only to a time in the future.
"""

from __future__ import annotations

from querybuilder import col, param, update
from storage.errors import SpecConflictError
from storage.records import Board, Season
from storage.schema.tables import BOARDS
from storage.store import Program


def times_of(season: Season | None) -> dict[str, int | None]:
    """Return the times of a season, by the names of their columns in the catalog."""
    if season is None:
        return {"opens_at": None, "ends_at": None, "closes_at": None}
    return {"opens_at": season.opens_us, "ends_at": season.ends_us, "closes_at": season.closes_us}


def check_times(board: Board, wanted: Season | None, *, now_us: int) -> None:
    """Raise `SpecConflictError` if the times of a board outside a family may not become those of `wanted`."""
    stored = board.spec.season
    if wanted == stored:
        return
    if stored is None or wanted is None:
        raise SpecConflictError(
            "a leaderboard's times can't be added or removed after it was created", pointer="/closes_at"
        )
    if wanted.opens_us != stored.opens_us:
        for opens_us in (stored.opens_us, wanted.opens_us):
            if opens_us is None or opens_us <= now_us:
                detail = "opens_at can change only before the leaderboard opens, and only to a later time than now"
                raise SpecConflictError(detail, pointer="/opens_at")
    if (wanted.ends_us, wanted.grace_seconds) == (stored.ends_us, stored.grace_seconds):
        return
    if board.closed_us is not None or _is_over(stored.closes_us, now_us):
        raise SpecConflictError("the leaderboard is closed", pointer="/closes_at")
    if wanted.ends_us != stored.ends_us and _is_over(wanted.ends_us, now_us):
        raise SpecConflictError(
            "the new end has passed: posts after it may already have been counted", pointer="/closes_at"
        )
    if _is_over(wanted.closes_us, now_us):
        detail = "the new time of grace has passed: posts after it may already have been counted"
        raise SpecConflictError(detail, pointer="/grace_seconds")


def _is_over(time_us: int | None, now_us: int) -> bool:
    return time_us is not None and time_us < now_us


def store_times(board: Board) -> Program[None]:
    """Store a board's times in the catalog, and the time at which the closing job next has to check the board.

    For an open board this is its closing time, or None if it never closes. For a closed board it is 0, which means now.
    """
    times = times_of(board.spec.season)
    yield (
        update(BOARDS)
        .set(due_at=param("due_at"), **{name: param(name) for name in times})
        .where(col("board_key").eq(param("key")), col("archived_at").is_null())
        .bind(key=board.key, due_at=board.closes_us if board.closed_us is None else 0, **times)
    )
