"""Test that a post id belongs to a whole board, whether or not the board has segments."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from storage.errors import PostIdConflictError, PostRejectedError, StoreAwayError, StoreBusyError
from storage.posting.writer import Writers
from storage.records import Board, PartOutcome, Post
from storage.store import Program, Store, read_steps
from tests.storage.deployment import Deployment, part, ranked

T = TypeVar("T")

XP = ranked("xp")
OWNERS = [f"o{number}" for number in range(8)]  # some in each of four segments
APPLIED, DUPLICATE, CONFLICT = "applied", "duplicate", "conflict"


def told(outcome: PartOutcome) -> str:
    return CONFLICT if isinstance(outcome.error, PostIdConflictError) else str(outcome.status)


async def submit(writers: Writers, posts: Sequence[Post]) -> list[str]:
    return [told(outcome) for [outcome] in await writers.submit(posts)]


def make_posts(deployment: Deployment, board: Board, post_id: str = "p", xp: int = 1) -> list[Post]:
    """Return a post for each owner, all with the same id."""
    return [deployment.post(owner, part(board, {"xp": xp}), post_id=post_id) for owner in OWNERS]


async def test_an_id_that_another_owner_used_is_a_conflict(deployment: Deployment, board: Board) -> None:
    first, *others = make_posts(deployment, board)
    async with deployment.open_writers() as writers:
        assert await submit(writers, [first]) == [APPLIED]
        for other in others:
            assert await submit(writers, [other]) == [CONFLICT]
        assert await submit(writers, [*others, first]) == [CONFLICT] * len(others) + [DUPLICATE]
        assert await submit(writers, make_posts(deployment, board, "q")[1:2]) == [APPLIED]
    assert len(await deployment.list_rows(board)) == 2


async def test_within_a_request_the_first_post_with_an_id_counts(deployment: Deployment, board: Board) -> None:
    posts = make_posts(deployment, board)
    async with deployment.open_writers() as writers:
        assert await submit(writers, posts) == [APPLIED] + [CONFLICT] * 7
        again = [*reversed(posts), deployment.post("o9", part(board, {"xp": 1}))]
        assert await submit(writers, again) == [CONFLICT] * 7 + [DUPLICATE, APPLIED]


async def test_a_rejected_post_leaves_its_id_to_one_other(deployment: Deployment, board: Board) -> None:
    too_large = deployment.post("o9", part(board, {"xp": 10**16}), post_id="p")
    async with deployment.open_writers() as writers:
        first, *others = await submit(writers, [too_large, *make_posts(deployment, board)])
    assert first == "rejected"
    assert sorted(others) == [APPLIED] + [CONFLICT] * 7


async def test_the_posts_of_an_owner_keep_their_order_if_an_id_repeats(deployment: Deployment, board: Board) -> None:
    too_large = deployment.post("o9", part(board, {"xp": 10**16}), post_id="p")
    for owner in OWNERS:
        posts = [
            too_large,
            deployment.post(owner, part(board, {"xp": 1}), post_id="p"),
            deployment.post(owner, part(board, {"xp": 2})),
        ]
        async with deployment.open_writers() as writers:
            [[first], [second], [third]] = await writers.submit(posts)
        assert (first.status, second.stats, third.stats) == ("rejected", [1], [3])
        board = await deployment.reset()


async def test_of_requests_at_the_same_time_one_gets_the_id(deployment: Deployment, board: Board) -> None:
    async with deployment.open_writers() as writers:
        answers = await asyncio.gather(*[submit(writers, [post]) for post in make_posts(deployment, board)])
    assert sorted(answer for [answer] in answers) == [APPLIED] + [CONFLICT] * 7


async def test_an_id_is_free_again_once_the_board_was_emptied(deployment: Deployment, board: Board) -> None:
    posts = make_posts(deployment, board)
    async with deployment.open_writers() as writers:
        assert await submit(writers, posts[:1]) == [APPLIED]
        await deployment.reset()  # the writers' copy of the board does not know it
        assert await submit(writers, posts[1:2]) == [APPLIED]
        assert await submit(writers, posts[2:]) == [CONFLICT] * 6


async def test_a_post_to_two_boards_is_refused_on_both(deployment: Deployment, board: Board) -> None:
    other = await deployment.create("other", XP)
    async with deployment.open_writers() as writers:
        await writers.submit([deployment.post("o0", part(board, {"xp": 1}), post_id="p")])
        both = deployment.post("o1", part(board, {"xp": 1}), part(other, {"xp": 1}), post_id="p")
        [outcomes] = await writers.submit([both])
    assert [type(outcome.error) for outcome in outcomes] == [PostIdConflictError, PostRejectedError]
    assert await deployment.stats(other, "o1") is None


async def test_two_posts_that_two_processes_applied_with_one_id_keep_their_outcomes(
    deployment: Deployment, board: Board
) -> None:
    by_segment = {board.part_of(post.owner).key: post for post in make_posts(deployment, board)}
    posts = [*by_segment.values()]
    for post in posts:
        assert told(await deployment.apply_one(post)) == APPLIED
    async with deployment.open_writers() as writers:
        assert await submit(writers, posts) == [DUPLICATE] * len(posts)


def fail(monkeypatch: pytest.MonkeyPatch, store: Store, error: Exception) -> None:
    """Let look-ups in the partition of a store fail."""

    async def read_or_fail(by: Store, program: Callable[[], Program[T]]) -> T:
        if by is store:
            raise error
        return await read_steps(by, program)

    monkeypatch.setattr("storage.posting.segment_posts.read_steps", read_or_fail)


async def test_segments_that_are_away_do_not_delay_posts_to_others(
    deployment: Deployment, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = make_posts(deployment, board)
    away = board.part_of(first.owner)
    fail(monkeypatch, deployment.store.for_board(away), StoreAwayError("the node is away"))
    elsewhere = [post for post in others if board.part_of(post.owner).partition != away.partition]
    async with deployment.open_writers() as writers:
        assert await submit(writers, [first]) == [APPLIED]
        for number, post in enumerate(elsewhere):  # the segment that is away does not tell that it knows the id
            assert await submit(writers, [post]) == [CONFLICT if number else APPLIED]


async def test_nothing_is_applied_if_the_look_up_of_ids_fails(
    deployment: Deployment, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, deployment.store.for_board(board.parts[-1]), StoreBusyError("too many reads"))
    async with deployment.open_writers() as writers:
        if board.segments:
            with pytest.raises(StoreBusyError):
                await writers.submit(make_posts(deployment, board))
            assert await deployment.list_rows(board) == []
        else:
            assert await submit(writers, make_posts(deployment, board)[:1]) == [APPLIED]
