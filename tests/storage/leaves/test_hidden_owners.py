"""Test that an owner's row is in exactly one of two tables, even if processes hide, post and die concurrently."""

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar

import pytest

from querybuilder import SQLITE
from storage.engines import sqlite
from storage.engines.postgres import PostgresStore
from storage.errors import BoardChangedError, OutdatedFactsError, ValueOutOfRangeError
from storage.leaves import hidden_owners
from storage.leaves.entries import log_ranking_changes
from storage.leaves.hidden_owners import HIDDEN, SHOWING, read_states
from storage.leaves.totals import ALL_ENTRIES
from storage.log.bundles import ChangeKind
from storage.meter import NO_METER
from storage.posting import group_facts
from storage.posting.group_facts import Learned, read_facts
from storage.records import Board, PartOutcome
from storage.schema.creation import in_each_partition
from storage.store import Program
from tests.schemas import PARTITIONS
from tests.storage.deployment import Deployment, counter, part, ranked
from tests.storage.processes import Processes

T = TypeVar("T")
GROUPS, STEPS = 40, 10_000
OWNERS, OTHER_OWNERS = ("ada", "bob"), ("eve", "dan")
several_partitions = pytest.mark.parametrize("backend", ["partitions"], indirect=True)


@several_partitions
async def test_the_state_of_an_owner_is_in_every_partition(deployment: Deployment) -> None:
    await deployment.flip_hidden("cheat", hide=True)
    await deployment.flip_hidden("other", hide=True)
    states = [*(await deployment.store.read(lambda: in_each_partition(read_states))).values()]
    assert states == [(2, {"cheat": HIDDEN, "other": HIDDEN})] * PARTITIONS
    await deployment.show("cheat")
    states = [*(await deployment.store.read(lambda: in_each_partition(read_states))).values()]
    assert states == [(4, {"other": HIDDEN})] * PARTITIONS


@several_partitions
async def test_a_post_of_a_hidden_owner_merges_unseen_in_every_partition(deployment: Deployment) -> None:
    first, *_, last = await deployment.create_everywhere(ranked("xp"))
    await deployment.flip_hidden("cheat", hide=True)
    for owner in ("ada", "cheat"):
        await deployment.apply(deployment.post(owner, part(first, {"xp": 1}), part(last, {"xp": 2})))
    for board in (first, last):
        assert (await deployment.rows(board, ["ada", "cheat"])).keys() == {"ada"}
        finding = partial(hidden_owners.find_hidden_entries, [board.key], ["cheat"])
        found = await deployment.store.at(board.partition).read(finding)
        assert [(each.leaf_key, each.entry.owner) for each in found] == [(board.key, "cheat")]


async def test_a_new_partition_gets_the_states_of_hidden_owners(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_owners, "STATES_A_PAGE", 2)
    deployment = await processes.start_process()
    store, board = deployment.store, await deployment.create("b", ranked("xp"))
    assert isinstance(store, PostgresStore)
    owners = ["ada", "bob", "cleo", "dan", "eve"]
    for owner in owners:
        await deployment.apply_one(deployment.post(owner, part(board, {"xp": 1})))
        await deployment.flip_hidden(owner, hide=True)
    await deployment.flip_hidden("eve", hide=False)
    assert await store.add_partition(hidden_owners.copy_states) == 1
    expected = dict.fromkeys(owners, HIDDEN) | {"eve": SHOWING}
    states = await store.read(lambda: in_each_partition(read_states))
    assert states == {0: (len(owners) + 1, expected), 1: (0, expected)}
    new = await deployment.create("b1", ranked("xp"), partition=1)
    for owner in ("dan", "eve"):
        await deployment.apply_one(deployment.post(owner, part(new, {"xp": 1})))
    assert (await deployment.rows(new, ["dan", "eve"])).keys() == {"eve"}


async def test_posts_count_once_while_their_owner_is_hidden_and_shown(processes: Processes) -> None:
    first, second = [await processes.start_process(writer_connections=2) for _ in range(2)]
    board = await first.create("b", ranked("xp", min_scaled=0, max_scaled=10**6), counter("shots"))
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
            await first.hide("ada", board)
            assert await first.rows(board, ["ada"]) == {}, "a hidden owner has no row at once"
            await first.show("ada", board)

    flipping = asyncio.create_task(flip())
    sums = await asyncio.gather(post(first), post(second))
    done.set()
    await flipping
    assert set(sums) == {GROUPS}
    assert await first.stats(board, "ada") == {"xp": 2 * GROUPS, "shots": None}


async def post_xp(deployment: Deployment, board: Board, owner: str, xp: int = 1) -> PartOutcome:
    return await deployment.apply_one(deployment.post(owner, part(board, {"xp": xp})))


