"""What handlers work with: everything that one process of the service holds, made in `serve` and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config import Settings
from jobs.audit import Auditor
from jobs.desk import Desk
from jobs.queue import QueueParts
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.coalesce import Coalescers
from storage.curves import CurveBook
from storage.enqueuing import Enqueuer
from storage.entry_reads import EntryReads
from storage.errors import StoreBusy, StoreDamaged
from storage.lease_desk import LeaseDesk
from storage.post_ids import PostIds
from storage.records import Board
from storage.store import Program, Store
from storage.writers import Writers

from .cursors import Cursors
from .jolokia.answering import Agent
from .journal_lane import JournalLane
from .key_limits import KeyLimits
from .key_watch import KeyWatch
from .keys import KeyRing
from .locators import Locators
from .logs import RequestLog
from .metrics.process import Metrics
from .streams.feed import Feed
from .tracing import Tracer

if TYPE_CHECKING:  # pages work with the context
    from .pages import FirstPage, Pager


@dataclass(frozen=True, slots=True)
class Context:
    """One process of the service."""

    settings: Settings
    metrics: Metrics
    keyring: KeyRing
    key_watch: KeyWatch
    key_limits: KeyLimits
    request_log: RequestLog
    store: Store
    catalog: Catalog
    boards: OpenBoards
    reads: EntryReads
    writer: Writers
    enqueuer: Enqueuer
    queue: QueueParts
    post_ids: PostIds
    book: CurveBook
    desk: Desk
    feed: Feed
    auditor: Auditor
    lease_desk: LeaseDesk
    cursors: Cursors
    locators: Locators
    first_pages: Coalescers[tuple[Pager, int], FirstPage]
    journal_lane: JournalLane
    now_us: Callable[[], int]
    agent: Agent | None = None  # None: managed objects are off
    tracer: Tracer | None = None  # None: requests make no spans

    def store_of(self, board: Board) -> Store:
        """The store by the connections of a board's pool."""
        return self.store.of(board.id)

    def stopping(self) -> None:
        """End what would go on for ever."""
        self.feed.close()

    async def ready(self) -> None:
        """Return when the store answers, is sound as far as it is known, and the writer works."""
        if self.store.damaged.is_set():
            raise StoreDamaged
        if not (self.writer.alive and self.enqueuer.alive):
            raise StoreBusy("the writer has stopped")
        await self.store.read(_nothing)


def _nothing() -> Program[None]:
    yield from ()
