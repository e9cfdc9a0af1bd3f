"""Test that no post changes a closed board, even if a process has a wrong clock or an old copy of the grace."""

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from storage.archive.board_closing import ClosingStage, check_archive_time, list_due_boards, shut_boards
from storage.errors import NotOpenYetError, PeriodClosedError, SpecConflictError
from storage.leaves.row_tables import entries_table
from storage.periods import PeriodKind, calendar_of
from storage.records import Board, Family, PartOutcome, Post, PostStatus, Season, TableSharing
from storage.schema.tables import FAMILIES
from tests.storage.deployment import NOW_US, Deployment, part, ranked
from tests.storage.processes import Processes, count_waiting
from tests.storage.queueing import QueueDesk

XP = ranked("xp", max_scaled=1_000)
S = 1_000_000
DAY_S = 86_400
LONG_S = 10_000 * DAY_S
CALENDAR = calendar_of("UTC")
DAY = CALENDAR.period_at(PeriodKind.DAY, NOW_US)
PAST, YESTERDAY = (CALENDAR.period_at(PeriodKind.DAY, NOW_US - days * DAY_S * S).id for days in (1_000, 1))
DAY_US = CALENDAR.bounds_us(DAY)
assert DAY_US is not None
GRACE_S = 600
CLOSES_US = DAY_US[1] + GRACE_S * S


async def make_season(deployment: Deployment) -> Board:
    """Create a board that opened 10 s ago and ends in 10 s. Its grace is 5 s."""
    return await deployment.create("b", XP, season=Season(NOW_US - 10 * S, NOW_US + 10 * S, 5, None))


async def make_family(deployment: Deployment, *, grace_s: int = GRACE_S, keep: int | None = None) -> Family:
    kept = () if keep is None else ((PeriodKind.DAY, keep),)
    return await deployment.create_family(XP, periods=(PeriodKind.ALL, PeriodKind.DAY), grace_s=grace_s, keep=kept)


def post_to_boards(
    deployment: Deployment, family: Family, boards: list[Board], owner: str, post_id: str | None = None
) -> Post:
    """Return a post to all these boards, in the form in which the service passes posts to the writer."""
    made = deployment.post(owner, *[part(board, {"xp": 1}) for board in boards], post_id=post_id)
    return structs.replace(made, fingerprint=owner, scope=family.scope)


async def shut_due(deployment: Deployment, *boards: Board) -> list[Board]:
    return await deployment.store.write(lambda: shut_boards(boards, now_us=deployment.clock.now_us))


async def is_archive_due(deployment: Deployment, board: Board) -> bool:
    now_us = deployment.clock.now_us
    return await deployment.store.write(lambda: check_archive_time(board, now_us=now_us))


async def list_due(deployment: Deployment, stage: ClosingStage) -> list[str]:
    found = await deployment.store.read(lambda: list_due_boards(stage, now_us=deployment.clock.now_us, limit=10))
    return [board.id for _, board in found]


async def post(deployment: Deployment, board: Board, at_s: float | None = None, **more: str) -> PartOutcome:
    """Apply a post with a time `at_s` seconds after `NOW_US`, or with the time of its arrival."""
    at_us = None if at_s is None else NOW_US + round(at_s * S)
    return await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1}), at_us=at_us, **more))


async def post_to_family(deployment: Deployment, family: Family, *boards: Board) -> list[PostStatus]:
    [parts] = await deployment.apply(post_to_boards(deployment, family, list(boards), "ada"))
    assert all(isinstance(part.error, PeriodClosedError) for part in parts if part.status is PostStatus.REJECTED)
    return [part.status for part in parts]


async def test_a_post_counts_if_its_own_time_lies_between_opening_and_end(deployment: Deployment) -> None:
    board = await make_season(deployment)
    deployment.clock.now_us = NOW_US + 12 * S
    assert isinstance((await post(deployment, board, -10.000001)).error, NotOpenYetError)
    assert isinstance((await post(deployment, board, 10)).error, PeriodClosedError)
    assert isinstance((await post(deployment, board)).error, PeriodClosedError), "it counts as of its arrival"
    for at_s in (-10, 0, 9.999999):
        assert (await post(deployment, board, at_s)).status is PostStatus.APPLIED
    deployment.clock.now_us = NOW_US + 15 * S
    assert isinstance((await post(deployment, board, 0)).error, PeriodClosedError), "the grace is over"
    assert await deployment.stats(board, "ada") == {"xp": 3}


