"""Reads the journals of other stores, so that a key which leases there is not given a second resource here.

    claim ──> a page past the cursor ──> taken in ──> the next one at once where it was full, else after a pause

The one rule: one process at a time reads a peer's journal, and a page is taken in with the lease held. A peer that does
not answer is asked again with the next turn: its leases are known as they last were, and run out by themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from storage.errors import LeaseLost, LeaseTaken, StorageError
from storage.lease_exchange import LeaseExchange, TakenIn
from storage.lease_journal import LeaseEvent
from storage.store import Program, Store

from .ownership import Held, Ownership
from .prune import POOL
from .runner import Sleep

log = structlog.get_logger(__name__)


class PeerAway(Exception):
    """the other store's service did not answer as it should"""


# Reads a page of a peer's journal: name, the number after which it begins, how many rows. Raises PeerAway.
ReadPeer = Callable[[str, int, int], Awaitable[list[LeaseEvent]]]


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """The job's bounds; each is a setting of the same name."""

    lease_exchange_interval_s: float
    lease_exchange_rows_max: int  # a page


class ExchangeObserver(Protocol):
    """What the exchange tells its operators."""

    def page_taken_in(self, taken: TakenIn) -> None:
        """A page of another store's journal was read."""

    def peer_away(self) -> None:
        """Another store's service did not answer."""


class ExchangeJob:
    """Follows the journals of the peers, in one of the job processes."""

    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        limits: ExchangeLimits,
        exchange: LeaseExchange,
        read_peer: ReadPeer,
        observer: ExchangeObserver,
        *,
        sleep: Sleep,
    ) -> None:
        self._store, self._ownership, self._limits = store, ownership, limits
        self._exchange, self._read_peer, self._observer, self._sleep = exchange, read_peer, observer, sleep
        self._away: dict[str, bool] = {}

    async def follow(self, peer: str) -> None:
        """Read a peer's journal as it grows, or wait until the process that does has gone, for ever."""
        while True:
            try:
                await self._ownership.run(POOL, f"exchange {peer}", lambda held: self._read_on(peer, held))
            except (LeaseTaken, LeaseLost):
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def _read_on(self, peer: str, held: Held) -> None:
        while True:
            full = False
            try:
                full = await self.read(peer, held)
                self._away[peer] = False
            except LeaseLost:
                raise
            except (PeerAway, StorageError) as error:
                self._observer.peer_away()
                if not self._away.get(peer):
                    log.warning("leases_not_exchanged", peer=peer, detail=str(error))
                self._away[peer] = True
            if not full:
                await self._sleep(self._limits.lease_exchange_interval_s)

    async def read(self, peer: str, held: Held | None = None) -> bool:
        """Take in a page now; whether there may be more.

        Raises:
            PeerAway: there was no answer.
            LeaseLost: another process reads.
            StoreBusy: the store failed.
        """
        rows_max = self._limits.lease_exchange_rows_max
        after = await self._store.read(lambda: self._exchange.position(peer))
        page = await self._read_peer(peer, after, rows_max)
        if not page:
            return False

        def program() -> Program[TakenIn]:
            if held is not None:
                yield from held.keep()
            return (yield from self._exchange.take_in(peer, page, rows_max=rows_max))

        taken = await self._store.write(program)
        self._observer.page_taken_in(taken)
        if taken.duplicates:
            log.warning("duplicate_leases", peer=peer, found=taken.duplicates, released=taken.released)
        return len(page) == rows_max
