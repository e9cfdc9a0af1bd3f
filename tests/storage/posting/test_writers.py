"""Test that a request with posts to several partitions takes one transaction for each partition."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from storage.errors import OutcomeUnknownError, StoreAwayError, UnknownBoardError
from storage.posting.writer import Writers
from storage.records import Board, Post, PostStatus
from tests.storage.deployment import Deployment, part, ranked

XP = ranked("xp")
OWNERS = [f"o{number}" for number in range(8)]  # some in each of four segments


async def submit(writers: Writers, posts: Sequence[Post]) -> list[str]:
    return [str(outcome.status) for [outcome] in await writers.submit(posts)]


def make_posts(deployment: Deployment, board: Board) -> list[Post]:
    """Return a post for each owner, all with the same id."""
    return [deployment.post(owner, part(board, {"xp": 1}), post_id="p") for owner in OWNERS]


async def test_one_id_serves_all_owners_of_a_board(deployment: Deployment, board: Board) -> None:
    first, *others = make_posts(deployment, board)
    async with deployment.open_writers() as writers:
        assert await submit(writers, [first]) == ["applied"]
        assert await submit(writers, [*others, first]) == ["applied"] * 7 + ["duplicate"]
        await deployment.reset()  # the writers' copy of the board does not know it
        assert await submit(writers, [first, *others, first]) == ["applied"] * 8 + ["duplicate"]
    assert len(await deployment.list_rows(board)) == 8


async def test_outcomes_have_the_order_of_the_posts(deployment: Deployment, board: Board) -> None:
    posts = [deployment.post(owner, part(board, {"xp": xp})) for xp in (1, 2) for owner in OWNERS]
    posts.insert(8, deployment.post("o9", part(board, {"xp": 10**16})))
    async with deployment.open_writers() as writers:
        outcomes = [outcome for [outcome] in await writers.submit(posts)]
    assert [outcome.stats for outcome in outcomes] == [[1]] * 8 + [None] + [[3]] * 8


async def test_a_post_to_two_boards_is_refused_on_both(deployment: Deployment, board: Board) -> None:
    other = await deployment.create("other", XP)
    async with deployment.open_writers() as writers:
        await writers.submit([deployment.post("o1", part(board, {"xp": 1}), post_id="p")])
        both = deployment.post("o1", part(board, {"xp": 2}), part(other, {"xp": 2}), post_id="p")
        [outcomes] = await writers.submit([both])
    assert [outcome.status for outcome in outcomes] == ["rejected", "rejected"]
    assert await deployment.stats(other, "o1") is None


async def test_a_request_may_have_posts_to_boards_of_several_partitions(deployment: Deployment, board: Board) -> None:
    other = await deployment.create("other", XP, partition=0)
    posts = [deployment.post("ada", part(each, {"xp": 1}), post_id="p") for each in (board, other, board)]
    both = deployment.post("bob", part(other, {"xp": 2}), part(board, {"xp": 2}))
    async with deployment.open_writers() as writers:
        assert await submit(writers, posts) == ["applied", "applied", "duplicate"]
        found = await writers.submit([posts[1], both, posts[0]])
    assert [[str(outcome.status) for outcome in outcomes] for outcomes in found] == [
        ["duplicate"], ["applied", "applied"], ["duplicate"],
    ]  # fmt: skip
    for each in (board, other):
        assert [await deployment.stats(each, owner) for owner in ("ada", "bob")] == [{"xp": 1}, {"xp": 2}]


async def test_segments_that_are_away_do_not_stop_posts_to_others(
    deployment: Deployment, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = make_posts(deployment, board)
    away = deployment.store.at(posts[0].parts[0].leaf.partition)
    here = [post for post in posts if deployment.store.at(post.parts[0].leaf.partition) is not away]

    async def refuse(_program: object) -> None:
        raise StoreAwayError("the node is away")

    monkeypatch.setattr(away, "write", refuse)
    async with deployment.open_writers() as writers:
        assert not here or await submit(writers, here) == ["applied"] * len(here)
        with pytest.raises(OutcomeUnknownError if here else StoreAwayError):
            await writers.submit(posts)
    monkeypatch.undo()
    async with deployment.open_writers() as writers:
        again = await submit(writers, posts)
    assert sorted(again) == ["applied"] * (8 - len(here)) + ["duplicate"] * len(here)


async def test_a_post_to_an_archived_board_that_was_deleted_finds_no_board(
    deployment: Deployment, board: Board
) -> None:
    kept = await deployment.create("kept", XP)
    leaves = tuple(replace(leaf, gate=leaf.gate._replace(archived_us=1)) for leaf in board.leaves)
    archived = replace(board, leaves=leaves)  # as a process keeps it that does not know that the board was deleted
    await deployment.delete()
    posts = [deployment.post("ada", part(each, {"xp": 1}), post_id="p") for each in (archived, kept)]
    async with deployment.open_writers() as writers:
        [[refused], [applied]] = await writers.submit(posts)
        assert isinstance(refused.error, UnknownBoardError), "so the process reads the board again, and finds a new one"
        assert applied.status is PostStatus.APPLIED