async def test_a_retry_to_a_closed_board_is_a_duplicate(deployment: Deployment) -> None:
    board = await make_season(deployment)
    first = await post(deployment, board, post_id="p")
    deployment.clock.now_us += 20 * S
    assert [each.id for each in await shut_due(deployment, board)] == ["b"]
    again = await post(deployment, board, post_id="p")
    assert (again.status, again.stats, again.updated_at_us) == (PostStatus.DUPLICATE, [1], first.updated_at_us)
    assert isinstance((await post(deployment, board, 0, post_id="q")).error, PeriodClosedError)


async def test_a_closed_board_rejects_only_its_own_part_of_a_post(deployment: Deployment) -> None:
    season, board = await make_season(deployment), await deployment.create("open", XP)
    deployment.clock.now_us += 20 * S
    both = deployment.post("ada", part(season, {"xp": 1}), part(board, {"xp": 1}), post_id="p")
    [[closed, applied]] = await deployment.apply(both)
    assert (closed.status, applied.status) == (PostStatus.REJECTED, PostStatus.APPLIED)
    assert isinstance(closed.error, PeriodClosedError)
    too_much = deployment.post("ada", part(season, {"xp": 1}), part(board, {"xp": 1_000}))
    assert [each.status for each in (await deployment.apply(too_much))[0]] == [PostStatus.REJECTED] * 2
    assert await deployment.stats(board, "ada") == {"xp": 1}


async def test_the_mark_of_the_store_shuts_a_family_for_processes_whose_clocks_are_late(deployment: Deployment) -> None:
    family = await make_family(deployment)
    boards = await deployment.make_boards("all", DAY.id)
    [[*outcomes]] = await deployment.apply(post_to_boards(deployment, family, boards, "ada"))
    assert [each.status for each in outcomes] == [PostStatus.APPLIED] * 2
    now_us, deployment.clock.now_us = deployment.clock.now_us, CLOSES_US
    assert [board.id for board in await shut_due(deployment, *boards)] == [boards[1].id]
    deployment.clock.now_us = now_us
    late = post_to_boards(deployment, family, boards, "bob", post_id="p")
    [[applied, closed]] = await deployment.apply(late)
    assert (applied.status, closed.status) == (PostStatus.APPLIED, PostStatus.REJECTED)
    assert isinstance(closed.error, PeriodClosedError)
    [repeat] = await deployment.apply(late)
    assert [(each.status, each.leaf_key) for each in repeat] == [(PostStatus.DUPLICATE, boards[0].key)]
    assert await deployment.stats(boards[1], "bob") is None


async def test_a_board_is_shut_once_and_then_listed_for_the_next_stage(deployment: Deployment) -> None:
    board = await make_season(deployment)
    assert await list_due(deployment, ClosingStage.OPEN) == []
    assert await shut_due(deployment, board) == [], "its time is not over"
    deployment.clock.now_us = NOW_US + 15 * S
    assert await list_due(deployment, ClosingStage.OPEN) == ["b"]
    [closed] = await shut_due(deployment, board)
    assert closed.gate.closed_us == deployment.clock.now_us
    assert await shut_due(deployment, board) == []
    assert await list_due(deployment, ClosingStage.OPEN) == await list_due(deployment, ClosingStage.SHUT) == []
    assert await list_due(deployment, ClosingStage.FROZEN) == [], "the board keeps its rows"


async def test_rows_are_kept_for_as_many_periods_as_the_family_says(deployment: Deployment) -> None:
    family = await make_family(deployment, keep=2)
    [_, board] = await deployment.make_boards("all", DAY.id)
    deployment.clock.now_us = CLOSES_US
    [closed] = await shut_due(deployment, board)
    for days, wanted in ((1, []), (2, [board.id])):
        deployment.clock.now_us = CLOSES_US + days * DAY_S * S
        assert await list_due(deployment, ClosingStage.FROZEN) == wanted
    more = replace(family.spec, keep=((PeriodKind.DAY, 3),))
    await deployment.put_family(more)
    assert not await is_archive_due(deployment, closed)
    assert await list_due(deployment, ClosingStage.FROZEN) == []
    deployment.clock.now_us += DAY_S * S
    assert await list_due(deployment, ClosingStage.FROZEN) == [board.id]
    assert await is_archive_due(deployment, closed)


