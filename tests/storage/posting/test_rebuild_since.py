"""Test that the journal restores a board that was deleted by mistake, and that every post counts once."""

import random
from typing import Any

import pytest

from storage.errors import JournalIncompleteError, NothingReplayedError, SpecConflictError
from storage.leaves.totals import ALL_ENTRIES
from storage.posting.rebuild import RebuildCounts
from storage.queue.outcomes import list_post_fates
from storage.records import Best, Board, Merge, PostStatus, Ties
from tests.storage.deployment import Deployment, counter, label, part, ranked

DAY_US = 86_400_000_000
OWNERS = 25
COLUMNS = (
    ranked("wins", min_scaled=0),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=2, min_scaled=0, max_scaled=10**5),
    counter("shots"),
    label("clan"),
)


async def read_rows(deployment: Deployment, board: Board) -> list[Any]:
    return await deployment.list_rows(await deployment.find(board.id))


async def replay(deployment: Deployment, board_id: str, since: int) -> RebuildCounts:
    return await deployment.rebuild(board_id, (0,) * deployment.partition + (since,))


async def post_a_month_of_wins(deployment: Deployment, board: Board, rng: random.Random) -> None:
    for day in range(30):
        deployment.clock.now_us += DAY_US
        at_us = None if day % 3 else deployment.clock.now_us - 5
        posts = [
            deployment.post(
                f"o{rng.randrange(OWNERS)}",
                part(board, {"wins": rng.randrange(3), "lap": rng.randrange(5), "shots": 1}),
                post_id=f"{day}/{number}",
                at_us=at_us,
            )
            for number in range(8)
        ]
        await deployment.apply(*posts)


@pytest.mark.parametrize("page_rows", [7, 5_000])
@pytest.mark.parametrize("ties", Ties)
async def test_a_board_that_was_deleted_and_created_again_is_rebuilt_as_it_was(
    deployment: Deployment, ties: Ties, page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.posting.rebuild.PAGE_ROWS", page_rows)
    rng = random.Random(1)
    other = await deployment.create("other", *COLUMNS, ties=ties)
    await deployment.apply(deployment.post("o1", part(other, {"wins": 50})))
    board = await deployment.create("b", *COLUMNS, ties=ties)
    await post_a_month_of_wins(deployment, board, rng)
    before, total = await read_rows(deployment, board), (await deployment.totals(board))[ALL_ENTRIES]
    first = next(row.number for row in await deployment.read_journal() if row.leaf_key == board.key)
    await deployment.log_deletion("b")
    board = await deployment.create("b", *COLUMNS, ties=ties)
    with pytest.raises(NothingReplayedError):
        await deployment.rebuild()
    done = await replay(deployment, "b", first)
    assert await read_rows(deployment, board) == before
    assert (done.entries, done.entries_before, done.replayed) == (len(before), 0, 240)
    assert (await deployment.totals(board))[ALL_ENTRIES] == total


async def test_posts_before_and_after_the_deletion_add_up(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"wins": 7, "lap": 5})))
    await deployment.log_deletion("b")
    # The new board has the same columns in another order.
    board = await deployment.create("b", COLUMNS[1], COLUMNS[0], *COLUMNS[2:])
    await deployment.apply(deployment.post("ada", part(board, {"wins": 2, "lap": 9})))
    await replay(deployment, "b", 1)
    assert await deployment.stats(await deployment.find(), "ada") == {
        "wins": 9, "lap": 5, "shots": None, "clan": None
    }  # fmt: skip


async def test_a_replay_starts_at_the_given_number(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"wins": 7, "lap": 1})))
    await deployment.apply(deployment.post("bob", part(board, {"wins": 1})))
    await deployment.apply(deployment.post("ada", part(board, {"wins": 2, "lap": 3})))
    since = (await deployment.read_journal())[2].number
    await replay(deployment, "b", since)
    board = await deployment.find()
    assert await deployment.stats(board, "ada") == {"wins": 2, "lap": 3, "shots": None, "clan": None}
    assert await deployment.stats(board, "bob") is None


