"""Test that boards of several partitions are refreshed, folded and audited, each in its own partition."""

import asyncio
import random
from dataclasses import replace

import pytest

from jobs.controls import Runner
from jobs.curves.refresh import RefreshJob
from jobs.job_context import JobContext
from jobs.wiring import PARTITIONS_LOOK_S, start_by_partition
from predictor import LiveCurve
from querybuilder import col, param, update
from storage.curves.live_counts import counts_of, find_fold_state
from storage.records import Board
from storage.schema.tables import BOARDS
from storage.store import CONTROL
from tests.jobs.curves.test_audit import make_auditor
from tests.jobs.folding import assert_live, open_folder, refresh
from tests.jobs.refreshing import count_curve_entries, count_due, run_workers, wait_for_request, work_off
from tests.jobs.world import LIMITS, World, within
from tests.schemas import PARTITIONS
from tests.storage.deployment import part
from tests.storage.meddling import RecordingStore, run_query
from tests.storage.passing import PassingStore

pytestmark = pytest.mark.parametrize("world", ["partitions"], indirect=True)
FIRST, LAST = 0, PARTITIONS - 1


async def create_in(world: World, *partitions: int, entries: int = 50) -> list[Board]:
    """Create a board with that many entries in each of these partitions."""
    boards = []
    for partition in partitions:
        world.deployment.partition = partition
        boards.append(await world.create(f"b{partition}"))
    rng = random.Random(7)
    for board in boards:
        await world.post(board, {f"o{number}": rng.randrange(-900, 900) for number in range(entries)})
    return boards


async def post_to_all(world: World, boards: list[Board], seed: int) -> None:
    """Apply posts to single boards, and posts that change all these boards in one transaction."""
    rng = random.Random(seed)
    for _ in range(10):
        for board in boards:
            await world.post(board, {f"o{rng.randrange(70)}": rng.randrange(-300, 300)})
        parts = [part(board, {"xp0": rng.randrange(-300, 300)}) for board in boards]
        await world.deployment.apply(world.deployment.post(f"o{rng.randrange(70)}", *parts))


async def test_due_boards_of_all_partitions_are_refreshed_in_their_partitions(world: World) -> None:
    boards = await create_in(world, FIRST, LAST, entries=1)
    job = world.refresh_job()
    await job.find_due()
    assert await count_due(world, job) == 2
    await work_off(world, job)
    assert [count_curve_entries(world, board) for board in boards] == [1, 1]
    assert await count_due(world, job) == 0
    await world.post(boards[1], {"new": 1})
    assert await count_due(world, job) == 1
    await work_off(world, job)
    assert [count_curve_entries(world, board) for board in boards] == [1, 2]


async def test_the_transactions_of_a_refresh_name_no_other_partition(world: World) -> None:
    [board] = await create_in(world, LAST)
    store = RecordingStore(world.store)
    job = RefreshJob(replace(world.control_context(), store=store.at(CONTROL)), world.desk)
    async with run_workers(job, looks=False):
        asked = asyncio.create_task(world.desk.refresh_now(board.leaf, 0))
        await wait_for_request(world, board)
        await job.find_requests()  # only once: if two looks find the request, the worker reads it again afterwards
        refreshed = await within(asked)
    assert refreshed.curve.total == 50
    own, control = {f"p{LAST}"}, {"control"}
    assert store.list_written_partitions() == [control, own, own, control], "request, claim, curve and answer"


async def test_a_partition_that_is_away_delays_no_refresh_in_another_one(world: World) -> None:
    boards = await create_in(world, FIRST, LAST)
    store = RecordingStore(world.store)
    job = RefreshJob(replace(world.control_context(), store=store.at(CONTROL)), world.desk)
    await job.find_due()
    store.away = FIRST
    assert await count_due(world, job) == 1
    await work_off(world, job)
    assert [count_curve_entries(world, board) for board in boards] == [None, 50]
    store.away = None
    assert await count_due(world, job, 0) == 1


