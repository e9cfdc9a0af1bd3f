"""Why here: what is true of the PostgreSQL store only: many processes on it, locks, and connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import asyncpg
import pytest

from querybuilder import POSTGRES, col, count, select
from storage.errors import (
    LostRace,
    OutcomeUnknown,
    StorageError,
    StoreAway,
    StoreBusy,
    StoreUnsupported,
    UnknownBoard,
    WaitTooLong,
)
from storage.leaderboards import ALL_ENTRIES, change_board, delete_board, entries_table, reset_board
from storage.migrate import migrate
from storage.postgres import PostgresStore
from storage.postgres_connection import hosts_of
from storage.records import Board, BoardSpec, Post, Status
from storage.store import Program
from tests.schemas import fresh_schema
from tests.servers import PostgresServer, postgres
from tests.storage.backends import POSTGRES_LIMITS
from tests.storage.deployment import LIMITS, Deployment, Observed, part, ranked, spec
from tests.storage.lossy import LossyWay

XP = ranked("xp")
WAIT_S = 60


@pytest.fixture
async def place(postgres_url: str) -> AsyncIterator[str]:
    """An empty place on the server."""
    async with fresh_schema(postgres_url) as url:
        yield url


class Processes:
    """Deployments on one place, each with connections of its own, as processes have them."""

    def __init__(self, stack: AsyncExitStack, place: str) -> None:
        self._stack, self._place = stack, place

    async def one(self, url: str | None = None, **limits: float) -> Deployment:
        """One process more."""
        store = await PostgresStore.open(url or self._place, replace(POSTGRES_LIMITS, **limits))  # type: ignore[arg-type]
        self._stack.push_async_callback(store.close)
        return await Deployment.on(store)


@pytest.fixture
async def processes(place: str) -> AsyncIterator[Processes]:
    """Processes on a fresh place."""
    async with asyncio.timeout(WAIT_S), AsyncExitStack() as stack:
        yield Processes(stack, place)


@pytest.fixture
async def raw(place: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else's session on the place."""
    connection = await asyncpg.connect(place)
    yield connection
    await connection.close()


async def rows_in(deployment: Deployment, board: Board) -> int:
    """Rows that are really there."""
    [[rows]] = await deployment.store.read_one(
        select(count()).from_(entries_table(board.key)).build(deployment.dialect)
    )
    return int(rows)


async def test_processes_that_change_the_same_owners_of_several_boards_lose_nothing_and_never_deadlock(
    processes: Processes, raw: asyncpg.Connection
) -> None:
    deployments = [await processes.one() for _ in range(4)]
    boards = [await deployments[0].create(f"b{index}", XP) for index in range(3)]
    observed = [Observed() for _ in deployments]
    limits = replace(LIMITS, write_attempts_max=50)
    writers = [each.writer(seen, limits=limits) for each, seen in zip(deployments, observed, strict=True)]
    owners = [f"o{index}" for index in range(10)]
    sent: dict[str, int] = dict.fromkeys(owners, 0)

    async def poster(number: int) -> None:
        rng = random.Random(number)
        deployment, writer = deployments[number % 4], writers[number % 4]
        for _ in range(20):
            chosen = rng.sample(owners, 4)
            posts = [
                deployment.post(owner, *(part(board, {"xp": 1}) for board in rng.sample(boards, 3))) for owner in chosen
            ]
            outcomes = await writer.submit(posts)
            assert {outcome.status for outcome_parts in outcomes for outcome in outcome_parts} == {Status.APPLIED}
            for owner in chosen:
                sent[owner] += 1

    for writer in writers:
        writer.start()
    await asyncio.gather(*(poster(number) for number in range(12)))
    for writer in writers:
        await writer.close()
    for board in boards:
        assert {owner: (await deployments[0].stats(board, owner) or {})["xp"] for owner in owners} == sent
        totals = await deployments[1].totals(board)
        assert totals[ALL_ENTRIES] == await rows_in(deployments[0], board) == len(owners)
    deadlocks = await raw.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert deadlocks == 0


async def test_a_board_that_is_emptied_under_posts_of_another_process_keeps_count(processes: Processes) -> None:
    poster, operator = await processes.one(), await processes.one()
    board = await poster.create("b", XP)
    writer = poster.writer(Observed(), limits=replace(LIMITS, write_attempts_max=50))
    writer.start()
    ended = asyncio.Event()

    async def post() -> None:
        rng = random.Random(1)
        while not ended.is_set():
            owners = rng.sample(range(200), 20)
            await writer.submit([poster.post(f"o{owner}", part(board, {"xp": 1})) for owner in owners])

    posting = asyncio.create_task(post())
    for _ in range(10):
        await operator.store.write(lambda: reset_board(operator.dialect, board_id="b"))
        await asyncio.sleep(0)
    ended.set()
    await posting
    await writer.close()
    assert (await operator.totals(board)).get(ALL_ENTRIES, 0) == await rows_in(operator, board)


