"""A service on a SQLite file with an owner process and fronts: what holds when one of the processes dies or hangs."""

import asyncio
import os
import signal
from pathlib import Path

from benchmarks.killed_processes import attack
from benchmarks.servers import serve_file
from tests.service.real_service import WAIT_S, Caller, Process, Spawn, bearer

KILLS = 2  # of each kind
XP = {"name": "xp"}
ENTRY = "/v1/leaderboards/b/entries/ada"


def pid_of(node: Process, name: str) -> int:
    """Return the process id of the newest process in a place of a node."""
    ready = [line for line in node.lines if line["event"] == "process_ready" and line["name"] == name]
    return int(ready[-1]["pid"])


def test_no_post_and_no_read_is_lost_while_owners_and_fronts_are_killed(tmp_path: Path) -> None:
    store = tmp_path / "killed.db"
    with serve_file(store, environment={"RANKCURVE_WORKERS": "2"}) as server:
        ledger, faults, seen = asyncio.run(attack(server, store, KILLS))
    assert not faults.total()
    assert (seen.missing, seen.wrong, seen.refused.total()) == (0, 0, 0)
    assert len(seen.posts_back_s) == KILLS
    assert ledger.count() > 100
    assert seen.reads > 10


async def test_reads_go_on_while_the_owner_hangs_and_posts_learn_that_they_waited_too_long(spawn: Spawn) -> None:
    node = spawn("--workers", "2", "--set", "post_wait_s_max=0.2").ready()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
        await caller.post_xp("b", ada=5)
        os.kill(pid_of(node, "owner"), signal.SIGSTOP)
        post = {"owner": "ada", "stats": {"xp": 6}, "post_id": "one"}
        assert await caller.refused("POST", "/v1/leaderboards/b/posts", post) == (503, "timeout")
        assert (await caller.get(ENTRY))["stats"] == {"xp": 5}
        os.kill(pid_of(node, "owner"), signal.SIGCONT)
        async with asyncio.timeout(WAIT_S):
            while (await caller.call("POST", "/v1/leaderboards/b/posts", post)).status != 200:
                pass
        assert (await caller.get(ENTRY))["stats"] == {"xp": 6}
    assert node.end() == 0


async def test_an_owner_that_hangs_is_replaced_and_a_request_that_waited_for_it_learns_that(spawn: Spawn) -> None:
    node = spawn("--workers", "1", "--set", "hang_s_max=2").ready()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
        os.kill(pid_of(node, "owner"), signal.SIGSTOP)
        assert await caller.refused("DELETE", "/v1/leaderboards/b") == (503, "timeout")
        async with asyncio.timeout(WAIT_S):
            while (await caller.call("DELETE", "/v1/leaderboards/b")).status != 204:
                pass
    assert "process_hangs" in [line["event"] for line in node.lines]
    assert node.end() == 0


async def test_a_request_that_a_front_passes_on_is_answered_counted_and_logged_once(spawn: Spawn) -> None:
    node = spawn("--workers", "2", "--set", "log_sample_ratio=1").ready()
    async with Caller(node.url) as caller:
        created = await caller.call(
            "PUT", "/v1/leaderboards/b", {"columns": [{**XP, "sorted": True, "merge": "max"}]}, {"X-Request-Id": "r1"}
        )
        assert (created.status, created.headers["X-Request-Id"]) == (201, "r1")
        assert (await caller.refused("PUT", "/v1/leaderboards/b", {"columns": []}))[0] == 400
        figures = await caller.figures()
    assert node.end() == 0
    assert figures["rankcurve_requests_total", "operating", "2xx"] == 1
    assert figures["rankcurve_requests_total", "operating", "4xx"] == 1
    assert [line["process"] for line in node.lines if line.get("request_id") == "r1"] == ["owner"]


async def test_a_new_key_is_valid_at_once_where_it_was_created_and_soon_everywhere(spawn: Spawn) -> None:
    node = spawn("--workers", "2").ready()
    async with Caller(node.url) as first:
        key = await first.create_first_key()
        assert (await first.call("GET", "/v1/leaderboards")).status == 200, "the same connection, so the same front"
        async with asyncio.timeout(5):  # the API promises this for every process
            for _ in range(50):
                async with Caller(node.url) as other:
                    while (await other.call("GET", "/v1/leaderboards")).status != 401:
                        pass
                    assert (await other.call("GET", "/v1/leaderboards", None, bearer(key))).status == 200
    assert node.end() == 0


async def test_a_front_adds_no_headers_to_a_request_that_it_passes_on(spawn: Spawn) -> None:
    """A body without a media type is JSON. The target of a request may be a whole URL, as a proxy sends it."""
    node = spawn("--workers", "1").ready()
    body = b'{"columns":[{"name":"xp","sorted":true,"merge":"max"}]}'
    host = f"Host: 127.0.0.1:{node.port}\r\n"
    for target, version, named in (
        ("/v1/leaderboards/b", "1.1", host),
        (f"{node.url}/v1/leaderboards/b", "1.1", host),
        ("/v1/leaderboards/b", "1.0", ""),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        head = f"PUT {target} HTTP/{version}\r\n{named}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        assert (await reader.readline()).split()[1] in (b"200", b"201"), target
        writer.close()
    assert node.end() == 0
