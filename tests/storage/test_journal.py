"""Why here: who read the journal up to a number never looks below it again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import asyncpg

from storage.erasing import erasing
from storage.hidden import hidden
from storage.journal import JournalRow, journal
from storage.posted import Happened, happened_of, posted_of
from storage.store import Store
from tests.storage.deployment import LIMITS, Deployment, counter, part, ranked
from tests.storage.processes import Processes

XP = ranked("xp", min_scaled=0, max_scaled=999)
WRITERS = 3
GROUPS = 40
POSTS = 3  # of a group


async def page_of(store: Store, after: int = 0, limit: int = 1_000) -> list[JournalRow]:
    return await store.read(lambda: journal(store.dialect).page(after, limit=limit))


async def test_rows_say_what_was_posted(deployment: Deployment) -> None:
    board = await deployment.create("b", counter("shots"), XP)
    await deployment.apply(
        deployment.post("ada", part(board, {"xp": 5, "shots": 1}, {}), post_id="p", at_us=7),
        deployment.post("ada", part(board, {"xp": 0})),
        deployment.post("ada", part(board, {}, {"xp": 1})),
    )
    rows = await page_of(deployment.store)
    posted = [posted_of(row.detail or "") for row in rows]
    assert [each.happened for each in posted] == [Happened.APPLIED, Happened.UNCHANGED, Happened.APPLIED]
    assert (posted[0].stats, posted[0].post_id, posted[0].at_us, posted[0].cells) == ([1, 5, 0, 1], "p", 7, [1])
    assert (posted[2].stats, posted[2].overwrite) == ([], [1, 1])


async def test_pages_cut_a_transaction_anywhere_and_lose_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    owners = [f"o{number}" for number in range(7)]
    await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in owners[:5]))
    await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in owners[5:]))
    after, seen = 0, []
    while rows := await page_of(deployment.store, after, limit=2):
        seen += [row.owner for row in rows]
        assert rows[-1].number > after
        after = rows[-1].number
    assert seen == owners


async def test_an_owners_part_is_read_newest_first(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    for xp in range(5):
        await deployment.apply(
            deployment.post("ada", part(board, {"xp": xp})), deployment.post("bob", part(board, {"xp": xp}))
        )
    log, store = journal(deployment.dialect), deployment.store
    newest = await store.read(lambda: log.of_owner("ada", before=2**63 - 1, limit=3))
    rest = await store.read(lambda: log.of_owner("ada", before=newest[-1].number, limit=9))
    numbers = [row.number for row in newest + rest]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 5


async def test_what_is_published_is_where_a_page_ends(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    log, store = journal(deployment.dialect), deployment.store
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    published = await store.read(log.published)
    [row] = await page_of(store)
    assert row.number <= published
    await deployment.apply(deployment.post("bob", part(board, {"xp": 5})))
    assert [row.owner for row in await page_of(store, published)] == ["bob"]


async def test_nothing_appears_below_a_number_that_was_shown(processes: Processes) -> None:
    """Writers of several processes commit in any order, while somebody reads all that is published."""
    first = await processes.one(writer_connections=2)
    board = await first.create("b", XP, counter("shots"))
    others = [await processes.one(writer_connections=2) for _ in range(WRITERS - 1)]
    shown: list[tuple[int, str]] = []
    done = asyncio.Event()

    async def write(name: int, deployment: Deployment) -> None:
        rng = random.Random(name)
        for number in range(GROUPS):
            owners = [f"{name}/{number}/{index}" for index in range(rng.randint(1, POSTS))]
            await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in owners))

    async def read() -> None:
        reader = await processes.one()
        ending = False
        while True:
            rows = await page_of(reader.store, shown[-1][0] if shown else 0, limit=5)
            shown.extend((row.number, row.owner or "") for row in rows)
            if not rows and ending:
                return
            ending = done.is_set() and not rows

    async def write_all() -> None:
        async with asyncio.TaskGroup() as writing:
            for name, deployment in enumerate([first, *others]):
                writing.create_task(write(name, deployment))
        done.set()

    async with asyncio.TaskGroup() as both:
        both.create_task(read())
        both.create_task(write_all())
    every = await page_of(first.store)
    assert shown == [(row.number, row.owner) for row in every]
    assert shown == sorted(shown, key=lambda each: each[0])
    assert len({number for number, _ in shown}) == len(shown)


async def test_a_transaction_that_still_runs_holds_back_what_came_after_it(
    processes: Processes, raw: asyncpg.Connection
) -> None:
    deployment = await processes.one()
    board = await deployment.create("b", XP)
    slow = raw.transaction()
    await slow.start()
    await raw.execute(
        "INSERT INTO changes (board_key, owner, updated_at, previous, next) VALUES ($1, 'slow', 1, '', '')", board.key
    )
    await deployment.apply(deployment.post("quick", part(board, {"xp": 5})))
    assert await page_of(deployment.store) == []
    await slow.commit()
    assert [row.owner for row in await page_of(deployment.store)] == ["slow", "quick"]


async def test_an_erased_owner_is_renamed_from_the_oldest_row_up(deployment: Deployment) -> None:
    board, other = await deployment.create("b", XP), await deployment.create("c", XP)
    log, store = erasing(deployment.dialect), deployment.store
    for xp in (1, 2, 3):
        await deployment.apply(
            deployment.post("ada", part(board, {"xp": xp})), deployment.post("bob", part(board, {"xp": xp}))
        )
    await deployment.apply(deployment.post("ada", part(other, {"xp": 9})))
    last = await store.read(lambda: log.newest("ada"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 4})))

    async def rename(board_key: int | None = None) -> bool:
        return await store.write(lambda: log.rename("ada", token="t", last=last, rows_max=2, board_key=board_key))

    assert await rename(board.key)
    assert [row.owner for row in await page_of(store)] == [None, "bob", None, "bob", "ada", "bob", "ada", "ada"]
    assert await rename()
    assert not await rename()
    rows = await page_of(store)
    assert [row.owner for row in rows] == [None, "bob", None, "bob", None, "bob", None, "ada"]
    assert {row.detail for row in rows if row.owner is None} == {None}
    assert rows[0].next == "001", "until everybody has counted them"


async def test_cells_without_a_name_go_when_they_are_old_and_counted(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    log, store, clock = erasing(deployment.dialect), deployment.store, deployment.clock
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    last = await store.read(lambda: log.newest("ada"))
    await store.write(lambda: log.rename("ada", token="t", last=last, rows_max=9))

    async def blank(before_us: int) -> int:
        return await store.write(lambda: log.blank(before_us=before_us, rows_max=9))

    assert await blank(clock.now_us) == 0
    assert await blank(clock.now_us + 1) == 1
    assert await blank(clock.now_us + 1) == 0
    [row] = await page_of(store)
    assert (row.owner, row.previous, row.next, row.detail) == (None, "", "", "")


async def test_hiding_and_showing_are_told_with_what_the_entry_held(deployment: Deployment) -> None:
    board = await deployment.create("b", counter("shots"), XP)
    store, entries = deployment.store, deployment.entries(board)
    statements = hidden(store.dialect)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5, "shots": 3})))
    await store.write(lambda: statements.mark("ada", now_us=1))
    await store.write(lambda: statements.hide([entries], "ada", now_us=1))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await deployment.stats(board, "ada") is None
    await store.write(lambda: statements.unmark("ada"))
    await store.write(lambda: statements.show([entries], "ada", now_us=1))
    rows = await page_of(store)
    assert [happened_of(row.detail or "") for row in rows] == [
        Happened.APPLIED, Happened.HIDDEN, Happened.UNSEEN, Happened.SHOWN,
    ]  # fmt: skip
    assert [(row.previous, row.next) for row in rows] == [
        ("   ", "005"), ("005", "   "), ("   ", "   "), ("   ", "006"),
    ]  # fmt: skip
    assert posted_of(rows[1].detail or "").cells == [3, "005"]
    assert await deployment.stats(board, "ada") == {"shots": 3, "xp": 6}


async def test_posts_that_meet_hiding_and_showing_are_neither_lost_nor_counted_twice(processes: Processes) -> None:
    """An owner is hidden and shown again and again while other processes post to it; the sum is that of the posts."""
    first, second = await processes.one(writer_connections=2), await processes.one(writer_connections=2)
    board = await first.create("b", ranked("xp", min_scaled=0, max_scaled=10**6), counter("shots"))
    store, statements, entries = first.store, hidden(first.dialect), first.entries(board)
    done = asyncio.Event()

    async def post(deployment: Deployment) -> int:
        posts = 0
        observed = deployment.writer(_Silent(), limits=replace(LIMITS, write_attempts_max=1_000))
        observed.start()
        for _ in range(GROUPS):
            [[outcome]] = await observed.submit([deployment.post("ada", part(board, {"xp": 1}))])
            posts += outcome.error is None
        await observed.close()
        return posts

    async def flip() -> None:
        while not done.is_set():
            marked = await store.write(lambda: statements.mark("ada", now_us=1))
            await hide()
            await settled(marked)
            await hide()
            assert await first.rows(board, ["ada"]) == {}, "hidden is hidden at once"
            unmarked = await store.write(lambda: statements.unmark("ada"))
            await settled(unmarked)
            await store.write(lambda: statements.show([entries], "ada", now_us=1))

    async def hide() -> None:
        await store.write(lambda: statements.hide([entries], "ada", now_us=1))

    async def settled(transaction: int) -> None:
        while not await store.read(lambda: statements.settled(transaction)):  # noqa: ASYNC110 - the server's
            await asyncio.sleep(0)

    flipping = asyncio.create_task(flip())
    sums = await asyncio.gather(post(first), post(second))
    done.set()
    await flipping
    assert set(sums) == {GROUPS}
    assert await first.stats(board, "ada") == {"xp": 2 * GROUPS, "shots": None}


class _Silent:
    """Nobody to tell."""

    def group_written(self, *, posts: int, rows: int, seconds: float) -> None: ...
    def race_lost(self) -> None: ...
    def queue_depth(self, posts: int) -> None: ...
    def writes_in_flight(self, groups: int, *, limit: int) -> None: ...
    def posts_refused(self, reason: str, posts: int) -> None: ...
