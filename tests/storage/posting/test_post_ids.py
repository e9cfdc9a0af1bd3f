"""Test which post ids the store remembers, for whom and for how long. A post id makes it safe to send a post again."""

from storage.errors import PostIdConflictError
from storage.posting.post_ids import PostIds, prune_ids
from storage.records import Board
from tests.storage.deployment import Deployment, part, ranked

XP = ranked("xp")


async def test_an_id_used_for_another_post_is_a_conflict(deployment: Deployment, board: Board) -> None:
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5}), post_id="p", at_us=7))
    for other in (
        deployment.post("ada", part(board, {"xp": 6}), post_id="p", at_us=7),
        deployment.post("ada", part(board, {"xp": 5}), post_id="p"),
    ):
        outcome = await deployment.apply_one(other)
        assert outcome.status == "rejected"
        assert isinstance(outcome.error, PostIdConflictError)
        assert outcome.error.pointer == "/post_id"
    assert await deployment.stats(board, "ada") == {"xp": 5}


def test_the_key_of_a_post_begins_with_the_key_of_its_id() -> None:
    ids = PostIds("00" * 16)
    keys = {ids.hash_post_id(post_id, owner) for post_id in ("p", "q") for owner in ("ada", "bob")}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
    assert len([key for key in keys if key.startswith(ids.hash_id("p"))]) == 2
    assert PostIds("01" * 16).hash_post_id("p", "ada") not in keys


async def test_emptying_or_deleting_a_board_leaves_its_void_ids_to_expire(deployment: Deployment) -> None:
    """Check that void ids stay until they expire. Immediate deletion would block writers."""
    emptied, deleted = await deployment.create("emptied", XP), await deployment.create("deleted", XP)
    for round_number in range(3):
        for board in (emptied, deleted):
            posts = [deployment.post("ada", part(board, {"xp": 1}), post_id=f"p{index}") for index in range(5)]
            fresh = board is emptied or round_number == 0
            statuses = [outcome.status for [outcome] in await deployment.apply(*posts)]
            assert statuses == ["applied" if fresh else "duplicate"] * 5
        again = await deployment.apply_one(deployment.post("ada", part(emptied, {"xp": 1}), post_id="p0"))
        assert again.status == "duplicate"
        await deployment.reset("emptied")
    await deployment.delete("deleted")
    assert await pruned(deployment, deployment.clock() + 1, 1000) == 3 * 5 + 5


async def pruned(deployment: Deployment, before_us: int, rows_max: int) -> int:
    return await deployment.store.write(lambda: prune_ids(before_us=before_us, rows_max=rows_max))


async def test_old_ids_are_deleted_oldest_first_in_bounded_steps(deployment: Deployment, board: Board) -> None:
    posts = [deployment.post("ada", part(board, {"xp": 1}), post_id=f"p{index}") for index in range(10)]
    for post in posts:
        deployment.clock.now_us += 1
        await deployment.apply(post)
    young_us = deployment.clock() - 2
    steps = [await pruned(deployment, young_us, 2) for _ in range(5)]
    assert sum(steps) == 7
    assert steps[-1] == 0
    assert all(1 <= step <= 3 for step in steps[:3]), "a step may take the row that the bound falls on"
    statuses = [(await deployment.apply_one(post)).status for post in posts]
    assert statuses == ["applied"] * 7 + ["duplicate"] * 3


async def test_a_group_of_ids_is_deleted_whole_so_that_every_step_makes_progress(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    for _ in range(2):
        deployment.clock.now_us += 1
        now_us = deployment.clock()
        await deployment.apply(
            *(deployment.post("ada", part(board, {"xp": 1}), post_id=f"{now_us}-{index}") for index in range(6))
        )
    assert await pruned(deployment, deployment.clock(), 2) == 6
    assert await pruned(deployment, deployment.clock(), 2) == 0, "ids that are not older stay"
    assert await pruned(deployment, deployment.clock() + 1, 100) == 6
