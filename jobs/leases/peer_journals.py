"""Reads the lease journals of other stores, so that a key with a lease there does not get a second resource here.

    claim ──> read the next page of the journal ──> apply it ──> pause, unless the page was full ──> read …

A peer is another store. One process at a time reads a peer's journal, under a work lease, and a page is applied only
while this lease is held. While a peer does not answer, the last known leases of that peer count here until they expire.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from jobs.job_context import JobContext
from jobs.ownership import JOB_WORK, HeldLease, Ownership
from storage.errors import LeaseLostError, LeaseTakenError, StorageError
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.peers import LeaseExchange, remote_leases

log = structlog.get_logger(__name__)


class PeerUnavailableError(Exception):
    """The service of the other store cannot be reached, or its response is not a page of its journal."""


# A function that takes a peer's name, the number of a journal row, and the largest number of rows to return. It returns
# the rows of the peer's journal after the given row, or raises PeerUnavailableError.
ReadPeer = Callable[[str, int, int], Awaitable[list[PublishedLeaseEvent]]]


class ExchangeJob:
    def __init__(self, context: JobContext, exchange: LeaseExchange, read_peer: ReadPeer, *, peer: str) -> None:
        self._store, self._ownership, self._limits = context.store, Ownership(context), context.limits
        self._exchange, self._read_peer, self._meter, self._peer = exchange, read_peer, context.meter, peer
        self.name = f"exchange {peer}"
        self._sleep = context.make_sleep(self.name)
        self._away = False

    async def run_forever(self) -> None:
        while True:
            try:
                await self._ownership.run_owned(JOB_WORK, self.name, self._read_on)
            except (LeaseTakenError, LeaseLostError):
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def _read_on(self, held: HeldLease) -> None:
        while True:
            full = False
            try:
                full = await self.exchange_page(held)
                self._away = False
            except LeaseLostError:
                raise
            except (PeerUnavailableError, StorageError) as error:
                self._meter.add("rankcurve_lease_peer_failures")
                if not self._away:
                    log.warning("leases_not_exchanged", peer=self._peer, detail=str(error))
                self._away = True
            if not full:
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def exchange_page(self, held: HeldLease) -> bool:
        """Read and apply one page now, and return whether there may be more pages.

        Raises:
            PeerUnavailableError: the peer can't be reached, or its response is not a page of its journal.
            LeaseLostError: another process reads this journal now.
            StoreBusyError: the store failed.
        """
        rows_max = self._limits.lease_exchange_rows_max
        after = await self._store.read(lambda: remote_leases.read_cursor(self._peer))
        page = await self._read_peer(self._peer, after, rows_max)
        if not page:
            return False
        applying = partial(self._exchange.apply_page, self._peer, page, rows_max=rows_max)
        taken = await self._store.write(lambda: held.renew_and(applying()))
        self._meter.add("rankcurve_lease_events_exchanged", taken.events)
        self._meter.add("rankcurve_lease_duplicates", taken.duplicates)
        if taken.duplicates:
            log.warning("duplicate_leases", peer=self._peer, released=taken.duplicates)
        return len(page) == rows_max
