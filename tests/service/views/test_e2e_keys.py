"""Test that every running process notices new and revoked API keys without a restart.

A test repeats a request until the answer changes, up to a time limit. No test waits for a fixed time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from service.http.api_key_watch import KEY_POLL_INTERVAL_S, KeyWatch
from storage.boards.api_keys import StoredKey
from tests.service.cli_fake_service import run
from tests.service.event_stream import events_of
from tests.service.real_service import ONE_PROCESS, Caller, Service, Spawn, bearer

XP = {"name": "xp", "merge": "sum"}
BOARDS = "/v1/leaderboards"
STREAM = "/v1/leaderboards/b/stream?column=xp&top=3"
TAKES_EFFECT_S = 5.0  # within this time, a new or revoked key takes effect, as the contract promises
WAIT_S = 60.0


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        yield made


async def create_key(service: Caller, role: str, name: str = "somebody") -> tuple[str, str]:
    made = await service.must("POST", "/v1/keys", {"name": name, "role": role})
    return made["id"], made["key"]


async def create_first_key(service: Caller) -> tuple[str, str]:
    """Create the first key. Send the key with every later request of the caller. Return the key's id and text."""
    key_id, key = await create_key(service, "ops", "operator")
    service.headers = bearer(key)
    return key_id, key


async def wait_for_status(service: Caller, key: str, status: int) -> None:
    async with asyncio.timeout(WAIT_S):
        found = 0
        while found != status:
            found = (await service.call("GET", BOARDS, headers=bearer(key))).status


@ONE_PROCESS
async def test_a_key_is_created_listed_used_and_revoked_without_a_restart(service: Service) -> None:
    await create_first_key(service)
    answer = await service.call("POST", "/v1/keys", {"name": "game", "role": "reader"})
    assert (answer.status, answer.headers["Cache-Control"]) == (201, "no-store")
    key_id, key = answer.body["id"], answer.body["key"]
    assert (await service.call("GET", BOARDS, headers=bearer(key))).status == 200
    [first, second] = (await service.get("/v1/keys"))["keys"]
    assert (first["name"], first["role"], first["revoked_at"]) == ("operator", "ops", None)
    assert second == {name: value for name, value in answer.body.items() if name != "key"}
    assert await service.must("DELETE", f"/v1/keys/{key_id}") is None
    assert await service.refused("GET", BOARDS, **bearer(key)) == (401, "unauthorized")
    page = await service.get("/v1/keys?limit=1")
    rest = await service.get(f"/v1/keys?limit=5&cursor={page['next']}")
    assert [each["id"] for each in page["keys"] + rest["keys"]] == [first["id"], key_id]
    assert rest["keys"][0]["revoked_at"] is not None
    assert rest["next"] is None
    await service.must("DELETE", f"/v1/keys/{key_id}")
    assert (await service.get("/v1/keys"))["keys"][1] == rest["keys"][0], "the time of the first revocation stays"
    assert await service.refused("DELETE", "/v1/keys/nobody") == (404, "unknown_key")
    boards = await service.call("PUT", f"{BOARDS}/b", {"columns": [{**XP, "sorted": True}]})
    assert boards.status == 201, "the operator's key is still valid"


@ONE_PROCESS
async def test_the_first_key_closes_a_service_and_the_last_ops_key_cannot_be_revoked(service: Service) -> None:
    assert await service.refused("POST", "/v1/keys", {"name": "game", "role": "reader"}) == (409, "ops_key_needed")
    first_id, first = await create_first_key(service)
    service.headers = {}
    assert await service.refused("GET", BOARDS) == (401, "unauthorized")
    service.headers = bearer(first)
    assert await service.refused("DELETE", f"/v1/keys/{first_id}") == (409, "ops_key_needed")
    _, second = await create_key(service, "ops")
    service.headers = bearer(second)
    await service.must("DELETE", f"/v1/keys/{first_id}")
    assert await service.refused("GET", BOARDS, **bearer(first)) == (401, "unauthorized")
    await service.restart()
    assert await service.refused("GET", BOARDS, **bearer(first)) == (401, "unauthorized")
    await service.get(BOARDS)


async def test_an_invalid_body_creates_no_key(service: Service) -> None:
    for body in (
        {}, {"name": "x"}, {"name": "", "role": "ops"}, {"name": "x" * 201, "role": "ops"},
        {"name": "x\n", "role": "ops"}, {"name": "x", "role": "king"},
    ):  # fmt: skip
        assert await service.refused("POST", "/v1/keys", body) == (400, "bad_request"), body
    named = {"name": "x", "role": "ops", "key": "mine"}
    assert await service.refused("POST", "/v1/keys", named) == (400, "unknown_field")
    assert (await service.get("/v1/keys"))["keys"] == []


