"""Work that exactly one job process does at a time, though any number of them run.

    claim ──> work, the lease renewed beside it ──> released in the work's own transaction, or at its end
                 └── lost: the work is cancelled

The rule: who does not hold the lease does not begin, and what is stored is stored on the lease's condition. A process
that was stopped for longer than its lease may go on working for a moment, but nothing of it stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from storage.errors import LeaseLost, StorageError, StoreDamaged
from storage.leases import Lease, Leases
from storage.store import Program, Store

from .runner import Sleep

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """The bounds of a job's leases; each is a setting of the same name."""

    lease_s: float
    lease_renewal_ratio: float  # of lease_s, after which a lease is renewed


@dataclass(slots=True)
class Held:
    """A lease while the work under it runs."""

    lease: Lease
    leases: Leases
    lease_us: int  # how long it is kept at a time
    stored: bool = False  # its transaction was committed, so that the lease is released already

    def release(self) -> Program[None]:
        """What the work's last transaction has to run: raises LeaseLost, so that nothing of a fenced owner stays."""
        return self.leases.release(self.lease)

    def keep(self) -> Program[None]:
        """The same for a transaction that more work follows."""
        yield from self.leases.renew(self.lease, lease_us=self.lease_us)


class Ownership:
    """The leases of one job process."""

    def __init__(self, store: Store, leases: Leases, limits: LeaseLimits, *, holder: str, sleep: Sleep) -> None:
        self._store, self._leases, self._limits = store, leases, limits
        self._holder, self._sleep = holder, sleep
        self._lease_us = round(limits.lease_s * 1e6)

    async def run(
        self,
        pool: str,
        resource: str,
        work: Callable[[Held], Awaitable[T]],
        *,
        still_wanted: Callable[[], Program[None]] | None = None,
        rests_s: float = 0,
    ) -> T:
        """The outcome of the work, done while nobody else does it.

        `still_wanted` runs in the claim's transaction, and raises where there is nothing left to do. With `rests_s`
        nobody gets the lease before so long after its claim, however soon the work ends.

        Raises:
            LeaseTaken: another process does it, or the lease rests.
            LeaseLost: another process took over meanwhile.
            What `still_wanted` and the work raise.
        """
        lease = await self._store.write(lambda: self._claim(pool, resource, still_wanted))
        held = Held(lease, self._leases, self._lease_us)
        claimed_at_us = held.lease.expires_at_us - self._lease_us
        working = asyncio.ensure_future(work(held))
        renewing = asyncio.create_task(self._keep_renewing(held.lease))
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()  # raises: it ends in no other way
            return await working
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            if not held.stored:
                await self._give_back(held.lease, claimed_at_us + round(rests_s * 1e6) if rests_s else 0)

    def _claim(self, pool: str, resource: str, still_wanted: Callable[[], Program[None]] | None) -> Program[Lease]:
        lease = yield from self._leases.claim(pool, resource, holder=self._holder, lease_us=self._lease_us)
        if still_wanted is not None:
            yield from still_wanted()  # after the claim, which whoever was before has to have ended for
        return lease

    async def _keep_renewing(self, lease: Lease) -> None:
        while True:
            await self._sleep(self._limits.lease_s * self._limits.lease_renewal_ratio)
            try:
                await self._store.write(lambda: self._leases.renew(lease, lease_us=self._lease_us))
            except LeaseLost:
                raise
            except StorageError as error:  # the store is away: whether the lease is lost shows when it is back
                log.warning("lease_not_renewed", pool=lease.pool, resource=lease.resource, detail=error.detail)

    async def _give_back(self, lease: Lease, rests_until_us: int) -> None:
        try:
            await self._store.write(lambda: self._leases.release(lease, rests_until_us=rests_until_us))
        except (LeaseLost, StoreDamaged):  # nobody claims anything of a damaged store, and its damage is told once
            return
        except StorageError as error:  # it expires
            log.warning("lease_not_released", pool=lease.pool, resource=lease.resource, detail=error.detail)
