"""Test that PostgreSQL finds keys by an index, even if the statistics of a table are minutes old."""

import asyncpg
import pytest

from querybuilder import Built
from storage.boards.row_tables import layout_of
from storage.engines.postgres_connection import PostgresConnection
from storage.records import PostStatus, TableSharing
from storage.schema.tables import POST_IDS
from storage.store import Rows
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.processes import Processes

OWNERS = [f"o{number:04}" for number in range(1_000)]
OTHERS = 100_000  # with this many other rows, the planner may prefer a scan to a thousand index lookups
RUN = PostgresConnection.run_query


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the plan of each statement on entries or post ids that a store runs, except inserts."""
    found: list[str] = []

    async def run(self: PostgresConnection, query: Built) -> Rows:
        if ("entries_shared" in query.sql or POST_IDS in query.sql) and query.sql.startswith(("SELECT", "UPDATE")):
            lines = await self.fetch(f"EXPLAIN {query.sql}", *query.arguments)
            found.append("\n".join(line[0] for line in lines))
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
    table, key = layout_of(board).table, board.key
    # The planner has statistics about the rows of other boards, but none about the new post ids of this board.
    await raw.execute(f"INSERT INTO {table} SELECT -1 - g % 7, 'o' || g, 1, '1' FROM generate_series(1, {OTHERS}) g")
    await raw.execute(f"ANALYZE {table}, {POST_IDS}")
    await raw.execute(f"INSERT INTO {POST_IDS} SELECT {key}, g::text, '', '', 1 FROM generate_series(1, {OTHERS}) g")
    plans.clear()

    again = [deployment.post(owner, part(board, {"xp": 1}), post_id=f"second/{owner}") for owner in OWNERS]
    outcomes = await deployment.apply(*again)
    assert {outcome.status for parts in outcomes for outcome in parts} == {PostStatus.APPLIED}
    assert len(plans) >= 3, "rows held, ids looked up, rows written"
    assert not [plan for plan in plans if "Seq Scan on" in plan or "Filter: (post_hash" in plan]