async def test_posts_to_a_board_that_another_process_deletes_are_told_so_and_the_others_go_through(
    processes: Processes,
) -> None:
    poster, operator = await processes.one(), await processes.one()
    gone, kept = await poster.create("gone", XP), await poster.create("kept", XP)
    writer = poster.writer(Observed())
    writer.start()
    deleting = asyncio.create_task(operator.store.write(lambda: delete_board(operator.dialect, board_id="gone")))
    statuses: set[tuple[Status, Status]] = set()
    while (Status.REJECTED, Status.APPLIED) not in statuses:
        outcomes = await writer.submit(
            [poster.post("ada", part(gone, {"xp": 1})), poster.post("ada", part(kept, {"xp": 1}))]
        )
        statuses.add((outcomes[0][0].status, outcomes[1][0].status))
        if outcomes[0][0].status is Status.REJECTED:
            assert isinstance(outcomes[0][0].error, UnknownBoard)
    await deleting
    await writer.close()
    assert statuses <= {(Status.APPLIED, Status.APPLIED), (Status.REJECTED, Status.APPLIED)}
    with pytest.raises(UnknownBoard):
        await poster.erase(gone, "ada")


async def test_a_post_id_that_two_processes_bring_at_once_counts_once(processes: Processes) -> None:
    both = [await processes.one(), await processes.one()]
    board = await both[0].create("b", XP)
    writers = [each.writer(Observed()) for each in both]
    for writer in writers:
        writer.start()
    for number in range(30):
        outcomes = await asyncio.gather(
            *(
                writer.submit([each.post(f"o{number % 3}", part(board, {"xp": 1}), post_id=f"id{number}")])
                for each, writer in zip(both, writers, strict=True)
            )
        )
        assert sorted(outcome.status for [[outcome]] in outcomes) == [Status.APPLIED, Status.DUPLICATE]
    for writer in writers:
        await writer.close()
    assert await both[0].stats(board, "o0") == {"xp": 10}


async def test_boards_and_columns_that_processes_make_at_once_are_made_once(processes: Processes) -> None:
    deployments = [await processes.one() for _ in range(4)]
    made = await asyncio.gather(*(each.create("b", XP) for each in deployments))
    assert len({board.key for board in made}) == 1
    first, second = spec(XP, ranked("laps")), spec(XP, ranked("goals"))

    def change(wanted: BoardSpec) -> Callable[[], Program[Board]]:
        return lambda: change_board(POSTGRES, board_id="b", wanted=wanted)

    changes = [
        each.store.write(change(wanted)) for each, wanted in zip(deployments, (first, first, second), strict=False)
    ]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    board = await deployments[3].catalog.reread("b")
    # Whoever came second was told that a column which it does not know can't be removed, or found all as wanted.
    assert [column.name for column in board.spec.columns] in (["xp", "laps"], ["xp", "goals"])
    assert any(isinstance(outcome, Board) for outcome in outcomes)
    await deployments[3].apply(deployments[3].post("ada", part(board, {board.spec.columns[1].name: 3})))


async def test_processes_that_migrate_at_once_agree_on_one_salt(place: str) -> None:
    stores = [await PostgresStore.open(place, POSTGRES_LIMITS) for _ in range(4)]
    salts = await asyncio.gather(*(store.write(lambda: migrate(stores[0].dialect)) for store in stores))
    assert len(set(salts)) == 1
    for store in stores:
        await store.close()


async def test_a_row_that_somebody_holds_is_waited_for_within_a_bound(
    processes: Processes, raw: asyncpg.Connection
) -> None:
    deployment = await processes.one(lock_timeout_s=0.05)
    board = await deployment.create("b", XP)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    async with raw.transaction():
        await raw.execute(f"SELECT * FROM {entries_table(board.key)} FOR UPDATE")
        with pytest.raises(StoreAway, match="in time"):
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await deployment.stats(board, "ada") == {"xp": 2}


@pytest.mark.parametrize("with_id", [True, False])
async def test_a_commit_whose_answer_is_lost_is_settled_by_post_ids_and_told_as_unknown_without(
    processes: Processes, place: str, with_id: bool
) -> None:
    witness = await processes.one()
    board = await witness.create("b", XP)
    async with LossyWay(place) as way:
        deployment = await processes.one(way.url)
        writer = deployment.writer(Observed())
        writer.start()
        way.lose = 1
        post = deployment.post("ada", part(board, {"xp": 1}), post_id="x" if with_id else None)
        if with_id:
            [[outcome]] = await writer.submit([post])
            assert outcome.status is Status.DUPLICATE, "the first time counted"
        else:
            with pytest.raises(OutcomeUnknown):
                await writer.submit([post])
        assert way.lost == 1
        await writer.close()
        await deployment.store.close()
    assert await witness.stats(board, "ada") == {"xp": 1}


