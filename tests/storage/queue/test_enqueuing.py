"""Test the promise of a 202: which posts must be durable before the response, and which posts are refused instead."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from config.settings import QueueSettings, Settings
from storage.boards.families import delete_family
from storage.errors import (
    BoardChangedError,
    OverloadedError,
    QueueFullError,
    StoreBusyError,
    WaitTooLongError,
)
from storage.queue.intake import Enqueuer, QueueBacklog
from storage.queue.post_blocks import decode_block
from storage.records import Board, Post
from storage.store import Store
from tests.meter import RecordingMeter
from tests.storage.boards.test_families import make_family, make_family_post
from tests.storage.deployment import part, ranked
from tests.storage.meddling import MeddlingStore
from tests.storage.queueing import SHARDS, QueueDesk

LIMITS = Settings(queue_posts_max=10, post_wait_s_max=10).model_copy(
    update={"ingest_group_posts_max": 100, "ingest_block_posts_max": 4}
)
BACKLOG = QueueSettings(ingest_posts_max=20, ingest_age_s_max=5).model_copy(update={"ingest_look_s": 1})
REFUSED = "rankcurve_ingest_refused_posts"


class Intake:
    """An enqueuer and a board to post to. The test can block the writes of the enqueuer's store."""

    def __init__(self, desk: QueueDesk, board: Board, store: Store, limits: Settings) -> None:
        self.desk, self.board, self.meter = desk, board, RecordingMeter()
        self.store = MeddlingStore(store)
        self.time_s = 100.0
        backlog = QueueBacklog(self.store, BACKLOG, now_us=desk.clock, monotonic=lambda: self.time_s)
        self.enqueuer = Enqueuer(self.store, backlog, SHARDS, limits, self.meter, now_us=desk.clock)

    def posts(self, *owners: str) -> list[Post]:
        return [self.desk.deployment.post(owner, part(self.board, {"xp": 1})) for owner in owners]

    async def submit_behind_write(self, *requests: Sequence[Post]) -> list[asyncio.Task[None]]:
        """Block the transaction of the first request, submit the others, which wait behind it, and return the tasks."""
        self.store.hold()
        tasks = [asyncio.create_task(self.enqueuer.submit(requests[0]))]
        await self.store.wait_for_write()
        tasks += [asyncio.create_task(self.enqueuer.submit(posts)) for posts in requests[1:]]
        await asyncio.sleep(0)
        return tasks

    def pass_time(self, seconds: float) -> None:
        self.time_s += seconds
        self.desk.clock.now_us += round(seconds * 1e6)

    async def blocks(self) -> list[tuple[int, list[str]]]:
        heads = await self.desk.store.read(lambda: self.desk.queue.read_heads(range(SHARDS), blocks_max=100))
        waiting = await self.desk.store.read(lambda: self.desk.queue.read_blocks(heads))
        return [(each.head.shard, [post.owner for post in decode_block(each.block).posts]) for each in waiting]


@asynccontextmanager
async def open_intake(desk: QueueDesk, limits: Settings = LIMITS) -> AsyncIterator[Intake]:
    intake = Intake(desk, await desk.deployment.create("b", ranked("xp")), desk.store, limits)
    yield intake
    intake.store.release()
    await intake.enqueuer.close()


async def test_posts_are_durable_in_their_shards_and_in_order_when_answered(desk: QueueDesk) -> None:
    async with open_intake(desk) as intake:
        await intake.enqueuer.submit(intake.posts("ada", "bob", "ada"))
        await intake.enqueuer.submit(intake.posts("ada"))
    blocks = await intake.blocks()
    assert sorted(owner for _, owners in blocks for owner in owners) == ["ada", "ada", "ada", "bob"]
    [shard] = {shard for shard, owners in blocks if "ada" in owners}
    assert [owners.count("ada") for of, owners in blocks if of == shard] == [2, 1]
    await desk.drain_queue()
    assert await desk.deployment.stats(intake.board, "ada") == {"xp": 3}


async def test_waiting_posts_are_stored_together_in_blocks_with_a_bound(desk: QueueDesk) -> None:
    async with open_intake(desk) as intake:
        tasks = await intake.submit_behind_write(*(intake.posts(*["ada"] * posts) for posts in (1, 3, 3, 3)))
        intake.store.release()
        await asyncio.gather(*tasks)
    assert intake.meter.values["rankcurve_ingest_queued_posts"] == [1, 9]
    assert [len(owners) for _, owners in await intake.blocks()] == [1, 4, 4, 1]


