"""Test that the journal of a store with four partitions neither loses a change nor repeats one."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from storage.boards import journal
from storage.boards.journal import JournalPage, Numbers
from storage.log import owner_index
from storage.log.owner_index import owner_blocks
from storage.log.partition_journal import JournalRow, leaf_key_of
from storage.records import Board
from storage.schema.creation import count_partitions
from storage.store import Program, Store
from tests.schemas import PARTITIONS
from tests.storage.backends import OpenStore
from tests.storage.deployment import Deployment, part, ranked, read_changes

pytestmark = pytest.mark.parametrize("backend", ["partitions"], indirect=True)
XP = ranked("xp", min_scaled=0, max_scaled=9_999)
PLACES = range(PARTITIONS)
WRITERS = 4
GROUPS = 25
Seen = list[tuple[Numbers, JournalRow]]


async def read_page(store: Store, after: Numbers, limit: int) -> JournalPage:
    def program() -> Program[JournalPage]:
        partitions = yield from count_partitions()
        return (yield from journal.read_page(after, limit=limit, partitions=range(partitions)))

    return await store.read(program)


async def read_pages(store: Store, after: Numbers, limits: Sequence[int]) -> Seen:
    """Read pages of these sizes in turn up to the end of the journal, each after the last line of the one before."""
    seen: Seen = []
    while lines := list((await read_page(store, after, limits[len(seen) % len(limits)])).list_changes()):
        seen += lines
        after = lines[-1][0]
    return seen


async def read_partition(store: Store, partition: int) -> list[JournalRow]:
    return await read_changes(store.at(partition))


async def post_randomly(deployment: Deployment, boards: Sequence[Board], groups: int, seed: int = 1) -> None:
    rng = random.Random(seed)
    for number in range(groups):
        deployment.clock.now_us += rng.choice((-3, 0, 0, 5))
        chosen = [rng.choice(boards) for _ in range(rng.randint(1, 5))]
        await deployment.apply(
            *(deployment.post(rng.choice(("ada", "bob", f"o{number}")), part(board, {"xp": 1})) for board in chosen)
        )


@pytest.mark.parametrize("limits", [(1,), (2, 7, 1), (1_000,)])
async def test_pages_show_every_change_of_every_partition_once(deployment: Deployment, limits: Sequence[int]) -> None:
    boards = await deployment.create_everywhere(XP)
    await post_randomly(deployment, boards, 30)
    seen = await read_pages(deployment.store, (), limits)
    for board in boards:
        theirs = [row for _, row in seen if row.leaf_key == board.key]
        assert theirs == await read_partition(deployment.store, board.partition)
        assert theirs
    assert len(seen) == sum([len(await read_partition(deployment.store, partition)) for partition in PLACES])


async def test_a_page_has_the_changes_in_the_order_in_which_they_were_logged(deployment: Deployment) -> None:
    boards = await deployment.create_everywhere(XP)
    for board in [*boards[::-1], *boards]:
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        deployment.clock.now_us += 1
    rows = [row for _, row in await read_pages(deployment.store, (), (3,))]
    assert [row.leaf_key for row in rows] == [board.key for board in [*boards[::-1], *boards]]
    assert [row.logged_us for row in rows] == sorted(row.logged_us for row in rows)


async def test_a_page_holds_no_more_bundles_than_its_changes_need(deployment: Deployment) -> None:
    boards = await deployment.create_everywhere(XP)
    await post_randomly(deployment, boards, 30)
    page = await read_page(deployment.store, (), 4)
    assert len(list(page.list_changes())) == 4
    assert len(page.bundles) <= 4


async def test_a_partition_that_the_reader_does_not_know_is_read_from_its_beginning(deployment: Deployment) -> None:
    boards = await deployment.create_everywhere(XP)
    for board in boards:
        await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in ("ada", "bob")))
    known = (
        (await read_partition(deployment.store, 0))[-1].number,
        (await read_partition(deployment.store, 1))[0].number,
    )
    seen = [(row.leaf_key, row.owner) for _, row in await read_pages(deployment.store, known, (3,))]
    keys = [board.key for board in boards]
    assert seen == [(keys[1], "bob"), (keys[2], "ada"), (keys[2], "bob"), (keys[3], "ada"), (keys[3], "bob")]


async def test_readers_learn_that_changes_were_removed_which_they_have_not_seen(deployment: Deployment) -> None:
    boards, store = await deployment.create_everywhere(XP), deployment.store
    for board in (*boards, *boards, *boards):
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        deployment.clock.now_us += 1
    every = await read_pages(store, (), (1,))
    await deployment.prune_log(rows_max=3, store=store.at(3))  # the creation of the board and two changes
    begins = await store.read(journal.find_begins)
    assert [begin > 0 for begin in begins] == [False, False, False, True]
    for index in (0, 6):
        lost = (await read_page(store, every[index][0], 5)).find_lost(every[index][0])
        assert lost == (every[index][0][3], begins[3]), "neither of the removed changes, or only the first, was seen"
    assert (await read_page(store, every[11][0], 5)).find_lost(every[11][0]) is None
    [(first, _)] = list((await read_page(store, (), 1)).list_changes())
    assert first[3] == begins[3], "a new reader knows where it began"
    await deployment.prune_log(rows_max=2, store=store.at(3))
    assert (await read_page(store, first, 5)).find_lost(first) is None, "the last bundle is kept"


async def test_readers_beside_writers_lose_and_repeat_nothing(open_store: OpenStore) -> None:
    first = await Deployment.on(await open_store())
    boards = await first.create_everywhere(XP)
    deployments = [first, *[await Deployment.on(await open_store()) for _ in range(WRITERS - 1)]]
    done = asyncio.Event()

    async def write(name: int, deployment: Deployment) -> None:
        rng = random.Random(name)
        for number in range(GROUPS):
            deployment.clock.now_us += rng.randint(-5, 9)
            chosen = rng.sample(boards, rng.randint(1, 2))
            await deployment.apply(
                *(deployment.post(f"{name}/{board.key}", part(board, {"xp": number})) for board in chosen)
            )

    async def read(limit: int) -> Seen:
        store, seen, ended = await open_store(), list[tuple[Numbers, JournalRow]](), False
        while True:
            found = list((await read_page(store, seen[-1][0] if seen else (), limit)).list_changes())
            seen += found
            if ended and not found:
                return seen
            ended = done.is_set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        readers = [group.create_task(read(limit)) for limit in (1, 5)]
        await asyncio.gather(*(write(name, deployment) for name, deployment in enumerate(deployments)))
        done.set()
    for reader in readers:
        rows = [row for _, row in reader.result()]
        for board in boards:
            theirs = [row for row in rows if row.leaf_key == board.key]
            assert theirs == await read_partition(first.store, board.partition)
        assert len(rows) == sum([len(await read_partition(first.store, partition)) for partition in PLACES])


@pytest.mark.parametrize(("limit", "blocks_max"), [(1, 1_000), (3, 1_000), (3, 4)])
async def test_the_posts_of_an_owner_in_all_partitions_are_read_newest_first(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, limit: int, blocks_max: int
) -> None:
    monkeypatch.setattr(owner_index, "BLOCK_CHANGES", 4)
    boards = await deployment.create_everywhere(XP)
    for _ in range(6):
        for board in boards:
            deployment.clock.now_us += 10
            await deployment.apply(
                *(deployment.post(owner, part(board, {"xp": 1})) for owner in ("ada", "bob", "cleo"))
            )
    for partition in (0, 2):
        store = deployment.store.at(partition)
        while (block := await store.read(owner_blocks.build_next_block)) is not None:
            await store.write(lambda: owner_blocks.store_block(block))
    every = [row for _, row in await read_pages(deployment.store, (), (1_000,)) if row.owner == "ada"][::-1]
    seen: list[JournalRow] = []
    before: Numbers | None = None
    while True:
        reading = partial(journal.read_posts_of_owner, ["ada"], limit=limit, blocks_max=blocks_max)
        found, before = await deployment.store.read(partial(reading, before=before, partitions=PLACES))
        assert len(found) <= limit
        seen += [row for _, row in found]
        if before is None:
            break
    assert sorted(seen) == sorted(every)
    if blocks_max == 1_000:
        assert seen == every


@pytest.mark.parametrize("away", PLACES)
async def test_the_posts_of_an_owner_where_a_partition_was_away_come_on_the_next_page(
    deployment: Deployment, away: int
) -> None:
    boards = await deployment.create_everywhere(XP)
    for board in [*boards, *boards]:
        deployment.clock.now_us += 10
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    found: list[int] = []
    before: Numbers | None = None
    for partitions in ([each for each in PLACES if each != away], PLACES):
        reading = partial(journal.read_posts_of_owner, ["ada"], limit=PARTITIONS, blocks_max=1_000)
        rows, before = await deployment.store.read(partial(reading, before=before, partitions=partitions))
        found += [partition for partition, _ in rows]
    assert found.count(away) == 2


async def test_boards_of_changes_are_found_after_they_were_deleted(deployment: Deployment) -> None:
    boards = await deployment.create_everywhere(XP)
    await post_randomly(deployment, boards, 12)
    await deployment.log_deletion(*(board.id for board in boards))
    page = await read_page(deployment.store, (), 1_000)
    changes = [(partition, leaf_key_of(bundle)) for partition, bundle in page.bundles]
    found = await deployment.store.read(lambda: journal.find_changed_leaves(changes, range(PARTITIONS)))
    assert {key: board.id for key, board in found.items()} == {board.key: board.id for board in boards}
    elsewhere = [((partition + 1) % PARTITIONS, key) for partition, key in changes]
    again = await deployment.store.read(lambda: journal.find_changed_leaves(elsewhere, range(PARTITIONS)))
    assert again == found, "a board that was moved before is found, too"


async def test_a_board_that_was_created_again_in_another_partition_is_rebuilt(deployment: Deployment) -> None:
    first = await deployment.create("b", XP, partition=3)
    for xp in (1, 2):
        await deployment.apply(deployment.post("ada", part(first, {"xp": xp})))
    [(since, _), *_] = await read_pages(deployment.store, (), (1_000,))
    await deployment.log_deletion("b")
    second = await deployment.create("b", XP, partition=0)
    await deployment.apply(*(deployment.post(owner, part(second, {"xp": 10})) for owner in ("ada", "bob")))
    done = await deployment.rebuild(since=since)
    assert (done.replayed, done.entries) == (4, 2)
    deployment.store = deployment.store.at(0)
    board = await deployment.find("b")
    assert [await deployment.stats(board, owner) for owner in ("ada", "bob")] == [{"xp": 13}, {"xp": 10}]
