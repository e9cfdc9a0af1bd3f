"""The `Context` that every handler receives: the parts of one service process, such as store, catalog and writer.

`wiring.open_context` builds it, starts its parts, and stops them at the end. Parts that are used together form a group:
`context.posting`, `context.curves`, `context.ranks`.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from jobs.curves.audit import Auditor
from jobs.curves.refresh import Refresher
from jobs.queue import QueueParts
from service.contract.cursors import CursorCodec
from service.http.api_key_watch import KeyWatch
from service.http.endpoint import EndpointContext
from service.monitoring.jolokia import JolokiaAgent
from service.ranks.rank_context import RankContext
from service.streams.feed import Feeds
from service.streams.long_answers import LongAnswers
from service.telemetry.metrics.store_figures import StoreFigures
from storage.boards.catalog import Catalog
from storage.curves.curve_book import CurveBook
from storage.errors import StoreAwayError, StoreBusyError, StoreDamagedError
from storage.leases.batcher import LeaseBatcher
from storage.posting.post_ids import PostIds
from storage.posting.remote_writer import RemoteWriter
from storage.posting.writer import Writers
from storage.queue.intake import Enqueuer
from storage.reads.away_partitions import find_away_partitions
from storage.reads.open_boards import OpenBoards
from storage.reads.point_reads import PointReads
from storage.records import Leaf
from storage.store import Program, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PostingContext:
    writer: Writers | RemoteWriter  # a `RemoteWriter` only in a front process
    enqueuer: Enqueuer
    queue: QueueParts
    post_ids: PostIds


@dataclass(frozen=True, slots=True)
class CurveContext:
    book: CurveBook
    refreshes: Refresher
    auditor: Auditor


@dataclass(frozen=True, kw_only=True)
class Context(EndpointContext):
    key_watch: KeyWatch
    store: Store
    catalog: Catalog
    boards: OpenBoards
    reads: PointReads
    posting: PostingContext
    curves: CurveContext
    feeds: Feeds
    lease_batcher: LeaseBatcher
    cursors: CursorCodec
    ranks: RankContext
    long_answers: LongAnswers
    now_us: Callable[[], int]
    store_figures: StoreFigures
    agent: JolokiaAgent

    @property
    def own_tables_max(self) -> int | None:
        """Return how many boards may have tables of their own, or None if this store needs no limit."""
        return self.settings.own_tables_max if self.store.dialect.parses_schema else None

    def end_endless_answers(self) -> None:
        self.feeds.close()

    def forget_leaves(self, leaves: Iterable[Leaf]) -> None:
        """Forget what this process knows of deleted leaves."""
        for leaf in leaves:
            self.catalog.forget_board(leaf.id)
            self.curves.book.forget_board(leaf.key)

    async def ready(self) -> list[int]:
        """Check that the store answers and that the writer runs, and return the partitions that do not answer.

        Raises:
            StoreDamagedError: the store is known to be damaged.
            StoreBusyError: the writer has stopped; or the control partition, or every other partition, does not answer.
        """
        if self.store.damaged.is_set():
            raise StoreDamagedError
        if not self.posting.writer.alive:
            raise StoreBusyError("the writer has stopped")
        return await find_away_partitions(self.store, wait_s_max=self.settings.connect_timeout_s)

    async def try_living(self, act: Callable[[Collection[int]], Awaitable[T]]) -> tuple[T, Collection[int]]:
        """Call `act` for all partitions; if one does not answer, call it again without those that do not.

        The argument of `act` is the collection of partitions to leave out: none at first. Return the result and the
        partitions that it leaves out. Raises StoreAwayError if the control partition does not answer, or if the
        partitions that answer do not suffice.
        """
        try:
            return await act(()), ()
        except StoreAwayError:
            away = await find_away_partitions(self.store, wait_s_max=self.settings.connect_timeout_s)
            if not away:
                raise
        return await act(away), away

    async def read_living(
        self, make: Callable[[Collection[int]], Program[T]], *, heavy: bool = False
    ) -> tuple[T, Collection[int]]:
        return await self.try_living(lambda away: self.store.read(lambda: make(away), heavy=heavy))