async def test_posts_beyond_the_bound_are_refused_unless_their_request_is_alone(desk: QueueDesk) -> None:
    async with open_intake(desk, LIMITS.model_copy(update={"queue_posts_max": 5})) as intake:
        tasks = await intake.submit_behind_write(intake.posts(*"abc"), intake.posts("d", "e"))
        with pytest.raises(QueueFullError, match="5 posts are waiting"):
            await intake.enqueuer.submit(intake.posts("f"))
        intake.store.release()
        await asyncio.gather(*tasks)
    assert intake.meter.by_label(REFUSED) == {"queue_full": 1}
    with pytest.raises(QueueFullError, match="shutting down"):
        await intake.enqueuer.submit(intake.posts("g"))


async def test_a_long_queue_refuses_posts_until_workers_have_caught_up(desk: QueueDesk) -> None:
    async with open_intake(desk, LIMITS.model_copy(update={"queue_posts_max": 100})) as intake:
        await intake.enqueuer.submit(intake.posts(*["ada"] * 15))
        with pytest.raises(QueueFullError, match="15 posts wait in the queue"):
            await intake.enqueuer.submit(intake.posts(*["bob"] * 6))
        await intake.enqueuer.submit(intake.posts(*["bob"] * 5))
        await desk.drain_queue()
        with pytest.raises(QueueFullError):
            await intake.enqueuer.submit(intake.posts("cleo"))
        intake.pass_time(BACKLOG.ingest_look_s)
        await intake.enqueuer.submit(intake.posts("cleo"))
    assert intake.meter.by_label(REFUSED) == {"queue_full": 7}
    assert intake.meter.values[f"{REFUSED} queue_full"] == [6, 1]


async def test_an_old_queue_refuses_posts(desk: QueueDesk) -> None:
    async with open_intake(desk) as intake:
        await intake.enqueuer.submit(intake.posts("ada"))
        intake.pass_time(BACKLOG.ingest_age_s_max)
        await intake.enqueuer.submit(intake.posts("ada"))
        intake.pass_time(1)
        with pytest.raises(OverloadedError, match="waited for 6 s") as refused:
            await intake.enqueuer.submit(intake.posts("ada"))
        assert refused.value.retry_after_s is not None
        await desk.drain_queue()
        intake.pass_time(1)
        await intake.enqueuer.submit(intake.posts("ada"))
    assert intake.meter.by_label(REFUSED) == {"overloaded": 1}


async def test_deleted_or_emptied_boards_refuse_only_their_own_requests(desk: QueueDesk) -> None:
    async with open_intake(desk) as intake:
        gone = await desk.deployment.create("gone", ranked("xp"))
        emptied = await desk.deployment.create("emptied", ranked("xp"))
        await desk.deployment.delete("gone")
        await desk.deployment.reset("emptied")
        family = await make_family(desk.deployment)
        [of_family] = await desk.deployment.make_boards("all")
        await desk.store.write(lambda: delete_family(family_id=family.id))
        stale = [
            desk.deployment.post("ada", part(gone, {"xp": 1})),
            desk.deployment.post("ada", part(emptied, {"xp": 1}), part(intake.board, {"xp": 1})),
            make_family_post(desk.deployment, family, "ada", 1, of_family),
        ]
        requests = [[post] for post in (*intake.posts("ada"), *stale, *intake.posts("bob"))]
        tasks = await intake.submit_behind_write(*requests)
        intake.store.release()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), *[BoardChangedError] * 3, type(None)]
    assert sorted(owner for _, owners in await intake.blocks() for owner in owners) == ["ada", "bob"]


async def test_posts_that_wait_too_long_are_not_stored_unless_their_transaction_had_begun(desk: QueueDesk) -> None:
    async with open_intake(desk, LIMITS.model_copy(update={"post_wait_s_max": 0.05})) as intake:
        tasks = await intake.submit_behind_write(intake.posts("ada"), intake.posts("bob"))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        intake.store.release()
    assert [type(outcome) for outcome in outcomes] == [WaitTooLongError, WaitTooLongError]
    assert [owners for _, owners in await intake.blocks()] == [["ada"]]


async def test_a_failing_store_is_reported_and_does_not_stop_the_queue(desk: QueueDesk) -> None:
    async with open_intake(desk) as intake:
        intake.store.meddle = [StoreBusyError("no"), RuntimeError("a fault")]
        for _ in range(2):
            with pytest.raises(StoreBusyError):
                await intake.enqueuer.submit(intake.posts("ada"))
        await intake.enqueuer.submit(intake.posts("ada"))
    assert intake.meter.values["rankcurve_ingest_queued_posts"] == [1]
