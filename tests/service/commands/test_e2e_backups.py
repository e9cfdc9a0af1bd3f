"""Test backups that are made while clients post, and restores of these backups, as docs/operating.md describes them.

posts ── backup ── posts, another curve ── the store destroyed ── restored ── every post sent once more

A restore does not change memcached, so memcached has newer curves than the backup.

The tests compare a restored service with the answers that clients got. If a post was acknowledged before the backup
began, the restored service calls it a duplicate. After all posts are sent once more, each post counts once.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.memcached import OpenMemcached
from tests.servers import FAST, PostgresServer, program
from tests.service.cli_fake_service import run
from tests.service.real_service import ROOT, WAIT_S, Caller, Process, Spawn
from tests.service.views.posts.test_e2e_durability import (
    CHAMPION,
    Ledger,
    check_ledger,
    create_boards,
    post_until_stopped,
)

CLIENTS = 4
LATER = 500  # number of owners whose first post comes after the backup
A = "/v1/leaderboards/a"


@pytest.fixture
def elsewhere() -> Iterator[PostgresServer]:
    server = PostgresServer(FAST)
    server.start()
    yield server
    server.remove()


def run_shown(page: str, tool: str, url: str, folder: Path) -> None:
    """Run the lines of the block of a page that runs `tool`, in a folder, with the address of another database."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)
    [lines] = [block for block in blocks if re.search(rf"^{tool} ", block, re.MULTILINE)]
    shown = re.sub(r"postgresql://\S+", url, re.sub(r"^createdb .*", "", lines, flags=re.MULTILINE))
    assert shown.count(url) == 1
    environment = os.environ | {"PATH": f"{program(tool, 'postgresql-client').parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", shown], cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr


async def wait_for_answers(ledger: Ledger, number: int) -> None:
    for _ in range(number):
        ledger.answered.clear()
        async with asyncio.timeout(WAIT_S):
            await ledger.answered.wait()


