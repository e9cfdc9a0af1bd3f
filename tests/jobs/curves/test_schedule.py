"""Test the order of refreshes if there is no time for all curves. The order decides how wrong ranks become."""

import asyncio

from jobs.curves.refresh import RefreshJob
from jobs.curves.schedule import COUNTED_INTERVALS, GAP_ROWS_MIN, GROWTH_MAX
from storage.errors import StoreAwayError
from storage.records import Board
from tests.jobs.refreshing import (
    count_curve_entries,
    count_due,
    refresh_due,
    run_held_worker,
    run_workers,
    start_boards,
    start_job,
    work_off,
)
from tests.jobs.world import LIMITS, REFRESH_S, World, within
from tests.storage.deployment import PREDICTOR, counter, ranked


async def create_fitted_boards(world: World, rows: dict[str, int], job: RefreshJob) -> dict[str, Board]:
    boards = {name: await world.create(name) for name in rows}
    for name, count in rows.items():
        await world.post(boards[name], {f"owner {number}": number for number in range(count)})
    await job.find_due()
    await refresh_due(world, job, len(rows))
    return boards


async def refresh_in_order(world: World, job: RefreshJob, boards: dict[str, Board]) -> list[str]:
    """Let one worker refresh all waiting columns. Return the names of the boards in the order of their refreshes."""
    before = {name: world.book.find_served(board.leaf, 0) for name, board in boards.items()}
    await work_off(world, job)
    found = {name: world.book.find_served(board.leaf, 0) for name, board in boards.items()}
    fresh = [(now.version, name) for name, now in found.items() if now is not None and now is not before[name]]
    return [name for _, name in sorted(fresh)]


async def test_boards_without_a_curve_come_first_and_then_those_that_changed_most(world: World) -> None:
    job = world.refresh_job()
    boards = await create_fitted_boards(world, {"large": 200, "middle": 50, "small": 4}, job)
    # The posts change 10 %, 20 % and 50 % of the rows.
    for name, changed in (("large", 20), ("middle", 10), ("small", 2)):
        await world.post(boards[name], {f"owner {number}": 1 for number in range(changed)})
    boards["new"] = await world.create("new")
    await world.post(boards["new"], {"a": 1})
    await job.find_due()
    assert await count_due(world, job) == 4
    assert await refresh_in_order(world, job, boards) == ["new", "small", "middle", "large"]


async def test_a_board_that_changed_little_is_refreshed_in_the_end(world: World) -> None:
    patience = LIMITS.refresh_patience_intervals
    job = world.refresh_job()
    boards = await create_fitted_boards(world, {"calm": 100, "busy": 10}, job)
    await world.post(boards["calm"], {"owner 0": 1})
    for turns in range(1, 100):
        await world.post(boards["busy"], {f"owner {number}": 1 for number in range(10)})
        assert await count_due(world, job) == 2
        async with run_workers(job):
            await world.wait_for_refreshes()  # after this refresh, the test stops the worker
            curve = world.book.find_curve(boards["calm"], 0)
        if job.waiting == 0 or curve is None:
            break
        if curve.as_of_us == world.deployment.clock.now_us:
            assert 1 < turns <= patience + 2
            return
    raise AssertionError("the calm board was never refreshed, or did not wait")


async def test_the_neediest_boards_get_the_queue_and_the_others_are_found_again(world: World) -> None:
    boards = await create_fitted_boards(world, dict.fromkeys("abcd", 10), world.refresh_job())
    job = await start_job(world, refresh_queue_max=2)
    for changed, name in enumerate("abcd", start=1):
        await world.post(boards[name], {f"owner {number}": 1 for number in range(changed)})
    assert await count_due(world, job) == 2
    assert await refresh_in_order(world, job, boards) == ["d", "c"]
    assert await count_due(world, job, 0) == 2
    assert await refresh_in_order(world, job, boards) == ["b", "a"]


async def test_curves_are_refreshed_although_the_clock_was_set_back(world: World) -> None:
    job = world.refresh_job()
    [board] = (await create_fitted_boards(world, {"b": 10}, job)).values()
    world.deployment.clock.now_us -= 3_600_000_000
    await world.post(board, {"owner 0": 1})
    assert await count_due(world, job) == 0, "its curve is from the future: its age counts from now on"
    assert await count_due(world, job) == 1


