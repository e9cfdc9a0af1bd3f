"""Test columns that are computed: when they are added to a board, on hidden entries, and when posts are replayed."""

from dataclasses import replace

import pytest

from storage.errors import SpecConflictError
from storage.records import Board, ColumnSpec, PostStatus, TableSharing
from tests.storage.deployment import Deployment, counter, part, quotient, ranked

HITS, SHOTS = counter("hits"), counter("shots")
ACCURACY = quotient("accuracy", "hits", "shots", least=10)


async def read(deployment: Deployment, board: Board, owner: str) -> list[object]:
    [entry] = (await deployment.rows(board, [owner])).values()
    return [*deployment.merger(board).decode_stats(entry.cells)]


async def shoot(deployment: Deployment, board: Board, owner: str, hits: int, shots: int) -> PostStatus:
    outcome = await deployment.apply_one(deployment.post(owner, part(board, {"hits": hits, "shots": shots})))
    return outcome.status


async def add(deployment: Deployment, board: Board, *columns: ColumnSpec) -> Board:
    return await deployment.change(board.id, replace(board.spec, columns=(*board.spec.columns, *columns)))


async def test_entries_have_an_added_quotient_from_their_next_post_on_or_after_a_rebuild(
    deployment: Deployment,
) -> None:
    before = await deployment.create("b", HITS, SHOTS, ranked("xp"))
    for owner in ("ada", "bob"):
        await shoot(deployment, before, owner, 5, 20)
    board = await add(deployment, before, ACCURACY)
    assert await read(deployment, board, "ada") == [5, 20, None, None]
    outcome = await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    assert outcome.stats == [5, 20, 1, 25]
    assert await read(deployment, board, "bob") == [5, 20, None, None]
    await deployment.rebuild()
    board = await deployment.find()
    assert [await read(deployment, board, owner) for owner in ("ada", "bob")] == [[5, 20, 1, 25], [5, 20, None, 25]]


async def test_a_copy_from_before_a_quotient_was_added_takes_no_post(deployment: Deployment) -> None:
    before = await deployment.create("b", HITS, SHOTS, ranked("xp"))
    await shoot(deployment, before, "ada", 5, 20)
    board = await add(deployment, before, ACCURACY)
    for _ in range(2):
        assert await shoot(deployment, before, "ada", 1, 0) is PostStatus.REJECTED
        assert await shoot(deployment, board, "ada", 0, 0) in (PostStatus.APPLIED, PostStatus.UNCHANGED)
    assert await read(deployment, board, "ada") == [5, 20, None, 25]
    plain = await add(deployment, board, counter("deaths"))
    assert await shoot(deployment, board, "ada", 0, 20) is PostStatus.APPLIED, "other columns need no new copy"
    assert await read(deployment, plain, "ada") == [5, 40, None, 12, None], "12.5 is rounded half to even"


async def test_the_boards_of_a_family_take_a_quotient_too(deployment: Deployment) -> None:
    if deployment.segments > 1:
        return
    family = await deployment.create_family(HITS, SHOTS)
    [before] = await deployment.make_boards("all")
    await shoot(deployment, before, "ada", 5, 20)
    await deployment.put_family(replace(family.spec, board=replace(family.spec.board, columns=(HITS, SHOTS, ACCURACY))))
    [board] = await deployment.make_boards("all")
    assert await shoot(deployment, before, "ada", 5, 20) is PostStatus.REJECTED
    assert await shoot(deployment, board, "ada", 5, 0) is PostStatus.APPLIED
    assert await read(deployment, board, "ada") == [10, 20, 50]


async def test_a_hidden_entry_keeps_its_quotient_up_to_date(deployment: Deployment) -> None:
    board = await deployment.create("b", HITS, SHOTS, ACCURACY)
    await shoot(deployment, board, "ada", 5, 20)
    await deployment.hide("ada", board)
    await shoot(deployment, board, "ada", 5, 0)
    await deployment.show("ada", board)
    assert await read(deployment, board, "ada") == [10, 20, 50]


async def test_a_post_that_leaves_the_range_of_a_quotient_changes_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", HITS, SHOTS, replace(ACCURACY, min_scaled=0, max_scaled=100))
    assert await shoot(deployment, board, "ada", 12, 9) is PostStatus.APPLIED, "there is no quotient yet"
    assert await shoot(deployment, board, "ada", 0, 1) is PostStatus.REJECTED
    assert await shoot(deployment, board, "ada", 0, 3) is PostStatus.APPLIED
    assert await read(deployment, board, "ada") == [12, 12, 100]


async def test_posts_to_an_earlier_column_of_that_name_are_not_replayed(deployment: Deployment) -> None:
    if deployment.table is not TableSharing.OWN or deployment.segments > 1:
        return
    board = await deployment.create("b", HITS, SHOTS, ranked("accuracy", scale=2))
    await deployment.apply(deployment.post("ada", part(board, {"accuracy": 7})))
    await deployment.log_deletion("b")
    await deployment.create("b", HITS, SHOTS, ACCURACY)
    with pytest.raises(SpecConflictError, match="had a column 'accuracy'"):
        await deployment.rebuild(since=(0,) * deployment.store.partitions)
