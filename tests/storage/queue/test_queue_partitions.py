"""Test the queue of a store with several partitions: where posts wait, and what one transaction touches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from config.settings import QueueSettings, Settings
from storage.engines.postgres import PostgresStore
from storage.errors import PostRejectedError, QueueFullError, StoreAwayError
from storage.meter import NO_METER
from storage.queue.ingest_queue import Shard, find_queues, list_queues
from storage.queue.intake import Enqueuer, QueueBacklog
from storage.queue.outcomes import find_post_fate
from storage.queue.queue_erasure import drop_queued
from storage.queue.workers import find_workers
from storage.records import Board, Post, PostStatus
from storage.store import CONTROL, Store
from tests.schemas import PARTITIONS
from tests.storage.boards.test_families import make_family, make_family_post
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.meddling import RecordingStore
from tests.storage.processes import Processes
from tests.storage.queueing import LEASE_US, SHARDS, QueueDesk

XP = ranked("xp")
several_partitions = pytest.mark.parametrize("backend", ["partitions"], indirect=True)
QUEUES = [CONTROL, *range(PARTITIONS)]
LIMITS = Settings(queue_posts_max=100, post_wait_s_max=10)
BACKLOG = QueueSettings(ingest_posts_max=5).model_copy(update={"ingest_look_s": 0})


@pytest.fixture
async def desk(deployment: Deployment) -> QueueDesk:
    return await QueueDesk.on(deployment, everywhere=True)


def make_post(desk: QueueDesk, owner: str, *boards: Board, post_id: str | None = None) -> Post:
    made = desk.deployment.post(owner, *(part(board, {"xp": 1}) for board in boards), post_id=post_id)
    return structs.replace(made, post_id=post_id)


async def count_by_queue(desk: QueueDesk) -> dict[int, int]:
    """Return the number of waiting posts by partition, without partitions where none wait."""
    found = await desk.store.read(lambda: desk.queue.read_queues(desk.queues, desk.queue.read_backlog))
    waiting: dict[int, int] = {}
    for shard, backlog in found.items():
        waiting[shard.partition] = waiting.get(shard.partition, 0) + backlog.posts
    return waiting


@asynccontextmanager
async def open_enqueuer(desk: QueueDesk, store: Store) -> AsyncIterator[Enqueuer]:
    backlog = QueueBacklog(store, BACKLOG, now_us=desk.clock, monotonic=asyncio.get_running_loop().time)
    enqueuer = Enqueuer(store, backlog, SHARDS, LIMITS, NO_METER, now_us=desk.clock)
    yield enqueuer
    await enqueuer.close()


@several_partitions
async def test_posts_wait_in_the_partition_of_their_boards_or_in_the_control_partition(desk: QueueDesk) -> None:
    boards = await desk.deployment.create_everywhere(XP)
    beside = await desk.deployment.create("beside", XP, partition=1)
    async with open_enqueuer(desk, desk.store) as enqueuer:
        await enqueuer.submit([make_post(desk, "ada", boards[0]), make_post(desk, "ada", boards[1], beside)])
        await enqueuer.submit([make_post(desk, "ada", boards[1], boards[3], post_id="both")])
    assert await count_by_queue(desk) == {CONTROL: 1, 0: 1, 1: 1}
    for board in (boards[1], boards[3]):
        assert await find_post_fate(desk.store, desk.deployment.post_ids, board, "both", "ada") is None
    rounds = await desk.drain_queue()
    assert len(rounds) == 3
    assert [await desk.deployment.value(board, "ada") for board in (*boards, beside)] == [1, 2, None, 1, 1]
    for board in (boards[1], boards[3]):
        assert (await desk.find_fate(board, "both", "ada")).status is PostStatus.APPLIED


@several_partitions
async def test_a_waiting_post_is_known_while_other_partitions_are_away(desk: QueueDesk) -> None:
    board = await desk.deployment.create("b1", XP, partition=1)
    await desk.enqueue(make_post(desk, "ada", board, post_id="here"))
    store = RecordingStore(desk.store)
    store.away = 3
    assert await find_post_fate(store, desk.deployment.post_ids, board, "here", "ada") is None
    with pytest.raises(StoreAwayError):  # it may wait there, if the board was there before
        await find_post_fate(store, desk.deployment.post_ids, board, "elsewhere", "ada")


@several_partitions
async def test_a_family_post_waits_and_is_remembered_in_the_partition_of_the_family(desk: QueueDesk) -> None:
    family = await make_family(desk.deployment)
    [board] = await desk.deployment.make_boards("all")
    post = structs.replace(make_family_post(desk.deployment, family, "ada", 5, board, post_id="p"), post_id="p")
    await desk.enqueue(post)
    assert await count_by_queue(desk) == {family.partition: 1}
    await desk.drain_queue()
    assert (await desk.find_fate(board, "p", "ada")).status is PostStatus.APPLIED
    [[again]] = await desk.deployment.apply(post)
    assert again.status is PostStatus.DUPLICATE


@several_partitions
async def test_a_round_changes_nothing_outside_its_partition(desk: QueueDesk) -> None:
    board, deleted = [await desk.deployment.create(name, XP, partition=3) for name in ("b", "deleted")]
    await desk.enqueue(make_post(desk, "ada", board, post_id="p"), make_post(desk, "ada", deleted, post_id="q"))
    await desk.deployment.delete("deleted")
    recorder = RecordingStore(desk.store)
    worker = desk.worker("ada", store=recorder)
    await desk.update_share(worker)
    drained = await desk.run_round(worker)
    assert drained is not None
    assert drained.statuses == {"applied": 1, "rejected": 1}
    [seen] = recorder.writes
    outside = {(word, table) for word, table in seen if not table.startswith("p3.")}
    assert outside == set()
    assert {"p3.leases", "p3.ingest_blocks", "p3.ingest_shards", "p3.post_ids", "p3.totals"} <= {
        table for _, table in seen
    }


@several_partitions
async def test_a_round_over_several_partitions_takes_the_counters_last_and_in_order(desk: QueueDesk) -> None:
    boards = await desk.deployment.create_everywhere(XP)
    deleted = await desk.deployment.create("deleted", XP, partition=0)
    await desk.enqueue(
        make_post(desk, "ada", boards[3], boards[1], post_id="p"),
        make_post(desk, "bob", boards[2], deleted, post_id="q"),
    )
    await desk.deployment.delete("deleted")
    recorder = RecordingStore(desk.store)
    worker = desk.worker("ada", store=recorder)
    await desk.update_share(worker)
    while await desk.run_round(worker) is not None:
        assert len(recorder.writes) < 5
    [seen] = recorder.writes
    written = [table for word, table in seen if word != "SELECT"]
    counters = [table for table in written if table.endswith(".log_counter")]
    assert list(dict.fromkeys(counters)) == [f"p{partition}.log_counter" for partition in range(PARTITIONS)]
    after = written[written.index("p0.log_counter") :]
    assert {table.partition(".")[2] for table in after} == {"log_counter", "changes", "totals"}
    logs = [await desk.deployment.read_log(desk.store.at(partition)) for partition in range(PARTITIONS)]
    logged = [sum(bundle.changes_count for bundle in log) for log in logs]
    assert logged == [1, 1, 1, 1], "each part of a post is logged in the partition of its board"
    assert [await desk.deployment.value(board, "ada") for board in boards] == [None, 1, None, 1]
    assert isinstance((await desk.find_fate(boards[2], "q", "bob")).error, PostRejectedError)


@several_partitions
async def test_requests_to_different_partitions_are_queued_and_fail_independently(desk: QueueDesk) -> None:
    first, second, *_ = await desk.deployment.create_everywhere(XP)
    recorder = RecordingStore(desk.store)
    recorder.away = 1
    async with open_enqueuer(desk, recorder) as enqueuer:
        outcomes = await asyncio.gather(
            enqueuer.submit([make_post(desk, "ada", first)]),
            enqueuer.submit([make_post(desk, "ada", second)]),
            return_exceptions=True,
        )
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreAwayError]
    assert len(recorder.writes) == 2
    assert await count_by_queue(desk) == {0: 1}


@several_partitions
async def test_a_request_to_several_partitions_is_queued_as_a_whole_or_not_at_all(desk: QueueDesk) -> None:
    first, second, *_ = await desk.deployment.create_everywhere(XP)
    recorder = RecordingStore(desk.store)
    recorder.away = 1
    request = [make_post(desk, "ada", first), make_post(desk, "ada", second), make_post(desk, "ada", first, second)]
    async with open_enqueuer(desk, recorder) as enqueuer:
        with pytest.raises(StoreAwayError):
            await enqueuer.submit(request)
        assert await count_by_queue(desk) == {}
        recorder.away = None
        await enqueuer.submit(request)
    assert await count_by_queue(desk) == {CONTROL: 1, 0: 1, 1: 1}
    assert len(recorder.writes) == 2


@several_partitions
async def test_a_full_queue_counts_the_posts_of_all_partitions(desk: QueueDesk) -> None:
    boards = await desk.deployment.create_everywhere(XP)
    async with open_enqueuer(desk, desk.store) as enqueuer:
        await enqueuer.submit([make_post(desk, "ada", board) for board in boards])
        await enqueuer.submit([make_post(desk, "ada", *boards)])
        with pytest.raises(QueueFullError, match="5 posts wait"):
            await enqueuer.submit([make_post(desk, "ada", boards[0])])


@several_partitions
async def test_erasing_an_owner_removes_its_posts_from_the_queues_of_all_partitions(desk: QueueDesk) -> None:
    boards = await desk.deployment.create_everywhere(XP)
    await desk.enqueue(
        *(make_post(desk, "ada", board) for board in boards),
        make_post(desk, "ada", *boards),
        make_post(desk, "bob", *boards),
    )
    assert await drop_queued(desk.store, "ada", leaf_key=boards[1].key) == 2
    assert await drop_queued(desk.store, "ada") == PARTITIONS
    await desk.drain_queue()
    for board in boards:
        assert [await desk.deployment.value(board, owner) for owner in ("ada", "bob")] == [None, 1]


@several_partitions
async def test_workers_share_the_shards_of_all_partitions(desk: QueueDesk) -> None:
    every = {Shard(partition, number) for partition in QUEUES for number in range(SHARDS)}
    ada, bob = desk.worker("ada"), desk.worker("bob")
    await desk.update_share(ada)
    assert ada.share.shards.keys() == every
    for worker in (bob, ada, bob):
        await desk.update_share(worker)
    assert (len(ada.share.shards), len(bob.share.shards)) == (8, 7)
    assert ada.share.shards.keys() | bob.share.shards.keys() == every

    workers = await desk.store.read(lambda: find_workers(desk.leases, desk.queues))
    assert workers == dict.fromkeys(ada.share.shards, "ada") | dict.fromkeys(bob.share.shards, "bob")
    await desk.store.write(lambda: ada.leases.release_share(ada.share))
    desk.clock.now_us += LEASE_US // 2
    for _ in range(2):
        await desk.update_share(bob)
    assert bob.share.shards.keys() == every, "released shards are free before their leases would have ended"


@several_partitions
async def test_a_worker_loses_only_the_shards_of_a_partition_that_is_away(desk: QueueDesk) -> None:
    ada = desk.worker("ada")
    await desk.update_share(ada)
    every = ada.share.shards.keys()
    desk.store = recorder = RecordingStore(desk.store)
    recorder.away = 1
    await desk.update_share(ada)
    assert every - ada.share.shards.keys() == {Shard(1, number) for number in range(SHARDS)}
    recorder.away = None
    desk.clock.now_us += LEASE_US
    await desk.update_share(ada)
    assert ada.share.shards.keys() == every


async def test_posts_to_several_partitions_wait_in_partition_0_if_that_is_the_control_partition(
    processes: Processes,
) -> None:
    desk = await QueueDesk.on(await processes.start_process(), everywhere=True)
    store, old = desk.store, await desk.deployment.create("old", XP)
    assert isinstance(store, PostgresStore)
    await store.add_partition(lambda _: iter(()))  # type: ignore[arg-type, return-value]
    new = await desk.deployment.create("new", XP, partition=1)
    desk.queues = list_queues(store.dialect, store.partitions)
    assert desk.queues == [0, 1]
    both, only_new = make_post(desk, "ada", old, new, post_id="both"), make_post(desk, "ada", new)
    await desk.enqueue(both, only_new)
    assert await count_by_queue(desk) == {0: 1, 1: 1}
    assert [find_queues(board, store.dialect, 2) for board in (old, new)] == [[0], [0, 1]]
    assert await find_post_fate(store, desk.deployment.post_ids, new, "both", "ada") is None
    await desk.drain_queue()
    assert [await desk.deployment.value(board, "ada") for board in (old, new)] == [1, 2]
    assert (await desk.find_fate(new, "both", "ada")).status is PostStatus.APPLIED