async def test_a_worker_rests_after_a_refresh_and_requests_do_not_wait_for_it(world: World) -> None:
    boards = [await world.create(f"b{number}") for number in range(3)]
    for board in boards[:2]:
        await world.post(board, {"a": 1})
    job = world.refresh_job(load_ratio=0.25)
    await job.find_due()
    assert await count_due(world, job) == 2
    async with run_held_worker(world, job):
        world.advance(2)  # the blocked refresh takes 2 s
        world.store.release()
        await world.wait_for_refreshes()
        assert await world.time.wait_for_sleeper(6) == 6
        assert (await within(world.desk.refresh_now(boards[2].leaf, 0))).curve.total == 0
        world.meter.events["rankcurve_refresh_seconds"].get_nowait()
        await world.time.wait_for_sleeper(6)
        assert job.waiting == 1
        world.time.advance(6)
        await world.wait_for_refreshes()


async def test_a_tick_finds_what_the_store_refused_to_the_tick_before(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {"a": 1})
    jobs = world.start()
    await world.time.wait_for_sleeper(LIMITS.refresh_tick_s)
    read = world.store.read
    failing = asyncio.Event()

    async def away(*arguments: object, **options: object) -> object:
        failing.set()
        raise StoreAwayError

    world.store.read = away  # type: ignore[method-assign, assignment]
    world.advance(REFRESH_S)
    await within(failing.wait())
    world.store.read = read  # type: ignore[method-assign]
    await world.end_sleep(LIMITS.refresh_tick_s)
    await world.wait_for_refreshes()
    assert await jobs.stop() == []


async def test_a_familys_board_gets_a_curve_only_once_it_is_too_large_to_count(world: World) -> None:
    exact_top = PREDICTOR.exact_top
    await world.deployment.create_family(ranked("xp0"))
    [board] = await world.deployment.make_boards("all")
    world.catalog.keep_board(board)
    job = world.refresh_job()
    await world.post(board, {f"owner {number}": number for number in range(exact_top)})
    await job.find_due()
    assert await count_due(world, job) == 0
    await world.post(board, {"one more": 1})
    assert await count_due(world, job, COUNTED_INTERVALS * REFRESH_S) == 1


async def test_a_board_that_is_being_filled_gets_its_first_curve_between_its_turns(world: World) -> None:
    exact_top, look_s = PREDICTOR.exact_top, LIMITS.curve_poll_s
    board, job = await world.create("b"), world.refresh_job()
    await job.find_due()
    assert await count_due(world, job) == 0, "it is empty, and its next turn is an interval away"
    await world.post(board, {f"owner {number}": number for number in range(exact_top)})
    assert await count_due(world, job, look_s) == 0
    await world.post(board, {"one more": 1})
    assert await count_due(world, job, look_s) == 1
    await work_off(world, job)
    assert count_curve_entries(world, board) == exact_top + 1


async def test_the_curve_of_a_growing_board_is_replaced_each_time_its_entries_double(world: World) -> None:
    board, job = await world.create("b"), world.refresh_job(load_ratio=1)
    await job.find_due()
    assert await count_due(world, job) == 0
    fits, step, last = [], GAP_ROWS_MIN // 2, 4 * GROWTH_MAX * GAP_ROWS_MIN
    for first in range(0, last, step):
        await world.post(board, {f"owner {number}": number for number in range(first, first + step)})
        if await count_due(world, job, LIMITS.curve_poll_s / 8 if first % GAP_ROWS_MIN else LIMITS.curve_poll_s):
            await work_off(world, job)
            fits.append(count_curve_entries(world, board))
    assert fits == [step, 2 * GAP_ROWS_MIN + step, 4 * GAP_ROWS_MIN + 3 * step]


async def test_changes_that_add_no_entries_do_not_make_a_fitted_board_due_early(world: World) -> None:
    job, [board] = await start_boards(world, "b")
    await refresh_due(world, job)
    for value in range(2 * PREDICTOR.exact_top):
        await world.post(board, {"a": value})
        assert await count_due(world, job, LIMITS.curve_poll_s) == 0


async def test_a_process_that_has_just_started_finds_a_board_that_is_being_filled(world: World) -> None:
    board = await world.create("b")
    await world.post(board, {f"owner {number}": number for number in range(2 * PREDICTOR.exact_top)})
    other = world.beside()
    await other.catalog.load(boards_max=10)
    job = other.refresh_job()
    assert await count_due(other, job, LIMITS.curve_poll_s) == 0, "its first turn is at a random time"
    await world.post(board, {f"more {number}": number for number in range(PREDICTOR.exact_top + 1)})
    assert await count_due(other, job, LIMITS.curve_poll_s) == 1


async def test_a_new_board_of_another_process_gets_a_curve_once_it_has_grown(world: World) -> None:
    job = await start_job(world)
    assert await count_due(world, job, LIMITS.curve_poll_s) == 0
    board = await world.deployment.create("b", ranked("xp0"), counter("shots"), predictor=PREDICTOR)
    await world.post(board, {f"owner {number}": number for number in range(2 * PREDICTOR.exact_top)})
    assert await count_due(world, job, LIMITS.curve_poll_s) == 1
