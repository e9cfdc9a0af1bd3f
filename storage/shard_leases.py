"""Who empties which shard of the ingest queue: a worker with a permit of the semaphore leases its share of them.

The rule: a shard has one worker at a time, and every permit holder as many as any other, give or take one. Leases are
renewed in one transaction with the permit; where nothing waits nobody writes, and they lapse.
"""

from __future__ import annotations

import random
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

    def tend(self, share: Share) -> Program[Share]:
        """Keep what is held, take what is free and due, give back what is too much."""
        permit, workers = yield from self._semaphore.keep(share.permit, holder=self._holder, lease_us=self._lease_us)
        if permit is None:
            yield from self._release(share.shards)
            return Share(None, {}, workers)
        held = yield from self._leases.keep_all(list(share.shards.values()), lease_us=self._lease_us)
        kept = {int(lease.resource): lease for lease in held}
        due = -(-self._shards // workers)
        surplus = dict(sorted(kept.items())[due:])
        yield from self._release(surplus)
        kept = {shard: lease for shard, lease in kept.items() if shard not in surplus}
        if len(kept) < due:
            kept |= yield from self._claim(due - len(kept))
        return Share(permit, kept, workers)

    def _claim(self, wanted: int) -> Program[dict[int, Lease]]:
        held, _ = yield from self._leases.held_in(POOL)
        free = [shard for shard in range(self._shards) if str(shard) not in held]
        chosen = sorted(self._rng.sample(free, min(wanted, len(free))))  # in one order: no deadlock
        taken: dict[int, Lease] = {}
        for shard in chosen:
            try:
                taken[shard] = yield from self._leases.claim(
                    POOL, str(shard), holder=self._holder, lease_us=self._lease_us
                )
            except LeaseTaken:
                continue
        return taken

    def give_back(self, share: Share) -> Program[None]:
        """Let others have everything at once."""
        yield from self._release(share.shards)
        if share.permit is not None:
            yield from self._semaphore.give_back(share.permit)

    def _release(self, shards: dict[int, Lease]) -> Program[None]:
        for _, lease in sorted(shards.items()):
            try:
                yield from self._leases.release(lease)
            except LeaseLost:
                continue
