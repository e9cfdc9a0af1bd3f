"""Test a store whose PostgreSQL server hangs, is full, or refuses connections. Waits are limited, and errors are clear.

The store recovers by itself. A test that damages a server has a server of its own.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio import Task
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from config.settings import Settings
from storage.engines.postgres import PostgresStore
from storage.engines.postgres_connection import translate_error
from storage.errors import OutcomeUnknownError, StoreAwayError, StoreBusyError, StoreFullError, StoreUnsupportedError
from storage.leaves.row_tables import entries_table
from tests.servers import HOST, PgBouncer, PostgresServer, postgres
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import Deployment, part, ranked

XP = ranked("xp")
WAIT_S = 60
HASTY = POSTGRES_LIMITS.model_copy(
    update={
        "connect_timeout_s": 0.2, "statement_timeout_s": 0.2, "heavy_statement_timeout_s": 0.2,
        "commit_timeout_s": 0.2, "store_attempts_max": 2,
    }
)  # fmt: skip
EXHAUSTED = {"max_connections": "5", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
SUPERUSERS_LEFT = "too many clients already|remaining connection slots"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Start a server for this module. A test that changes the server's state restores it."""
    with postgres() as started:
        yield started


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    """Provide a stack that closes everything that a test opened. The test fails after `WAIT_S` seconds."""
    async with asyncio.timeout(WAIT_S), AsyncExitStack() as stack:
        yield stack


async def deploy(opened: AsyncExitStack, url: str, limits: Settings) -> Deployment:
    """Open the store at `url`, as a new process would. `opened` closes the store at the end."""
    store = await PostgresStore.open(url, limits)
    opened.push_async_callback(store.close)
    return await Deployment.on(store)


async def test_a_stopped_server_times_out_and_then_serves_again(
    server: PostgresServer, opened: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await deploy(opened, server.create_database("frozen"), HASTY)
    board = await deployment.create("b", XP)
    post = deployment.post("ada", part(board, {"xp": 1}), post_id="one")
    server.send(signal.SIGSTOP)
    opened.callback(server.send, signal.SIGCONT)
    for _ in range(2):  # the first round uses open connections, and the second round has to open new ones
        async with asyncio.timeout(60):
            with pytest.raises(StoreAwayError):
                await deployment.stats(board, "ada")
            with pytest.raises(StoreAwayError):
                await deployment.apply(post)
    assert isinstance(deployment.store, PostgresStore)
    returned = asyncio.Event()
    monkeypatch.setattr(deployment.store._nodes.entry.breaker, "_report", lambda _: returned.set())
    server.send(signal.SIGCONT)
    await returned.wait()  # a probe has found that the server answers
    await deployment.apply(post)
    assert await deployment.stats(board, "ada") == {"xp": 1}


async def test_a_server_that_has_no_connection_left_is_away_until_one_is_free(opened: AsyncExitStack) -> None:
    full = opened.enter_context(postgres(EXHAUSTED))
    deployment = await deploy(opened, full.url(), POSTGRES_LIMITS.model_copy(update={"writer_connections": 1}))
    board = await deployment.create("b", XP)
    others: list[asyncpg.Connection] = []
    with suppress(asyncpg.TooManyConnectionsError):  # on a slow machine, a probe may have the last connection
        while len(others) < 4:
            others.append(await asyncpg.connect(full.url()))
    with pytest.raises(StoreAwayError, match=SUPERUSERS_LEFT):
        await deployment.stats(board, "ada")  # this read opens the first connection of the readers
    # This post uses a connection that the writer opened before.
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    for other in others:
        await other.close()
    assert await deployment.stats(board, "ada") == {"xp": 1}


@pytest.mark.parametrize(("statement_timeout_s", "lock_timeout_s"), [(0.1, 5.0), (5.0, 0.1)])
async def test_a_statement_that_takes_too_long_is_refused_and_its_connection_stays(
    server: PostgresServer, opened: AsyncExitStack, statement_timeout_s: float, lock_timeout_s: float
) -> None:
    url = server.create_database(f"late_{lock_timeout_s:g}".replace(".", "_"))
    bounds = POSTGRES_LIMITS.model_copy(
        update={"statement_timeout_s": statement_timeout_s, "lock_timeout_s": lock_timeout_s}
    )
    deployment = await deploy(opened, url, bounds)
    board = await deployment.create("b", XP)
    other = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute(f"LOCK TABLE {entries_table(board.key)} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreAwayError, match="did not answer in time"):
            await deployment.stats(board, "ada")
        with pytest.raises(StoreAwayError, match="did not answer in time"):
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    await other.close()
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await deployment.stats(board, "ada") == {"xp": 1}


def test_a_server_without_room_is_reported_as_full_and_not_as_slow() -> None:
    assert isinstance(translate_error(asyncpg.DiskFullError("could not extend file")), StoreFullError)


async def test_a_wrong_password_or_a_missing_database_is_reported_and_not_retried(server: PostgresServer) -> None:
    server.run_sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guarded {HOST}/32 scram-sha-256\n{before}")
    server.run_sql("SELECT pg_reload_conf()")
    address = f"{HOST}:{server.port}"
    refused = 'password authentication failed for user "guarded"'
    with pytest.raises(StoreUnsupportedError, match=refused) as told:
        await PostgresStore.open(f"postgresql://guarded:wrong@{address}/postgres", POSTGRES_LIMITS)
    assert "wrong" not in str(told.value)
    hosts = f"{address},{address}"
    with pytest.raises(StoreUnsupportedError, match=refused):
        await PostgresStore.open(f"postgresql://guarded:wrong@{hosts}/postgres", POSTGRES_LIMITS)
    with pytest.raises(StoreUnsupportedError, match='database "nowhere" does not exist'):
        await PostgresStore.open(server.url("nowhere"), POSTGRES_LIMITS)
    store = await PostgresStore.open(f"postgresql://guarded:right@{address}/postgres", POSTGRES_LIMITS)
    await store.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_lends_no_sessions_is_refused_with_the_reason(server: PostgresServer, mode: str) -> None:
    name = f"pooled_{mode}"
    server.create_database(name)
    with PgBouncer(server, mode) as pooler:
        with pytest.raises(StoreUnsupportedError, match="pooler"):
            await PostgresStore.open(pooler.url(name), POSTGRES_LIMITS)
        with pytest.raises(
            StoreUnsupportedError
        ):  # sessions that an earlier start has left to the pooler don't hide it
            await PostgresStore.open(pooler.url(name), POSTGRES_LIMITS)


async def test_a_pooler_that_lends_sessions_serves(server: PostgresServer, opened: AsyncExitStack) -> None:
    server.create_database("pooled")
    with PgBouncer(server, "session") as pooler:
        deployment = await deploy(opened, pooler.url("pooled"), POSTGRES_LIMITS)
        board = await deployment.create("b", XP)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        await opened.aclose()


@pytest.mark.parametrize(("encoding", "is_refused"), [("LATIN1", True), ("SQL_ASCII", False), ("UTF8", False)])
async def test_a_database_is_refused_if_its_encoding_lacks_characters(
    server: PostgresServer, opened: AsyncExitStack, encoding: str, is_refused: bool
) -> None:
    name = f"in_{encoding.lower()}"
    server.run_sql(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    if is_refused:
        with pytest.raises(StoreUnsupportedError, match=f"encoding {encoding}"):
            await PostgresStore.open(server.url(name), POSTGRES_LIMITS)
        return
    deployment = await deploy(opened, server.url(name), POSTGRES_LIMITS)
    board = await deployment.create("b", XP)
    owners = ["Zoë", "李", "é", "𝔸"]
    await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in owners))
    assert [await deployment.stats(board, owner) for owner in owners] == [{"xp": 1}] * 4


@pytest.fixture
async def standby(server: PostgresServer, opened: AsyncExitStack) -> Standby:
    made = Standby(server, await asyncpg.connect(server.url()))
    opened.push_async_callback(made.connection.close)
    opened.callback(made.end_waiting)
    return made


class Standby:
    """A standby that does not exist. Commits wait for it until the test ends their wait."""

    def __init__(self, server: PostgresServer, connection: asyncpg.Connection) -> None:
        self._server, self.connection = server, connection

    async def begin_waiting(self, begin: Callable[[], Coroutine[Any, Any, object]], *, for_s: float = 0) -> Task[Any]:
        """Begin a commit, and return its task after the commit has waited for `for_s` seconds.

        If the commit succeeds because its session did not know about the standby yet, begin another commit.
        """
        self._server.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND now() - query_start >= $1"
        while True:
            task = asyncio.create_task(begin())
            while not task.done():
                if await self.connection.fetchval(waits, timedelta(seconds=for_s)):
                    return task
            task.result()

    async def cancel(self) -> None:
        """Cancel the wait of all waiting commits, as an operator does."""
        await self.connection.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )

    def end_waiting(self) -> None:
        self._server.run_sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