async def test_the_streams_of_a_revoked_key_end_and_other_streams_continue(service: Service) -> None:
    await service.board("b", XP)
    async with AsyncExitStack() as stack:
        anyone = await stack.enter_async_context(events_of(service.base, STREAM))
        await anyone.expect_event("top")
        await create_first_key(service)
        assert await anyone.read_event() is None, "a stream that was opened without a key ends"
        _, kept = await create_key(service, "reader")
        gone_id, gone = await create_key(service, "reader")
        streams = []
        for key in (kept, gone):
            opened = events_of(service.base, STREAM, headers=bearer(key))
            streams.append(await stack.enter_async_context(opened))
            await streams[-1].expect_event("top")
        await service.must("DELETE", f"/v1/keys/{gone_id}")
        assert await streams[1].read_event() is None
        await service.post_xp("b", ada=1)
        await streams[0].expect_event("top")


@ONE_PROCESS
async def test_a_body_that_is_complete_after_its_key_was_revoked_is_refused(service: Service) -> None:
    await service.board("b", XP)
    await create_first_key(service)
    key_id, key = await create_key(service, "writer")
    body = b'{"owner": "ada", "stats": {"xp": 1}}'
    reader, writer = await asyncio.open_connection(*service.base.removeprefix("http://").split(":"))
    head = f"POST {BOARDS}/b/posts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(body[:-1])
    await writer.drain()
    await service.must("DELETE", f"/v1/keys/{key_id}")
    writer.write(body[-1:])
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    writer.close()
    assert await service.refused("GET", f"{BOARDS}/b/entries/ada") == (404, "unknown_owner")


async def test_a_change_of_keys_reaches_other_processes_within_the_time_of_the_contract(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TAKES_EFFECT_S >= 4 * KEY_POLL_INTERVAL_S
    monkeypatch.setattr("service.http.api_key_watch.KEY_POLL_INTERVAL_S", 0.02)
    async with (
        Service(tmp_path, store=store_url).running() as operator,
        Service(tmp_path, store=store_url).running() as other,
        AsyncExitStack() as stack,
    ):
        await operator.board("b", XP)
        anyone = await stack.enter_async_context(events_of(other.base, STREAM))
        await anyone.expect_event("top")
        await create_first_key(operator)
        assert await anyone.read_event() is None, "the other process now wants keys too"
        assert await other.refused("GET", BOARDS) == (401, "unauthorized")
        key_id, key = await create_key(operator, "reader")
        await wait_for_status(other, key, 200)
        mine = await stack.enter_async_context(events_of(other.base, STREAM, headers=bearer(key)))
        await mine.expect_event("top")
        await operator.must("DELETE", f"/v1/keys/{key_id}")
        assert await mine.read_event() is None
        await wait_for_status(other, key, 401)


async def test_a_poll_that_finds_no_change_reads_no_key(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    replaced = service.context.keyring.replace_keys

    def replace(rows: list[StoredKey]) -> None:
        read.append(len(rows))
        replaced(rows)

    monkeypatch.setattr(service.context.keyring, "replace_keys", replace)
    watch: KeyWatch = service.context.key_watch
    await watch.poll_keys()
    assert read == []
    await create_first_key(service)
    await watch.poll_keys()
    assert read == [1]


async def command(*words: str) -> tuple[int, str, str]:
    """Run `rankcurve keys`. Return the exit code, the output and the error output."""
    done = await asyncio.to_thread(run, "keys", *words)
    return done.exit_code, done.stdout.strip(), done.stderr.strip()


async def test_every_worker_obeys_keys_made_on_the_command_line(store_url: str, spawn: Spawn) -> None:
    node = await asyncio.to_thread(spawn("--store", store_url, "--workers", "2").ready)
    code, first, said = await command("create", "me", "--role", "ops", "--store", store_url)
    assert code == 0, said
    closed: set[str] = set()
    while not {"worker1", "worker2"} <= closed:
        closed.add((await asyncio.to_thread(node.await_line, "closed_by_first_key"))["process"])
    over_http = ("--url", node.url, "--key", first)
    code, reader, said = await command("create", "game", "--role", "reader", *over_http)
    assert code == 0, said
    key_id = reader.split("_")[1]
    assert (await command("revoke", key_id, *over_http))[0] == 0
    refusals = 0
    async with asyncio.timeout(WAIT_S):
        while refusals < 20:  # each request opens a connection, so that both workers answer some of the requests
            async with Caller(node.url, reader) as caller:
                refused = (await caller.call("GET", BOARDS)).status == 401
            refusals = refusals + 1 if refused else 0
    code, listed, _ = await command("list", *over_http)
    assert code == 0
    assert key_id in listed
    assert "game" in listed
    assert reader.split("_")[2] not in listed
    assert (await command("list", "--url", node.url, "--key", reader))[0] == 1


async def test_on_sqlite_the_command_line_manages_keys_through_a_running_service(spawn: Spawn) -> None:
    process = await asyncio.to_thread(spawn().ready)
    code, first, _ = await command("create", "me", "--role", "ops", "--url", process.url)
    assert code == 0
    async with Caller(process.url, first) as caller:
        await caller.get(BOARDS)
    code, _, said = await command("list", "--url", process.url)
    assert code == 1
    assert "unauthorized" in said
    code, _, said = await command("create", "game", "--role", "reader", "--store", process.store)
    assert code == 1
    assert "--url and --key" in said
    key_id = first.split("_")[1]
    code, _, said = await command("revoke", key_id, "--url", process.url, "--key", first)
    assert code == 1
    assert "last key with the role ops" in said
    assert process.end() == 0
