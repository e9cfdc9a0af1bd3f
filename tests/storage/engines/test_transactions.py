"""Test each promise of `Store` about transactions, because programs rely on all of them."""

import asyncio
from functools import partial

import pytest

from querybuilder import QueryError, col, delete, insert, param, select
from storage.boards.board_creation import create_board
from storage.boards.boards import list_boards
from storage.errors import StorageError, StoreBusyError
from storage.records import Board
from storage.schema.tables import BOARDS, META
from storage.store import Program, read_single
from tests.storage.deployment import Deployment, erase_entry, part, ranked, spec
from tests.storage.meddling import run_query

XP = ranked("xp")
ABANDONED = 20  # times that a test abandons four reads, at other moments each time


async def read_xp(deployment: Deployment, *boards: Board, heavy: bool = False, rounds: int = 1) -> list[list[object]]:
    """Read ada's values on each board `rounds` times in one snapshot. Return the values of each round."""

    def program() -> Program[list[list[object]]]:
        seen: list[list[object]] = []
        for _ in range(rounds):
            seen.append([])
            for board in boards:
                found = yield from deployment.entries(board).find_entries(["ada"])
                cells = found["ada"].cells if found else [None]
                seen[-1].append(deployment.merger(board).decode_stats(cells)[0])
        return seen

    return await deployment.store.read(program, heavy=heavy)


async def test_a_read_sees_every_write_that_was_acknowledged_before(deployment: Deployment, board: Board) -> None:
    for total in range(1, 11):
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        reads = [read_xp(deployment, board, heavy=index % 3 == 0) for index in range(6)]
        assert await asyncio.gather(*reads) == [[[total]]] * 6
        entries = deployment.open_rows(board)
        found, totals = await read_single(deployment.store, partial(entries.find_entries_with_totals, ["ada"]))
        assert (list(found), len(totals)) == (["ada"], 3)


async def test_abandoned_reads_leave_no_transaction_and_no_old_snapshot(deployment: Deployment, board: Board) -> None:
    for total in range(1, ABANDONED + 1):
        reads = [asyncio.create_task(read_xp(deployment, board, heavy=index % 2 == 0, rounds=20)) for index in range(4)]
        for _ in range(total % 20):
            await asyncio.sleep(0)
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
        assert await read_xp(deployment, board) == await read_xp(deployment, board, heavy=True) == [[total]]
        assert await deployment.stats(board, "ada") == {"xp": total}


async def test_a_read_of_one_query_runs_without_a_transaction(deployment: Deployment) -> None:
    store, note = deployment.store, insert(META).values(name="one", content="1").bind()
    found = select(col("content")).from_(META).where(col("name").eq("one")).bind()

    def read(times: int) -> Program[list[str]]:
        contents = []
        for _ in range(times):
            contents += [row[0] for row in (yield found)]
        return contents

    await store.write(lambda: run_query(note))
    assert await read_single(store, lambda: read(1)) == ["1"]
    assert await read_single(store, lambda: read(0)) == []
    with pytest.raises(RuntimeError, match="several queries"):
        await read_single(store, lambda: read(2))


@pytest.mark.parametrize("heavy", [False, True])
async def test_a_program_reads_one_snapshot_however_many_queries_it_yields(deployment: Deployment, heavy: bool) -> None:
    one, two = await deployment.create("one", XP), await deployment.create("two", XP)
    done = asyncio.Event()

    async def read() -> set[object]:
        seen: set[object] = set()
        while not done.is_set():
            rounds = await read_xp(deployment, one, two, heavy=heavy, rounds=20)
            assert len({number for pair in rounds for number in pair}) == 1
            seen.add(rounds[0][0])
        return seen

    reader = asyncio.create_task(read())
    for _ in range(60):
        await deployment.apply(deployment.post("ada", part(one, {"xp": 1}), part(two, {"xp": 1})))
    done.set()
    assert len(await reader) > 1, "the writes came between the reads"


