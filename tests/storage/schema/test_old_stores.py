"""Test that this version opens and serves stores that older versions of the service wrote.

The version with schema SCHEMA wrote `old_stores/NAME_SCHEMA.sql` by its own HTTP interface. The file is never
written again. It holds two boards with curves, 40 owners with a post id each, and one post after the curves.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from querybuilder import col, select
from storage.schema.steps import META, STEPS
from tests.servers import PostgresServer, program
from tests.service.real_service import Service

STORES = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("old_stores/*.sql")}
SEASON, CUP = "/v1/leaderboards/season", "/v1/leaderboards/cup"


def xp_of(number: int) -> int:
    """Return the points of an owner as they were posted to the old version."""
    return number * number % 97 - 20 + (5 if number == 0 else 0)


def write_file(text: str, path: Path) -> None:
    """Write the store as a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)


def load_database(text: str, server: PostgresServer, name: str) -> str:
    """Load the store into a new database, and return its connection string."""
    url = server.create_database(name)
    command = [str(program("psql", "postgresql-client")), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]
    loaded = subprocess.run(command, input=text, capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    return url


@pytest.fixture(params=sorted(STORES))
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    """Start the current version's service on an old store."""
    name: str = request.param
    kind, _, schema = name.partition("_")
    assert int(schema) < len(STEPS)
    settings = {}
    if kind == "sqlite":
        write_file(STORES[name], tmp_path / "rankcurve.db")
    else:
        settings["store"] = load_database(STORES[name], request.getfixturevalue("postgres_server"), name)
    made = Service(tmp_path, **settings)
    await made.start()
    yield made
    await made.stop()


async def test_an_old_store_keeps_its_content_and_takes_everything_new(service: Service) -> None:
    store = service.context.store
    query = select(col("content")).from_(META).where(col("name").eq("schema_version")).build(store.dialect)
    assert await store.read_query(query) == [(str(len(STEPS)),)]
    for number in (0, 1, 17, 39):
        stats = (await service.get(f"{SEASON}/entries/p{number}"))["stats"]
        assert (stats["xp"], stats["clan"]) == (xp_of(number), f"clan {number % 3}")
    best = sorted((xp_of(number) for number in range(40)), reverse=True)
    page = await service.get(f"{SEASON}/rankings/xp?limit=100")
    assert [entry["value"] for entry in page["entries"]] == best
    cup = await service.get(f"{CUP}/rankings/points?limit=4")
    assert {entry["value"] for entry in cup["entries"]} == {9}
    [again] = await service.post("season", {"owner": "p0", "stats": {"xp": 5}, "post_id": "late"})
    assert again["status"] == "duplicate"
    for number in range(40):
        positions = (await service.get(f"{SEASON}/entries/p{number}/positions?columns=xp"))["positions"]
        rank = 1 + sum(value > xp_of(number) for value in best)
        assert positions[0]["low"] <= rank <= positions[0]["high"]
    [new] = await service.post("season", {"owner": "new", "stats": {"xp": 10_000}, "post_id": "first"})
    assert new["status"] == "applied"
    await service.refresh("season", "xp")
    lines = await service.get("/v1/journal")
    assert [line["owner"] for line in lines] == ["new"]
    await service.board("other", {"name": "xp"}, table="shared")
    await service.post("other", {"owner": "new", "stats": {"xp": 1}})
    await service.restart()
    [top] = (await service.get(f"{SEASON}/rankings/xp?limit=1"))["entries"]
    assert (top["owner"], top["rank"]) == ("new", 1)
