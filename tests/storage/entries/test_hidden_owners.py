"""Test that an owner's row is in exactly one of two tables, even if processes hide, post and die concurrently."""

import asyncio

from storage.entries.hidden_owners import hidden_statements
from tests.storage.deployment import Deployment, counter, part, ranked
from tests.storage.processes import Processes

XP = ranked("xp", min_scaled=0, max_scaled=999)
GROUPS = 40


async def test_posts_count_once_while_their_owner_is_hidden_and_shown(processes: Processes) -> None:
    first, second = [await processes.start_process(writer_connections=2) for _ in range(2)]
    board = await first.create("b", ranked("xp", min_scaled=0, max_scaled=10**6), counter("shots"))
    store, statements, entries = first.store, hidden_statements, first.entries(board)
    done = asyncio.Event()

    async def post(deployment: Deployment) -> int:
        posts = 0
        async with deployment.open_writer(attempts_max=1_000) as writer:
            for _ in range(GROUPS):
                [[outcome]] = await writer.submit([deployment.post("ada", part(board, {"xp": 1}))])
                posts += outcome.error is None
        return posts

    async def flip() -> None:
        while not done.is_set():
            await store.write(lambda: statements.mark_owner("ada", now_us=1, hide=True))
            await store.write(lambda: statements.hide_owner([entries], "ada", now_us=1))
            assert await first.rows(board, ["ada"]) == {}, "a hidden owner has no row at once"
            await store.write(lambda: statements.mark_owner("ada", now_us=1, hide=False))
            await store.write(lambda: statements.show_owner([entries], "ada", now_us=1))

    flipping = asyncio.create_task(flip())
    sums = await asyncio.gather(post(first), post(second))
    done.set()
    await flipping
    assert set(sums) == {GROUPS}
    assert await first.stats(board, "ada") == {"xp": 2 * GROUPS, "shots": None}