async def read_journal(caller: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["seq"] if found else 0
        page = await caller.get(f"/v1/journal?after={after}")
        found += page
        if not page:
            return found


async def post_around(serving: Process, save: Callable[[], None]) -> tuple[Ledger, list[dict[str, Any]]]:
    """Call `save` to back up the store while clients post all the time.

    Return the ledger of all posts, and the posts that were acknowledged before the backup.
    """
    ledger, up = Ledger(), asyncio.Event()
    up.set()
    async with Caller(serving.url) as caller, asyncio.TaskGroup() as group:
        await create_boards(caller)
        for number in range(CLIENTS):
            group.create_task(post_until_stopped(lambda: serving, up, f"c{number}", ledger))
        await wait_for_answers(ledger, 20)
        await caller.refresh("a", "xp")
        acknowledged = list(ledger.settled)
        await asyncio.to_thread(save)
        await wait_for_answers(ledger, 20)
        ledger.stop = True
    async with Caller(serving.url) as caller:
        later = [{"owner": f"later{n}", "stats": {"xp": 2**30 + n}} for n in range(LATER)]
        await caller.post("a", *later)
        await caller.refresh("a", "xp")
    return ledger, acknowledged


async def post_again(caller: Caller, posts: list[dict[str, Any]]) -> set[str]:
    """Send posts in requests of a size that the service takes. Return all statuses."""
    statuses: set[str] = set()
    for start in range(0, len(posts), 1000):
        body = await caller.must("POST", "/v1/posts", {"posts": posts[start : start + 1000]})
        statuses |= {part["status"] for result in body["results"] for part in result["boards"]}
    return statuses


async def check_restored(serving: Process, ledger: Ledger, acknowledged: list[dict[str, Any]]) -> None:
    async with Caller(serving.url) as caller:
        before = await read_journal(caller)
        assert len(before) >= len({post["post_id"] for post in acknowledged})
        assert await post_again(caller, acknowledged) == {"duplicate"}
        curve = await caller.get(f"{A}/rankings/xp/curve")
        assert 0 < curve["total"] < LATER, "this is a curve from after the backup"
        await post_again(caller, ledger.settled)
        await check_ledger(caller, ledger)
        page = await caller.get(f"{A}/rankings/xp?limit=100")
        for entry in page["entries"]:
            [exact] = (await caller.get(f"{A}/entries/{entry['owner']}/positions?columns=xp&rank=exact"))["positions"]
            assert exact["rank"] == entry["rank"]
        after = await read_journal(caller)
        assert after[: len(before)] == before
        numbers = [line["seq"] for line in after]
        assert len(after) > len(before)
        assert numbers == sorted(set(numbers))
        await caller.refresh("a", "xp")
        audit = await caller.must("POST", f"{A}/rankings/xp/audit")
        assert (audit["outcome"], audit["brackets_broken"]) == ("compared", 0), audit


async def check_rebuilt(serving: Process, rebuild: Callable[[], Process]) -> None:
    """Rebuild a board from the journal. Fail unless the board then has the same rows as before."""
    path = f"{A}/rankings/xp?limit=100"
    async with Caller(serving.url) as caller:
        before = (await caller.get(path))["entries"]
        assert CHAMPION in {entry["owner"] for entry in before}
    again = await asyncio.to_thread(rebuild)
    async with Caller(again.url) as caller:
        assert (await caller.get(path))["entries"] == before


async def test_a_sqlite_store_can_be_restored_from_a_backup_taken_under_load(
    spawn: Spawn, tmp_path: Path, cache: OpenMemcached
) -> None:
    settings = ("--set", f"memcached_servers={cache.address}")
    serving, file = spawn(*settings).ready(), str(tmp_path / "saved.db")

    def command(name: str) -> None:
        """Run a command of the page, with this file and this store."""
        guide = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
        [shown] = re.findall(rf"^sudo -u rankcurve rankcurve ({name} .*)$", guide, re.MULTILINE)
        assert (
            shown.count("/var/backups/rankcurve/now.db") == shown.count("--config /etc/rankcurve/rankcurve.toml") == 1
        )
        words = shown.replace("/var/backups/rankcurve/now.db", file).partition(" --config ")[0].split()
        run(*words, "--store", serving.store, code=0)

    ledger, acknowledged = await post_around(serving, lambda: command("backup"))
    refused = await asyncio.to_thread(run, "restore", file, "--replace", "--store", serving.store, code=1)
    assert "stop the service first" in refused.stderr
    await asyncio.to_thread(serving.end, signal.SIGKILL)
    database = tmp_path / "rankcurve.db"
    database.write_bytes(b"spoiled" + database.read_bytes()[7:])
    await asyncio.to_thread(command, "restore")
    restored = spawn(*settings).ready()
    await check_restored(restored, ledger, acknowledged)

    def rebuild() -> Process:
        assert restored.end() == 0
        run("rebuild", "a", "--store", restored.store, code=0)
        return spawn(*settings).ready()

    await check_rebuilt(restored, rebuild)


async def test_a_postgresql_store_can_be_restored_in_another_cluster_from_a_dump_under_load(
    spawn: Spawn, tmp_path: Path, cache: OpenMemcached, postgres_server: PostgresServer, elsewhere: PostgresServer
) -> None:
    settings = ("--set", f"memcached_servers={cache.address}")
    source, target = postgres_server.create_database("saved"), elsewhere.create_database("restored")
    # After this, the server of the backup has higher transaction numbers than the server of the restored store.
    postgres_server.run_sql(*["SELECT txid_current()"] * 1000)
    serving = spawn("--store", source, *settings).ready()
    ledger, acknowledged = await post_around(serving, lambda: run_shown("operating.md", "pg_dump", source, tmp_path))
    await asyncio.to_thread(serving.end, signal.SIGKILL)
    postgres_server.run_sql('DROP DATABASE "saved" WITH (FORCE)')
    run_shown("operating.md", "pg_restore", target, tmp_path)
    restored = spawn("--store", target, *settings).ready()
    await check_restored(restored, ledger, acknowledged)

    def rebuild() -> Process:
        run("rebuild", "a", "--store", target, code=0)
        return restored

    await check_rebuilt(restored, rebuild)


NOTE_SCHEMAS = """
    CREATE TABLE made (name text, placed text);
    CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.made SELECT object_identity, current_setting('citus.enable_schema_based_sharding')
        FROM pg_event_trigger_ddl_commands();
    END $$;
    CREATE EVENT TRIGGER noted ON ddl_command_end WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION note()
"""


async def test_a_store_on_citus_is_restored_without_the_extension_and_with_its_schemas_placed(
    spawn: Spawn, tmp_path: Path, postgres_server: PostgresServer, elsewhere: PostgresServer
) -> None:
    """No Citus is needed: another extension is in its place, and the target notes how each schema would be placed."""
    source, target = postgres_server.create_database("nodes"), elsewhere.create_database("restored_nodes")
    postgres_server.run_sql("CREATE EXTENSION pg_trgm", database="nodes")
    elsewhere.run_sql(NOTE_SCHEMAS, database="restored_nodes")
    await asyncio.to_thread(run, "store", "init", "--partitions", "4", "--store", source, code=0)
    serving, boards = spawn("--store", source).ready(), [f"b{number}" for number in range(4)]
    async with Caller(serving.url) as caller:
        for board in boards:
            await caller.board(board, {"name": "xp"})
            await caller.post(board, {"owner": "ada", "stats": {"xp": 7}})
        before = [await caller.get(f"/v1/leaderboards/{board}/entries/ada") for board in boards]
    await asyncio.to_thread(serving.end, signal.SIGTERM)
    run_shown("citus.md", "pg_dump", source, tmp_path)
    run_shown("citus.md", "pg_restore", target, tmp_path)
    restored = elsewhere.run_sql(
        "SELECT name, placed FROM made ORDER BY name",
        "SELECT extname FROM pg_extension WHERE extname = 'pg_trgm'",
        database="restored_nodes",
    )
    assert restored.split() == [f"rankcurve_{name}|on" for name in ("control", "p0", "p1", "p2", "p3")]
    async with Caller(spawn("--store", target).ready().url) as caller:
        assert [await caller.get(f"/v1/leaderboards/{board}/entries/ada") for board in boards] == before


async def test_a_postgresql_store_can_be_restored_to_a_point_in_time(
    spawn: Spawn, tmp_path: Path, cache: OpenMemcached
) -> None:
    settings = ("--set", f"memcached_servers={cache.address}")
    archive = Path(tempfile.mkdtemp(prefix="rankcurve-archive-"))  # the server's user can write to this folder
    server = PostgresServer(FAST | {"archive_mode": "on", "archive_command": f"cp %p {archive}/%f"})
    recovered: PostgresServer | None = None
    try:
        shutil.chown(archive, server.data.owner())
        server.start()
        serving = spawn("--store", server.url(), *settings).ready()
        recovered = PostgresServer(FAST, standby_of=server)  # pg_basebackup copies the cluster before the first post

        def name_the_point() -> None:
            server.run_sql("SELECT pg_create_restore_point('saved')", "SELECT pg_switch_wal()")

        ledger, acknowledged = await post_around(serving, name_the_point)
        await asyncio.to_thread(serving.end, signal.SIGKILL)
        server.kill()
        (recovered.data / "standby.signal").unlink()
        (recovered.data / "recovery.signal").touch()
        lines = {"restore_command": f"cp {archive}/%f %p", "recovery_target_name": "saved",
                 "recovery_target_action": "promote", "archive_mode": "off", "primary_conninfo": ""}  # fmt: skip
        with (recovered.data / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in lines.items())
        recovered.start()
        restored = spawn("--store", recovered.url(), *settings).ready()
        await check_restored(restored, ledger, acknowledged)
    finally:
        for each in (server, recovered):
            if each is not None:
                each.remove()
        shutil.rmtree(archive, ignore_errors=True)
