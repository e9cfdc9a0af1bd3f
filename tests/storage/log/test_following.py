"""Test followers. If a change counted twice, or never, a reward would be given twice, or never."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from querybuilder import col, select
from storage.boards.journal import read_page
from storage.errors import JournalIncompleteError, LostRaceError
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.log.following import FollowedPage, Follower
from storage.log.partition_journal import JournalRow
from storage.schema.sequences import take_number
from storage.schema.tables import SEQUENCES
from storage.store import Program, Store
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.processes import Processes

XP = ranked("xp")
POSTS = 40


def count_changes(changes: Sequence[JournalRow]) -> Program[None]:
    """Count the posts in the store, in the transaction that moves the mark."""
    posts = sum(change.owner is not None for change in changes)
    if posts:
        yield from take_number("handled", posts)


def _read_count() -> Program[int]:
    rows = yield select(col("next")).from_(SEQUENCES).where(col("name").eq("handled")).bind()
    return int(rows[0][0]) if rows else 0


def make_follower(deployment: Deployment, **options: Any) -> Follower:
    return Follower("test", deployment.partition, count_changes, page_changes=4, **options)


async def follow(store: Store, follower: Follower) -> bool:
    """Handle one page; return whether more may follow."""
    page = await store.read(follower.read_page)
    await store.write(partial(follower.store_page, page))
    return page.is_full


async def follow_all(store: Store, follower: Follower) -> int:
    """Handle every page. Return how many posts the follower has ever counted."""
    while await follow(store, follower):
        pass
    return await store.read(_read_count)


async def test_a_follower_gets_each_change_once_in_pages_that_may_end_within_a_transaction(
    deployment: Deployment,
) -> None:
    board, follower = await deployment.create("b", XP), make_follower(deployment, from_oldest=True)
    await deployment.apply(*(deployment.post(f"o{number}", part(board, {"xp": 1})) for number in range(11)))
    assert await follow(deployment.store, follower)
    assert await follow_all(deployment.store, follower) == 11
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await follow_all(deployment.store, follower) == 12
    assert await follow_all(deployment.store, make_follower(deployment)) == 12


async def test_a_new_follower_begins_with_what_comes_next_unless_it_asks_for_the_oldest(
    deployment: Deployment,
) -> None:
    board, follower = await deployment.create("b", XP), make_follower(deployment)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await follow_all(deployment.store, follower) == 0
    await deployment.apply(deployment.post("bob", part(board, {"xp": 1})))
    assert await follow_all(deployment.store, follower) == 1


async def test_a_follower_says_so_if_changes_were_pruned_before_it_has_handled_them(deployment: Deployment) -> None:
    board, follower, store = await deployment.create("b", XP), make_follower(deployment), deployment.store
    await follow(store, follower)
    for owner in ("ada", "bob", "eve"):
        await deployment.apply(deployment.post(owner, part(board, {"xp": 1})))
    assert await deployment.prune_log() > 0
    with pytest.raises(JournalIncompleteError):
        await store.read(follower.read_page)
    recovered = make_follower(deployment, recover=partial(count_changes, []))
    assert (await store.read(recovered.read_page)).is_lost
    assert await follow_all(store, recovered) == 0
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await follow_all(store, follower) == 1


async def test_pruning_what_a_follower_has_handled_loses_nothing(deployment: Deployment) -> None:
    board, follower = await deployment.create("b", XP), make_follower(deployment, from_oldest=True)
    for number in range(9):
        await deployment.apply(deployment.post(f"o{number}", part(board, {"xp": 1})))
    assert await follow_all(deployment.store, follower) == 9
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    await deployment.prune_log()
    assert await follow_all(deployment.store, follower) == 10


async def test_a_page_that_another_process_has_handled_changes_nothing(deployment: Deployment) -> None:
    board, store = await deployment.create("b", XP), deployment.store
    first, second = (make_follower(deployment, from_oldest=True) for _ in range(2))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    for _ in range(2):  # a new follower, then one with a mark
        page = await store.read(second.read_page)
        await follow(store, first)
        with pytest.raises(LostRaceError):
            await store.write(partial(second.store_page, page))
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await follow_all(store, second) == 3


async def test_an_error_of_the_handler_leaves_the_mark_where_it_was(deployment: Deployment) -> None:
    board, store = await deployment.create("b", XP), deployment.store

    def fail(changes: Sequence[JournalRow]) -> Program[None]:
        yield from count_changes(changes)
        raise LostRaceError

    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    with pytest.raises(LostRaceError):
        await follow(store, Follower("test", deployment.partition, fail, from_oldest=True))
    assert await follow_all(store, make_follower(deployment, from_oldest=True)) == 1


class _KilledError(Exception):
    """The process was killed within a transaction."""


async def test_two_processes_that_are_killed_again_and_again_handle_each_change_once(processes: Processes) -> None:
    posting, *others = [await processes.start_process() for _ in range(3)]
    board, rng = await posting.create("b", XP), random.Random(5)

    def die_within(follower: Follower, page: FollowedPage) -> Program[None]:
        yield from follower.store_page(page)
        raise _KilledError

    async def run(deployment: Deployment) -> None:
        while await deployment.store.read(_read_count) < POSTS:
            follower = make_follower(deployment, from_oldest=True)
            page = await deployment.store.read(follower.read_page)
            store_page = follower.store_page if rng.random() < 0.5 else partial(die_within, follower)
            with suppress(_KilledError, LostRaceError):
                await deployment.store.write(partial(store_page, page))

    async def post() -> None:
        for number in range(POSTS):
            await posting.apply(posting.post(f"o{number}", part(board, {"xp": 1})))

    await asyncio.gather(post(), *map(run, others))
    assert await follow_all(posting.store, make_follower(posting, from_oldest=True)) == POSTS


async def test_events_of_boards_reach_followers_but_no_reader_of_entries(deployment: Deployment) -> None:
    board, store = await deployment.create("b", XP), deployment.store
    other = await deployment.create("other", XP)
    seen: list[tuple[ChangeKind | None, str | None]] = []

    def handle(changes: Sequence[JournalRow]) -> Program[None]:
        yield from ()
        seen.extend((change.kind, change.record.board_id) for change in changes if change.record)

    follower = Follower("events", deployment.partition, handle, from_oldest=True, events_only=True, page_changes=4)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    await deployment.reset("b")
    events = [BoardEvent(ChangeKind.CLOSED, each.id, each.key, deployment.partition) for each in (board, other)]
    await deployment.write(log_board_events, events, now_us=deployment.clock())
    while await follow(store, follower):
        pass
    kinds = [ChangeKind.CREATED, ChangeKind.CREATED, ChangeKind.RESET, ChangeKind.CLOSED, ChangeKind.CLOSED]
    assert seen == [*zip(kinds, ["b", "other", "b", "b", "other"], strict=True)]
    assert [change.kind for change in await deployment.read_journal()] == [ChangeKind.FIRST, ChangeKind.RESET]
    assert {bundle.leaf_key for bundle in await deployment.read_log()} == {board.key}
    assert await follow_all(store, make_follower(deployment, from_oldest=True)) == 1


async def test_a_reader_of_the_journal_who_is_at_its_end_misses_nothing_if_only_events_follow(
    deployment: Deployment,
) -> None:
    board = await deployment.create("b", XP)
    for owner in ("ada", "bob"):
        await deployment.apply(deployment.post(owner, part(board, {"xp": 1})))
    [*_, last] = await deployment.read_journal()
    for _ in range(3):
        event = BoardEvent(ChangeKind.FROZEN, board.id, board.key, deployment.partition)
        await deployment.write(log_board_events, [event], now_us=deployment.clock())
    assert await deployment.prune_log() > 0
    seen = (0,) * deployment.partition + (last.number,)
    page = await deployment.store.read(lambda: read_page(seen, limit=9, partitions=[deployment.partition]))
    assert (page.find_lost(seen), [*page.list_changes()]) == (None, [])
