"""Looks for leaderboards whose first rows have changed, in one process at a time, and adds events for them.

Posts do not do this themselves, because each would then have to read the top of its board.
"""

from functools import partial

from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.boards.boards import make_boards
from storage.events.tops import TOP_CHANGED, find_changes, forget_tops, is_watched, read_top, store_mark, store_tops
from storage.events.webhooks import Webhook, list_webhooks
from storage.leaves.catalog_rows import find_rows_by_key
from storage.records import Board
from storage.store import Program

RESOURCE = "tops"
INTERVAL_S = 0.5
LOAD_RATIO = 0.25  # the most of the time in which tops are read
BOARDS_AT_ONCE = 100  # whose tops are stored in one transaction


class TopsJob:
    def __init__(self, context: JobContext) -> None:
        self._store, self._open_boards, self._ownership = context.store, context.open_boards, Ownership(context)
        self._now_us, self._sleep = context.now_us, context.make_sleep(RESOURCE)
        # The fencing number under which all tops were forgotten. Another process may have stored some since.
        self._forgotten_by: int | None = None

    async def run_forever(self) -> None:
        await self._ownership.run_steps(
            RESOURCE, self.look, interval_s=INTERVAL_S, load_ratio=LOAD_RATIO, sleep=self._sleep
        )

    async def look(self, held: HeldLease) -> bool:
        """Add events for all watched boards whose tops have changed since the last look. Always return False."""
        webhooks, partitions = await self._store.read(list_webhooks), self._store.partitions
        is_asked = any(TOP_CHANGED in each.events for each in webhooks)
        for partition in range(partitions) if is_asked else ():
            await self._look_at(partition, webhooks, held)
        if is_asked:
            self._forgotten_by = None
        elif self._forgotten_by != held.lease.version:
            await self._store.write(lambda: held.renew_and(forget_tops(partitions)))
            self._forgotten_by = held.lease.version
        return False

    async def _look_at(self, partition: int, webhooks: list[Webhook], held: HeldLease) -> None:
        store = self._store.at(partition)
        changes = await store.read(partial(find_changes, self._now_us()))
        if changes.until == changes.mark:
            return
        boards = await self._store.read(partial(_find_watched, changes.leaf_keys, webhooks))
        for start in range(0, len(boards), BOARDS_AT_ONCE):
            await self._compare(boards[start : start + BOARDS_AT_ONCE], held)
        await store.write(lambda: held.renew_and(store_mark(changes.until)))

    async def _compare(self, boards: list[Board], held: HeldLease) -> None:
        tops = []
        for board in boards:
            reading = partial(read_top, self._open_boards.open_board(board).rankings)
            tops.append((board, await self._store.at(board.reading_partition).read(reading)))
        await self._store.write(lambda: held.renew_and(store_tops(tops, now_us=self._now_us())))


def _find_watched(leaf_keys: list[int], webhooks: list[Webhook]) -> Program[list[Board]]:
    rows = yield from find_rows_by_key(leaf_keys)
    keys = sorted({row.segment_of or key for key, row in rows.items()})
    boards = yield from make_boards([*(yield from find_rows_by_key(keys)).values()])
    return [board for board in boards if board.gate.archived_us is None and is_watched(board, webhooks)]
