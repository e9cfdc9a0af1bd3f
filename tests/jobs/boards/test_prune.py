"""Test pruning. The store must keep a post id as long as a caller may send the same post again."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial

from jobs.boards.prune import PruneJob
from storage.boards.acts import Act, list_acts, list_hidden, record_act, store_acts
from storage.records import Board, PostStatus, TableSharing
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import LIMITS, World
from tests.storage.deployment import part

DAY_US = 86_400_000_000
ACTS_US = round(LIMITS.acts_retention_s * 1e6)
RETENTION_US = round(LIMITS.post_id_retention_s * 1e6)


async def apply_post(world: World, board: Board, post_id: str) -> PostStatus:
    post = world.deployment.post("a", part(board, {"xp0": 1}), post_id=post_id)
    return (await world.deployment.apply_one(post)).status


async def apply_posts(world: World, board: Board, count: int) -> None:
    """Apply posts with the ids p0, p1 and so on. The clock advances by 1 us before each post."""
    for number in range(count):
        world.deployment.clock.now_us += 1
        await apply_post(world, board, f"p{number}")


async def run_steps(world: World, pruning: Coroutine[object, object, int], pauses: int = 1) -> int:
    """Run a job's work to its end, through that many pauses between its steps. Return the number of deleted rows."""
    task = asyncio.create_task(pruning)
    for _ in range(pauses):
        await world.time.end_sleep(0)
    return await task


async def test_a_post_id_is_deleted_after_its_retention_and_not_before(world: World) -> None:
    board = await world.create("b")
    assert await apply_post(world, board, "old") is PostStatus.APPLIED
    world.deployment.clock.now_us += RETENTION_US
    assert await world.prune_job().prune_post_ids() == 0
    assert await apply_post(world, board, "old") is PostStatus.DUPLICATE
    assert await apply_post(world, board, "new") is PostStatus.APPLIED
    world.deployment.clock.now_us += 1
    assert await world.prune_job().prune_post_ids() == 1
    assert await apply_post(world, board, "old") is PostStatus.APPLIED
    assert await apply_post(world, board, "new") is PostStatus.DUPLICATE


async def test_a_job_process_whose_clock_is_ahead_deletes_nothing_that_others_need(world: World) -> None:
    board = await world.create("b")
    await apply_posts(world, board, 3)
    context, partition = world.control_context(), world.deployment.partition
    ahead = PruneJob(replace(context, now_us=lambda: world.deployment.clock() + 40 * DAY_US), partition)
    assert await ahead.prune_post_ids() == await ahead.prune_changes() == await ahead.prune_rejected() == 0
    assert await ahead.blank_erased() == 0
    assert await apply_post(world, board, "p0") is PostStatus.DUPLICATE


async def test_one_run_of_pruning_is_bounded_and_the_next_continues(world: World) -> None:
    board = await world.create("b")
    await apply_posts(world, board, 70)
    world.deployment.clock.now_us += 2 * RETENTION_US
    async with run_jobs(world.prune_job()):
        await world.time.end_sleep(LIMITS.prune_interval_s)
        for _ in range(2 * LIMITS.prune_steps_max):  # steps for post ids, then for the change log
            await world.time.end_sleep(0)
        await world.time.wait_for_sleeper(LIMITS.prune_interval_s)
    assert await run_steps(world, world.prune_job().prune_post_ids()) == 70 - 11 * LIMITS.prune_steps_max


async def test_rows_left_behind_in_a_shared_table_are_swept_in_bounded_steps(world: World) -> None:
    world.deployment.table = TableSharing.SHARED
    board, stays = await world.create("b"), await world.create("stays")
    posts = [world.deployment.post(f"o{number}", part(board, {"xp0": 1})) for number in range(25)]
    await world.deployment.apply(*posts)
    await world.deployment.apply_one(world.deployment.post("o", part(stays, {"xp0": 1})))
    await world.deployment.reset()
    assert await run_steps(world, world.prune_job().sweep_tables(), pauses=3) == 25
    assert len(await world.deployment.rows(board, [f"o{number}" for number in range(25)])) == 0
    assert len(await world.deployment.rows(stays, ["o"])) == 1


async def test_changes_are_deleted_after_their_retention(world: World) -> None:
    board = await world.create("b")
    await apply_posts(world, board, 25)
    world.deployment.clock.now_us += round(LIMITS.change_log_retention_s * 1e6) - 3
    positions = [change.position for change in await world.deployment.read_log()]
    assert await run_steps(world, world.prune_job().prune_changes(), pauses=3) == 22, "with the creation"
    assert [change.position for change in await world.deployment.read_log()] == positions[21:], "the rest is younger"
    world.deployment.clock.now_us += 10
    assert await run_steps(world, world.prune_job().prune_changes()) == 3, "the last change always stays"


async def test_an_act_is_deleted_after_its_retention_unless_its_owner_is_hidden(world: World) -> None:
    write, begun_us = world.store.write, world.deployment.clock.now_us
    for kind, owner in (("owner.hidden", "ada"), ("owner.hidden", "bob"), ("entry.erased", "cleo")):
        act = Act(world.deployment.clock.now_us, kind, owner=owner)  # type: ignore[arg-type]
        await write(partial(record_act, act))
    world.deployment.clock.now_us += ACTS_US
    assert await world.prune_job().prune_acts() == 0
    await write(partial(record_act, Act(begun_us + ACTS_US, "owner.shown", owner="bob")))
    world.deployment.clock.now_us += 1
    assert await world.prune_job().prune_acts() == 2
    left = await world.store.read(partial(list_acts, before="", limit=9))
    assert [(each.act.act, each.act.owner) for each in left] == [("owner.shown", "bob"), ("owner.hidden", "ada")]
    assert [each.owner for each in await world.store.read(partial(list_hidden, after="", limit=9))] == ["ada"]


async def test_acts_are_deleted_in_bounded_steps(world: World) -> None:
    acts = [Act(world.deployment.clock.now_us, "board.reset") for _ in range(LIMITS.prune_rows_max + 1)]
    await world.store.write(partial(store_acts, acts))
    world.deployment.clock.now_us += ACTS_US + 1
    assert await run_steps(world, world.prune_job().prune_acts()) == len(acts)
