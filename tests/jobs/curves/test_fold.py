"""Test live counts. One wrong count makes the brackets of all worse values wrong, and no later fold corrects them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from jobs.curves.fold import RESOURCE, Counting, FoldJob
from jobs.ownership import JOB_WORK, HeldLease
from predictor import Curve
from querybuilder import all_of, update
from storage.boards.board_changes import change_board
from storage.boards.board_creation import create_board
from storage.curves.folding import FoldBacklog
from storage.curves.live_counts import counted_fits, counts_of, find_fold_state
from storage.errors import LeaseLostError, LostRaceError, StoreBusyError
from storage.log.bundles import ChangeKind
from storage.log.change_log import NewChange, change_log
from storage.records import Best, Board, Merge, Ties
from storage.schema.tables import LIVE_MARK, LOG_COUNTER
from storage.store import Program
from tests.jobs.folding import Folder, assert_live, keys_of, open_folder, refresh
from tests.jobs.refreshing import run_jobs
from tests.jobs.world import World, within
from tests.storage.deployment import part, ranked, spec


async def create_board_with_curve(world: World) -> Board:
    board = await world.create("b")
    rng = random.Random(5)
    await world.post(board, {f"o{i}": rng.randrange(-900, 900) for i in range(120)})
    await refresh(world, board)
    return board


async def change_entries(world: World, board: Board, seed: int, times: int = 40) -> None:
    """Add, change and erase entries. Some owners are changed several times."""
    rng = random.Random(seed)
    for _ in range(times):
        owner = f"o{rng.randrange(150)}"
        if rng.random() < 0.2:
            await world.deployment.erase(board, owner)
        else:
            owners = {owner, f"o{rng.randrange(150)}"}
            await world.post(board, {one: rng.randrange(-500, 500) for one in owners})


@asynccontextmanager
async def fold_board(world: World, **limits: int) -> AsyncIterator[tuple[Board, Folder]]:
    """Create a board with a live curve. Yield it with the process that folds."""
    board = await create_board_with_curve(world)
    async with open_folder(world, **limits) as folding:
        await folding.fold()
        yield board, folding


async def change_and_fold(world: World, board: Board, folding: Folder, seed: int) -> None:
    """Change entries and fold the changes. Check the live curve."""
    await change_entries(world, board, seed)
    await folding.fold()
    await assert_live(world, board)


async def test_a_curve_that_counts_a_post_is_as_of_a_time_after_the_post_was_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_us: list[int] = []
    read = FoldJob._read

    async def post_first(job: FoldJob, counting: Counting) -> FoldBacklog:
        world.deployment.clock.now_us += 1
        sent_us.append(world.deployment.clock())
        await world.post(board, {"late": 1})
        return await read(job, counting)

    async with fold_board(world) as (board, folding):
        monkeypatch.setattr(FoldJob, "_read", post_first)
        assert await folding.fold() == 1
        live = await assert_live(world, board)
        assert [live.as_of_us] == sent_us


@pytest.mark.parametrize("many", [False, True])
async def test_the_mark_passes_changes_of_boards_without_a_curve(
    world: World, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr("storage.curves.folding.NAMED_BOARDS_MAX", 0)
    plain = await world.create("plain")
    async with fold_board(world) as (board, folding):
        await folding.fold()
        first = await world.store.read(find_fold_state)
        await world.post(plain, {"ada": 1, "bob": 2})
        assert await folding.fold() == 2 * many
        passed = await world.store.read(find_fold_state)
        assert first is not None
        assert passed is not None
        assert passed.mark > first.mark
        await world.post(plain, {"ada": 3})
        await world.post(board, {"o1": 77})
        assert await folding.fold() == 1 + many
        await assert_live(world, board)
        # The fit of this board's first curve counts the changes before the fit. The fold counts the changes after the
        # fit.
        await world.post(plain, {"eve": 5, "bob": 7})
        await refresh(world, plain)
        await world.post(plain, {"ada": 9})
        await folding.fold()
        await assert_live(world, plain)


async def test_a_process_killed_between_counting_and_storing_leaves_no_counts(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await change_entries(world, board, 1)
    killed = world.beside()
    await killed.book.poll()
    job = killed.fold_job()
    partition = world.deployment.partition
    stale = await killed.store.write(lambda: killed.leases.claim(JOB_WORK, RESOURCE, holder="k", lease_us=1))
    world.advance(60)
    async with open_folder(world) as folding:  # this process takes the lease from the previous process
        with pytest.raises(LeaseLostError):
            await job.fold_changes(HeldLease(stale, killed.leases, 1, partition), job.counting())
        await folding.fold()
    await assert_live(world, board)


async def test_changes_that_raced_with_a_fit_are_counted_afterwards(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await change_entries(world, board, 1)
        world.store.hold(after=True)
        refreshing = asyncio.create_task(refresh(world, board))
        await within(world.store.entered.wait())
        await change_entries(world, board, 2)  # the fit has read its snapshot, but its curve is not stored yet
        await folding.fold()
        world.store.release()
        await refreshing
        served = world.book.find_curve(board, 0)
        assert isinstance(served, Curve)
        await change_and_fold(world, board, folding, 3)


async def test_a_front_end_sees_the_fold_at_its_next_poll(world: World) -> None:
    front = world.beside()
    async with fold_board(world) as (board, folding):
        await change_entries(world, board, 1)
        await folding.fold()
        await front.book.poll()  # the first poll reads the curve with its live counts
        before = await assert_live(front, board)
        world.advance(5)
        await change_entries(world, board, 2)
        await folding.fold()
        assert front.book.find_curve(board, 0) is before
        assert before.as_of_us < world.deployment.clock.now_us
        await front.book.poll()
        after = await assert_live(front, board)
    assert after is not before
    assert after.as_of_us == world.deployment.clock.now_us
    assert before.as_of_us < after.as_of_us  # the fold must not change a curve object that a reader already has


async def test_a_curve_without_changes_moves_on_to_the_newest_mark(world: World) -> None:
    other = await world.create("other")
    await world.post(other, {"a": 1})
    async with fold_board(world) as (board, folding):
        live = world.book.find_curve(board, 0)
        world.advance(3)
        await world.post(other, {"b": 2})
        await folding.fold()
    assert live is not None
    assert world.book.find_curve(board, 0) is live
    assert live.as_of_us == world.deployment.clock.now_us
    now = await world.store.read(find_fold_state)
    assert now is not None
    assert world.served(board).mark == now.mark


async def test_an_emptied_board_is_counted_from_its_next_fit(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await change_entries(world, board, 1)
        emptied = await world.deployment.reset()
        world.catalog.keep_board(emptied)
        await world.post(emptied, {"a": 5, "b": 7})
        await folding.fold()
        assert world.book.find_curve(emptied, 0) is None
        await refresh(world, emptied)
        await world.post(emptied, {"b": 9, "c": -2})
        await folding.fold()
        await assert_live(world, emptied)


async def test_a_deleted_board_leaves_no_counts(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await world.post(board, {"a": 5})
        await world.deployment.delete()
        await folding.fold()
    assert await world.store.read(lambda: counts_of([board.key])) == []


async def test_a_curve_whose_changes_were_pruned_has_no_live_counts_until_its_next_fit(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await change_and_fold(world, board, folding, 1)
        await change_entries(world, board, 2)
        mark = await world.store.read(change_log.take_mark)

        def pruned() -> Program[None]:
            yield update(LOG_COUNTER).set(pruned_before=mark).where(all_of()).bind()

        await world.store.write(pruned)
        await folding.fold()
        assert isinstance(world.book.find_curve(board, 0), Curve)
        assert world.meter.counts["rankcurve_live_counts_void"] == 1
        assert await world.store.read(counted_fits) == {}
        await refresh(world, board)
        await change_and_fold(world, board, folding, 3)


async def test_the_fold_gives_up_on_too_long_a_log_and_counts_later_fits(world: World) -> None:
    async with fold_board(world, fold_lag_rows_max=30) as (board, folding):
        await change_entries(world, board, 1, times=60)
        await folding.fold()
        assert isinstance(world.book.find_curve(board, 0), Curve)
        await refresh(world, board)
        await world.post(board, {"a": 5})
        await folding.fold()
        await assert_live(world, board)


async def test_the_fold_starts_again_on_a_store_whose_numbers_went_back(world: World) -> None:
    async with fold_board(world) as (board, folding):
        await change_entries(world, board, 1)
        await folding.fold()

        def restored() -> Program[None]:
            yield update(LIVE_MARK).set(position=2**60).where(all_of()).bind()

        await world.store.write(restored)
        await folding.fold()
        # The mark of the fit is still valid, so the fold counts all changes after that mark.
        await change_and_fold(world, board, folding, 2)


async def test_the_fold_gives_up_counts_that_make_no_sense(world: World) -> None:
    async with fold_board(world) as (board, folding):
        best = (await keys_of(world, board))[0]
        cell = world.deployment.entries(board).rankings[0].padding.cell_of_key(best)

        def forged() -> Program[None]:
            said = (ChangeKind.ERASED,)
            gone = [NewChange(board.key, f"nobody {index}", cell, " " * len(cell), said) for index in range(3)]
            yield from change_log.append_changes(gone, now_us=1)

        await world.store.write(forged)
        await folding.fold()
    assert isinstance(world.book.find_curve(board, 0), Curve)
    assert world.meter.counts["rankcurve_live_counts_void"] == 1


async def test_counts_stay_exact_while_several_writers_and_fits_overlap(world: World) -> None:
    board = await create_board_with_curve(world)

    async def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            owners = {f"o{rng.randrange(40)}" for _ in range(4)}
            posts = [world.deployment.post(owner, part(board, {"xp0": rng.randrange(-400, 400)})) for owner in owners]
            if rng.random() < 0.1:
                await world.deployment.erase(board, owners.pop())
            try:
                await world.deployment.apply(*posts)
            except LostRaceError:  # a real writer would apply the group again
                continue

    async with open_folder(world) as folding:
        writers = [asyncio.create_task(write(seed)) for seed in range(6)]
        folds = 0
        while not all(writer.done() for writer in writers):
            await folding.fold()
            folds += 1
            if folds % 5 == 0:
                await refresh(world, board)
        await asyncio.gather(*writers)
        await folding.fold()
        await assert_live(world, board)
    assert folds > 3
    assert world.meter.counts["rankcurve_live_counts_void"] == 0


async def test_the_fold_tries_a_failed_store_again_and_counts_nothing_twice(world: World) -> None:
    board = await create_board_with_curve(world)
    job = world.fold_job()
    async with run_jobs(job):
        await within(world.meter.events["rankcurve_changes_folded"].get())
        await change_entries(world, board, 1)
        world.store.failures.append(StoreBusyError("away"))
        for _ in range(2):
            await world.end_sleep(0.5)
        await within(world.meter.events["rankcurve_changes_folded"].get())
        await assert_live(world, board)


async def test_one_process_folds_and_the_other_takes_over_when_it_stops(world: World) -> None:
    board = await create_board_with_curve(world)
    async with run_jobs(world.fold_job()):
        await within(world.meter.events["rankcurve_changes_folded"].get())
        other = world.beside()
        await other.book.poll()
        second = asyncio.create_task(other.fold_job().run_forever())
        await change_entries(world, board, 1)
    while other.meter.events["rankcurve_changes_folded"].empty():
        await world.end_sleep(0.5)
    await assert_live(other, board)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


@pytest.mark.parametrize("ties", list(Ties))
async def test_the_fold_counts_both_tie_rules_low_columns_and_columns_added_later(world: World, ties: Ties) -> None:
    columns = [ranked("time", best=Best.LOW, merge=Merge.MIN), ranked("late", merge=Merge.MAX)]

    async def board_of(count: int) -> Board:
        wanted = spec(*columns[:count], ties=ties)
        if count == 1:
            place = world.deployment.partition
            made = create_board(board_id="b", spec=wanted, now_us=1, boards_max=9, partition=place)
        else:
            made = change_board(board_id="b", wanted=wanted)
        board = await world.store.write(lambda: made)
        world.catalog.keep_board(board)
        return board

    async def play(board: Board, seed: int) -> None:
        rng = random.Random(seed)
        names = [column.name for column in board.spec.columns]
        for _ in range(60):
            world.advance(0.001)
            await world.post(board, {f"o{rng.randrange(70)}": rng.randrange(-300, 300)}, rng.choice(names))

    board = await board_of(1)
    await play(board, 1)
    await refresh(world, board)
    async with open_folder(world) as folding:
        await folding.fold()
        await play(board, 2)
        wider = await board_of(2)
        await play(wider, 3)
        await folding.fold()
        await assert_live(world, wider, 0)
        await refresh(world, wider, 1)
        await play(wider, 4)
        await folding.fold()
        for index in (0, 1):
            await assert_live(world, wider, index)
