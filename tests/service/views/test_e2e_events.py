"""Test events and webhooks over HTTP, with a real receiver."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.delivery_latency import ENVIRONMENT, deliver_quietly
from benchmarks.servers import serve_file
from tests.servers import free_port
from tests.service.real_service import ROOT, WAIT_S, Service, environment

SPEC = {"columns": [{"name": "xp", "merge": "sum"}]}
HOOK = "/v1/webhooks/shop"


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, webhook_hosts="127.0.0.1", **either_store).running() as made:
        yield made


async def wait_for_events(service: Service, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAIT_S):
        events: list[dict[str, Any]] = []
        while len(events) < count:
            events = await service.get("/v1/events")
    return events


async def test_what_happens_to_boards_is_listed_in_order(service: Service) -> None:
    for name in ("a", "b"):
        await service.must("PUT", f"/v1/leaderboards/{name}", SPEC)
    events = await wait_for_events(service, 2)
    assert [(event["seq"], event["type"], event["board"]) for event in events] == [
        (1, "board.created", "a"),
        (2, "board.created", "b"),
    ]
    assert [event["seq"] for event in await service.get("/v1/events?after=1")] == [2]


async def test_a_top_changes_for_those_who_ask(service: Service) -> None:
    await service.must("PUT", HOOK, {"url": "https://127.0.0.1/", "events": ["top.changed"], "boards": ["a*"]})
    for name in ("a", "b"):
        await service.must("PUT", f"/v1/leaderboards/{name}", SPEC)
        await service.post_xp(name, ada=1)
    events = await wait_for_events(service, 3)
    assert [event["board"] for event in events if event["type"] == "top.changed"] == ["a"]


async def test_a_webhook_is_made_changed_rotated_paused_and_deleted(service: Service) -> None:
    asked = {"url": "https://game.example/events", "events": ["board.closed"], "boards": ["arena:*"]}
    made = await service.call("PUT", HOOK, asked)
    assert (made.status, made.headers["Cache-Control"]) == (201, "no-store")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{32}", made.body["secret"])
    again = await service.call("PUT", HOOK, {"url": "https://game.example/other"})
    assert (again.status, "secret" in again.body, again.body["events"]) == (200, False, [])
    turned = (await service.must("POST", HOOK + "/rotate"))["secret"]
    assert turned != made.body["secret"]
    shown = await service.get(HOOK)
    assert (shown["state"], shown["delivered"], "secret" in shown) == ("active", 0, False)
    assert [each["id"] for each in (await service.get("/v1/webhooks"))["webhooks"]] == ["shop"]
    assert (await service.must("POST", HOOK + "/resume"))["state"] == "active"
    assert (await service.call("DELETE", HOOK)).status == 204
    assert await service.refused("GET", HOOK) == (404, "unknown_webhook")


@pytest.mark.parametrize("url", ["http://game.example/", "https://10.0.0.1/", "https://169.254.169.254/", "x"])
async def test_a_webhook_to_a_private_machine_is_refused(service: Service, url: str) -> None:
    assert await service.refused("PUT", HOOK, {"url": url}) == (422, "bad_value")
    assert (await service.get("/v1/webhooks"))["webhooks"] == []


async def test_the_example_receives_each_event_once_and_in_order(service: Service) -> None:
    port = free_port()
    made = await service.must("PUT", HOOK, {"url": f"http://127.0.0.1:{port}/"})
    receiver = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples/webhook_receiver.py"),
        str(port),
        made["secret"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        for name in ("a", "b", "c"):
            await service.must("PUT", f"/v1/leaderboards/{name}", SPEC)
        assert receiver.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while (await service.get(HOOK))["delivered"] != 3:
                await service.must("POST", HOOK + "/resume")  # the receiver may not have listened in time
            got = [await receiver.stdout.readline() for _ in range(3)]
        assert got == [b"board.created a\n", b"board.created b\n", b"board.created c\n"]
    finally:
        receiver.kill()
        await receiver.wait()


async def test_a_quiet_service_delivers_one_event_after_the_other(tmp_path: Path) -> None:
    """Run a short form of `benchmarks.delivery_latency`."""
    with serve_file(tmp_path / "events.db", workers=0, environment=ENVIRONMENT) as server:
        assert len(await deliver_quietly(server.port, 3)) == 3
