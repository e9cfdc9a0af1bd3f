"""Point reads of entries, coalesced: what is asked for while a read runs shares the next statement.

A request never joins a read that began before it, so a write acknowledged before the request is always seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from .boards import OpenBoards
from .entries import read_with_totals
from .errors import StoreBusy
from .records import Board, Entry
from .store import Store


class EntryRead(NamedTuple):
    """An owner's entry and the totals of its board, of one snapshot."""

    entry: Entry | None
    totals: dict[int, int]  # entries by column index


class _Asked(NamedTuple):
    board: Board
    owner: str
    answer: asyncio.Future[EntryRead]


class EntryReads:
    """Answers many concurrent point reads with few statements."""

    def __init__(
        self, store: Store, boards: OpenBoards, *, point_reads_per_batch_max: int, reads_waiting_max: int, lanes: int
    ) -> None:
        self._store, self._boards = store, boards
        self._batch_max, self._waiting_max = point_reads_per_batch_max, reads_waiting_max
        self._asked: deque[_Asked] = deque()
        self._idle_lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, board: Board, owner: str) -> asyncio.Future[EntryRead]:
        """The entry of an owner, None inside where there is none.

        Raises:
            StoreBusy: too many reads are waiting.
        """
        if len(self._asked) >= self._waiting_max:
            raise StoreBusy(f"{len(self._asked)} reads are waiting")
        answer: asyncio.Future[EntryRead] = self._loop.create_future()
        self._asked.append(_Asked(board, owner, answer))
        if self._idle_lanes:
            self._idle_lanes -= 1
            task = asyncio.create_task(self._drain(), name="entry-reads")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    async def _drain(self) -> None:
        try:
            while self._asked:
                batch = [self._asked.popleft() for _ in range(min(len(self._asked), self._batch_max))]
                # By what was asked about, not by key: before and after a column was added an entry has other cells.
                by_board: dict[int, list[_Asked]] = {}
                for asked in batch:
                    by_board.setdefault(id(asked.board), []).append(asked)
                for same_board in by_board.values():
                    await self._answer(same_board)
        finally:
            self._idle_lanes += 1

    async def _answer(self, asked: list[_Asked]) -> None:
        entries, _ = self._boards.open(asked[0].board)
        owners = list({owner for _, owner, _ in asked})
        try:
            found, totals = read_with_totals(await self._store.read_one(entries.with_totals(owners)))
        except Exception as error:
            for _, _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        for _, owner, answer in asked:
            if not answer.done():
                answer.set_result(EntryRead(found.get(owner), totals))
