"""Compare the queue with plain lists, for any order of queued posts, direct posts, dying workers and emptied boards."""

import itertools
from collections import defaultdict
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs

from storage.errors import LeaseLostError
from storage.queue.post_blocks import shard_of
from storage.queue.workers import Share
from storage.records import Board, Merge, Post
from tests.storage.deployment import Session, counter, part, ranked, run_machine
from tests.storage.queueing import LEASE_US, LIMITS, SHARDS, QueueDesk, Worker

OWNERS = ("ada", "bob", "cleo", "ÿ", "漢")
POST_IDS = ("p", "q", "r", None, None, None)
WORKERS = ("first", "second", "third")
ROUND_POSTS = 3


class Queueing(RuleBasedStateMachine):
    """A board, its queue, and three workers. At most two of the workers may work at the same time."""

    session: Session  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.board = self.session.create(ranked("xp"), counter("last", merge=Merge.LAST))
        self.desk: QueueDesk = self.session.run(QueueDesk.on(self.session.deployment))
        limits = LIMITS.model_copy(update={"ingest_round_posts_max": ROUND_POSTS})
        self.workers: dict[str, Worker] = {name: self.desk.worker(name, limits=limits) for name in WORKERS}
        self.places = itertools.count()
        # The waiting posts of each shard, oldest first.
        self.queued: dict[int, list[tuple[int, Board, Post]]] = defaultdict(list)
        self.rows: dict[str, list[int]] = {}  # each owner's values of `xp` and `last`
        self.seen: set[tuple[str, str]] = set()  # the owners and ids of applied posts
        self.number = 0
        self.session.run(self._empty_queue())  # earlier examples may have left posts in the queue

    async def _empty_queue(self) -> None:
        await self.desk.drain_queue("cleaner")

    def teardown(self) -> None:
        """Let another worker apply all waiting posts."""
        self.session.run(self.desk.drain_queue("last"))
        self._applied({shard: len(posts) for shard, posts in self.queued.items()})
        self.boards_agree()
        assert self.session.run(self.desk.count_waiting()) == 0

    def _post(self, owner: str, xp: int, post_id: str | None) -> Post:
        self.number += 1
        parts = part(self.board, {"xp": xp, "last": self.number})
        return structs.replace(self.desk.deployment.post(owner, parts, post_id=post_id), post_id=post_id)

    @rule(
        asked=st.lists(
            st.tuples(st.sampled_from(OWNERS), st.integers(1, 50), st.sampled_from(POST_IDS)), min_size=1, max_size=4
        )
    )
    def enqueue(self, asked: Sequence[tuple[str, int, str | None]]) -> None:
        posts = [self._post(*each) for each in asked]
        self.session.run(self.desk.enqueue(*posts))
        for post in posts:
            self.queued[shard_of(post.owner, SHARDS)].append((next(self.places), self.board, post))

    @rule(owner=st.sampled_from(OWNERS), xp=st.integers(1, 50), post_id=st.sampled_from(POST_IDS))
    def post_directly(self, owner: str, xp: int, post_id: str | None) -> None:
        post = self._post(owner, xp, post_id)
        self.session.run(self.desk.deployment.apply(post))
        self._apply(self.board, post)

    @rule(name=st.sampled_from(WORKERS))
    def tend(self, name: str) -> None:
        worker = self.workers[name]
        self.session.run(self.desk.update_share(worker))
        live = [each for each in self.workers.values() if each.share.permit is not None]
        if worker.share.permit is None:
            assert not worker.share.shards
        assert len(worker.share.shards) <= -(-SHARDS // max(1, worker.share.workers)) or len(live) == 1

    @rule(name=st.sampled_from(WORKERS))
    def work(self, name: str) -> None:
        worker = self.workers[name]
        try:
            drained = self.session.run(self.desk.run_round(worker))
        except LeaseLostError:
            worker.share = Share(worker.share.permit)
            return
        if drained is None:
            assert not any(self.queued[shard] for shard in worker.shards), "a worker takes what waits there"
            return
        assert 1 <= sum(drained.posts.values()) <= ROUND_POSTS
        assert drained.posts.keys() <= set(worker.shards)
        self._applied(drained.posts)

    @rule(name=st.sampled_from(WORKERS))
    def kill(self, name: str) -> None:
        self.workers[name].share = Share()

    @rule(name=st.sampled_from(WORKERS))
    def stop(self, name: str) -> None:
        worker = self.workers[name]
        self.session.run(self.desk.store.write(lambda: worker.leases.release_share(worker.share)))
        worker.share = Share()

    @rule(us=st.sampled_from((1, LEASE_US // 2, LEASE_US)))
    def pass_time(self, us: int) -> None:
        self.desk.clock.now_us += us

    @rule()
    def empty_the_board(self) -> None:
        self.board = self.session.run(self.desk.deployment.reset(self.board.id))
        self.rows.clear()
        self.seen.clear()

    def _applied(self, posts: dict[int, int]) -> None:
        taken: list[tuple[int, Board, Post]] = []
        for shard, count in posts.items():
            assert count <= len(self.queued[shard])
            taken += self.queued[shard][:count]
            self.queued[shard] = self.queued[shard][count:]
        for _, board, post in sorted(taken, key=lambda each: each[0]):
            self._apply(board, post)

    def _apply(self, board: Board, post: Post) -> None:
        if board.gate.epoch != self.board.gate.epoch:
            return
        if (post.owner, post.post_id) in self.seen:
            return  # the post is a duplicate, or another post of the owner has the same id
        if post.post_id is not None:
            self.seen.add((post.owner, post.post_id))
        row = self.rows.setdefault(post.owner, [0, 0])
        xp, last = (int(change.value or 0) for change in post.parts[0].changes)
        row[0] += xp
        row[1] = last

    @invariant()
    def boards_agree(self) -> None:
        rows = self.session.run(self.desk.deployment.rows(self.board, OWNERS))
        merger = self.desk.deployment.merger(self.board)
        assert {owner: merger.decode_stats(entry.cells) for owner, entry in rows.items()} == self.rows

    @invariant()
    def as_many_wait(self) -> None:
        waiting = sum(map(len, self.queued.values()))
        assert self.session.run(self.desk.count_waiting()) == waiting


def test_queued_posts_are_applied_once_and_in_order_whatever_happens(session: Session) -> None:
    run_machine(Queueing, session, examples=6, steps=25)
