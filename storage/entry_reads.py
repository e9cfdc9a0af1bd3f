"""Point reads of entries, coalesced: whatever is asked for while a read runs goes into the next statement, one for all its owners.

A request never joins a read that began before it, so a write acknowledged before the request is always seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from querybuilder import Dialect

from .boards import OpenBoards
from .entries import Entries
from .errors import StoreBusy
from .leaderboards import count_entries
from .records import Board, Entry
from .store import Program, Store


@dataclass(frozen=True, slots=True)
class EntryRead:
    """An owner's entry and the totals of its board, of one snapshot."""

    entry: Entry | None
    totals: dict[int, int]  # entries by column index


@dataclass(slots=True, eq=False)
class _Asked:
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
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, board: Board, owner: str) -> asyncio.Future[EntryRead]:
        """The entry of an owner, None inside where there is none.

        Raises:
            StoreBusy: too many reads are waiting.
        """
        if len(self._asked) >= self._waiting_max:
            raise StoreBusy(f"{len(self._asked)} reads are waiting")
        answer: asyncio.Future[EntryRead] = asyncio.get_running_loop().create_future()
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
                await self._answer(batch)
        finally:
            self._idle_lanes += 1

    async def _answer(self, batch: list[_Asked]) -> None:
        by_board: dict[int, list[_Asked]] = {}
        for asked in batch:
            by_board.setdefault(asked.board.key, []).append(asked)
        for same_board in by_board.values():
            entries, _ = self._boards.open(same_board[0].board)
            owners = list({asked.owner: None for asked in same_board})
            try:
                found, totals = await self._store.read(lambda e=entries, o=owners: _entries_and_totals(self._store.dialect, e, o))  # type: ignore[misc]
            except Exception as error:
                for asked in same_board:
                    if not asked.answer.done():
                        asked.answer.set_exception(error)
                continue
            for asked in same_board:
                if not asked.answer.done():
                    asked.answer.set_result(EntryRead(found.get(asked.owner), totals))


def _entries_and_totals(
    dialect: Dialect, entries: Entries, owners: list[str]
) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
    found = yield from entries.by_owners(owners)
    totals = yield from count_entries(dialect, [entries.board.key])
    return found, totals[entries.board.key]
