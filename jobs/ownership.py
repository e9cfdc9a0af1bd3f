"""Lets exactly one job process at a time do a piece of work, however many job processes run.

    claim ──> work, while a task renews the lease ──> the lease is released in the last transaction, or after the work
                 └── the lease is lost: the work is cancelled

A process that was suspended for longer than its lease may continue its work for a moment. A transaction that must not
overlap one from another owner therefore calls `HeldLease.renew` or `HeldLease.release`. If the lease was lost, both
raise `LeaseLostError`, and the transaction stores nothing. Steps that are harmless to repeat need no such call.

The lease on work for one partition is stored in that partition, so that the transaction that stores the result needs no
other partition. The lease on work for the whole store is in the control partition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from storage.errors import LeaseLostError, LeaseTakenError, LostRaceError, StorageError, StoreDamagedError
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.log.following import Follower
from storage.store import CONTROL, Program, Store, in_partition

from .controls import Sleep
from .errors import level_of
from .job_context import JobContext

T = TypeVar("T")
JOB_WORK = "job"  # the kind of a lease on a whole job. One process at a time runs it, for the store or for a partition
# For this fraction of the job's interval after a claim, no process can claim the lease again. It is below 1 because
# clocks differ: at 1, a process that comes back after one interval of its own clock might come a little too early.
REST_RATIO = 0.9
LOOK_S_MAX = 60.0
FOLLOW_S = 0.5  # how often a follower that has handled everything looks for new changes
FOLLOW_LOAD_RATIO = 0.5  # the most of the time that a follower works
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class HeldLease:
    """A lease that this process holds while it does the work.

    If another process took over, `release` and `renew` raise `LeaseLostError`, which rolls the transaction back. Both
    may be part of a program that runs for any partition.
    """

    lease: WorkLease
    leases: WorkLeases
    lease_us: int  # how long the lease lasts after each renewal, in microseconds
    partition: int = CONTROL  # the partition whose table holds the lease
    is_released: bool = False  # the work sets this to True when the transaction that ran `release` is committed

    def release(self) -> Program[None]:
        return in_partition(self.partition, self.leases.release(self.lease))

    def renew(self) -> Program[None]:
        yield from in_partition(self.partition, self.leases.renew(self.lease, lease_us=self.lease_us))

    def renew_and(self, program: Program[T]) -> Program[T]:
        yield from self.renew()
        return (yield from program)


class Ownership:
    def __init__(self, context: JobContext) -> None:
        self._store, self._leases, self._limits = context.store, context.leases, context.limits
        self._holder, self._sleep, self._monotonic = context.holder, context.sleep, context.monotonic
        self._lease_us = round(context.limits.lease_s * 1e6)

    async def run_owned(
        self,
        kind: str,
        resource: str,
        work: Callable[[HeldLease], Awaitable[T]],
        *,
        partition: int = CONTROL,
        rests_s: float = 0,
    ) -> T:
        """Do the work under a lease in `partition`, so that no other process does it, and return the work's result.

        No process gets the lease again until `rests_s` seconds after the claim, even if the work ends sooner. If the
        store's clock was ahead, the lease on a job may end later than any holder could have it; then wait for its end.

        Raises:
            LeaseTakenError: another process does the work, or the `rests_s` seconds of the last claim have not passed.
            LeaseLostError: another process took the lease while the work ran.
            Any error that the work raises.
        """
        store = self._store.at(partition)
        claiming = partial(self._leases.claim, kind, resource, holder=self._holder, lease_us=self._lease_us)
        while True:
            try:
                lease = await store.write(claiming)
                break
            except LeaseTakenError as taken:
                free_in_s = taken.free_in_us / 1e6
                longest_s = max(self._limits.lease_s, rests_s)
                if kind != JOB_WORK or free_in_s <= 2 * longest_s:  # twice, because settings of processes may differ
                    raise
            log.warning("lease_ends_too_late", kind=kind, resource=resource, free_in_s=round(free_in_s))
            await self._sleep(LOOK_S_MAX)  # this is no round of the job, so operators learn that the job is stalled
        held = HeldLease(lease, self._leases, self._lease_us, partition)
        claimed_at_us = held.lease.expires_at_us - self._lease_us
        working = asyncio.ensure_future(work(held))
        renewing = asyncio.create_task(self._keep_renewing(store, held.lease))
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()  # always raises: the renewing task ends only with an error
            return await working
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            if not held.is_released:
                await self._give_back(store, held.lease, claimed_at_us + round(rests_s * 1e6) if rests_s else 0)

    async def run_rounds(
        self,
        resource: str,
        work: Callable[[HeldLease], Awaitable[object]],
        *,
        interval_s: float,
        sleep: Sleep,
        partition: int = CONTROL,
    ) -> None:
        """Do the work once per interval, for ever, skipping a round if another process has the lease.

        After a round, no process gets the lease until the next round is nearly due. Every process tries to claim the
        lease at least every `LOOK_S_MAX` seconds, so that the next round takes place even if the last owner died.
        """
        while True:
            await sleep(min(interval_s, LOOK_S_MAX))
            try:
                await self.run_owned(JOB_WORK, resource, work, partition=partition, rests_s=interval_s * REST_RATIO)
            except (LeaseTakenError, LeaseLostError):
                continue

    async def run_steps(
        self,
        resource: str,
        step: Callable[[HeldLease], Awaitable[bool]],
        *,
        interval_s: float,
        load_ratio: float,
        sleep: Sleep,
        partition: int = CONTROL,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Repeat a short step of a job under the job's lease, for ever, and call `ended` whenever the lease ends.

        A step returns whether there is already work for the next one. If not, steps begin at most every `interval_s`
        seconds. Steps take at most `load_ratio` of the time. A step that fails is logged, and the next one tries again.
        """
        repeat = partial(self._repeat, step, interval_s=interval_s, load_ratio=load_ratio, sleep=sleep)
        while True:
            pause_s = interval_s
            try:
                await self.run_owned(JOB_WORK, resource, repeat, partition=partition)
            except LeaseTakenError as taken:
                pause_s = min(taken.free_in_us / 1e6, interval_s)
            except LeaseLostError as error:
                log.warning(f"{resource}_fenced", partition=partition, detail=error.detail)
            finally:
                ended()
            await sleep(pause_s)

    async def run_follower(self, follower: Follower, *, sleep: Sleep) -> None:
        """Keep handing a follower all new changes in its partition's log, for ever. Every job process may run this."""
        step = partial(self._follow_page, follower)
        await self.run_steps(
            follower.name,
            step,
            interval_s=FOLLOW_S,
            load_ratio=FOLLOW_LOAD_RATIO,
            sleep=sleep,
            partition=follower.partition,
        )

    async def _follow_page(self, follower: Follower, held: HeldLease) -> bool:
        store = self._store.at(follower.partition)
        page = await store.read(follower.read_page, heavy=True)
        if page.before != page.until:
            with suppress(LostRaceError):
                await store.write(lambda: held.renew_and(follower.store_page(page)))
        return page.is_full

    async def _repeat(
        self,
        step: Callable[[HeldLease], Awaitable[bool]],
        held: HeldLease,
        *,
        interval_s: float,
        load_ratio: float,
        sleep: Sleep,
    ) -> None:
        while True:
            started, is_busy = self._monotonic(), False
            try:
                is_busy = await step(held)
            except LeaseLostError:
                raise
            except StorageError as error:
                failed = f"{held.lease.resource}_failed"  # such as fold_failed
                log.log(level_of(error), failed, partition=held.partition, detail=error.detail)
            took_s = self._monotonic() - started
            rest_s = took_s * (1 / load_ratio - 1)
            await sleep(rest_s if is_busy else max(rest_s, interval_s - took_s))

    async def _keep_renewing(self, store: Store, lease: WorkLease) -> None:
        while True:
            await self._sleep(self._limits.lease_s * self._limits.lease_renewal_ratio)
            try:
                await store.write(lambda: self._leases.renew(lease, lease_us=self._lease_us))
            except LeaseLostError:
                raise
            except StorageError as error:  # the next renewal shows whether the lease is lost
                self._log_failure("lease_not_renewed", lease, error)

    async def _give_back(self, store: Store, lease: WorkLease, rests_until_us: int) -> None:
        try:
            await store.write(lambda: self._leases.release(lease, rests_until_us=rests_until_us))
        except (LeaseLostError, StoreDamagedError):
            return  # a damaged store grants no leases, and other code reports the damage
        except StorageError as error:  # the lease expires by itself
            self._log_failure("lease_not_released", lease, error)

    @staticmethod
    def _log_failure(event: str, lease: WorkLease, error: StorageError) -> None:
        level = level_of(error, logging.WARNING)
        log.log(level, event, kind=lease.kind, resource=lease.resource, detail=error.detail)
