"""Provide the ingest queue of a store, its callers and its workers, with a clock that only the test moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from config.settings import Settings
from storage.leases.work_leases import WorkLeases
from storage.queue import ingest_queue
from storage.queue.ingest_queue import NewBlock, find_queue, list_queues
from storage.queue.outcomes import find_post_fate
from storage.queue.post_blocks import encode_posts, shard_of
from storage.queue.queue_application import DrainedRound, Drainer
from storage.queue.workers import Semaphore, ShardLeases, Share
from storage.records import Board, PartOutcome, Post
from storage.store import Program, Store, in_partition
from tests.storage.deployment import Deployment

SHARDS = 3
LEASE_US = 1_000_000
WORKERS_MAX = 2
LIMITS = Settings(ingest_lease_s=LEASE_US / 1e6).model_copy(
    update={
        "ingest_round_posts_max": 100, "ingest_round_parts_max": 1_000, "ingest_alone_attempts_max": 3,
        "write_attempts_max": 4, "write_backoff_base_s": 0.0001, "write_backoff_s_max": 0.001,
    }
)  # fmt: skip


async def no_sleep(_seconds: float) -> None:
    pass


@dataclass
class Worker:
    drainers: dict[int, Drainer]  # by partition
    leases: ShardLeases
    share: Share = field(default_factory=Share)

    def make_drainer(self, partition: int) -> Drainer:
        return self.drainers[partition]

    @property
    def shards(self) -> list[int]:
        """Return the numbers of the shards that the worker believes it holds."""
        return sorted(shard.number for shard in self.share.shards)


class QueueDesk:
    """The queue of the partition that holds the deployment's boards. If `everywhere`, the queues of all partitions."""

    def __init__(self, deployment: Deployment, *, everywhere: bool = False) -> None:
        self.deployment, self.store, self.clock = deployment, deployment.store, deployment.clock
        every = list_queues(self.store.dialect, self.store.partitions)
        self.queues = every if everywhere else [deployment.partition]
        self.queue = ingest_queue
        self.leases = WorkLeases(self.clock.read, margin_us=0)
        self.semaphore = Semaphore(self.leases, "ingest", size=WORKERS_MAX)

    @classmethod
    async def on(cls, deployment: Deployment, *, everywhere: bool = False) -> QueueDesk:
        desk = cls(deployment, everywhere=everywhere)
        await desk.store.write(lambda: desk.queue.make_shards(SHARDS))
        return desk

    async def enqueue(self, *posts: Post) -> None:
        """Append posts to the queue in one transaction and in this order. Each post is a block of its own."""

        def program() -> Program[None]:
            for post in posts:
                block = NewBlock(shard_of(post.owner, SHARDS), self.clock(), 1, encode_posts([post], self.clock()))
                partition = find_queue(post, self.store.dialect)
                yield from in_partition(partition, self.queue.append_blocks([block]))

        await self.store.write(program)

    async def enqueue_block(self, posts: Sequence[Post]) -> None:
        """Append posts to the queue as one block. All posts must belong to the same shard."""
        [shard] = {shard_of(post.owner, SHARDS) for post in posts}
        block = NewBlock(shard, self.clock(), len(posts), encode_posts(posts, self.clock()))
        await self.store.write(lambda: self.queue.append_blocks([block]))

    def worker(self, name: str, *, store: Store | None = None, limits: Settings = LIMITS) -> Worker:
        chance = random.Random(name)
        used, parts = store or self.store, (self.deployment.boards, self.leases, limits)
        drainers = {
            partition: Drainer(
                used.at(partition),
                *parts,
                monotonic=lambda: self.clock() / 1e6,
                sleep=no_sleep,
                rng=chance,
            )
            for partition in self.queues
        }
        leases = ShardLeases(
            self.leases,
            self.semaphore,
            shards=SHARDS,
            queues=lambda: self.queues,
            holder=name,
            lease_us=LEASE_US,
            rng=chance,
        )
        return Worker(drainers, leases)

    async def update_share(self, worker: Worker) -> None:
        """Renew the leases of a worker, and let the worker claim free shards."""
        worker.share = await worker.leases.update_share(self.store, worker.share)

    async def run_round(self, worker: Worker) -> DrainedRound | None:
        """Run a round in the first partition where posts wait in a shard of the worker. Return None if none wait."""
        for partition, shards in worker.share.by_partition():
            if (drained := await worker.drainers[partition].drain_round(shards)) is not None:
                return drained
        return None

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
        backlog = await self.store.read(lambda: self.queue.read_queues(self.queues, self.queue.read_backlog))
        return sum(shard.posts for shard in backlog.values())

    async def find_fate(self, board: Board, post_id: str, owner: str) -> PartOutcome:
        """Return the outcome of a post that no longer waits."""
        fate = await find_post_fate(self.store, self.deployment.post_ids, board, post_id, owner)
        assert fate is not None
        return fate
