"""Test that an entry without a voided post is what it would be if the post had never been sent."""

from dataclasses import replace
from typing import Any

import pytest

from storage.archive.board_closing import shut_boards
from storage.errors import (
    ArchivedError,
    JournalIncompleteError,
    NothingReplayedError,
    PostVoidedError,
    UnknownOwnerError,
    UnknownPostError,
)
from storage.leaves.totals import ALL_ENTRIES
from storage.log.bundles import ChangeKind, record_of_rejection
from storage.log.change_log import NewChange, change_log
from storage.periods import PeriodKind
from storage.records import Board, Family, Post, PostStatus, Season
from storage.store import Program, in_partition
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import NOW_US, Deployment, counter, label, part, ranked
from tests.storage.posting.test_rebuild import read_everything

COLUMNS = (ranked("xp"), counter("shots"), label("clan"))


async def post_three(deployment: Deployment, board: Board) -> list[Post]:
    posts = [deployment.post("ada", part(board, {"xp": xp}), post_id=f"p{xp}") for xp in (1, 2, 3)]
    for post in posts:
        deployment.clock.now_us += 1
        await deployment.apply(post)
    return posts


async def test_the_id_of_a_voided_post_stays_taken(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    posts = await post_three(deployment, board)
    await deployment.void(board, "ada", "p2")
    for post in (posts[1], deployment.post("ada", part(board, {"xp": 9}), post_id="p2")):
        outcome = await deployment.apply_one(post)
        assert outcome.status is PostStatus.REJECTED
        assert isinstance(outcome.error, PostVoidedError)
    assert (await deployment.apply_one(posts[0])).status is PostStatus.DUPLICATE
    assert await deployment.value(board, "ada") == 4


async def test_an_owner_whose_every_post_was_voided_has_no_entry(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    for post_id in ("p2", "p1", "p3"):
        [voided] = await deployment.void(board, "ada", post_id)
    assert voided.stats is None
    assert await deployment.rows(board, ["ada"]) == {}
    assert ALL_ENTRIES not in await deployment.totals(board)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7}), post_id="p7"))
    await deployment.rebuild()
    assert await deployment.value(board, "ada") == 7
    with pytest.raises(UnknownPostError):
        await deployment.void(board, "ada", "never")


async def test_the_journal_has_a_line_about_the_voiding(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.void(board, "ada", "p2")
    last = (await deployment.read_journal())[-1]
    assert last.record is not None
    assert (last.record.kind, last.owner, last.record.post_id) == (ChangeKind.VOIDED, "ada", "p2")


async def test_a_post_to_an_entry_that_was_removed_since_cannot_be_voided(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.erase(board, "ada")
    with pytest.raises(UnknownOwnerError):
        await deployment.void(board, "ada", "p2")
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7}), post_id="p7"))
    with pytest.raises(UnknownPostError):
        await deployment.void(board, "ada", "p2")
    board = await deployment.reset()
    with pytest.raises(UnknownPostError):
        await deployment.void(board, "ada", "p7")


async def test_a_rejected_post_with_the_same_id_is_not_taken_for_the_post(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.erase(board, "ada")
    again = deployment.post("ada", part(board, {"xp": 7}), post_id="p7")
    await deployment.apply(again)
    leaf, changes = board.leaf_of("ada"), again.parts[0].changes
    rejected = record_of_rejection(changes, "p2", None, ("PostIdConflictError", "", None))  # as for a queued post

    def program() -> Program[None]:
        change = NewChange(leaf.key, "ada", "", "", rejected)
        yield from in_partition(leaf.partition, change_log.append_changes([change], now_us=deployment.clock()))

    await deployment.write(program)
    with pytest.raises(UnknownPostError):
        await deployment.void(board, "ada", "p2")


async def test_an_entry_is_not_recomputed_if_the_journal_lacks_its_first_post(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.apply(deployment.post("bob", part(board, {"xp": 5}), post_id="q"))
    await deployment.prune_log(rows_max=2)  # the creation of the board and a post
    with pytest.raises(JournalIncompleteError):
        await deployment.void(board, "ada", "p3")
    assert await deployment.value(board, "ada") == 6
    [voided] = await deployment.void(board, "bob", "q")
    assert voided.stats is None, "the journal has all posts of bob"


async def test_a_voided_post_stays_voided_if_a_deleted_board_is_rebuilt(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.void(board, "ada", "p2")
    await deployment.log_deletion("b")
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7}), post_id="p7"))
    await deployment.rebuild(since=(0,) * deployment.partition + (1,))
    board = await deployment.find()
    assert await deployment.value(board, "ada") == 11
    again = deployment.post("ada", part(board, {"xp": 2}), post_id="p2")
    assert isinstance((await deployment.apply_one(again)).error, PostVoidedError)
    with pytest.raises(JournalIncompleteError, match="rebuilt"):
        await deployment.void(board, "ada", "p7")


