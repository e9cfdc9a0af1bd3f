"""Test a store that was moved from another server. New transactions must get higher numbers than the stored ones.

To imitate the other server, the tests increase every transaction number in the store.
"""

import asyncio

import asyncpg
from structlog.testing import capture_logs

from storage.curves.live_counts import FoldState, find_fold_state, store_folded
from storage.engines.postgres import PostgresStore
from storage.engines.store_start import prepare_store
from storage.log.change_log import LogMark, change_log
from storage.log.journal import JournalRow, journal
from storage.store import Program, Store
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment, part, ranked

AHEAD = 10**10


async def open_prepared(place: str) -> Deployment:
    store = await PostgresStore.open(place, POSTGRES_LIMITS)
    await prepare_store(store)
    return await Deployment.on(store)


async def read_journal(store: Store) -> list[JournalRow]:
    return await store.read(lambda: journal.read_changes(0, limit=1_000))


async def store_mark(store: Store) -> None:

    def program() -> Program[None]:
        now = yield from change_log.take_mark()
        yield from store_folded(FoldState(now, 1, 1), [])

    await store.write(program)


async def read_since_mark(store: Store) -> tuple[LogMark, list[str]]:
    """Return a new mark, and the owners of the changes between the stored mark and the new mark."""

    def program() -> Program[tuple[LogMark, list[str]]]:
        log, done = change_log, (yield from find_fold_state())
        assert done is not None
        now = yield from log.take_mark()
        bundles = yield from log.list_bundles_between(done.mark, now, limit=10)
        return now, [change.owner for bundle in bundles for change in bundle.changes()]

    return await store.read(program)


async def move_store_here(raw: asyncpg.Connection) -> None:
    """Increase the store's transaction numbers, as if a server with higher numbers had written them."""
    for table, column in (("changes", "position"), ("lease_journal", "position"), ("live_mark", "position")):
        await raw.execute(f"UPDATE {table} SET {column} = {column} + {AHEAD}")


async def test_a_store_from_a_server_with_higher_numbers_continues_them(place: str, raw: asyncpg.Connection) -> None:
    before = await open_prepared(place)
    board = await before.create("b", ranked("xp"))
    await before.apply_one(before.post("ada", part(board, {"xp": 1})))
    await store_mark(before.store)
    await before.apply_one(before.post("bob", part(board, {"xp": 2})))
    await before.store.close()
    await move_store_here(raw)

    stores = [await PostgresStore.open(place, POSTGRES_LIMITS) for _ in range(3)]
    assert await read_journal(stores[0]) == [], "its rows have numbers of the future"
    with capture_logs() as lines:
        salts = await asyncio.gather(*map(prepare_store, stores))
    assert len(set(salts)) == 1
    assert "transaction_retried" not in [line["event"] for line in lines], "the processes deadlocked"
    after = await Deployment.on(stores[1])
    await after.apply_one(after.post("cy", part(board, {"xp": 3})))
    for each in stores:
        rows = await read_journal(each)
        assert [row.owner for row in rows] == ["ada", "bob", "cy"]
        assert [row.number for row in rows] == sorted(row.number for row in rows)
        assert rows[0].number >= AHEAD << 20
        now, uncounted = await read_since_mark(each)
        assert now.seen == ()
        assert now.position > rows[-1].number >> 20
        assert uncounted == ["bob", "cy"]
        await each.close()


async def test_a_store_that_never_moved_uses_its_servers_numbers(place: str, raw: asyncpg.Connection) -> None:
    deployment = await open_prepared(place)
    store, board = deployment.store, await deployment.create("b", ranked("xp"))
    await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    dialect = store.dialect
    async with raw.transaction():  # this transaction begins before the next post, and stays open
        await raw.fetchval("SELECT txid_current()")
        await deployment.apply_one(deployment.post("bob", part(board, {"xp": 1})))
        await store_mark(store)
        await prepare_store(store)
    assert store.dialect is dialect
    assert await raw.fetchval("SELECT count(*) FROM meta WHERE name = 'transactions_before'") == 0
    assert await raw.fetchval("SELECT max(position) < txid_snapshot_xmax(txid_current_snapshot()) FROM changes")
    await store.close()


async def test_a_store_that_moved_twice_continues_its_numbers(place: str, raw: asyncpg.Connection) -> None:
    numbers: list[int] = []
    for owner in ("ada", "bob", "cy"):
        deployment = await open_prepared(place)
        board = await deployment.create(f"of {owner}", ranked("xp"))
        await deployment.apply_one(deployment.post(owner, part(board, {"xp": 1})))
        rows = await read_journal(deployment.store)
        assert [row.owner for row in rows][-1] == owner
        numbers.append(rows[-1].number)
        await deployment.store.close()
        await move_store_here(raw)
    assert numbers == sorted(numbers)
    assert numbers[1] - numbers[0] >= AHEAD << 20
