"""Archives one closed board after the other, a bounded step at a time: whoever closes boards decides when.

The one rule: what is read and what is written are two transactions, and between them the blocks are made on a thread
of their own. That nothing changed meanwhile is asked by the second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from storage.archiving import ArchiveLimits, Archiving, Block, Read
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.records import Board
from storage.store import Program, Store

from .ownership import Held

log = structlog.get_logger(__name__)


class ArchiveObserver(Protocol):
    """What archiving tells its operators."""

    def archived(self, *, owners: int, stored_bytes: int) -> None:
        """A board gave up the rows of so many owners for an archive of this size."""


@dataclass(slots=True)
class _Written:
    """How much of the present archive this process has written."""

    owners: int = 0
    stored_bytes: int = 0

    def add(self, blocks: list[Block]) -> None:
        self.owners += sum(block.entries for block in blocks if block.section < 0)
        self.stored_bytes += sum(len(block.document) for block in blocks)


class Archiver:
    """Writes archives."""

    def __init__(
        self, store: Store, catalog: Catalog, open_boards: OpenBoards, limits: ArchiveLimits, observer: ArchiveObserver
    ) -> None:
        self._store, self._catalog, self._open_boards = store, catalog, open_boards
        self._limits, self._observer = limits, observer
        self._under_way: Archiving | None = None
        self._written = _Written()

    @property
    def board(self) -> Board | None:
        """The board whose archive is being written."""
        return None if self._under_way is None else self._under_way.board

    async def begin(self, held: Held, board: Board) -> None:
        """Go on with a board's archive where it was left, by whichever process."""
        entries, _ = self._open_boards.open(board)
        archiving = Archiving(self._store.dialect, entries, self._limits)

        def program() -> Program[None]:
            yield from held.keep()
            yield from archiving.begin()

        await self._store.write(program)
        self._under_way, self._written = archiving, _Written()

    async def together(self, held: Held, boards: Sequence[Board], now_us: int) -> None:
        """Archive boards that are small enough for one step, in one transaction.

        Raises:
            LeaseLost, UnknownBoard, StoreBusy: see `step`; nothing was done.
        """
        opened = [(board, self._open_boards.open(board)[0]) for board in boards]
        archivings = [Archiving(self._store.dialect, entries, self._limits) for _, entries in opened]

        def read() -> Program[list[tuple[int, list[Read]] | None]]:
            found = []
            for archiving in archivings:
                found.append((yield from archiving.read_all()))
            return found

        read_ones = await self._store.read(read, heavy=True)
        whole = [(each, *found) for each, found in zip(archivings, read_ones, strict=True) if found is not None]
        blocks = await asyncio.to_thread(lambda: [archiving.encoded(found) for archiving, _, found in whole])

        def program() -> Program[list[Board | None]]:
            yield from held.keep()
            stored = []
            for (archiving, changes, _), theirs in zip(whole, blocks, strict=True):
                stored.append((yield from archiving.store_all(changes, theirs, now_us=now_us)))
            return stored

        for archived, theirs in zip(await self._store.write(program), blocks, strict=True):
            if archived is not None:
                written = _Written()
                written.add(theirs)
                self._tell(archived, written)

    def _tell(self, archived: Board, written: _Written) -> None:
        self._catalog.put(archived)
        self._observer.archived(owners=written.owners, stored_bytes=written.stored_bytes)
        log.debug("board_archived", board=archived.id, owners=written.owners, stored_bytes=written.stored_bytes)

    def give_up(self) -> None:
        """Write on at the next `begin`."""
        self._under_way = None

    async def step(self, held: Held, now_us: int) -> None:
        """Write a bounded part of the archive; with the last one the board gives up its rows.

        Raises:
            LeaseLost: another process archives.
            UnknownBoard: the board was deleted.
            StoreBusy: the store failed; what was written is gone on with at the next `begin`.
        """
        archiving = self._under_way
        assert archiving is not None, "it was begun"
        self._under_way = None
        found, place, tied = await self._store.of(archiving.board.id).read(archiving.read, heavy=True)
        blocks = await asyncio.to_thread(archiving.encoded, found)
        whole = archiving.is_whole(place)

        def program() -> Program[tuple[bool, Board | None]]:
            yield from held.keep()
            stored = yield from archiving.store(blocks)
            return stored, (yield from archiving.finish(now_us)) if stored and whole else None

        stored, archived = await self._store.write(program)
        self._written.add(blocks)
        if archived is not None:
            self._tell(archived, self._written)
        elif stored and not whole:
            archiving.advanced(place, tied)
            self._under_way = archiving
        # Otherwise an owner was erased meanwhile: the board is found due again, and its archive is begun anew.
