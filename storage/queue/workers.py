"""Limits how many workers of the ingest queue work at the same time, and divides the shards between them.

A worker first needs a permit (see below), and then leases its share of the shards. A worker's share is the number of
shards divided by the number of permit holders, rounded up. A shard's lease is in the shard's partition, while permits
are in the control partition. A worker renews and claims leases in each partition separately, so that an unreachable
partition does not stop the others. All transactions lock leases in the order of their partitions and names.

A semaphore is a set of leases, called permits, which are numbered from 1 to the semaphore's size. Each holder has one
permit. If the stored size is reduced, holders of permits with higher numbers release them instead of renewing them.

While no posts are waiting, workers write nothing, and their leases expire.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter

from querybuilder import col, excluded, insert, param, select
from storage.errors import LeaseLostError, LeaseTakenError, StoreAwayError
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.schema.ingest_tables import SEMAPHORES
from storage.store import Program, Store, in_partition

from . import ingest_queue
from .ingest_queue import Shard, ShardBacklog, ShardCount, read_queues

SHARD_WORK = "ingest"


@dataclass(frozen=True, slots=True)
class Share:
    permit: WorkLease | None = None
    shards: dict[Shard, WorkLease] = field(default_factory=dict)
    workers: int = 0  # number of permit holders, including this worker

    def by_partition(self) -> list[tuple[int, list[tuple[int, WorkLease]]]]:
        """Group the shards' numbers and leases by partition, in the order in which transactions lock partitions."""
        found: dict[int, list[tuple[int, WorkLease]]] = {}
        for shard, lease in sorted(self.shards.items(), key=itemgetter(0)):
            found.setdefault(shard.partition, []).append((shard.number, lease))
        return list(found.items())

    def without(self, partition: int) -> Share:
        kept = {shard: lease for shard, lease in self.shards.items() if shard.partition != partition}
        return replace(self, shards=kept)


