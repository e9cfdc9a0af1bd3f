"""Test the messages for operators and callers if a store is missing, damaged or full, at the start and later."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage.engines import brief_reads
from storage.engines.sqlite import SqliteStore
from tests.service.real_service import WAIT_S, Caller, Service, Spawn, command_line
from tests.storage.damage import grow_by, spoil_table

SERVE = ("serve", "--port", "0", "--store", "sqlite:///data/rankcurve.db")
REFUSING = ("--set", "create_store=false")
XP = {"name": "xp", "merge": "sum"}
POST = {"owner": "owner-0007", "stats": {"xp": 1}}


def test_creating_the_first_key_creates_the_store_and_says_so(tmp_path: Path) -> None:
    made = command_line("keys", "create", "me", "--role", "ops", "--store", SERVE[-1], cwd=tmp_path, code=0)
    assert made.stdout.startswith("rk_")
    assert made.stdout.count("\n") == 1
    assert "store_created" in made.stderr
    assert str(tmp_path / "data" / "rankcurve.db") in made.stderr
    again = command_line("keys", "create", "me", "--role", "ops", "--store", SERVE[-1], cwd=tmp_path, code=0)
    assert "store_created" not in again.stderr


def test_a_service_that_may_not_create_its_store_ends_with_one_sentence(tmp_path: Path) -> None:
    refused = command_line(*SERVE, *REFUSING, cwd=tmp_path, code=1)
    [line] = refused.stderr.splitlines()
    assert line.startswith(f"error: there is no store at {tmp_path}/data/rankcurve.db")
    assert list(tmp_path.iterdir()) == []


async def create_two_boards(service: Service) -> None:
    """Make two boards of several pages each. Their own tables are `entries_1` and `entries_2`."""
    for board in ("broken", "whole"):
        await service.board(board, XP)
        await service.post(board, *({"owner": f"owner-{number:04}", "stats": {"xp": number}} for number in range(500)))


async def test_a_damaged_file_is_not_reported_as_overload_and_is_logged_once(tmp_path: Path, spawn: Spawn) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
    spoil_table(tmp_path / "rankcurve.db", "entries_1")
    process = spawn("--jobs", "none").ready()
    async with Caller(process.url) as caller:
        assert (await caller.call("GET", "/readyz")).status == 200, "no request has read the damaged pages yet"
        entry = "/v1/leaderboards/broken/entries/owner-0007"
        for method, path, body in (
            ("GET", entry, None),
            ("POST", "/v1/leaderboards/broken/posts", POST),
            ("POST", "/v1/leaderboards/whole/posts", POST),
            ("POST", "/v1/leaderboards/whole/posts?mode=queued", POST),
            ("GET", "/readyz", None),
        ):
            answer = await caller.call(method, path, body)
            assert (answer.status, answer.body["code"]) == (500, "store_damaged"), path
            assert "Retry-After" not in answer.headers
        assert (await caller.get("/v1/leaderboards/whole/entries/owner-0007"))["stats"] == {"xp": 7}
    assert process.end() == 0
    told = [line for line in process.lines if "damaged" in json.dumps(line) and line["event"] != "request"]
    assert [line["event"] for line in told] == ["store_damaged"]


async def test_a_thousand_abandoned_reads_leave_a_service_that_is_ready_and_reads_the_newest_posts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_two_boards(service)
    page, entry = "/v1/leaderboards/whole/rankings/xp?from_rank=400&limit=1", "/v1/leaderboards/whole/entries/new"
    with monkeypatch.context() as patched:
        patched.setattr(brief_reads, "PAUSE_S", 0)
        patched.setattr(brief_reads, "STEPS_MAX", 0)
        for _ in range(1_000):
            assert (await service.get(page))["entries"][0]["owner"] == "owner-0100"
    assert (await service.figures())["rankcurve_store_reads_abandoned_total",] >= 1_000
    for xp in (7, 999):
        await service.must("POST", "/v1/leaderboards/whole/posts", {"owner": "new", "stats": {"xp": xp}})
        assert (await service.call("GET", "/readyz")).status == 200
        assert (await service.get(entry))["stats"]["xp"] == (7 if xp == 7 else 1_006)
    assert (await service.get("/v1/leaderboards/whole/rankings/xp?limit=1"))["entries"][0]["owner"] == "new"
    assert (await service.figures())["rankcurve_store_connections_replaced_total",] == 0


async def test_a_connection_that_is_stuck_in_a_transaction_is_not_ready_until_it_is_replaced(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_two_boards(service)
    assert isinstance(service.context.store, SqliteStore)
    reads = service.context.store._brief
    assert reads is not None

    class Unending(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql == "ROLLBACK":
                raise sqlite3.OperationalError("interrupted")
            return super().execute(sql, *arguments)

    reads.close()
    reads._connection = sqlite3.connect(
        service.folder / "rankcurve.db", timeout=0, isolation_level=None, factory=Unending
    )
    with monkeypatch.context() as patched:
        patched.setattr(reads, "_open_connection", lambda: sqlite3.connect("file:/missing/b.db", uri=True))
        for _ in range(2):
            assert await service.refused("GET", "/readyz") == (503, "store_busy")
    await service.must("POST", "/v1/leaderboards/whole/posts", {"owner": "owner-0007", "stats": {"xp": 992}})
    assert (await service.call("GET", "/readyz")).status == 200
    assert (await service.get("/v1/leaderboards/whole/entries/owner-0007"))["stats"]["xp"] == 999
    assert (await service.figures())["rankcurve_store_connections_replaced_total",] == 1


@pytest.mark.parametrize("damage", ["c1 = '10000p' || substr(c1, 7)", "updated_at = updated_at << 8"])
async def test_a_row_that_cannot_be_read_is_reported_as_damage_and_not_as_a_fault_of_the_service(
    tmp_path: Path, spawn: Spawn, damage: str
) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
    with closing(sqlite3.connect(tmp_path / "rankcurve.db")) as connection, connection:
        connection.execute(f"UPDATE entries_1 SET {damage} WHERE owner = 'owner-0007'")
    process = spawn("--jobs", "none").ready()
    async with Caller(process.url) as caller:
        board = "/v1/leaderboards/broken"
        for path in (f"{board}/entries/owner-0007", f"{board}/rankings/xp?limit=500"):
            assert await caller.refused("GET", path) == (500, "store_damaged")
        assert (await caller.get(f"{board}/entries/owner-0008"))["stats"] == {"xp": 8}
    assert process.end() == 0
    assert not [line for line in process.lines if "exception" in line]


async def test_damage_that_a_job_meets_is_told_in_single_lines_without_tracebacks(tmp_path: Path, spawn: Spawn) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
    spoil_table(tmp_path / "rankcurve.db", "leases")
    process = spawn()
    process.await_line("store_damaged")
    assert process.end() == 0
    assert [line["event"] for line in process.lines].count("store_damaged") == 1
    assert not [line for line in process.lines if "exception" in line]


async def test_a_damaged_row_of_the_catalog_is_logged_once_and_names_its_board(tmp_path: Path, spawn: Spawn) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
    process = spawn().ready()
    with closing(sqlite3.connect(tmp_path / "rankcurve.db")) as connection, connection:
        connection.execute("UPDATE boards SET spec = substr(spec, 1, 20) WHERE id = 'broken'")
    async with Caller(process.url) as caller:
        for _ in range(3):
            answer = await caller.refused("POST", "/v1/leaderboards/broken/rankings/xp/refresh")
            assert answer == (500, "store_damaged")
            await caller.must("POST", "/v1/leaderboards/broken/posts?mode=queued", POST)
    assert process.end() == 0
    told = [line for line in process.lines if "damaged" in json.dumps(line) and line["event"] != "request"]
    detail = "the catalog's row of the leaderboard 'broken' is damaged: restore a backup"
    assert [(line["event"], line["detail"]) for line in told] == [("row_damaged", detail)]


def _task_names() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_every_writing_job_ends_on_a_damaged_store(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
    spoil_table(tmp_path / "rankcurve.db", "entries_1")
    await service.restart()
    assert (await service.call("GET", "/v1/leaderboards/broken/entries/owner-0007")).status == 500
    async with asyncio.timeout(WAIT_S):
        while any(name.startswith("job ") for name in _task_names()):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    assert "key watch" in _task_names(), "reads still work, so the task that watches API keys keeps running"
    assert await service.refused("POST", "/v1/leaderboards/whole/rankings/xp/refresh") == (503, "no_job_process")
    await service.stop()


@pytest.mark.parametrize("table", ["boards", "families"])
async def test_a_damaged_row_of_the_catalog_ends_the_start_with_one_sentence(tmp_path: Path, table: str) -> None:
    async with Service(tmp_path).running() as service:
        await service.board("season", XP)
        await service.must("PUT", "/v1/families/season-of", {"columns": [{**XP, "sorted": True}], "periods": ["all"]})
    with closing(sqlite3.connect(tmp_path / "rankcurve.db")) as connection, connection:
        connection.execute(f"UPDATE {table} SET spec = substr(spec, 1, 20)")
    refused = command_line("serve", "--port", "0", "--store", service.store, cwd=tmp_path, code=1)
    [line] = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("error: the catalog's row of the ")
    assert "'season" in line
    assert "restore a backup" in line


async def test_a_service_on_a_full_disk_answers_posts_with_507_and_still_reads(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as service:
        await create_two_boards(service)
        store = service.context.store
        assert isinstance(store, SqliteStore)
        posts = {"posts": [{"owner": f"new-{number:04}", "stats": {"xp": number}} for number in range(500)]}
        await grow_by(store, pages=0)
        for mode in ("", "?mode=queued"):
            answer = await service.call("POST", f"/v1/leaderboards/whole/posts{mode}", posts)
            assert (answer.status, answer.body["code"]) == (507, "store_full"), answer.body
            assert "Retry-After" not in answer.headers
        assert (await service.get("/v1/leaderboards/whole/entries/owner-0007"))["stats"] == {"xp": 7}
        assert (await service.call("GET", "/readyz")).status == 200
        await grow_by(store, pages=10_000)
        await service.must("POST", "/v1/leaderboards/whole/posts", posts)