async def test_a_query_with_wrong_arguments_undoes_the_writes_before_it(deployment: Deployment) -> None:
    note = insert(META).values(name=param("name"), content="1").prepared()
    noted = select(col("content")).from_(META).where(col("name").in_(param("names")))
    ended = []

    def program() -> Program[None]:
        try:
            yield note.bind(name="one")
            yield noted.bind(names=["one\0", 2**63])
        finally:
            ended.append(True)

    with pytest.raises(QueryError):
        await deployment.store.write(program)
    assert ended == [True]
    with pytest.raises(QueryError, match=r"missing parameters \['name'\].*INSERT"):
        await deployment.store.write(lambda: run_query(note.bind()))
    with pytest.raises(QueryError, match=r"unknown parameters \['other'\].*SELECT"):
        await deployment.store.read_query(noted.bind(names=[], other=1))
    assert await deployment.store.read_query(noted.bind(names=["one"])) == []


async def test_an_exception_of_a_program_reaches_the_caller_and_undoes_its_writes(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    begun: list[str] = []
    ended: list[str] = []

    def program() -> Program[None]:
        begun.append("closed")
        try:
            yield from create_board(board_id="c", spec=deployment.laid_out(spec(XP)), now_us=1, boards_max=9)
            yield from erase_entry(deployment.entries(board), "ada", now_us=deployment.clock())
            raise LookupError("not as expected")
        finally:
            ended.append("closed")

    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    with pytest.raises(LookupError, match="not as expected"):
        await deployment.store.write(program)
    assert ended == begun != [], "on Citus, a program that creates a table begins twice"
    boards = await deployment.store.read(lambda: list_boards(prefix="", after="", limit=9))
    assert boards == [board]
    assert await deployment.stats(board, "ada") == {"xp": 1}
    again = await deployment.create("c", XP)
    assert await deployment.rows(again, ["ada"]) == {}


async def test_a_failing_statement_undoes_its_transaction_and_the_next_one_runs(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)

    def program() -> Program[None]:
        yield from erase_entry(deployment.entries(board), "ada", now_us=deployment.clock())
        yield insert(META).values(name="salt", content="a second one").bind()

    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    with pytest.raises(StoreBusyError):
        await deployment.store.write(program)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await deployment.stats(board, "ada") == {"xp": 2}


@pytest.mark.parametrize("heavy", [False, True])
async def test_a_reading_program_cannot_write(deployment: Deployment, board: Board, heavy: bool) -> None:
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))

    def program() -> Program[None]:
        yield from erase_entry(deployment.entries(board), "ada", now_us=deployment.clock())

    with pytest.raises(StorageError):
        await deployment.store.read(program, heavy=heavy)
    with pytest.raises(StorageError):
        await deployment.store.read_query(delete(BOARDS).where(col("id").eq(param("id"))).bind(id="b"))
    assert await deployment.stats(board, "ada") == {"xp": 1}
    assert await deployment.catalog.reread_board("b") == board


async def test_a_closed_store_refuses_and_closing_it_again_is_harmless(deployment: Deployment, board: Board) -> None:
    query = select(col("id")).from_(BOARDS).bind()
    await deployment.store.close()
    await deployment.store.close()
    with pytest.raises(StoreBusyError):
        await deployment.stats(board, "ada")
    with pytest.raises(StoreBusyError):
        await deployment.store.read_query(query)
    with pytest.raises(StoreBusyError):
        await deployment.erase(board, "ada")


async def test_closing_the_store_finishes_running_programs(deployment: Deployment, board: Board) -> None:
    posts = [deployment.post("ada", part(board, {"xp": 1})) for _ in range(3)]
    running = [asyncio.create_task(deployment.apply(post)) for post in posts]
    reading = [asyncio.create_task(read_xp(deployment, board, rounds=50)) for _ in range(2)]
    await asyncio.sleep(0)
    await deployment.store.close()
    assert [outcome.status for [[outcome]] in await asyncio.gather(*running)] == ["applied"] * 3
    await asyncio.gather(*reading)
