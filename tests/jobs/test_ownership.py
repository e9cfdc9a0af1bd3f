"""Test that job processes may start and end at any time. A process without the lease must not replace a newer curve."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from jobs.boards.prune import PruneJob
from jobs.controls import JobControls
from jobs.curves.refresh import RefreshJob
from jobs.errors import NoJobProcessError
from jobs.ownership import FOLLOW_S, JOB_WORK, HeldLease, Ownership
from storage.boards.boards import REFRESH_WORK, refresh_resource
from storage.errors import LeaseTakenError, StoreAwayError
from storage.leases.work_leases import WorkLease
from storage.log.following import Follower
from storage.log.partition_journal import JournalRow
from storage.records import Board
from storage.store import CONTROL, Program
from tests.jobs.refreshing import (
    count_curve_entries,
    count_due,
    refresh_due,
    run_held_worker,
    run_jobs,
    run_workers,
    start_job,
    wait_for_request,
    work_off,
)
from tests.jobs.world import LEASE_S, LIMITS, MARGIN_S, REFRESH_S, WAIT_S, World, within
from tests.storage.meddling import MeddlingStore

OVER_S = LEASE_S + MARGIN_S
RENEWAL_S = LEASE_S * LIMITS.lease_renewal_ratio


async def make_two_processes(world: World, boards: int = 1) -> tuple[list[Board], World, RefreshJob, RefreshJob]:
    """Create boards with one entry each. Return them, another process, and the refresh jobs of both processes.

    Both jobs know the boards.
    """
    made = [await world.create(f"b{number}") for number in range(boards)]
    for board in made:
        await world.post(board, {"a": 1})
    other = world.beside()
    await other.catalog.load(boards_max=100)
    return made, other, await start_job(world), await start_job(other)


async def make_two_processes_with_due_column(world: World) -> tuple[Board, World, RefreshJob, RefreshJob]:
    [board], other, mine, theirs = await make_two_processes(world)
    await count_due(world, mine)
    await theirs.find_due()
    return board, other, mine, theirs


async def claim_refresh(world: World, board: Board, holder: str) -> None:
    """Claim the lease on refreshing the board's first column, as another process would do."""
    resource, lease_us = refresh_resource(board.key, 0), round(LEASE_S * 1e6)
    await world.store.write(lambda: world.leases.claim(REFRESH_WORK, resource, holder=holder, lease_us=lease_us))


async def find_refresh_lease(world: World, board: Board) -> WorkLease:
    found = await world.store.read(lambda: world.leases.find_lease(REFRESH_WORK, refresh_resource(board.key, 0)))
    assert found is not None
    return found


async def test_a_column_that_two_processes_find_due_is_refreshed_by_one_of_them(world: World) -> None:
    boards, other, mine, theirs = await make_two_processes(world, boards=6)
    assert await count_due(world, mine) == 6
    assert await count_due(world, theirs, 0) == 6
    async with run_held_worker(other, theirs):  # the other process has begun to refresh one column
        async with run_workers(mine):
            await world.wait_for_refreshes(5)
            refused = await within(world.store.refused.get())
            assert isinstance(refused, LeaseTakenError)
        other.store.release()
        await other.wait_for_refreshes()
        async with asyncio.timeout(WAIT_S):
            while theirs.waiting:  # the other process finds out that this process has already refreshed the column
                await other.book.poll()
    assert (world.store.heavy_reads, other.store.heavy_reads) == (5, 1)
    assert await count_due(world, mine) == 0
    assert await count_due(world, theirs, 0) == 0
    await other.book.poll()
    assert [count_curve_entries(other, board) for board in boards] == [1] * 6


async def test_a_starting_process_knows_which_boards_are_idle(world: World) -> None:
    boards, other, mine, theirs = await make_two_processes(world, boards=2)
    await refresh_due(world, mine, 2)
    assert await count_due(world, theirs, 10 * REFRESH_S) == 0
    await world.post(boards[1], {"b": 1})
    await refresh_due(other, theirs)
    await world.book.poll()
    assert [count_curve_entries(world, board) for board in boards] == [1, 2]


async def test_a_process_learns_of_boards_that_others_create_and_delete(world: World) -> None:
    other = world.beside()
    job = other.refresh_job()
    board = await world.create("b")
    await world.post(board, {"a": 1})
    await count_due(world, job, LIMITS.curve_poll_s)
    assert other.catalog.find_known("b") == board
    await refresh_due(other, job)
    assert count_curve_entries(other, board) == 1
    await world.deployment.delete()
    assert await count_due(world, job) == 0
    assert other.catalog.find_known("b") is None
    resource = refresh_resource(board.key, 0)
    assert await world.store.read(lambda: world.leases.find_lease(REFRESH_WORK, resource)) is None