async def test_a_front_end_gets_the_requested_curve_of_any_partition(world: World) -> None:
    boards = await create_in(world, FIRST, LAST)
    front = world.beside()
    desk, job = front.refresher(LIMITS.model_copy(update={"curve_poll_s": 0.05}), asyncio.sleep), world.refresh_job()
    async with run_workers(job):
        for board in boards:
            asked = asyncio.create_task(desk.refresh_now(board.leaf, 0))
            await wait_for_request(world, board)
            await job.find_requests()
            assert (await within(asked)).curve.total == 50
    assert [count_curve_entries(front, board) for board in boards] == [50, 50]


async def test_posts_in_two_partitions_are_folded_and_two_processes_see_both(world: World) -> None:
    boards, front = await create_in(world, FIRST, LAST), world.beside()
    for board in boards:
        await refresh(world, board)
    await front.book.poll()
    async with open_folder(world, FIRST) as first, open_folder(world, LAST) as last:
        await first.fold()
        await last.fold()
        for seed in range(3):
            world.advance(1)
            await post_to_all(world, boards, seed)
            assert await first.fold() > 0
            assert await last.fold() > 0
            await front.book.poll()
            for process in (world, front):
                for board in boards:
                    await assert_live(process, board)
        world.advance(5)
        await post_to_all(world, boards[1:], 9)
        await last.fold()
        await front.book.poll()
    for process in (world, front):
        live = [process.served(board).curve for board in boards]
        assert [isinstance(curve, LiveCurve) for curve in live] == [True, True]
        assert live[1].as_of_us - live[0].as_of_us == 5_000_000, "each partition has its own mark and time"
        for board in boards:
            now = await world.store.at(board.partition).read(find_fold_state)
            assert now is not None
            assert process.served(board).mark == now.mark
            await assert_live(process, board)


async def test_the_changes_of_a_board_that_moved_away_are_not_folded_any_more(world: World) -> None:
    [board] = await create_in(world, FIRST)
    await refresh(world, board)
    async with open_folder(world, FIRST) as folder:
        await world.post(board, {"a": 1})
        await folder.fold()
        before = await world.store.at(FIRST).read(lambda: counts_of([board.key]))
        await world.post(board, {"b": 1})
        moved = update(BOARDS).set(partition=LAST).where(col("board_key").eq(param("key")))
        await world.store.write(lambda: run_query(moved.bind(key=board.key)))
        assert await folder.fold() == 1
    assert await world.store.at(FIRST).read(lambda: counts_of([board.key])) == before
    assert len(before) == 1


async def test_the_started_jobs_fold_every_partition(world: World) -> None:
    boards = await create_in(world, FIRST, LAST)
    for board in boards:
        await refresh(world, board)
    for board in boards:
        await world.post(board, {"new": 5})
    jobs = world.start()
    while not all(world.served(board).live_version for board in boards):
        await within(world.meter.events["rankcurve_changes_folded"].get())
        world.time.advance(LIMITS.fold_interval_s)
    assert await jobs.stop() == []
    for board in boards:
        await assert_live(world, board)


async def test_an_added_partition_gets_its_jobs_at_the_next_look(world: World) -> None:
    class GrowingStore(PassingStore):
        partitions = 1

    store, started = GrowingStore(world.store), asyncio.Queue[int]()
    context: JobContext = replace(world.control_context(), store=store)
    runner = Runner(LIMITS, monotonic=world.time.monotonic, sleep=world.time.elapse, rng=context.rng)
    start_by_partition(runner, context, started.put_nowait)
    assert await within(started.get()) == 0
    await world.time.end_sleep(PARTITIONS_LOOK_S)
    await world.time.wait_for_sleeper(PARTITIONS_LOOK_S)
    store.partitions = 3
    await world.time.end_sleep(PARTITIONS_LOOK_S)
    assert [await within(started.get()) for _ in range(2)] == [1, 2]
    assert started.empty()
    assert await runner.stop() == []


async def test_a_curve_is_audited_in_the_partition_of_its_board(world: World) -> None:
    boards = await create_in(world, FIRST, LAST)
    auditor = make_auditor(world)
    for board in boards:
        await refresh(world, board)
        await world.post(board, {"new": 5})
        found = await auditor.audit_column(board, 0)
        assert (found.outcome, len(found.compared), found.broken) == ("compared", 20, [])
