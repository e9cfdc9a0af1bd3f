"""The service over PostgreSQL: the same answers, several processes on one store, and no message with the password."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.service.real_service import Caller, Service, Spawn, command_line

XP = {"name": "xp", "merge": "sum"}


async def test_posts_ranks_views_and_curves_work_on_postgresql_as_on_any_store(store_url: str, tmp_path: Path) -> None:
    async with Service(tmp_path, store=store_url).running() as service:
        await service.board("b", {**XP, "best": "high"}, {"name": "kills", "sorted": False, "merge": "sum"})
        await service.post("b", *({"owner": f"p{n}", "stats": {"xp": n, "kills": 2 * n}} for n in range(1, 101)))
        [again] = await service.post("b", {"owner": "p7", "stats": {"xp": 1000}, "post_id": "x"})
        assert again["status"] == "applied"
        [twice] = await service.post("b", {"owner": "p7", "stats": {"xp": 1000}, "post_id": "x"})
        assert twice["status"] == "duplicate"
        await service.refresh("b", "xp")
        entry = await service.get("/v1/leaderboards/b/entries/p7")
        assert entry["stats"] == {"xp": 1007, "kills": 14}
        page = await service.get("/v1/leaderboards/b/rankings/xp?limit=3")
        assert [(each["owner"], each["rank"]) for each in page["entries"]] == [("p7", 1), ("p100", 2), ("p99", 3)]
        around = await service.get("/v1/leaderboards/b/entries/p50/around?column=xp&better=1&worse=1")
        assert [each["owner"] for each in around["entries"]] == ["p51", "p50", "p49"]
        await service.restart()
        assert (await service.get("/v1/leaderboards/b/entries/p7"))["stats"]["xp"] == 1007
        await service.must("DELETE", "/v1/leaderboards/b")
        assert await service.refused("GET", "/v1/leaderboards/b/entries/p7") == (404, "unknown_board")


async def test_curves_are_sampled_from_a_replica_if_the_settings_name_one(store_url: str, tmp_path: Path) -> None:
    async with Service(tmp_path, store=store_url, sampling_store=store_url).running() as service:
        await service.board("b", {**XP, "best": "high"})
        await service.post("b", *({"owner": f"p{n}", "stats": {"xp": n}} for n in range(1, 101)))
        await service.refresh("b", "xp")
        assert (await service.get("/v1/leaderboards/b/rankings/xp/curve"))["total"] == 100


async def test_processes_that_start_together_on_an_empty_database_share_it(store_url: str, spawn: Spawn) -> None:
    processes = [spawn("--store", store_url) for _ in range(3)]
    for process in processes:
        process.ready()
    owners = [f"p{n}" for n in range(20)]
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(process.url)) for process in processes]
        await asyncio.gather(*(caller.board("b", XP) for caller in callers))
        await asyncio.gather(
            *(caller.post_xp("b", **dict.fromkeys(owners, 1)) for caller in callers for _ in range(10))
        )
        for caller in callers:
            found = await caller.must("POST", "/v1/leaderboards/b/entries/lookup", {"owners": owners})
            assert {each["stats"]["xp"] for each in found["entries"]} == {30}
    assert [process.end(signal.SIGTERM) for process in processes] == [0, 0, 0]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:a/hunter2@127.0.0.1:1/db",
        "postgresql://someone:hunter2",
        "host=127.0.0.1 user=someone password=hunter2",
        "postgresql://127.0.0.1:1/db?user=someone&p%61ssword=hunter2",
        "postgresql://127.0.0.1:1,127.0.0.1:2/db?sslmode=require&sslpassword=hunter2&sslkey=/hunter2",
    ],
)
@pytest.mark.parametrize("command", ["serve", "keys"])
def test_no_message_shows_the_password_of_a_store_address(tmp_path: Path, url: str, command: str) -> None:
    words = {"serve": ("serve", "--port", "0", "--set", "store_attempts_max=1"), "keys": ("keys", "list")}[command]
    refused = command_line(*words, "--store", url, cwd=tmp_path)
    assert refused.returncode in (1, 2)
    assert "error: " in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "hunter2" not in refused.stderr + refused.stdout


def test_a_missing_server_is_reported_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/db"
    words = ("serve", "--port", "0", "--store", url, "--set", "store_attempts_max=1")
    refused = command_line(*words, cwd=tmp_path, code=1)
    assert "cannot be reached" in refused.stderr
    shown = command_line("config", "--set", f"store={url}", cwd=tmp_path)
    assert "someone:***@" in shown.stdout
    assert "hunter2" not in refused.stderr + refused.stdout + shown.stdout
