"""Erases many entries of one board: those of given owners, or all those after a place in a ranking.

    rows of a step ──> queued posts ──> rows, totals and log, in one transaction ──> next step … ──> names in the logs

Erasing one owner after the other would walk the logs once for each. So the names are removed at the end, even if a step
fails, by a single walk over the board's part of each log. Everything else works as when `owners` erases a single entry.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from .errors import BoardChangedError, UnknownBoardError
from .histories import merged_owners
from .leaves import hidden_owners
from .leaves.catalog_rows import find_keys_ever
from .leaves.entrants import hold_entrants
from .leaves.entries import log_ranking_changes
from .leaves.erasure import Erased, find_bundles_of, rename_owners
from .leaves.totals import read_totals
from .limits.held_posts import remove_held_posts
from .log.bundles import ChangeKind
from .log.cells import CellOf
from .log.change_log import change_log
from .queue.queue_erasure import drop_queued_of
from .reads.open_boards import OpenBoards
from .records import Board, Entry, Leaf
from .schema.creation import in_each_partition
from .store import Program, Store

ERASED_ROWS_MAX = 10_000  # the most entries that one request erases
STEP_ROWS = 500  # the most entries that one transaction erases


class ErasedRows(NamedTuple):
    erased: int
    more: bool


@dataclass(kw_only=True)
class EntryErasure:
    board: Board
    store: Store
    open_boards: OpenBoards
    now_us: Callable[[], int]
    make_token: Callable[[], str]  # each token replaces the name of one owner in the log
    changes_max: int  # one transaction rewrites at most about this many changes of a log
    _keys: Sequence[int] = ()  # of the board's leaves, earlier ones included
    _count: int = 0
    _more: bool = False
    _earlier_ids: list[str] = field(default_factory=list)  # earlier ids of the erased owners
    _erased: dict[int, dict[str, Erased]] = field(default_factory=dict)  # by partition and owner

    async def erase_owners(self, owners: Sequence[str]) -> ErasedRows:
        """Erase these owners' entries, hidden ones included.

        Raises:
            UnknownBoardError, BoardChangedError: the copy of the board is outdated, and nothing was erased.
        """
        return await self._finish(partial(self._erase_owners, owners))

    async def erase_rows(self, column_index: int, place: CellOf | None) -> ErasedRows:
        """Erase the rows after a place in a ranking, or all rows if `place` is None, but at most `ERASED_ROWS_MAX`.

        Raises the errors of `erase_owners`.
        """
        return await self._finish(partial(self._erase_rows, column_index, place))

    async def _erase_owners(self, owners: Sequence[str]) -> None:
        for leaf in self.board.leaves:
            theirs = [owner for owner in dict.fromkeys(owners) if self.board.leaf_of(owner) is leaf]
            for begin in range(0, len(theirs), STEP_ROWS):
                await self._erase_step(leaf, theirs[begin : begin + STEP_ROWS], None)

    async def _erase_rows(self, column_index: int, place: CellOf | None) -> None:
        ranking = self.open_boards.open_rows(self.board.leaves[0]).rankings[column_index]
        best = None if place is None else (ranking.padding.key_of_cell(place[0]), place[1])

        def is_wanted(entry: Entry) -> bool:
            return entry.cells[column_index] is not None and (best is None or ranking.order_of(entry) > best)

        def list_owners(leaf: Leaf, limit: int) -> Program[list[str]]:
            rows = self.open_boards.open_rows(leaf).rankings[column_index]
            found = yield from rows.read_first_rows(limit) if place is None else rows.read_rows_after(*place, limit)
            return [row.owner for row in found]

        for leaf in self.board.leaves:
            store, limit = self.store.at(leaf.partition), min(STEP_ROWS, ERASED_ROWS_MAX - self._count)
            while owners := await store.read(partial(list_owners, leaf, max(1, limit))):
                # If all rows of a step have changed, leave the others to the next request.
                if not limit or not await self._erase_step(leaf, owners, is_wanted):
                    self._more = True
                    return
                limit = min(STEP_ROWS, ERASED_ROWS_MAX - self._count)

    async def _erase_step(self, leaf: Leaf, owners: Sequence[str], is_wanted: Callable[[Entry], bool] | None) -> int:
        entries = self.open_boards.open_rows(leaf)
        await drop_queued_of(self.store, owners, self._keys)

        def program() -> Program[tuple[list[str], dict[int, int]]]:
            yield from read_totals([leaf])  # raises an error if the caller's copy of the board is outdated
            taking_part = yield from hold_entrants([(leaf, owners)])
            gone = yield from entries.remove_entries(owners, ChangeKind.ERASED, is_wanted or (lambda _: True))
            if is_wanted is None:
                yield from remove_held_posts(owners, [leaf.key])
            for row in (yield from hidden_owners.find_hidden_entries([leaf.key], owners)) if is_wanted is None else ():
                hidden = yield from hidden_owners.erase_hidden_entry(entries, row.entry.owner)
                gone += [] if hidden is None else [hidden]
            for held in taking_part.values():
                removed = {each.entry.owner for each in gone}
                yield from held.remove(removed if is_wanted else removed | held.rows.keys())
            if not gone:
                return [], {}
            yield from log_ranking_changes(gone, now_us=self.now_us())
            return [each.entry.owner for each in gone], (yield from in_each_partition(change_log.take_mark))

        erased, marks = await self.store.at(leaf.partition).write(program)
        self._count += len(erased)
        earlier_ids = (
            await self.store.read(lambda: merged_owners.list_earlier_ids_on(erased, self._keys)) if erased else []
        )
        self._earlier_ids += earlier_ids
        for owner in (*erased, *earlier_ids):
            token = self.make_token()
            for partition, mark in marks.items():
                self._erased.setdefault(partition, {})[owner] = Erased(token, mark - 1)
        return len(erased)

    async def _finish(self, erase: Callable[[], Awaitable[None]]) -> ErasedRows:
        keys = [self.board.key]
        self._keys = keys if not self.board.is_spread else await self.store.read(lambda: find_keys_ever(self.board))
        try:
            await erase()
        except (BoardChangedError, UnknownBoardError):
            if not self._count:
                raise
            self._more = True  # the same request again finds out what became of the board
        finally:
            for partition, erased in self._erased.items():
                await self._rename(self.store.at(partition), erased)
            if self._earlier_ids:
                await self.store.write(lambda: merged_owners.forget_merged(self._earlier_ids, self._keys))
        return ErasedRows(self._count, self._more)

    async def _rename(self, store: Store, erased: dict[str, Erased]) -> None:
        after: int | None = 0
        while after is not None:
            finding = partial(find_bundles_of, erased, self._keys, after=after, changes_max=self.changes_max)
            positions, after = await store.read(finding)
            if positions:
                await store.write(partial(rename_owners, erased, positions))
