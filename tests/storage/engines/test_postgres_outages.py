"""Test a PostgreSQL server that stops, is slow, or loses an answer. No post may be lost or counted twice."""

import asyncio
import contextlib
import socket
from functools import partial
from typing import Any

import asyncpg
import pytest

from querybuilder import col, param, update
from storage.engines.postgres import PostgresStore
from storage.engines.postgres_connection import hosts_of
from storage.errors import OutcomeUnknownError, StoreAwayError, StoreBusyError, WaitTooLongError
from storage.records import Post, PostStatus
from storage.schema.tables import META
from tests.meter import RecordingMeter
from tests.servers import READY_S, PostgresServer, postgres
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import LIMITS, Deployment, part, ranked
from tests.storage.meddling import run_query
from tests.storage.processes import Processes
from tests.storage.proxy import DatabaseProxy

XP = ranked("xp")
END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"


@pytest.mark.parametrize("with_id", [True, False])
async def test_a_lost_answer_is_settled_by_post_ids_or_unknown(processes: Processes, place: str, with_id: bool) -> None:
    witness = await processes.start_process()
    board = await witness.create("b", XP)
    async with DatabaseProxy(place) as way:
        deployment = await processes.start_process(way.url)
        writer = deployment.writer()
        writer.start()
        way.lose = 1
        post = deployment.post("ada", part(board, {"xp": 1}), post_id="x" if with_id else None)
        if with_id:
            [[outcome]] = await writer.submit([post])
            assert outcome.status is PostStatus.DUPLICATE, "the first commit counted"
        else:
            with pytest.raises(OutcomeUnknownError):
                await writer.submit([post])
        assert way.lost == 1
        await writer.close()
        await deployment.store.close()
    assert await witness.stats(board, "ada") == {"xp": 1}


async def test_terminating_sessions_under_load_costs_nothing_but_time(
    processes: Processes, raw: asyncpg.Connection, session_name: str, bystander: asyncpg.Connection
) -> None:
    deployment = await processes.start_process(store_attempts_max=20)
    board = await deployment.create("b", XP)
    writer = deployment.writer(limits=LIMITS.model_copy(update={"write_attempts_max": 50}))
    writer.start()
    sums: dict[str, int] = {}
    refusals: list[Post] = []
    settled = asyncio.Event()

    async def accepted(post: Post) -> bool:
        try:
            await writer.submit([post])
        except (StoreAwayError, WaitTooLongError):  # send the same post id again, as a client does
            return False
        return True

    async def poster(number: int) -> None:
        for step in range(25):
            owner = f"o{(number + step) % 5}"
            post = deployment.post(owner, part(board, {"xp": 1}), post_id=f"{number}/{step}")
            while not await accepted(post):
                refusals.append(post)
            sums[owner] = sums.get(owner, 0) + 1
            settled.set()
            assert await deployment.rows(board, [owner])

    posting = asyncio.gather(*(poster(number) for number in range(8)))
    # After each successful post, end the server's sessions once. So even a slow machine makes progress.
    while not posting.done():
        await raw.fetch(END_SESSIONS, session_name)
        settled.clear()
        forward = asyncio.ensure_future(settled.wait())
        either: set[asyncio.Future[Any]] = {posting, forward}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        forward.cancel()
    await posting
    await writer.close()
    assert {owner: (await deployment.stats(board, owner) or {})["xp"] for owner in sums} == sums
    assert len(refusals) < 20, "the store settled most posts without the client"


async def test_the_store_finds_a_crashed_server_again() -> None:
    with postgres() as server:
        store = await PostgresStore.open(server.url(), POSTGRES_LIMITS.model_copy(update={"store_attempts_max": 3}))
        deployment = await Deployment.on(store)
        board = await deployment.create("b", XP)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        await asyncio.to_thread(server.stop, "immediate")
        with pytest.raises(StoreAwayError):
            await deployment.stats(board, "ada")
        with pytest.raises(StoreAwayError):
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        await asyncio.to_thread(server.start)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        assert await deployment.stats(board, "ada") == {"xp": 2}
        await store.close()