async def test_sessions_that_are_terminated_under_load_cost_nothing_but_time(
    processes: Processes, raw: asyncpg.Connection
) -> None:
    deployment = await processes.one(store_attempts_max=20)
    board = await deployment.create("b", XP)
    writer = deployment.writer(Observed(), limits=replace(LIMITS, write_attempts_max=50))
    writer.start()
    sums: dict[str, int] = {}
    refusals: list[Post] = []

    async def accepted(post: Post) -> bool:
        try:
            await writer.submit([post])
        except (StoreAway, WaitTooLong):  # as a client does: the same id again
            return False
        return True

    async def poster(number: int) -> None:
        for step in range(25):
            owner = f"o{(number + step) % 5}"
            post = deployment.post(owner, part(board, {"xp": 1}), post_id=f"{number}/{step}")
            while not await accepted(post):
                refusals.append(post)
            sums[owner] = sums.get(owner, 0) + 1
            assert await deployment.rows(board, [owner])

    posting = asyncio.gather(*(poster(number) for number in range(8)))
    while not posting.done():
        await raw.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'rankcurve' AND datname = current_database()"
        )
        await asyncio.wait([posting], timeout=0.05)
    await posting
    await writer.close()
    assert {owner: (await deployment.stats(board, owner) or {})["xp"] for owner in sums} == sums
    assert len(refusals) < 20, "most of it was settled without the client"


async def test_a_server_that_crashes_is_found_again() -> None:
    with postgres() as server:
        store = await PostgresStore.open(server.url(), replace(POSTGRES_LIMITS, store_attempts_max=3))
        deployment = await Deployment.on(store)
        board = await deployment.create("b", XP)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        await asyncio.to_thread(server.stop, "immediate")
        with pytest.raises(StoreAway):
            await deployment.stats(board, "ada")
        with pytest.raises(StoreAway):
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        await asyncio.to_thread(server.start)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        assert await deployment.stats(board, "ada") == {"xp": 2}
        await store.close()


async def test_of_several_hosts_the_one_that_takes_writes_is_found_and_found_again_after_a_promotion(
    postgres_server: PostgresServer,
) -> None:
    with postgres() as primary, contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        standby = PostgresServer(standby_of=primary)
        try:
            standby.start()
            # The first host takes connections and says nothing, the second is a standby.
            hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
            url = f"postgresql://postgres@{hosts}/postgres"
            limits = replace(POSTGRES_LIMITS, connect_timeout_s=0.3, store_attempts_max=40, store_backoff_s_max=0.2)
            store = await PostgresStore.open(url, limits)
            deployment = await Deployment.on(store)
            board = await deployment.create("b", XP)
            primary.run_sql("SELECT pg_switch_wal()")
            await asyncio.to_thread(_await_catch_up, primary, standby)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
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
def test_a_url_of_several_hosts_is_one_for_each(url: str, hosts: list[str]) -> None:
    assert hosts_of(url) == hosts


async def test_a_user_or_database_that_the_server_refuses_is_no_outage(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreUnsupported, match="does not exist"):
        await PostgresStore.open(postgres_server.url("nothing_here"), POSTGRES_LIMITS)


async def test_who_finds_no_free_connection_waits_within_a_bound(processes: Processes) -> None:
    deployment = await processes.one(
        reader_connections=1, connection_wait_s_max=0.05, reads_waiting_max=2, statement_timeout_s=5
    )
    board = await deployment.create("b", XP)
    held = asyncio.Event()
    begun = asyncio.Event()
    store = deployment.store

    async def hold() -> None:
        pool = store._light  # type: ignore[attr-defined]
        connection = await pool.take()
        begun.set()
        await held.wait()
        pool.give_back(connection)

    holding = asyncio.create_task(hold())
    await begun.wait()
    waiting = [asyncio.create_task(deployment.stats(board, "ada")) for _ in range(3)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 3
    assert sorted("came free" in str(outcome) for outcome in outcomes) == [False, True, True]
    held.set()
    await holding
    assert await deployment.stats(board, "ada") is None


async def test_a_reader_that_is_cancelled_leaves_its_connection_fit_for_the_next(processes: Processes) -> None:
    deployment = await processes.one(reader_connections=1)
    board = await deployment.create("b", XP)
    for turns in range(12):
        reading = asyncio.create_task(deployment.stats(board, "ada"))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert await deployment.stats(board, "ada") is None


async def test_a_race_that_a_program_reports_reaches_its_caller(processes: Processes) -> None:
    deployment = await processes.one()
    runs: list[int] = []

    def program() -> Program[None]:
        runs.append(1)
        yield select(count()).from_("boards").where(col("id").eq("b")).build(deployment.dialect)
        raise LostRace

    with pytest.raises(LostRace):
        await deployment.store.write(program)
    assert runs == [1]
    with pytest.raises(StorageError):
        await deployment.store.read(program)