async def test_a_season_changes_its_times_only_if_no_past_decision_changes(deployment: Deployment) -> None:
    board = await make_season(deployment)
    season = board.spec.season
    assert season is not None

    async def change(wanted: Season | None) -> Board:
        return await deployment.change("b", replace(board.spec, season=wanted))

    past_us = NOW_US - S
    later, ended = replace(season, opens_us=NOW_US + S), replace(season, ends_us=past_us)
    for refused in (None, later, ended, replace(season, ends_us=past_us, grace_seconds=60)):
        with pytest.raises(SpecConflictError):
            await change(refused)
    longer = replace(season, ends_us=NOW_US + 20 * S)
    assert (await change(longer)).gate.closes_us == NOW_US + 25 * S
    deployment.clock.now_us = NOW_US + 15 * S
    assert await shut_due(deployment, board) == [], "its end was moved"
    assert (await post(deployment, board)).status is PostStatus.APPLIED
    deployment.clock.now_us = NOW_US + 25 * S
    await shut_due(deployment, board)
    with pytest.raises(SpecConflictError):
        await change(replace(longer, grace_seconds=600))
    kept = await change(replace(longer, keep_seconds=10))
    assert await list_due(deployment, ClosingStage.FROZEN) == ["b"], "the board is listed again"
    assert not await is_archive_due(deployment, kept)
    deployment.clock.now_us = NOW_US + 35 * S
    assert await list_due(deployment, ClosingStage.FROZEN) == ["b"]
    with pytest.raises(PeriodClosedError):
        await deployment.reset()
    found = await deployment.find()
    assert (found.gate.closed_us, found.gate.archived_us) == (NOW_US + 25 * S, None)


async def test_a_board_is_closed_together_with_its_segments(deployment: Deployment) -> None:
    deployment.table, deployment.segments = TableSharing.OWN, 4
    board = await make_season(deployment)
    season = board.spec.season
    assert season is not None
    deployment.clock.now_us += 20 * S
    assert await list_due(deployment, ClosingStage.OPEN) == ["b"]
    [closed] = await shut_due(deployment, board)
    assert {each.gate.closed_us for each in closed.leaves} == {closed.gate.closed_us} == {deployment.clock.now_us}
    assert await deployment.find() == closed
    deployment.clock.now_us -= 20 * S  # another process has a clock that is late
    for owner in "abcdefgh":
        outcome = await deployment.apply_one(deployment.post(owner, part(board, {"xp": 1})))
        assert isinstance(outcome.error, PeriodClosedError)
    for wanted in (
        replace(board.spec, season=replace(season, ends_us=NOW_US + 60 * S)),
        replace(board.spec, columns=(XP, ranked("late"))),
    ):
        with pytest.raises(SpecConflictError):
            await deployment.change("b", wanted)
    with pytest.raises(PeriodClosedError):
        await deployment.reset()


async def test_a_shorter_grace_closes_the_periods_whose_new_end_is_past(deployment: Deployment) -> None:
    family = await make_family(deployment, grace_s=LONG_S)
    boards = await deployment.make_boards("all", PAST, YESTERDAY, DAY.id)
    _, past, yesterday, _ = boards
    assert await post_to_family(deployment, family, *boards) == [PostStatus.APPLIED] * 4
    assert await list_due(deployment, ClosingStage.OPEN) == []
    family = await make_family(deployment, grace_s=DAY_S)
    applied, late = PostStatus.APPLIED, PostStatus.REJECTED
    posted = await post_to_family(deployment, family, *boards)
    assert posted == [applied, late, applied, applied], "with their earlier copies"
    assert await list_due(deployment, ClosingStage.OPEN) == [past.id]
    closed = await shut_due(deployment, past)
    assert [board.id for board in closed] == [past.id]
    assert await deployment.stats(past, "ada") == {"xp": 1}
    assert await deployment.stats(yesterday, "ada") == {"xp": 2}
    assert (await deployment.find(yesterday.id)).gate.closed_us is None
    assert yesterday.gate.ends_us is not None
    for early_us, due in ((1, []), (0, [yesterday.id])):
        deployment.clock.now_us = yesterday.gate.ends_us + DAY_S * S - early_us
        assert await list_due(deployment, ClosingStage.OPEN) == due


async def test_a_board_created_after_the_grace_was_shortened_closes_by_the_new_grace(deployment: Deployment) -> None:
    await make_family(deployment, grace_s=LONG_S)
    family = await make_family(deployment, grace_s=DAY_S)
    [past, today] = await deployment.make_boards(PAST, DAY.id)
    assert await post_to_family(deployment, family, past, today) == [PostStatus.REJECTED, PostStatus.APPLIED]
    assert today.gate.ends_us is not None
    for early_us, due in ((1, [past.id]), (0, [past.id, today.id])):
        deployment.clock.now_us = today.gate.ends_us + DAY_S * S - early_us
        assert await list_due(deployment, ClosingStage.OPEN) == due


