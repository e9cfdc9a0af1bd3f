"""Reads the lease journals of other stores, so that a key with a lease there does not get a second resource here.

    claim ──> read the page after the cursor ──> apply it ──> pause, unless the page was full ──> the next page

One process at a time reads a peer's journal, and a page is applied only if this process still holds the work lease on
reading that journal. While a peer does not answer, the last known leases of that peer count here until they expire.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from config.settings import LeaseSettings
from jobs.controls import Sleep
from jobs.ownership import JOB_POOL, HeldLease, Ownership
from storage.errors import LeaseLostError, LeaseTakenError, StorageError
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.peers.exchange import AppliedPage, LeaseExchange
from storage.store import Program, Store

log = structlog.get_logger(__name__)


class PeerUnavailableError(Exception):
    """The service of the other store cannot be reached, or its response is not a page of its journal."""


# A function that takes a peer's name, the number of a journal row, and the most rows to return. It returns a page of
# the peer's journal, which begins after the given row. The function raises PeerUnavailableError.
ReadPeer = Callable[[str, int, int], Awaitable[list[PublishedLeaseEvent]]]


class ExchangeObserver(Protocol):
    """Reports of the exchange to operators."""

    def page_taken_in(self, taken: AppliedPage) -> None:
        """Record a page of another store's journal that was applied here."""

    def peer_away(self) -> None:
        """Count a page that was not applied, because the other store's service or this store failed."""


class ExchangeJob:
    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        limits: LeaseSettings,
        exchange: LeaseExchange,
        read_peer: ReadPeer,
        observer: ExchangeObserver,
        *,
        sleep: Sleep,
    ) -> None:
        self._store, self._ownership, self._limits = store, ownership, limits
        self._exchange, self._read_peer, self._observer, self._sleep = exchange, read_peer, observer, sleep
        self._away: dict[str, bool] = {}

    async def follow_journal(self, peer: str) -> None:
        """Read a peer's journal for ever, page by page. While another process reads this journal, wait."""
        while True:
            try:
                await self._ownership.run_owned(JOB_POOL, f"exchange {peer}", lambda held: self._read_on(peer, held))
            except (LeaseTakenError, LeaseLostError):
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def _read_on(self, peer: str, held: HeldLease) -> None:
        while True:
            full = False
            try:
                full = await self.exchange_page(peer, held)
                self._away[peer] = False
            except LeaseLostError:
                raise
            except (PeerUnavailableError, StorageError) as error:
                self._observer.peer_away()
                if not self._away.get(peer):
                    log.warning("leases_not_exchanged", peer=peer, detail=str(error))
                self._away[peer] = True
            if not full:
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def exchange_page(self, peer: str, held: HeldLease | None = None) -> bool:
        """Read and apply one page now; return whether there may be more pages.

        Raises:
            PeerUnavailableError: the peer can't be reached, or its response is not a page of its journal.
            LeaseLostError: another process reads this journal now.
            StoreBusyError: the store failed.
        """
        rows_max = self._limits.lease_exchange_rows_max
        after = await self._store.read(lambda: self._exchange.read_cursor(peer))
        page = await self._read_peer(peer, after, rows_max)
        if not page:
            return False

        def program() -> Program[AppliedPage]:
            if held is not None:
                yield from held.renew()
            return (yield from self._exchange.apply_page(peer, page, rows_max=rows_max))

        taken = await self._store.write(program)
        self._observer.page_taken_in(taken)
        if taken.duplicates:
            log.warning("duplicate_leases", peer=peer, found=taken.duplicates, released=taken.released)
        return len(page) == rows_max