async def test_late_moves_of_hiding_move_nothing_after_the_owner_was_shown(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await post_xp(deployment, board, "ada")
    await deployment.flip_hidden("ada", hide=True)
    await deployment.show("ada", board)
    entries = deployment.boards.open_rows(board.leaf_of("ada"))
    await deployment.write(hidden_owners.hide_owner, [entries], "ada", now_us=1)
    assert await deployment.stats(board, "ada") == {"xp": 1}


async def test_late_moves_of_showing_move_nothing_after_the_owner_was_hidden_again(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await post_xp(deployment, board, "ada")
    await deployment.hide("ada", board)
    await deployment.flip_hidden("ada", hide=False)
    await deployment.hide("ada", board)
    await deployment.write(hidden_owners.show_owner, [deployment.open_rows(board)], "ada", now_us=1)
    await deployment.write(hidden_owners.forget_state, "ada", now_us=1)
    assert await deployment.stats(board, "ada") is None


async def test_a_state_stays_while_a_row_is_hidden(deployment: Deployment) -> None:
    board, other = [await deployment.create(name, ranked("xp")) for name in ("b", "other")]
    await deployment.hide("ada", board)
    await post_xp(deployment, board, "ada")
    with pytest.raises(BoardChangedError):
        await deployment.show("ada", other)
    await post_xp(deployment, other, "ada")
    assert (await post_xp(deployment, board, "ada")).stats == [2]
    assert await deployment.stats(other, "ada") == {"xp": 1}, "new rows are shown"
    await deployment.show("ada", board)
    assert await deployment.stats(board, "ada") == {"xp": 2}


async def test_a_post_is_not_rejected_because_its_owner_was_hidden_meanwhile(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp", min_scaled=0))
    await post_xp(deployment, board, "ada", xp=5)
    await deployment.hide("ada", board)
    assert (await post_xp(deployment, board, "ada", xp=-1)).stats == [4]
    assert isinstance((await post_xp(deployment, board, "new", xp=-1)).error, ValueOutOfRangeError)


async def test_a_process_reads_the_states_of_single_owners_if_there_are_too_many(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = await deployment.create("b", ranked("xp"))
    for owner in OWNERS:
        await deployment.hide(owner)
    monkeypatch.setattr(group_facts, "STATES_MAX", 1)
    for owner in (*OWNERS, *OTHER_OWNERS):
        await post_xp(deployment, board, owner)
    assert (await deployment.rows(board, [*OWNERS, *OTHER_OWNERS])).keys() == set(OTHER_OWNERS)
    known = deployment.known_facts
    facts = await deployment.read(read_facts, 0, [["ada", "eve"]], known.unbounded, Learned())
    assert facts.owner_states == {"ada": HIDDEN}


class MemoryStore:
    """A store in memory, whose transactions run one after the other."""

    dialect, partitions = SQLITE, 1

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self.outdated = connection, 0

    def at(self, partition: int) -> "MemoryStore":
        return self

    async def write(self, program: Callable[[], Program[T]]) -> T:
        run = partial(sqlite._drive, make=program, meter=NO_METER)
        try:
            return sqlite._in_transaction(self._connection, "BEGIN", run)
        except OutdatedFactsError:
            self.outdated += 1
            raise

    read = write


async def read_sums(deployment: Deployment, boards: list[Board]) -> tuple[Counter[Any], Counter[Any], dict[str, str]]:
    """Return how often owners posted, by board key, in the tables of boards and in the hidden table, and the states."""
    shown, unseen = Counter[Any](), Counter[Any]()
    for board in boards:
        rows = await deployment.rows(board, OWNERS)
        assert (await deployment.totals(board)).get(ALL_ENTRIES, 0) == len(rows)
        shown.update({(board.key, owner): entry.cells[1] for owner, entry in rows.items()})
        found = await deployment.read(hidden_owners.find_hidden_entries, [board.key], OWNERS)
        unseen.update({(key, entry.owner): entry.cells[1] for key, entry in found})
    _, states = await deployment.read(read_states)
    return shown, unseen, states


async def test_posts_of_two_processes_count_once_in_every_order_of_hiding_and_showing() -> None:
    """Transactions of an operator, who may begin anew at any time, between posts of processes with outdated states."""
    chance = random.Random(7)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        store: Any = MemoryStore(connection)
        first = await Deployment.on(store)
        second = Deployment(store, "00" * 16)
        boards = [await first.create(name, ranked("xp"), counter("posts")) for name in ("a", "b")]
        sums = Counter[Any]()

        async def post(owner: str) -> None:
            process, board = chance.choice((first, second)), chance.choice(boards)
            counted = process.post(owner, part(board, {"xp": 1, "posts": 1}))
            await process.apply(counted)
            sums[board.key, owner] += 1

        async def move(owner: str) -> None:
            work = chance.choice((hidden_owners.hide_owner, hidden_owners.show_owner))
            await first.write(work, [first.open_rows(chance.choice(boards))], owner, now_us=1)

        async def forget(owner: str) -> None:
            with suppress(BoardChangedError):
                await first.write(hidden_owners.forget_state, owner, now_us=1)

        async def hide_or_show(owner: str) -> None:
            await first.write(hidden_owners.store_state, owner, now_us=1, hide=chance.random() < 0.5)

        async def erase(owner: str) -> None:
            for board in boards:
                entries = first.open_rows(board)
                gone = await first.write(entries.remove_entry, owner, ChangeKind.ERASED)
                gone = gone or await first.write(hidden_owners.erase_hidden_entry, entries, owner)
                await first.write(log_ranking_changes, [gone] if gone else [], now_us=1)
                del sums[board.key, owner]

        for step in range(STEPS):
            await chance.choice((post, post, post, move, move, hide_or_show, forget, erase))(chance.choice(OWNERS))
            if step % 10:
                continue
            shown, unseen, states = await read_sums(first, boards)
            assert not shown.keys() & unseen.keys(), "a row is in one table"
            assert shown + unseen == sums
            assert {owner for _, owner in unseen} <= states.keys(), "only owners with a state have hidden rows"
        assert store.outdated > STEPS / 100