async def test_a_commit_whose_wait_for_the_standby_is_cancelled_is_not_acknowledged(
    server: PostgresServer, opened: AsyncExitStack, standby: Standby
) -> None:
    deployment = await deploy(opened, server.create_database("waiting"), POSTGRES_LIMITS)
    board = await deployment.create("b", XP)
    posting = await standby.begin_waiting(lambda: deployment.apply(deployment.post("ada", part(board, {"xp": 1}))))
    await standby.cancel()
    with pytest.raises(OutcomeUnknownError):
        await posting


async def test_callers_are_not_told_what_a_server_says_of_a_row(server: PostgresServer, opened: AsyncExitStack) -> None:
    deployment = await deploy(opened, server.create_database("details"), POSTGRES_LIMITS)
    board = await deployment.create("b", XP)
    other = await asyncpg.connect(server.url("details"))
    await other.execute(f"ALTER TABLE {entries_table(board.key)} ADD CHECK (owner <> 'ada')")
    with pytest.raises(StoreBusyError) as told:
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert "\n" not in told.value.detail
    assert "ada" not in told.value.detail
    await other.close()


async def test_a_server_that_lost_another_server_keeps_its_connections_and_is_asked_twice(
    server: PostgresServer, opened: AsyncExitStack
) -> None:
    """A node of Citus reports so that the node of a partition is away."""
    deployment = await deploy(opened, server.create_database("nodes"), POSTGRES_LIMITS)
    board = await deployment.create("b", XP)
    other = await asyncpg.connect(server.url("nodes"))
    await other.execute(
        f"""
        CREATE SEQUENCE asked;
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM nextval('asked'); RAISE 'remote node' USING ERRCODE = 'connection_failure'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON {entries_table(board.key)} FOR EACH ROW EXECUTE FUNCTION fail()
        """
    )
    list_pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rankcurve' ORDER BY pid"
    before = await other.fetch(list_pids)
    with pytest.raises(StoreAwayError, match="remote node"):
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await other.fetch(list_pids) == before
    assert await other.fetchval("SELECT last_value FROM asked") == 2
    await other.close()
