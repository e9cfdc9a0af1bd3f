"""Test features that only the PostgreSQL store has: several processes, and connection pools for boards."""

import asyncio
import random
from collections.abc import Callable

import asyncpg

from querybuilder import INTEGER, TEXT, col, count, param, rows, select
from storage.boards.board_changes import change_board
from storage.leaves.row_tables import entries_table
from storage.leaves.totals import ALL_ENTRIES
from storage.records import Board, BoardSpec, PostStatus
from storage.schema.creation import create_schema
from storage.store import Program
from tests.meter import RecordingMeter
from tests.storage.deployment import LIMITS, Deployment, part, ranked, spec
from tests.storage.processes import Processes

XP = ranked("xp")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def count_rows_in(deployment: Deployment, board: Board) -> int:
    [[rows]] = await deployment.store.read_query(select(count()).from_(entries_table(board.key)).bind())
    return int(rows)


async def test_rows_come_back_unchanged_whatever_text_they_hold(processes: Processes) -> None:
    store = (await processes.start_process()).store
    every = "".join(map(chr, [*range(1, 0x180), 0x2028, 0xFEFF, 0xFFFF, 0x1F600]))
    texts = ["", " ", "null", "NULL", "{}", '{"a"}', ",", '"', "\\", "\\n", '\\"', "\t\n", every, *every]
    given = [*((text, index) for index, text in enumerate(texts)), (None, None), ("", 2**63 - 1), ("x", -(2**63))]
    query = select(col("a", "g"), col("b", "g")).from_(rows("g", param("given"), a=TEXT, b=INTEGER))
    for batch in (given, given[:1], []):
        found = await store.read_query(query.bind(given=batch))
        assert [tuple(row) for row in found] == batch


async def test_processes_that_change_the_same_owners_of_several_boards_lose_nothing_and_never_deadlock(
    processes: Processes, raw: asyncpg.Connection
) -> None:
    deadlocks_before = await raw.fetchval(DEADLOCKS)  # other users of the server may have caused deadlocks
    deployments = [await processes.start_process() for _ in range(4)]
    boards = [await deployments[0].create(f"b{index}", XP) for index in range(3)]
    limits = LIMITS.model_copy(update={"write_attempts_max": 50})
    writers = [each.writer(limits=limits) for each in deployments]
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
            assert {outcome.status for outcome_parts in outcomes for outcome in outcome_parts} == {PostStatus.APPLIED}
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
        assert totals[ALL_ENTRIES] == await count_rows_in(deployments[0], board) == len(owners)
    assert await raw.fetchval(DEADLOCKS) == deadlocks_before


async def test_a_post_id_that_two_processes_post_at_once_counts_once(processes: Processes) -> None:
    both = [await processes.start_process(), await processes.start_process()]
    board = await both[0].create("b", XP)
    writers = [each.writer() for each in both]
    for writer in writers:
        writer.start()
    for number in range(30):
        outcomes = await asyncio.gather(
            *(
                writer.submit([each.post(f"o{number % 3}", part(board, {"xp": 1}), post_id=f"id{number}")])
                for each, writer in zip(both, writers, strict=True)
            )
        )
        assert sorted(outcome.status for [[outcome]] in outcomes) == [PostStatus.APPLIED, PostStatus.DUPLICATE]
    for writer in writers:
        await writer.close()
    assert await both[0].stats(board, "o0") == {"xp": 10}


async def test_processes_that_create_equal_boards_and_columns_at_once_create_them_once(processes: Processes) -> None:
    deployments = [await processes.start_process() for _ in range(4)]
    made = await asyncio.gather(*(each.create("b", XP) for each in deployments))
    assert len({board.key for board in made}) == 1
    first, second = spec(XP, ranked("laps")), spec(XP, ranked("goals"))

    def change(wanted: BoardSpec) -> Callable[[], Program[Board]]:
        return lambda: change_board(board_id="b", wanted=wanted)

    changes = [
        each.store.write(change(wanted)) for each, wanted in zip(deployments, (first, first, second), strict=False)
    ]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    board = await deployments[3].catalog.reread_board("b")
    # `first` and `second` contradict each other. The later change would remove a column, so it is refused.
    assert [column.name for column in board.spec.columns] in (["xp", "laps"], ["xp", "goals"])
    assert any(isinstance(outcome, Board) for outcome in outcomes)
    await deployments[3].apply(deployments[3].post("ada", part(board, {board.spec.columns[1].name: 3})))


async def test_processes_that_migrate_at_once_agree_on_one_salt(processes: Processes) -> None:
    stores = [await processes.open_store() for _ in range(4)]
    salts = await asyncio.gather(*(store.write(create_schema) for store in stores))
    assert len(set(salts)) == 1


async def test_every_wait_for_a_connection_is_reported_by_kind(processes: Processes) -> None:
    meter = RecordingMeter()
    store = await processes.open_store(meter=meter, reader_connections=1)
    await (await Deployment.on(store)).create("b", XP)
    await store.read_query(select(count()).from_("boards").bind())
    lent, waits = "rankcurve_store_connections_lent", "rankcurve_store_connection_wait_seconds"
    used = {series for series, found in meter.values.items() if series.startswith(lent) and max(found)}
    assert used == {f"{lent} common write", f"{lent} common read"}
    assert meter.values[f"{waits} common"]
    kinds = [f"common {kind}" for kind in ("read", "write", "heavy")]
    assert {meter.read_connections(kind)[:2] for kind in kinds} == {(0, 0)}
    assert meter.read_connections("common read") == (0, 0, 1)