async def test_a_process_that_slept_past_its_lease_is_fenced_off(world: World) -> None:
    board, other, mine, theirs = await make_two_processes_with_due_column(world)
    async with run_held_worker(world, mine, after=True):  # this process has read its snapshot and is now blocked
        await world.post(board, {"b": 1})
        world.deployment.clock.now_us += round(OVER_S * 1e6)
        await work_off(other, theirs)
        world.store.release()
        await within(world.meter.events["rankcurve_refreshes_fenced"].get())
    assert world.meter.events["rankcurve_refresh_seconds"].empty()
    assert world.meter.events["rankcurve_refresh_failures"].empty()
    assert count_curve_entries(world, board) is None, "a curve that was not stored does not serve"
    await world.book.poll()
    assert count_curve_entries(world, board) == count_curve_entries(other, board) == 2


async def test_the_lease_of_a_long_refresh_is_renewed(world: World) -> None:
    board, other, mine, theirs = await make_two_processes_with_due_column(world)
    async with run_held_worker(world, mine):
        first = await find_refresh_lease(world, board)
        for _ in range(10):
            await world.end_sleep(RENEWAL_S)
        await world.time.wait_for_sleeper(RENEWAL_S)
        now = await find_refresh_lease(world, board)
        assert (now.version, now.expires_at_us) == (first.version, first.expires_at_us + round(10 * RENEWAL_S * 1e6))
        async with run_workers(theirs):
            assert isinstance(await within(other.store.refused.get()), LeaseTakenError)
        world.store.release()
        await world.wait_for_refreshes()
    assert other.store.heavy_reads == 0
    assert count_curve_entries(world, board) == 1


async def test_a_renewal_that_finds_the_lease_lost_ends_the_refresh(world: World) -> None:
    board, other, mine, theirs = await make_two_processes_with_due_column(world)
    async with run_held_worker(world, mine):
        world.deployment.clock.now_us += round(OVER_S * 1e6)
        await work_off(other, theirs)
        await world.time.end_sleep(RENEWAL_S)
        # The job stops although its read has not ended.
        await within(world.meter.events["rankcurve_refreshes_fenced"].get())
    world.store.release()
    assert count_curve_entries(other, board) == 1


async def test_a_renewal_that_the_store_refuses_is_tried_again(world: World) -> None:
    done = asyncio.Event()
    store = MeddlingStore(world.store, before_statement=0)
    world.store = store  # type: ignore[assignment]

    async def work(held: HeldLease) -> int:
        store.meddle = [StoreAwayError(), StoreAwayError()]
        await done.wait()
        return held.lease.version

    task = asyncio.create_task(world.ownership().run_owned("work", "r", work))
    for _ in range(3):
        await world.end_sleep(RENEWAL_S)
    await world.time.wait_for_sleeper(RENEWAL_S)
    found = await world.store.at(CONTROL).read(lambda: world.leases.find_lease("work", "r"))
    assert found is not None
    assert not store.meddle
    assert found.expires_at_us == world.deployment.clock.now_us + round(LEASE_S * 1e6)
    done.set()
    assert await within(task) == 1


async def test_the_column_of_a_dead_process_is_refreshed_once_its_lease_has_ended(world: World) -> None:
    board, other, _, theirs = await make_two_processes_with_due_column(world)
    await claim_refresh(world, board, "dead")
    async with run_workers(theirs):
        assert isinstance(await within(other.store.refused.get()), LeaseTakenError)
        await within(other.finish_due_work(theirs))
    other.meter.events["rankcurve_refresh_seconds"].get_nowait()
    assert other.store.heavy_reads == 1, "only the fence was read"
    assert await count_due(world, theirs, OVER_S - 1) == 0
    await theirs.find_due()  # the job now finds the board that `finish_due_work` created
    assert await count_due(world, theirs, 1) == 1
    await work_off(other, theirs)
    assert count_curve_entries(other, board) == 1


async def test_a_process_that_stops_gives_its_leases_back(world: World) -> None:
    board, other, mine, theirs = await make_two_processes_with_due_column(world)
    async with run_held_worker(world, mine):
        assert (await find_refresh_lease(world, board)).expires_at_us > world.deployment.clock.now_us
    assert (await find_refresh_lease(world, board)).expires_at_us == 0
    await work_off(other, theirs)