async def test_a_replay_from_before_a_reset_counts_the_posts_before_it(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"wins": 7})))
    board = await deployment.reset()
    with pytest.raises(NothingReplayedError):
        await deployment.rebuild()
    await replay(deployment, "b", 1)
    assert (await deployment.stats(await deployment.find(), "ada") or {})["wins"] == 7


async def test_a_retry_of_a_replayed_post_is_a_duplicate(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    post = deployment.post("ada", part(board, {"wins": 7}), post_id="m1")
    await deployment.apply_one(post)
    await deployment.log_deletion("b")
    board = await deployment.create("b", *COLUMNS)
    again = deployment.post("ada", part(board, {"wins": 7}), post_id="m1")
    # The new board does not know the post ids of the deleted board.
    assert (await deployment.apply_one(again)).status is PostStatus.APPLIED
    done = await replay(deployment, "b", 1)
    assert (done.replayed, done.duplicates) == (1, 1)
    board = await deployment.find()
    assert (await deployment.stats(board, "ada") or {})["wins"] == 7
    retry = deployment.post("ada", part(board, {"wins": 7}), post_id="m1")
    assert (await deployment.apply_one(retry)).status is PostStatus.DUPLICATE
    [fate] = await list_post_fates(deployment.store, deployment.post_ids, board, "m1")
    assert fate.owner == "ada", "the id keeps the time under which the journal has the post"


async def test_a_replay_keeps_hidden_owners_hidden_and_erased_owners_erased(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    for owner in ("ada", "bob", "cleo"):
        await deployment.apply(deployment.post(owner, part(board, {"wins": 7})))
    await deployment.erase(board, "cleo")
    await deployment.log_deletion("b")
    await deployment.flip_hidden("bob", hide=True)
    await deployment.create("b", *COLUMNS)
    done = await replay(deployment, "b", 1)
    assert [row[0] for row in await read_rows(deployment, await deployment.find())] == ["ada"]
    assert (done.entries, done.hidden_entries) == (1, 1)


async def test_a_post_that_would_leave_the_range_is_rejected_and_counted(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"wins": 7})))
    await deployment.apply(deployment.post("ada", part(board, {"wins": -5})))
    await deployment.apply(deployment.post("ada", part(board, {"wins": 1})))
    done = await replay(deployment, "b", (await deployment.read_journal())[1].number)
    assert (done.replayed, done.rejected) == (1, 1)
    assert (await deployment.stats(await deployment.find(), "ada") or {})["wins"] == 1


async def test_a_replay_of_posts_to_a_missing_column_is_refused_and_changes_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"wins": 7})))
    await deployment.log_deletion("b")
    board = await deployment.create("b", ranked("wins", scale=1))
    await deployment.apply(deployment.post("bob", part(board, {"wins": 30})))
    before = await read_rows(deployment, board)
    with pytest.raises(SpecConflictError, match="wins"):
        await replay(deployment, "b", 1)
    assert await read_rows(deployment, board) == before


async def test_a_replay_from_a_number_that_the_journal_lost_is_refused(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    for owner in ("ada", "bob"):
        await deployment.apply(deployment.post(owner, part(board, {"wins": 5})))
        deployment.clock.now_us += 10
    first, second = [row.number for row in await deployment.read_journal()]
    await deployment.prune_log()
    with pytest.raises(JournalIncompleteError, match="begins after"):
        await replay(deployment, "b", first)
    assert (await replay(deployment, "b", second)).entries == 1


async def test_a_rebuild_that_replays_nothing_is_refused(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    with pytest.raises(NothingReplayedError):
        await deployment.rebuild()
    await deployment.apply(deployment.post("ada", part(board, {"wins": 5})))
    with pytest.raises(NothingReplayedError):
        await replay(deployment, "b", (await deployment.read_journal())[0].number + 1)
    assert len(await read_rows(deployment, board)) == 1
