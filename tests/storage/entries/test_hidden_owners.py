"""Test that an owner's row is in exactly one of two tables, even if processes hide, post and die concurrently."""

import asyncio

import pytest

from storage.entries.hidden_owners import hidden_statements
from storage.errors import LostRaceError
from storage.records import INT64_MAX
from tests.storage.deployment import Deployment, counter, part, ranked
from tests.storage.processes import Processes

XP = ranked("xp", min_scaled=0, max_scaled=999)
GROUPS = 40


async def test_an_owner_gets_no_new_row_while_being_hidden_or_shown(deployment: Deployment) -> None:
    """Post to a new board during the change. The owner could otherwise get rows in both tables."""
    board, other = await deployment.create("b", XP), await deployment.create("c", XP)
    store, statements = deployment.store, hidden_statements
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    for hide in (True, False):
        assert await store.write(lambda: statements.begin_change("ada", until_us=INT64_MAX, hide=hide))  # noqa: B023 - run at once
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        with pytest.raises(LostRaceError):
            await deployment.apply(deployment.post("ada", part(other, {"xp": 1})))
        await store.write(lambda: statements.end_change("ada", now_us=1, hide=hide))  # noqa: B023 - run at once
    await deployment.flip_hidden("ada", hide=True)
    again = await store.write(lambda: statements.begin_change("ada", until_us=INT64_MAX, hide=True))
    assert not again, "a hidden owner stays hidden"
    await deployment.apply(deployment.post("ada", part(other, {"xp": 1})))
    assert await deployment.stats(other, "ada") is None
    assert await deployment.stats(board, "ada") == {"xp": 7}, "the row was not moved yet"


@pytest.mark.parametrize("hide", [True, False])
async def test_an_owner_left_between_hidden_and_shown_is_again_as_before(deployment: Deployment, hide: bool) -> None:
    """Simulate a process that dies during the change. After the deadline, the owner has the previous state."""
    board, other = await deployment.create("b", XP), await deployment.create("c", XP)
    store, statements = deployment.store, hidden_statements
    deadline_us = deployment.clock.now_us + 1_000
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    if not hide:
        await deployment.flip_hidden("ada", hide=True)
    await store.write(lambda: statements.begin_change("ada", until_us=deadline_us - 500, hide=hide))
    # Another process continues the change.
    await store.write(lambda: statements.begin_change("ada", until_us=deadline_us, hide=hide))
    deployment.clock.now_us = deadline_us
    with pytest.raises(LostRaceError):
        await deployment.apply(deployment.post("ada", part(other, {"xp": 1})))
    deployment.clock.now_us += 1
    await deployment.apply(deployment.post("ada", part(other, {"xp": 1})))
    assert await deployment.stats(other, "ada") == ({"xp": 1} if hide else None)
    with pytest.raises(LostRaceError):
        await store.write(lambda: statements.end_change("ada", now_us=1, hide=hide))
    await deployment.flip_hidden("ada", hide=hide)
    await deployment.apply(deployment.post("ada", part(await deployment.create("d", XP), {"xp": 1})))
    found = await store.read(lambda: statements.find_hidden([], ["ada"]))
    assert (found.hidden_owners, found.changing) == ({"ada"} if hide else set(), {})


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
            await store.write(lambda: statements.begin_change("ada", until_us=INT64_MAX, hide=True))
            await settled()
            await store.write(lambda: statements.end_change("ada", now_us=1, hide=True))
            await hide()
            assert await first.rows(board, ["ada"]) == {}, "a hidden owner has no row at once"
            await store.write(lambda: statements.begin_change("ada", until_us=INT64_MAX, hide=False))
            await settled()
            await store.write(lambda: statements.end_change("ada", now_us=1, hide=False))
            await store.write(lambda: statements.show_owner([entries], "ada", now_us=1))

    async def hide() -> None:
        await store.write(lambda: statements.hide_owner([entries], "ada", now_us=1))

    async def settled() -> None:
        transaction = await store.write(statements.take_transaction_id)
        while not await store.read(lambda: statements.have_earlier_ended(transaction)):  # noqa: ASYNC110 - the server's
            await asyncio.sleep(0)

    flipping = asyncio.create_task(flip())
    sums = await asyncio.gather(post(first), post(second))
    done.set()
    await flipping
    assert set(sums) == {GROUPS}
    assert await first.stats(board, "ada") == {"xp": 2 * GROUPS, "shots": None}