async def test_a_request_waits_for_a_refresh_that_starts_after_one_elsewhere_has_ended(world: World) -> None:
    [board], other, mine, theirs = await make_two_processes(world)
    await count_due(world, mine)
    async with run_held_worker(world, mine, after=True), run_workers(theirs):
        await world.post(board, {"b": 1})
        demands = [asyncio.create_task(other.desk.refresh_now(board.leaf, 0))]
        assert isinstance(await within(other.store.refused.get()), LeaseTakenError)
        demands.append(asyncio.create_task(other.desk.refresh_now(board.leaf, 0)))
        await wait_for_request(world, board, number=2)
        world.store.release()
        await world.wait_for_refreshes()
        await theirs.find_requests()
        first, second = await within(asyncio.gather(*demands))
    assert first.curve.total == 2
    assert first == second


async def test_a_request_that_waits_for_another_process_is_refused_when_this_one_stops(world: World) -> None:
    [board], other, _, theirs = await make_two_processes(world)
    await claim_refresh(world, board, "x")
    async with run_workers(theirs):
        demand = asyncio.create_task(other.desk.refresh_now(board.leaf, 0))
        await within(other.store.refused.get())
        other.desk.refuse_requests()
        with pytest.raises(NoJobProcessError):
            await within(demand)


async def test_a_resting_lease_cannot_be_claimed_and_failed_work_gives_its_lease_back(world: World) -> None:
    ownership = world.ownership()

    async def work(held: HeldLease) -> str:
        return held.lease.holder

    async def broken(_held: HeldLease) -> str:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await ownership.run_owned("work", "r", broken)
    assert await ownership.run_owned("work", "r", work, rests_s=100) == world.holder
    world.advance(99)
    with pytest.raises(LeaseTakenError):
        await ownership.run_owned("work", "r", work)
    world.advance(1)
    assert await ownership.run_owned("work", "r", work) == world.holder


async def test_a_job_whose_lease_was_taken_while_the_clock_was_ahead_does_no_rounds_until_it_is_free(
    world: World,
) -> None:
    """A round without the lease would tell operators that the job runs."""
    controls = JobControls(world.time.elapse, world.meter, monotonic=world.time.monotonic)
    job = PruneJob(replace(world.control_context(), controls=controls), world.deployment.partition)
    world.deployment.clock.now_us += 3_600_000_000
    leases, store = world.leases, world.store.at(world.deployment.partition)
    claiming = partial(leases.claim, JOB_WORK, "prune", lease_us=round(LEASE_S * 1e6))
    await store.write(lambda: claiming(holder="dead"))
    world.deployment.clock.now_us -= 3_600_000_000
    rounds = "rankcurve_job_rounds prune"
    async with run_jobs(job):
        for _ in range(3):
            await world.end_sleep(60)
        await world.time.wait_for_sleeper(60)
        assert world.meter.counts[rounds] == 1, "the job slept once before its first round"
        world.deployment.clock.now_us += 3_600_000_000
        await world.end_sleep(60)
        await world.time.wait_for_sleeper(60)
        assert world.meter.counts[rounds] == 2
    for holder in ("next", "the one after it"):  # the lease of the job rests, then a holder has it
        await store.write(leases.end_all)
        assert (await store.write(partial(claiming, holder=holder))).holder == holder


async def test_of_two_processes_one_runs_a_follower_until_it_ends(world: World) -> None:
    seen: list[str | None] = []

    def handle(changes: Sequence[JournalRow]) -> Program[None]:
        yield from ()
        seen.extend(change.owner for change in changes if change.owner is not None)

    partition, board = world.deployment.partition, await world.create("b")
    follower = Follower("test", partition, handle, from_oldest=True)
    contexts = [replace(world.control_context(), holder=holder) for holder in ("one", "two")]
    running = [
        asyncio.create_task(Ownership(context).run_follower(follower, sleep=world.time.elapse)) for context in contexts
    ]
    for round_number in range(3):
        await world.post(board, {f"o{round_number}": 1})
        await world.time.wait_for_sleepers(FOLLOW_S, count=2)
        world.time.advance(FOLLOW_S)
        await world.time.wait_for_sleepers(FOLLOW_S, count=2)
    assert seen == ["o0", "o1", "o2"]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
