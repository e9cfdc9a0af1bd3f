"""Helpers for tests of moves and splits: make the move or the split of a board, and let it copy few rows at once."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from jobs.boards.move import BoardMove, MoveCounts
from storage.boards.board_copy import begin_move, begin_split
from storage.curves.live_counts import Slot
from storage.curves.refresh_requests import list_open_refresh_requests
from storage.leases.work_leases import WorkLeases, store_clock
from storage.store import CONTROL, Program, Store

STORE_LEASES = WorkLeases(store_clock, margin_us=0)
split_by = partial(begin_split, boards_max=100, own_tables_max=100)


def copy_few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("jobs.boards.move", "storage.leaves.leaf_copy"):
        monkeypatch.setattr(f"{module}.PAGE_ROWS", 6)


def make_move(
    store: Store,
    *,
    target: int | None = None,
    segments: int = 1,
    clock: Callable[[], Program[int]] = store_clock,
    board_id: str = "b",
    report: Callable[[MoveCounts], None] = lambda _: None,
    kind: type[BoardMove] = BoardMove,
) -> BoardMove:
    """Make the move of a board to the partition `target`, or its split into `segments`."""

    async def pause(_seconds: float) -> None:
        await asyncio.sleep(0)

    return kind(
        store,
        WorkLeases(clock, margin_us=0),
        board_id=board_id,
        begin=partial(split_by, segments=segments) if target is None else partial(begin_move, target=target),
        holder="test",
        monotonic=asyncio.get_running_loop().time,
        sleep=pause,
        report=report,
    )


async def open_refresh_requests(store: Store) -> list[Slot]:
    return await store.at(CONTROL).read(lambda: list_open_refresh_requests(100))
