"""Who empties which shard of the ingest queue: a worker with a permit of the semaphore leases its share of them.

The rule: a shard has one worker at a time, and every permit holder as many as any other, give or take one. Where
nothing waits nobody writes, and leases lapse. Leases are locked in the order of their names, by everyone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import LeaseLost, LeaseTaken
from .leases import Lease, Leases
from .semaphores import Semaphore
from .store import Program

POOL = "ingest"


@dataclass(frozen=True, slots=True)
class Share:
    """What a worker has."""

    permit: Lease | None = None
    shards: dict[int, Lease] = field(default_factory=dict)
    workers: int = 0  # permit holders, itself included


class ShardLeases:
    """The programs of one worker."""

    def __init__(
        self, leases: Leases, semaphore: Semaphore, *, shards: int, holder: str, lease_us: int, rng: random.Random
    ) -> None:
        self._leases, self._semaphore = leases, semaphore
        self._shards, self._holder, self._lease_us, self._rng = shards, holder, lease_us, rng

    def keep(self, share: Share) -> Program[Share]:
        """Keep what is held and due, give back what is too much; without a permit nothing is due."""
        permit, workers = yield from self._semaphore.keep(share.permit, holder=self._holder, lease_us=self._lease_us)
        if permit is None:
            yield from self._release(share.shards.values())
            return Share(None, {}, workers)
        held = yield from self._leases.keep_all(list(share.shards.values()), lease_us=self._lease_us)
        due = self._due(workers)
        yield from self._release(held[due:])
        return Share(permit, {int(lease.resource): lease for lease in held[:due]}, workers)

    def claim(self, share: Share) -> Program[Share]:
        """Take what is free and due. In a transaction of its own: who held others meanwhile could wait for ever."""
        if not self.lacks(share):
            return share
        wanted = self._due(share.workers) - len(share.shards)
        held, _ = yield from self._leases.held_in(POOL)
        free = [str(shard) for shard in range(self._shards) if str(shard) not in held]
        taken = dict(share.shards)
        for name in sorted(self._rng.sample(free, min(wanted, len(free)))):  # in one order for all
            try:
                lease = yield from self._leases.claim(POOL, name, holder=self._holder, lease_us=self._lease_us)
            except LeaseTaken:
                continue
            taken[int(name)] = lease
        return Share(share.permit, taken, share.workers)

    def lacks(self, share: Share) -> bool:
        """Whether more is due than is held."""
        return share.permit is not None and len(share.shards) < self._due(share.workers)

    def _due(self, workers: int) -> int:
        return -(-self._shards // workers)

    def give_back(self, share: Share) -> Program[None]:
        """Let others have everything at once."""
        yield from self._release(share.shards.values())
        if share.permit is not None:
            yield from self._semaphore.give_back(share.permit)

    def _release(self, leases: Iterable[Lease]) -> Program[None]:
        for lease in sorted(leases, key=lambda lease: lease.resource):
            try:
                yield from self._leases.release(lease)
            except LeaseLost:
                continue