async def test_an_id_that_was_used_again_after_a_reset_is_not_voided_in_a_rebuild(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await post_three(deployment, board)
    await deployment.void(board, "ada", "p2")
    board = await deployment.reset()
    await post_three(deployment, board)
    before = await read_everything(deployment, board)
    await deployment.rebuild()
    assert await read_everything(deployment, board) == before
    assert await deployment.value(await deployment.find(), "ada") == 6


async def make_family(deployment: Deployment) -> Family:
    return await deployment.create_family(
        ranked("xp"), periods=(PeriodKind.ALL, PeriodKind.DAY), facets=((), ("org",)), grace_s=0
    )


@pytest.mark.parametrize("page_rows", [1, 100])
async def test_a_rebuild_counts_no_posts_that_were_voided_before_the_board_was_emptied(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, page_rows: int
) -> None:
    monkeypatch.setattr("storage.posting.rebuild.PAGE_ROWS", page_rows)
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply_one(deployment.post("ada", part(board, {"xp": 5}), post_id="p1"))
    await deployment.void(board, "ada", "p1")
    await deployment.reset()
    with pytest.raises(NothingReplayedError):
        await deployment.rebuild(board.id)


async def test_a_post_to_a_family_is_voided_on_each_of_its_boards(deployment: Deployment) -> None:
    family = await make_family(deployment)
    boards = await deployment.make_boards("all", "all:org=1", "all:org=2")
    for xp, reached in ((1, boards), (2, boards[:2]), (4, [boards[0], boards[2]])):
        await deployment.apply(make_family_post(deployment, family, "ada", xp, *reached, post_id=f"p{xp}"))
    voided = await deployment.void(family, "ada", "p2")
    assert [(each.leaf.id, each.stats) for each in voided] == [("f:all", [5]), ("f:all:org=1", [1])]
    assert [await deployment.value(board, "ada") for board in boards] == [5, 1, 5]
    [outcomes] = await deployment.apply(make_family_post(deployment, family, "ada", 2, *boards[:2], post_id="p2"))
    assert all(isinstance(outcome.error, PostVoidedError) for outcome in outcomes)
    assert await deployment.void(family, "ada", "p2") == voided


async def test_a_board_of_a_family_that_lacks_posts_in_the_journal_refuses_alone(deployment: Deployment) -> None:
    family = await make_family(deployment)
    old, new = await deployment.make_boards("all", "all:org=1")
    await deployment.apply(make_family_post(deployment, family, "ada", 1, old, post_id="p1"))
    await deployment.apply(make_family_post(deployment, family, "ada", 2, old, new, post_id="p2"))
    await deployment.prune_log(rows_max=3)  # the creation of two boards, and a post
    for _ in range(2):
        refused, voided = await deployment.void(family, "ada", "p2")
        assert isinstance(refused.error, JournalIncompleteError)
        assert (voided.stats, voided.error) == (None, None)
    assert [await deployment.value(board, "ada") for board in (old, new)] == [3, None]
    with pytest.raises(JournalIncompleteError):
        await deployment.void(family, "ada", "p1")


async def test_a_closed_board_is_recomputed_as_long_as_it_has_rows(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS, season=Season(None, NOW_US + 100, 0, None))
    await post_three(deployment, board)
    deployment.clock.now_us += 100
    [board] = await deployment.write(shut_boards, [board], now_us=deployment.clock())
    [voided] = await deployment.void(board, "ada", "p2")
    assert voided.stats == [4, None, None]
    assert await deployment.value(board, "ada") == 4
    leaves = tuple(replace(leaf, gate=leaf.gate._replace(archived_us=1)) for leaf in board.leaves)
    with pytest.raises(ArchivedError):
        await deployment.void(replace(board, leaves=leaves), "ada", "p1")


async def test_a_hundred_voidings_leave_one_entry_and_no_other_traces(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(deployment.post("bob", part(board, {"xp": 1}), post_id="kept"))
    posts: list[Any] = [deployment.post(f"o{n}", part(board, {"xp": n}), post_id="p") for n in range(100)]
    await deployment.apply(*posts)
    for owner in range(100):
        await deployment.void(board, f"o{owner}", "p")
    assert [row[0] for row in await deployment.list_rows(board)] == ["bob"]
    assert (await deployment.totals(board))[ALL_ENTRIES] == 1
