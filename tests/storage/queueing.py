"""Provide the ingest queue of a store, its callers and its workers, with a clock that only the test moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from config.settings import Settings
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.queue import ingest_queue
from storage.queue.ingest_queue import NewBlock
from storage.queue.outcomes import find_post_fate
from storage.queue.post_blocks import encode_posts, shard_of
from storage.queue.queue_application import DrainedRound, Drainer
from storage.queue.workers import Semaphore, ShardLeases, Share
from storage.records import Board, PartOutcome, Post
from storage.store import Program, Store
from tests.storage.deployment import Deployment

SHARDS = 3
LEASE_US = 1_000_000
WORKERS_MAX = 2
LIMITS = Settings(ingest_lease_s=LEASE_US / 1e6, change_log=True).model_copy(
    update={
        "ingest_round_posts_max": 100, "ingest_round_parts_max": 1_000, "ingest_alone_attempts_max": 3,
        "write_attempts_max": 4, "write_backoff_base_s": 0.0001, "write_backoff_s_max": 0.001,
    }
)  # fmt: skip


async def no_sleep(_seconds: float) -> None:
    pass


@dataclass
class Worker:
    drainer: Drainer
    leases: ShardLeases
    share: Share = field(default_factory=Share)

    @property
    def held(self) -> list[tuple[int, WorkLease]]:
        """Return the shards that the worker believes it holds, each with its lease."""
        return sorted(self.share.shards.items())


class QueueDesk:
    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.store, self.clock = deployment, deployment.store, deployment.clock
        self.queue = ingest_queue
        self.leases = WorkLeases(self._now_us, margin_us=0)
        self.semaphore = Semaphore(self.leases, "ingest", size=WORKERS_MAX)

    def _now_us(self) -> Program[int]:
        yield from ()
        return self.clock.now_us

    @classmethod
    async def on(cls, deployment: Deployment) -> QueueDesk:
        desk = cls(deployment)
        await desk.store.write(lambda: desk.queue.make_shards(SHARDS))
        return desk

    async def enqueue(self, *posts: Post) -> None:
        """Append posts to the queue in one transaction and in this order. Each post is a block of its own."""
        blocks = [
            NewBlock(shard_of(post.owner, SHARDS), self.clock(), 1, encode_posts([post], self.clock()))
            for post in posts
        ]
        await self.store.write(lambda: self.queue.append_blocks(blocks))

    async def enqueue_block(self, posts: Sequence[Post]) -> None:
        """Append posts to the queue as one block. All posts must belong to the same shard."""
        [shard] = {shard_of(post.owner, SHARDS) for post in posts}
        block = NewBlock(shard, self.clock(), len(posts), encode_posts(posts, self.clock()))
        await self.store.write(lambda: self.queue.append_blocks([block]))

    def worker(self, name: str, *, store: Store | None = None, limits: Settings = LIMITS) -> Worker:
        chance = random.Random(name)
        parts = store or self.store, self.deployment.boards, self.leases, limits
        drainer = Drainer(*parts, now_us=self.clock, monotonic=lambda: self.clock() / 1e6, sleep=no_sleep, rng=chance)
        leases = ShardLeases(self.leases, self.semaphore, shards=SHARDS, holder=name, lease_us=LEASE_US, rng=chance)
        return Worker(drainer, leases)

    async def update_share(self, worker: Worker) -> None:
        """Renew the leases of a worker, and let the worker claim free shards."""
        worker.share = await self.store.write(lambda: worker.leases.keep_share(worker.share))
        worker.share = await self.store.write(lambda: worker.leases.claim_shards(worker.share))

    async def run_round(self, worker: Worker) -> DrainedRound | None:
        return await worker.drainer.drain_round(worker.held)

    async def drain_queue(self, name: str = "ada", *, limits: Settings = LIMITS) -> list[DrainedRound]:
        """End all other leases. Then run rounds of a new worker until no post waits."""
        self.clock.now_us += 10 * LEASE_US
        worker = self.worker(name, limits=limits)
        await self.update_share(worker)
        rounds: list[DrainedRound] = []
        while (drained := await self.run_round(worker)) is not None:
            rounds.append(drained)
        await self.store.write(lambda: worker.leases.release_share(worker.share))
        return rounds

    async def count_waiting(self) -> int:
        backlog = await self.store.read(self.queue.read_backlog)
        return sum(shard.posts for shard in backlog.values())

    async def find_fate(self, board: Board, post_id: str) -> PartOutcome:
        """Return the outcome of a post that no longer waits."""
        fate = await find_post_fate(self.store, self.deployment.post_ids, board, post_id)
        assert fate is not None
        return fate
