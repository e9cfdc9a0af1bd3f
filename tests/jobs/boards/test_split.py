"""Split boards while posts go on, and compare them with what they were."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.boards.move import BoardMove, MoveCounts
from storage.boards.boards import list_boards
from storage.errors import BeforeResetError, LeaseTakenError, RacesLostError, SpecConflictError, SpecInvalidError
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.posting.rebuild import find_deleted_leaves
from storage.queue.outcomes import find_post_fate
from storage.records import Board, PostStatus, Season, TableSharing
from storage.store import CONTROL
from tests.jobs.moving import STORE_LEASES, copy_few_rows_at_once, make_move, open_refresh_requests, split_by
from tests.storage.backends import BACKENDS, OpenStore
from tests.storage.deployment import NOW_US, Deployment, counter, part, ranked
from tests.storage.queueing import QueueDesk

OWNERS = [f"o{number}" for number in range(40)]
S = 1_000_000


@pytest.fixture(params=["partitions", "sqlite"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with BACKENDS[request.param](request)(tmp_path) as opened:
        yield opened


@pytest.fixture
async def deployment(open_store: OpenStore) -> Deployment:
    return await Deployment.on(await open_store())


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_few_rows_at_once(monkeypatch)


async def split(deployment: Deployment, segments: int) -> tuple[Board, MoveCounts]:
    done = await make_move(deployment.store, segments=segments).run()
    return await deployment.find(), done


async def post(deployment: Deployment, board: Board, owner: str, xp: int, post_id: str | None = None) -> PostStatus:
    deployment.clock.now_us += 1
    stats: dict[str, Any] = {"shots": 1, "xp": xp}
    return (await deployment.apply_one(deployment.post(owner, part(board, stats), post_id=post_id))).status


async def fill(deployment: Deployment) -> Board:
    board = await deployment.create("b", counter("shots"), ranked("xp"))
    for number, owner in enumerate(OWNERS):
        await post(deployment, board, owner, number % 7, f"first-{owner}")
    await deployment.erase(board, "o3")
    await deployment.hide("o5", board)
    return board


async def contents(deployment: Deployment, board: Board) -> tuple[list[tuple[Any, ...]], dict[int, int]]:
    return await deployment.list_rows(board), await deployment.totals(board)


async def test_a_board_is_the_same_in_other_segments(deployment: Deployment) -> None:
    board = await fill(deployment)
    before = await contents(deployment, board)
    for segments in (4, 2, 7):
        board, done = await split(deployment, segments)
        assert len(board.leaves) == board.spec.segments == segments
        requested = await open_refresh_requests(deployment.store)
        assert {(segment.key, 1) for segment in board.leaves} <= set(requested), "new segments have no curves"
        assert done.rows == len(before[0])
        assert await contents(deployment, board) == before
        # Every post is still known, whichever segment has its owner now.
        for number, owner in enumerate(OWNERS):
            assert await post(deployment, board, owner, number % 7, f"first-{owner}") is PostStatus.DUPLICATE
        assert (await deployment.store.read(lambda: list_boards(prefix="", after="", limit=9))) == [board]
    places = {segment.partition for segment in board.leaves}
    assert len(places) == min(7, deployment.store.partitions)


async def test_posts_from_before_a_split_are_voided_and_a_reset_still_refuses_old_ones(deployment: Deployment) -> None:
    await deployment.create("b", counter("shots"), ranked("xp"))
    late_us = deployment.clock()
    deployment.clock.now_us += 100
    board = await deployment.reset()
    for number, owner in enumerate(OWNERS):
        await post(deployment, board, owner, number, f"first-{owner}")
        await post(deployment, board, owner, 100, f"second-{owner}")
    for segments in (4, 7):
        board, _ = await split(deployment, segments)
        for owner in OWNERS:
            await post(deployment, board, owner, 1_000 * segments, f"{segments}-{owner}")
    for number, owner in enumerate(OWNERS):
        [voided] = await deployment.void(board, owner, f"second-{owner}")
        assert voided.stats == [3, 11_000 + number]
        [voided] = await deployment.void(board, owner, f"first-{owner}")
        assert voided.stats == [2, 11_000]
        late = await deployment.apply_one(deployment.post(owner, part(board, {"xp": 9}), at_us=late_us))
        assert isinstance(late.error, BeforeResetError)
        assert await post(deployment, board, owner, 100, f"second-{owner}") is PostStatus.REJECTED


async def test_a_split_keeps_posts_that_come_meanwhile(deployment: Deployment) -> None:
    board = await fill(deployment)

    class Disturbed(BoardMove):
        async def _catch_up_and_switch(self) -> MoveCounts:
            for owner in (*OWNERS[10:20], "late"):
                assert await post(deployment, board, owner, 100, f"late-{owner}") is PostStatus.APPLIED
            await deployment.erase(board, "o30")
            await deployment.hide("o31", board)
            return await super()._catch_up_and_switch()

        async def _catch_up(self, number: int, copy: Any) -> None:
            await super()._catch_up(number, copy)
            await post(deployment, board, "o21", 1_000, "last")  # only the switch can copy this one

    done = await make_move(deployment.store, segments=3, kind=Disturbed).run()
    assert done.changed >= 11
    after = await deployment.find()
    stats = {owner: await deployment.stats(after, owner) for owner in (*OWNERS, "late")}
    assert stats["late"] == {"shots": 1, "xp": 100}
    assert stats["o12"] == {"shots": 2, "xp": 105}
    assert stats["o21"] == {"shots": 2, "xp": 1_000}
    assert [owner for owner, found in stats.items() if found is None] == ["o3", "o5", "o30", "o31"]
    totals = await deployment.totals(after)
    assert (totals[ALL_ENTRIES], totals[1]) == (37, 37)
    for owner in (*OWNERS[10:20], "late"):
        assert await post(deployment, after, owner, 100, f"late-{owner}") is PostStatus.DUPLICATE
    assert await post(deployment, after, "o21", 1_000, "last") is PostStatus.DUPLICATE


async def test_segments_have_the_end_that_the_board_got_during_the_split(deployment: Deployment) -> None:
    season = Season(None, NOW_US + 100 * S, 5, None)
    board = await deployment.create("b", counter("shots"), ranked("xp"), season=season)
    longer = replace(board.spec, season=replace(season, ends_us=NOW_US + 900 * S))

    class Disturbed(BoardMove):
        async def _catch_up_and_switch(self) -> MoveCounts:
            await deployment.change("b", longer)
            return await super()._catch_up_and_switch()

    await make_move(deployment.store, segments=3, kind=Disturbed).run()
    after = await deployment.find()
    assert {(part.spec.season, part.gate.closes_us) for part in after.leaves} == {(longer.season, NOW_US + 905 * S)}
    deployment.clock.now_us += 500 * S
    assert await post(deployment, after, "o1", 1) is PostStatus.APPLIED


async def test_the_fate_of_a_queued_post_is_known_in_every_segment_and_after_splits(deployment: Deployment) -> None:
    board = await fill(deployment)
    desk = await QueueDesk.on(deployment, everywhere=True)
    stats = dict.fromkeys(OWNERS[10:20], 10) | dict.fromkeys(OWNERS[20:30], 10**16)  # the second ten are too large

    async def list_fates() -> list[str]:
        ids = deployment.post_ids
        posts = [await find_post_fate(deployment.store, ids, board, f"q-{owner}", owner) for owner in stats]
        return ["waits" if post is None else post.status.value for post in posts]

    async def enqueue() -> None:
        posts = [deployment.post(owner, part(board, {"xp": xp}), post_id=f"q-{owner}") for owner, xp in stats.items()]
        await desk.enqueue(*posts)

    await enqueue()
    assert await list_fates() == ["waits"] * 20
    board, _ = await split(deployment, 4)
    assert await list_fates() == ["waits"] * 20, "they wait where the board was"
    await enqueue()
    board, _ = await split(deployment, 3)
    assert await list_fates() == ["waits"] * 20, "they wait where earlier segments were"
    await desk.drain_queue()
    assert [await deployment.value(board, owner) for owner in OWNERS[10:20]] == [at % 7 + 10 for at in range(10, 20)]
    assert await list_fates() == ["applied"] * 10 + ["rejected"] * 10
    board, _ = await split(deployment, 2)
    assert await list_fates() == ["applied"] * 10 + ["rejected"] * 10


async def test_an_old_copy_of_a_split_board_is_refused(deployment: Deployment) -> None:
    board = await fill(deployment)
    first, _ = await split(deployment, 2)
    await split(deployment, 3)
    for old in (board, first):
        assert await post(deployment, old, "o1", 1) is PostStatus.REJECTED


async def test_a_split_board_is_rebuilt_from_the_journal_of_its_earlier_segments(deployment: Deployment) -> None:
    await fill(deployment)
    board, _ = await split(deployment, 4)
    await post(deployment, board, "o1", 50)
    board, _ = await split(deployment, 2)
    await post(deployment, board, "o2", 60)
    before, totals = await contents(deployment, board)
    done = await deployment.rebuild()
    assert (done.entries, done.hidden_entries) == (38, 1)
    rows, now = await contents(deployment, board)
    assert rows == before
    assert {**now, CHANGES: 0} == {**totals, CHANGES: 0}


async def test_a_killed_split_leaves_nothing_behind(deployment: Deployment) -> None:
    board = await fill(deployment)
    begun = partial(split_by, "b", STORE_LEASES, segments=3, holder="killed", lease_us=1)
    await deployment.store.at(CONTROL).write(begun)
    assert await deployment.find() == board
    board, _ = await split(deployment, 2)
    assert len(board.leaves) == 2
    await deployment.delete()
    assert await deployment.store.read(lambda: list_boards(prefix="", after="", limit=9)) == []


async def test_a_failed_split_leaves_the_board_as_it_was(deployment: Deployment) -> None:
    board = await fill(deployment)
    before = await contents(deployment, board)

    class Failing(BoardMove):
        async def _catch_up(self, number: int, copy: Any) -> None:
            raise RacesLostError("posts change rows faster than they can be copied")

    with pytest.raises(RacesLostError):
        await make_move(deployment.store, segments=4, kind=Failing).run()
    assert await contents(deployment, await deployment.find()) == before
    await split(deployment, 4)


async def test_what_cannot_be_split_is_refused(deployment: Deployment) -> None:
    await fill(deployment)
    await split(deployment, 2)
    with pytest.raises(SpecConflictError, match="2 segments already"):
        await split(deployment, 2)
    begin = partial(split_by, leases=STORE_LEASES, segments=4, holder="first", lease_us=10**9)
    await deployment.store.at(CONTROL).write(lambda: begin("b"))
    with pytest.raises(LeaseTakenError):
        await split(deployment, 3)
    deployment.table = TableSharing.SHARED
    await deployment.create("shared", ranked("xp"))
    with pytest.raises(SpecInvalidError, match="one segment"):
        await deployment.store.at(CONTROL).write(lambda: begin("shared"))
    assert (await deployment.find()).spec.segments == 2


@pytest.mark.parametrize("splits", [(3,), (3, 2)])
async def test_the_journal_knows_all_earlier_segments_of_a_deleted_board(
    deployment: Deployment, splits: tuple[int, ...]
) -> None:
    board = await fill(deployment)
    keys = {board.key}
    for segments in splits:
        board, _ = await split(deployment, segments)
        keys |= {segment.key for segment in board.leaves}
    await deployment.log_deletion("b")
    begins = (0,) * deployment.store.partitions
    found = await deployment.store.read(lambda: find_deleted_leaves("b", begins))
    assert found.keys() == keys
    told = [key for key, each in found.items() if each.segment == 0]
    assert told == [board.leaves[0].key], "callers see one deletion"