async def test_a_grace_may_be_shortened_again_and_never_lengthened(deployment: Deployment) -> None:
    await make_family(deployment, grace_s=LONG_S)
    await make_family(deployment, grace_s=100)
    family = await make_family(deployment, grace_s=10)
    assert (family.spec.grace_seconds, family.spec.longest_grace_us) == (10, LONG_S * S)
    assert (await make_family(deployment, grace_s=10)).spec == family.spec, "an equal spec is confirmed"
    with pytest.raises(SpecConflictError, match="only be shortened") as refused:
        await make_family(deployment, grace_s=11)
    assert refused.value.pointer == "/grace_seconds"


async def test_closed_boards_are_archived_by_the_new_grace(deployment: Deployment) -> None:
    await make_family(deployment, grace_s=999 * DAY_S, keep=1)
    [past] = await deployment.make_boards(PAST)
    await shut_due(deployment, past)
    assert await list_due(deployment, ClosingStage.FROZEN) == [], "the next day has a grace, too"
    await make_family(deployment, grace_s=0, keep=1)
    assert await list_due(deployment, ClosingStage.FROZEN) == [past.id]


async def test_the_store_accepts_a_very_long_grace(deployment: Deployment) -> None:
    family = await make_family(deployment, grace_s=10**12)
    ancient = CALENDAR.period_at(PeriodKind.DAY, -40_000 * DAY_S * S).id
    [board] = await deployment.make_boards(ancient)
    assert await post_to_family(deployment, family, board) == [PostStatus.APPLIED]


@pytest.mark.parametrize("of_family", [False, True])
async def test_closing_waits_for_posts_that_found_the_board_open(
    processes: Processes, raw: asyncpg.Connection, session_name: str, of_family: bool
) -> None:
    poster, closer = await processes.start_process(), await processes.start_process()
    if of_family:
        family = await make_family(poster)
        [_, board] = await poster.make_boards("all", DAY.id)
        made = [post_to_boards(poster, family, [board], owner) for owner in ("ada", "bob")]
    else:
        board = await make_season(poster)
        made = [poster.post(owner, part(board, {"xp": 1})) for owner in ("ada", "bob")]
    await poster.apply(made[0])
    closer.clock.now_us = CLOSES_US
    table = entries_table(board.key)
    async with raw.transaction():
        await raw.execute(f"SELECT 1 FROM {table} FOR UPDATE")
        posting = asyncio.ensure_future(poster.apply(*made))
        await wait_for_lock(raw, session_name, f'%"{table}"%', posting)
        closing = asyncio.ensure_future(shut_due(closer, board))
        await wait_for_lock(raw, session_name, 'UPDATE "%', closing)
        assert not posting.done()
    assert [[each.status for each in parts] for parts in await posting] == [[PostStatus.APPLIED]] * 2
    assert len(await closing) == 1
    assert await closer.stats(board, "bob") == {"xp": 1}
    assert await closer.stats(board, "ada") == {"xp": 2}
    [[late]] = await poster.apply(made[0])
    assert isinstance(late.error, PeriodClosedError)


async def test_closing_and_a_round_of_the_queue_never_deadlock(
    processes: Processes, raw: asyncpg.Connection, session_name: str
) -> None:
    poster, closer = [await processes.start_process(store_attempts_max=1) for _ in range(2)]
    family, season = await make_family(poster), await make_season(poster)
    boards = await poster.make_boards("all", DAY.id)
    desk = await QueueDesk.on(poster)
    to_season = poster.post("ada", part(season, {"xp": 1}))
    await desk.enqueue(to_season, post_to_boards(poster, family, boards, "ada"))
    worker = desk.worker("ada")
    await desk.update_share(worker)
    closer.clock.now_us = CLOSES_US
    async with raw.transaction():
        await raw.execute(f"SELECT 1 FROM {FAMILIES} FOR UPDATE")
        closing = asyncio.ensure_future(shut_due(closer, boards[1], season))
        await wait_for_lock(raw, session_name, f"%{FAMILIES}%", closing)
        running = asyncio.ensure_future(desk.run_round(worker))
        async with asyncio.timeout(60):
            while await count_waiting(raw, session_name, "%") < 2:
                assert not running.done(), running
    assert {board.id for board in await closing} == {boards[1].id, season.id}
    drained = await running
    assert drained is not None
    assert drained.statuses == {"applied": 3, "rejected": 0}


async def wait_for_lock(raw: asyncpg.Connection, session_name: str, query: str, waiter: asyncio.Future[Any]) -> None:
    """Wait until a statement that matches the pattern `query` waits for a lock in a session of this test."""
    async with asyncio.timeout(60):
        while not await count_waiting(raw, session_name, query):
            assert not waiter.done(), waiter
