"""Test the plans of reads: few rows for a page or for the rows around a place, and keys by an index."""

import json
from functools import partial
from typing import Any

import asyncpg
import pytest

from querybuilder import Built
from storage.engines import sqlite
from storage.engines.postgres_connection import PostgresConnection
from storage.leaves.entries import add_totals
from storage.leaves.exact_ranks import CountStart
from storage.leaves.row_rankings import RowRanking
from storage.leaves.row_tables import layout_of
from storage.records import Best, Board, Entry, PostStatus, TableSharing, Ties
from storage.schema.tables import POST_IDS
from storage.store import Program, Rows, Store, read_single
from tests.storage.deployment import NOW_US, Deployment, part, ranked
from tests.storage.processes import Processes

ROWS = 20_000
TIED = 3  # number of rows with an equal value
BATCH_ROWS = 5_000
NEAR = 10  # number of rows to read on each side of a place
# The largest number of rows that a step of a plan may read. A step with two branches may read NEAR + TIED rows in each
# branch.
READ_ROWS_MAX = 2 * (NEAR + TIED)
GAP_ROWS_MAX = 400  # the largest number of rows between two knots of a curve; these boards have 100 samples
RUN = PostgresConnection.run_query
EXECUTE = sqlite._execute

BoardKind = tuple[TableSharing, Best, Ties]
every_board = pytest.mark.parametrize(
    "kind",
    [
        (TableSharing.OWN, Best.HIGH, Ties.SHARED),
        (TableSharing.OWN, Best.LOW, Ties.EARLIEST),
        (TableSharing.SHARED, Best.LOW, Ties.SHARED),
        (TableSharing.SHARED, Best.HIGH, Ties.EARLIEST),
    ],
    ids="-".join,
)