async def test_the_store_finds_the_host_that_takes_writes_after_a_promotion(postgres_server: PostgresServer) -> None:
    with postgres() as primary, contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        standby = PostgresServer(standby_of=primary)
        try:
            standby.start()
            # The first host accepts connections but never answers. The second is a standby, and the third is the
            # primary.
            hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
            url = f"postgresql://postgres@{hosts}/postgres"
            limits = POSTGRES_LIMITS.model_copy(
                update={"connect_timeout_s": 0.3, "store_attempts_max": 40, "store_backoff_s_max": 0.2}
            )
            meter = RecordingMeter()
            store = await PostgresStore.open(url, limits, meter=meter)
            deployment = await Deployment.on(store)
            board = await deployment.create("b", XP)
            primary.run_sql("SELECT pg_switch_wal()")
            await asyncio.to_thread(_await_catch_up, primary, standby)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            post = deployment.post("ada", part(board, {"xp": 1}), post_id="x")
            async with asyncio.timeout(READY_S):
                while True:
                    try:
                        await deployment.apply(post)
                        break
                    except StoreAwayError:  # on a busy machine, a probe that tries all hosts may come too late
                        while await meter.events["rankcurve_store_nodes_away"].get():
                            pass
            assert await deployment.stats(board, "ada") == {"xp": 1}
            await store.close()
        finally:
            standby.remove()


def _await_catch_up(primary: PostgresServer, standby: PostgresServer) -> None:
    written = primary.run_sql("SELECT pg_current_wal_lsn()")
    while standby.run_sql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") != "t":
        pass


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@h:1/d", ["postgresql://u:p@h:1/d"]),
        ("postgresql://u:p@a:1,b:2/d?x=1", ["postgresql://u:p@a:1/d?x=1", "postgresql://u:p@b:2/d?x=1"]),
        ("postgresql://a,b/d", ["postgresql://a/d", "postgresql://b/d"]),
        ("postgresql:///d?host=/run", ["postgresql:///d?host=/run"]),
    ],
)
def test_a_url_of_several_hosts_becomes_one_url_for_each_host(url: str, hosts: list[str]) -> None:
    assert hosts_of(url) == hosts


async def test_the_wait_for_a_free_connection_is_bounded(processes: Processes) -> None:
    deployment = await processes.start_process(
        reader_connections=1, connection_wait_s_max=0.05, reads_waiting_max=2, statement_timeout_s=5
    )
    board = await deployment.create("b", XP)
    held = asyncio.Event()
    begun = asyncio.Event()
    assert isinstance(deployment.store, PostgresStore)
    pool = deployment.store._nodes.entry.light

    async def hold() -> None:
        connection = await pool.lend_connection()
        begun.set()
        await held.wait()
        pool.take_back(connection)

    holding = asyncio.create_task(hold())
    await begun.wait()
    waiting = [asyncio.create_task(deployment.stats(board, "ada")) for _ in range(3)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreBusyError] * 3
    assert sorted("came free" in str(outcome) for outcome in outcomes) == [False, True, True]
    held.set()
    await holding
    assert await deployment.stats(board, "ada") is None


async def test_the_connection_of_a_cancelled_statement_is_not_lent_again(processes: Processes) -> None:
    deployment = await processes.start_process(reader_connections=1)
    board = await deployment.create("b", XP)
    store, meter = deployment.store, RecordingMeter()
    assert isinstance(store, PostgresStore)
    store._nodes.entry.writers._meter = store._nodes.entry.light._meter = meter
    change = update(META).set(content=param("content")).where(col("name").eq("nothing")).prepared()
    for turns in range(1, 12):
        reading = asyncio.create_task(deployment.stats(board, "ada"))
        writing = asyncio.create_task(store.write(partial(run_query, change.bind(content=f"old {turns}"))))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        writing.cancel()
        # These begin after the cancelled ones have ended, and before the driver has begun to close their connections.
        next_ones = [
            asyncio.create_task(deployment.stats(board, "ada")),
            asyncio.create_task(store.write(partial(run_query, change.bind(content=f"new {turns}")))),
        ]
        assert await asyncio.gather(*next_ones) == [None, [(0,)]], turns
        await asyncio.gather(reading, writing, return_exceptions=True)
    assert meter.counts["rankcurve_store_retries"] == 0
