"""Test a family whose grace is shortened after old posts were loaded. No copy of a board may keep the longer grace."""

import pytest

from storage.archive.board_closing import ClosingStage, list_due_boards, shut_boards
from storage.errors import PeriodClosedError, SpecConflictError
from storage.periods import PeriodKind, calendar_of
from storage.records import Board, Family, FamilySpec, PostStatus
from tests.storage.archive.test_board_closing import post_to_boards
from tests.storage.deployment import NOW_US, Deployment, ranked, spec

DAY_S = 86_400
S = 1_000_000
LONG_S = 10_000 * DAY_S
XP = ranked("xp", max_scaled=1_000)
CALENDAR = calendar_of("UTC")
PAST, YESTERDAY, TODAY = (CALENDAR.period_at(PeriodKind.DAY, NOW_US - days * DAY_S * S).id for days in (1_000, 1, 0))


async def put_days_family(deployment: Deployment, grace_seconds: int, keep: int | None = None) -> Family:
    kept = () if keep is None else ((PeriodKind.DAY, keep),)
    days = (PeriodKind.ALL, PeriodKind.DAY)
    wanted = FamilySpec(deployment.laid_out(spec(XP)), days, "UTC", ((),), grace_seconds, kept)
    return await deployment.put_family(wanted)


async def post(deployment: Deployment, family: Family, *boards: Board) -> list[PostStatus]:
    [parts] = await deployment.apply(post_to_boards(deployment, family, list(boards), "ada"))
    assert all(isinstance(part.error, PeriodClosedError) for part in parts if part.status is PostStatus.REJECTED)
    return [part.status for part in parts]


async def list_due(deployment: Deployment, stage: ClosingStage) -> list[str]:
    found = await deployment.store.read(lambda: list_due_boards(stage, now_us=NOW_US, limit=10))
    return [board.id for _, board in found]


async def test_a_shorter_grace_closes_the_periods_whose_new_end_is_past(deployment: Deployment) -> None:
    family = await put_days_family(deployment, LONG_S)
    boards = await deployment.make_boards("all", PAST, YESTERDAY, TODAY)
    _, past, yesterday, _ = boards
    assert await post(deployment, family, *boards) == [PostStatus.APPLIED] * 4
    assert await list_due(deployment, ClosingStage.OPEN) == []
    family = await put_days_family(deployment, DAY_S)
    applied, late = PostStatus.APPLIED, PostStatus.REJECTED
    assert await post(deployment, family, *boards) == [applied, late, applied, applied], "with their earlier copies"
    assert await list_due(deployment, ClosingStage.OPEN) == [past.id]
    closed = await deployment.store.write(lambda: shut_boards([past], now_us=NOW_US))
    assert [board.id for board in closed] == [past.id]
    assert await deployment.stats(past, "ada") == {"xp": 1}
    assert await deployment.stats(yesterday, "ada") == {"xp": 2}
    now = await deployment.find(yesterday.id)
    assert (now.closes_us, now.closed_us) == ((yesterday.closes_us or 0) - (LONG_S - DAY_S) * S, None)


async def test_a_board_created_after_the_grace_was_shortened_closes_by_the_new_grace(deployment: Deployment) -> None:
    await put_days_family(deployment, LONG_S)
    family = await put_days_family(deployment, DAY_S)
    [past, today] = await deployment.make_boards(PAST, TODAY)
    bounds = CALENDAR.bounds_us(CALENDAR.period_at(PeriodKind.DAY, NOW_US))
    assert bounds is not None
    assert today.closes_us == bounds[1] + DAY_S * S
    assert await post(deployment, family, past, today) == [PostStatus.REJECTED, PostStatus.APPLIED]


async def test_a_grace_may_be_shortened_again_and_never_lengthened(deployment: Deployment) -> None:
    await put_days_family(deployment, LONG_S)
    await put_days_family(deployment, 100)
    family = await put_days_family(deployment, 10)
    assert (family.spec.grace_seconds, family.spec.longest_grace_us) == (10, LONG_S * S)
    assert (await put_days_family(deployment, 10)).spec == family.spec, "an equal spec is confirmed"
    with pytest.raises(SpecConflictError, match="only be shortened") as refused:
        await put_days_family(deployment, 11)
    assert refused.value.pointer == "/grace_seconds"


async def test_closed_boards_are_archived_by_the_new_grace(deployment: Deployment) -> None:
    await put_days_family(deployment, 999 * DAY_S, keep=1)
    [past] = await deployment.make_boards(PAST)
    await deployment.store.write(lambda: shut_boards([past], now_us=NOW_US))
    assert await list_due(deployment, ClosingStage.FROZEN) == [], "the next day has a grace, too"
    await put_days_family(deployment, 0, keep=1)
    assert await list_due(deployment, ClosingStage.FROZEN) == [past.id]


async def test_the_store_accepts_a_very_long_grace(deployment: Deployment) -> None:
    family = await put_days_family(deployment, 10**12)
    ancient = CALENDAR.period_at(PeriodKind.DAY, -40_000 * DAY_S * S).id
    [board] = await deployment.make_boards(ancient)
    assert await post(deployment, family, board) == [PostStatus.APPLIED]