async def fill_board(store: Store, kind: BoardKind) -> tuple[Deployment, Board]:
    """Create a board. The numbers in the owners' names give the order of the ranking."""
    table, best, ties = kind
    deployment = await Deployment.on(store, table)
    board = await deployment.create("b", ranked("xp", best=best), ties=ties)
    entries = deployment.open_rows(board)
    padding = entries.rankings[0].padding
    numbers = range(ROWS) if best is Best.LOW else range(ROWS - 1, -1, -1)
    rows = [
        (board.leaf.rows_key, Entry(f"o{place:06}", NOW_US, [padding.pad(number // TIED, NOW_US + place)]))
        for place, number in enumerate(numbers)
    ]

    def inserted(start: int) -> Program[None]:
        batch = rows[start : start + BATCH_ROWS]
        yield from entries.table.insert_rows(batch)
        yield from add_totals({board.key: {0: len(batch)}})

    for start in range(0, ROWS, BATCH_ROWS):
        await deployment.store.write(partial(inserted, start))
    return deployment, board


async def read_everywhere(deployment: Deployment, board: Board) -> int:
    """Read the rows around places at the top, in the middle and at the end. Return the number of places."""
    ranking = deployment.open_rows(board).rankings[0]
    places = 0
    for rank in (1, ROWS // 2, ROWS):
        place = await deployment.store.read(partial(ranking.find_row_after_skip, rank - 1))
        assert place is not None
        found = await deployment.store.read(partial(_read_around, ranking, *place))
        assert found == {f"o{number:06}" for number in range(max(0, rank - 1 - NEAR), min(ROWS, rank + NEAR))}
        places += 1
    return places


def _read_around(ranking: RowRanking, cell: str, owner: str) -> Program[set[str]]:
    near = yield from ranking.read_rows_around(cell, owner, better_rows=NEAR, worse_rows=NEAR + 1)
    around = yield from ranking.read_around_owners([owner], better_rows=NEAR, worse_rows=NEAR + 1)
    after = yield from ranking.read_rows_after(cell, owner, NEAR)
    before = yield from ranking.read_rows_before(cell, owner, NEAR)
    assert (around[0].near.before, around[0].near.after) == (near.before, near.after) == (before, near.after)
    assert after == near.after[1:]
    yield from ranking.find_next_better(cell, owner)
    return {entry.owner for entry in near.before + near.after}


async def explain(connection: PostgresConnection, query: Built, options: str) -> list[str]:
    """Return the lines of the plan with which the session runs a prepared statement.

    A session for short reads makes it for any arguments, but not on Citus.
    """
    modes = [await connection.fetchval(f"SHOW {name}") for name in ("default_transaction_read_only", "enable_seqscan")]
    generic = await connection.fetchval("SHOW plan_cache_mode") == "force_generic_plan"
    assert generic == (modes == ["on", "off"])
    arguments = f"({', '.join(map(_literal, query.arguments))})" if query.arguments else ""
    await connection.execute(f"PREPARE explained AS {query.sql}")
    lines = await connection.fetch(f"EXPLAIN ({options}) EXECUTE explained{arguments}")
    await connection.execute("DEALLOCATE explained")
    return [line[0] for line in lines]


def _literal(value: object) -> str:
    if isinstance(value, list):
        value = "{" + ",".join(json.dumps(each) for each in value) + "}"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """For each SELECT on entries, collect the largest number of rows that a step of its plan read, and its text."""
    found: list[tuple[int, str]] = []

    async def run(self: PostgresConnection, query: Built) -> Rows:
        if "entries_" in query.sql and query.sql.startswith("SELECT"):
            [plan] = await explain(self, query, "ANALYZE, FORMAT JSON")
            found.append((_most_rows(json.loads(plan)[0]["Plan"]), query.sql))
        return await RUN(self, query)

    monkeypatch.setattr(PostgresConnection, "run_query", run)
    return found


def _most_rows(node: dict[str, Any]) -> int:
    here: int = round(node["Actual Rows"] * node["Actual Loops"]) + node.get("Rows Removed by Filter", 0)
    return max([here, *map(_most_rows, node.get("Plans", ()))])


@every_board
async def test_postgresql_reads_few_rows_around_a_place(
    processes: Processes, raw: asyncpg.Connection, rows_read: list[tuple[int, str]], kind: BoardKind
) -> None:
    deployment, board = await fill_board((await processes.start_process()).store, kind)
    for _ in ("without statistics", "with them"):
        rows_read.clear()
        reads = await read_everywhere(deployment, board)
        around = [each for each in rows_read if "OFFSET" not in each[1]]  # the other statements only find a place
        assert len(around) >= 5 * reads
        assert not [each for each in around if each[0] > READ_ROWS_MAX]
        await raw.execute(f"ANALYZE {layout_of(board.leaf).table}")


@every_board
async def test_postgresql_reads_no_more_rows_than_a_gap_for_a_rank_or_its_owner(
    processes: Processes, raw: asyncpg.Connection, rows_read: list[tuple[int, str]], kind: BoardKind
) -> None:
    store = (await processes.start_process()).store
    deployment, board = await fill_board(store, kind)
    await raw.execute(f"ANALYZE {layout_of(board.leaf).table}")
    entries = deployment.open_rows(board)
    start = CountStart(*await deployment.fit(board, 0, gap_rows_max=GAP_ROWS_MAX), changes_max=1_000, asked_us=0)
    rows_read.clear()
    for rank in (1, ROWS // 2, ROWS):
        place = await store.read(partial(entries.rankings[0].find_row, start, rank))
        assert place is not None
        assert place[1] == f"o{rank - 1:06}"
        cell, owner = place
        found = await read_single(store, partial(entries.rankings[0].count_from_anchor, start, cell, owner=owner))
        assert found is not None
        assert found.better_count + found.ties_before == rank - 1
        owners, _ = await read_single(store, partial(entries.find_entries_with_totals, [owner]))
        assert list(owners) == [owner]
    assert len(rows_read) >= 3 * 3
    assert not [each for each in rows_read if each[0] > GAP_ROWS_MAX + READ_ROWS_MAX]


OWNERS = [f"o{number:04}" for number in range(1_000)]
OTHERS = 100_000  # with this many other rows, the planner may prefer a scan to a thousand index lookups


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the plan of each statement on entries or post ids that a store runs, except inserts."""
    found: list[str] = []

    async def run(self: PostgresConnection, query: Built) -> Rows:
        if ("entries_shared" in query.sql or POST_IDS in query.sql) and query.sql.startswith(("SELECT", "UPDATE")):
            found.append("\n".join(await explain(self, query, "COSTS")))
        return await RUN(self, query)

    monkeypatch.setattr(PostgresConnection, "run_query", run)
    return found


async def test_a_group_reads_and_writes_by_key_whatever_the_statistics_say(
    processes: Processes, raw: asyncpg.Connection, plans: list[str]
) -> None:
    deployment = await Deployment.on((await processes.start_process()).store, TableSharing.SHARED)
    board = await deployment.create("b", ranked("xp"))
    posts = [deployment.post(owner, part(board, {"xp": 1}), post_id=f"first/{owner}") for owner in OWNERS]
    await deployment.apply(*posts)
    table, key = layout_of(board.leaf).table, board.key
    # The planner has statistics about the rows of other boards, but none about the new post ids of this board.
    await raw.execute(f"INSERT INTO {table} SELECT -1 - g % 7, 'o' || g, 1, '1' FROM generate_series(1, {OTHERS}) g")
    await raw.execute(f"ANALYZE {table}, {POST_IDS}")
    await raw.execute(f"INSERT INTO {POST_IDS} SELECT {key}, g::text, '', '', 1 FROM generate_series(1, {OTHERS}) g")
    plans.clear()

    again = [deployment.post(owner, part(board, {"xp": 1}), post_id=f"second/{owner}") for owner in OWNERS]
    deployment.known_facts.ids_known = True  # as after a group with known ids, so that this group looks its ids up
    outcomes = await deployment.apply(*again)
    assert {outcome.status for parts in outcomes for outcome in parts} == {PostStatus.APPLIED}
    assert len(plans) >= 3, "rows held, ids looked up, rows written"
    assert not [plan for plan in plans if "Seq Scan on" in plan or "Filter: (post_hash" in plan]
