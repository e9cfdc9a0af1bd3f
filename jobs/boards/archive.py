"""Archives closed boards in bounded steps. A step archives a small board, or a part of a large one.

    read rows in one transaction ──> encode blocks on a thread ──> write the blocks in a second transaction

No transaction stays open while blocks are encoded. The second transaction writes nothing if the rows have changed.
"""

import asyncio

import structlog

from jobs.job_context import JobContext
from jobs.ownership import HeldLease
from storage.archive.archive_writer import ArchiveWriter
from storage.entries.entries import Entries
from storage.records import Board
from storage.segments.segmented_entries import SegmentedEntries
from storage.store import Program

log = structlog.get_logger(__name__)


class Archiver:
    def __init__(self, context: JobContext) -> None:
        self._store, self._catalog, self._open_boards = context.store, context.catalog, context.open_boards
        self._limits, self._meter = context.limits, context.meter
        self._under_way: ArchiveWriter | None = None
        self._owners = 0  # of the current archive, as far as this process has written it

    @property
    def board(self) -> Board | None:
        return None if self._under_way is None else self._under_way.board

    async def begin(self, held: HeldLease, board: Board) -> None:
        """Start the archive of a board, or continue one that this or another process began."""
        entries = self._open_boards.open_board(board)
        assert isinstance(entries, Entries | SegmentedEntries), "it has rows"
        archiving = ArchiveWriter(entries, self._limits)
        await self._store.at(board.partition).write(lambda: held.renew_and(archiving.begin_or_resume()))
        self._under_way, self._owners = archiving, 0

    def pause_archive(self) -> None:
        """Stop writing the current archive; the next `begin` for its board continues it."""
        self._under_way = None

    async def write_part(self, held: HeldLease, now_us: int) -> None:
        """Write a bounded part of the current archive. The last part also deletes the rows of the board.

        Raises:
            LeaseLostError: another process archives boards now.
            UnknownBoardError: the board was deleted.
            StoreBusyError: the store failed; the next `begin` continues after the parts that were written.
        """
        archiving = self._under_way
        assert archiving is not None, "it was begun"
        self._under_way = None
        store = self._store.at(archiving.board.partition)
        found, place = await store.read(archiving.read_step, heavy=True)
        blocks = await asyncio.to_thread(archiving.encode_blocks, found)
        whole = archiving.is_complete(place)

        def program() -> Program[tuple[bool, Board | None]]:
            yield from held.renew()
            stored = yield from archiving.store_blocks(blocks)
            return stored, (yield from archiving.finish(now_us)) if stored and whole else None

        stored, archived = await store.write(program)
        owners = self._owners = self._owners + sum(block.entries for block in blocks if block.section < 0)
        if archived is not None:
            self._catalog.keep_board(archived)
            self._meter.add("rankcurve_boards_archived")
            self._meter.add("rankcurve_archive_owners", owners)
            log.debug("board_archived", board=archived.id, owners=owners)
        elif stored and not whole:
            archiving.progress = place
            self._under_way = archiving
        # If neither branch ran, an owner was erased meanwhile. Later `CloseJob` begins a new archive of this board.
