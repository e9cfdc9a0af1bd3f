"""Test which post ids the store remembers, for whom and for how long. A post id makes it safe to send a post again."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from storage.engines.sqlite import SqliteStore
from storage.errors import PostIdConflictError
from storage.posting.post_ids import PostIds, prune_ids
from storage.records import Board, Post
from storage.store import Program
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.processes import Processes

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


class CountingStore(PassingStore):
    """A store that counts the statements of each transaction."""

    statements: list[int]

    async def write(self, program: Callable[[], Program[Any]]) -> Any:
        self.statements.append(0)

        def count(_query: object) -> None:
            self.statements[-1] += 1

        return await self._store.write(lambda: interpose(program(), count))


async def count_statements(deployment: Deployment, post: Post) -> tuple[str, list[int]]:
    """Apply a post. Return its status, and how many statements each run of its group took."""
    counting, earlier = CountingStore(deployment.store), deployment.store
    counting.statements, deployment.store = [], counting
    outcome = await deployment.apply_one(post)
    deployment.store = earlier
    return outcome.status.value, counting.statements


async def test_ids_are_looked_up_only_while_callers_send_known_ones(deployment: Deployment, board: Board) -> None:
    def post(post_id: str, xp: int = 1) -> Post:
        return deployment.post("ada", part(board, {"xp": xp}), post_id=post_id)

    _, [first] = await count_statements(deployment, post("p"))
    status, [usual] = await count_statements(deployment, post("q"))
    assert (status, usual) == ("applied", first - 3), "neither facts nor ids are looked up"
    if isinstance(deployment.store, SqliteStore):
        assert usual == 6 + 1, "`apply` checks that the board exists, which a writer does not"
    runs = [await count_statements(deployment, post(post_id)) for post_id in ("p", "q", "r", "s", "p")]
    statuses = [status for status, _ in runs]
    assert statuses == ["duplicate", "duplicate", "applied", "applied", "duplicate"]
    assert [len(statements) for _, statements in runs] == [2, 1, 1, 1, 2]
    assert [statements[-1] for _, statements in runs[2:4]] == [usual + 1, usual]
    refused = await count_statements(deployment, post("t", xp=10**16))
    assert (refused[0], len(refused[1])) == ("rejected", 1), "ids are still looked up"


async def test_a_post_that_could_not_be_applied_again_is_a_duplicate(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp", max_scaled=5))
    for status in ("applied", "duplicate", "duplicate"):
        outcome = await deployment.apply_one(deployment.post("ada", part(board, {"xp": 5}), post_id="p"))
        assert outcome.status == status
        new = deployment.post("bob", part(board, {"xp": 1}), post_id=status + str(deployment.clock()))
        deployment.clock.now_us += 1
        assert (await deployment.apply_one(new)).status == "applied", "no known ids came lately"


async def test_ids_belong_to_the_epoch_that_a_board_has_when_a_post_is_applied(deployment: Deployment) -> None:
    board, other = await deployment.create("b", XP), Deployment(deployment.store, "00" * 16, deployment.table)
    for process in (deployment, other):
        await process.apply(process.post("ada", part(board, {"xp": 1}), post_id="before"))
    emptied = await other.reset()
    for copy in (board, emptied):  # a process may not know yet that a board was emptied
        for process, status in ((deployment, "applied"), (other, "duplicate")):
            post = deployment.post("ada", part(copy, {"xp": 1}), post_id=f"after {copy.gate.epoch}")
            assert (await process.apply_one(post)).status == status
    assert await deployment.stats(emptied, "ada") == {"xp": 2}


async def test_two_processes_that_send_the_same_posts_apply_each_of_them_once(processes: Processes) -> None:
    first, second = [await processes.start_process(writer_connections=2) for _ in range(2)]
    board = await first.create("b", XP)

    async def send(process: Deployment, seed: int) -> dict[int, str]:
        numbers = random.Random(seed).sample(range(200), 200)
        async with process.open_writer(attempts_max=1_000) as writer:
            sent = [
                writer.submit([process.post(f"o{each % 3}", part(board, {"xp": 1}), post_id=f"p{each}")])
                for each in numbers
            ]
            outcomes = await asyncio.gather(*sent)
        return {number: outcome.status.value for number, [[outcome]] in zip(numbers, outcomes, strict=True)}

    one, other = await asyncio.gather(send(first, 1), send(second, 2))
    assert [{one[number], other[number]} for number in range(200)] == [{"applied", "duplicate"}] * 200
    values = [await first.value(board, f"o{number}") for number in range(3)]
    assert sum(map(int, map(str, values))) == 200