class ShardLeases:
    """Claims and releases one worker's permit and shards. Run `release_share` in the control partition."""

    def __init__(
        self,
        leases: WorkLeases,
        semaphore: Semaphore,
        *,
        shards: int,
        queues: Callable[[], Sequence[int]],
        holder: str,
        lease_us: int,
        rng: random.Random,
    ) -> None:
        """Create the programs. `queues` returns the partitions with queues, each of which has `shards` shards."""
        self._leases, self._semaphore, self.queues = leases, semaphore, queues
        self._shards, self._holder, self._lease_us, self._rng = shards, holder, lease_us, rng

    async def update_share(self, store: Store, share: Share) -> Share:
        """Renew the permit and the shard leases, then claim or release shards until the worker has its share.

        Each partition has its own transactions. In a partition that does not respond, the worker loses its shards.
        Without a permit, it keeps no shards.

        Raises:
            StoreBusyError: the control partition does not respond, or another partition responds with an error.
        """
        keeping = partial(self._semaphore.keep_permit, share.permit, holder=self._holder, lease_us=self._lease_us)
        permit, workers = await store.write(keeping)
        queues = self.queues()
        due = 0 if permit is None else -(-self._shards * len(queues) // workers)
        leases: dict[int, list[WorkLease]] = {}
        away: set[int] = set()
        for partition, theirs in share.by_partition():
            wanted = due - sum(map(len, leases.values()))
            try:
                leases[partition] = await store.at(partition).write(partial(self._keep_shards, theirs, wanted))
            except StoreAwayError:
                away.add(partition)
        for partition in queues:
            wanted = due - sum(map(len, leases.values()))
            if partition not in away and wanted > 0:
                with suppress(StoreAwayError):
                    claimed = await store.at(partition).write(partial(self._claim_shards, wanted))
                    leases.setdefault(partition, []).extend(claimed)
        shards = {Shard(partition, int(one.resource)): one for partition, theirs in leases.items() for one in theirs}
        return Share(permit, shards, workers)

    def _keep_shards(self, shards: list[tuple[int, WorkLease]], wanted: int) -> Program[list[WorkLease]]:
        kept = [lease for _, lease in shards]
        if wanted:
            kept = yield from self._leases.renew_leases(kept, lease_us=self._lease_us)
        yield from release_leases(self._leases, kept[wanted:])
        return kept[:wanted]

    def _claim_shards(self, wanted: int) -> Program[list[WorkLease]]:
        # This is a transaction of its own, because a transaction that also locks other leases could deadlock.
        held = yield from _find_held(self._leases)
        free = [number for number in range(self._shards) if number not in held]
        claimed = []
        # All workers claim in the order of the names, as `renew_leases` does, so they cannot deadlock.
        for name in sorted(map(str, self._rng.sample(free, min(wanted, len(free))))):
            claiming = self._leases.claim(SHARD_WORK, name, holder=self._holder, lease_us=self._lease_us)
            with suppress(LeaseTakenError):
                claimed.append((yield from claiming))
        return claimed

    def release_share(self, share: Share) -> Program[None]:
        """Release the permit and all shards, so that other workers can claim them without delay."""
        for partition, shards in share.by_partition():
            releasing = release_leases(self._leases, [lease for _, lease in shards])
            yield from in_partition(partition, releasing)
        if share.permit is not None:
            yield from release_leases(self._leases, [share.permit])


def _find_held(leases: WorkLeases) -> Program[dict[int, WorkLease]]:
    held = yield from leases.find_held(SHARD_WORK)
    return {int(name): lease for name, lease in held.items()}


def release_leases(leases: WorkLeases, held: Iterable[WorkLease]) -> Program[None]:
    for lease in sorted(held, key=attrgetter("resource")):
        with suppress(LeaseLostError):
            yield from leases.release(lease)


@dataclass(frozen=True, slots=True)
class Sizing:
    size: int
    capacity: int  # posts that the store applies per second; 0: not measured
    speed: int  # posts that one holder applies per second; 0: not measured
    sized_at_us: int


class Semaphore:
    """A semaphore in the store, which limits how many workers hold a permit. Its methods are programs."""

    def __init__(self, leases: WorkLeases, name: str, *, size: int) -> None:
        """Create the programs. `size` applies as long as the database stores no size."""
        self._leases, self._name, self._size = leases, name, size
        self._pool = f"semaphore {name}"

    def sizing(self) -> Program[Sizing]:
        rows = yield _FIND.bind(name=self._name)
        return Sizing(*rows[0]) if rows else Sizing(self._size, 0, 0, 0)

    def resize(self, sizing: Sizing, *, found: Sizing) -> Program[bool]:
        """Change the size, unless it has changed since `found` was read. Return whether this call changed it.

        Any process with new measurements may call this.
        """
        rows = yield _STORE.bind(
            name=self._name,
            size=sizing.size,
            capacity=sizing.capacity,
            speed=sizing.speed,
            sized_at=sizing.sized_at_us,
            found_at=found.sized_at_us,
        )
        return bool(rows[0][0])

    def holders(self) -> Program[int]:
        held = yield from self._leases.find_held(self._pool)
        return len(held)

    def keep_permit(
        self, permit: WorkLease | None, *, holder: str, lease_us: int
    ) -> Program[tuple[WorkLease | None, int]]:
        """Renew a permit for `lease_us` from now, or claim another one.

        Return a pair: the permit (None if other workers hold all permits), and the number of holders.
        """
        sizing = yield from self.sizing()
        held = yield from self._leases.find_held(self._pool)
        if permit is not None and int(permit.resource) > sizing.size:
            yield from release_leases(self._leases, [permit])
            permit = None
        elif permit is not None:
            try:
                permit = yield from self._leases.renew(permit, lease_us=lease_us)
            except LeaseLostError:
                permit = None
        others = set(held) - ({permit.resource} if permit is not None else set())
        free = [str(number) for number in range(1, sizing.size + 1) if str(number) not in held]
        while permit is None and free:
            resource = free.pop(0)
            try:
                permit = yield from self._leases.claim(self._pool, resource, holder=holder, lease_us=lease_us)
            except LeaseTakenError:
                others.add(resource)
        return permit, len(others) + (permit is not None)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The posts waiting in the ingest queue, the work that was done, and the number of workers that may work."""

    backlog: dict[Shard, ShardBacklog]
    counts: dict[Shard, ShardCount]
    holders: int  # number of workers that have a permit
    sizing: Sizing


def read_queue_state(semaphore: Semaphore, queues: Sequence[int]) -> Program[QueueState]:
    backlog = yield from read_queues(queues, ingest_queue.read_backlog)
    counts = yield from read_queues(queues, ingest_queue.read_counts)
    holders = yield from semaphore.holders()
    return QueueState(backlog, counts, holders, (yield from semaphore.sizing()))


def find_workers(leases: WorkLeases, queues: Sequence[int]) -> Program[dict[Shard, str]]:
    held = yield from read_queues(queues, partial(_find_held, leases))
    return {shard: lease.holder for shard, lease in held.items()}


_SIZING = ("size", "capacity", "speed", "sized_at")
_FIND = select(*map(col, _SIZING)).from_(SEMAPHORES).where(col("name").eq(param("name"))).prepared()
_STORE = (
    insert(SEMAPHORES)
    .values(name=param("name"), **{name: param(name) for name in _SIZING})
    .on_conflict("name")
    .do_update(**{name: excluded(name) for name in _SIZING}, where=col("sized_at", SEMAPHORES).eq(param("found_at")))
    .prepared()
)
