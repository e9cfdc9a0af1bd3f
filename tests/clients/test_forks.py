"""Test that a client which was made before a fork gives each process its own answers.

The processes are forked by a program of its own, because pytest has threads.
"""

import asyncio
import json
import sys
from textwrap import dedent
from typing import Any

import pytest
from aiohttp import web
from rankcurve import AsyncClient, UnexpectedAnswerError

from tests.clients.served import serving_handler
from tests.service.real_service import WAIT_S, Service

# Runs `work(number)` in the parent and in three children at the same time, and prints what each of them returned.
FORKED = """
import asyncio, json, os, sys
from rankcurve import AsyncClient, Client

def run(work):
    children = []
    for number in (1, 2, 3):
        reader, writer = os.pipe()
        if not os.fork():
            with os.fdopen(writer, "w") as out:
                json.dump(work(number), out)
            os._exit(0)
        os.close(writer)
        children.append(os.fdopen(reader))
    print(json.dumps([work(0)] + [json.load(child) for child in children]))
"""


async def run_forked(service: Service, program: str) -> list[Any]:
    """Run a program, which gets the address of the service, after `FORKED`. Return what it printed."""
    command = (sys.executable, "-c", FORKED + dedent(program), service.base)
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
    printed, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0, errors.decode()
    found: list[Any] = json.loads(printed)
    return found


@pytest.fixture
async def board(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    await service.post_xp("b", p0=10, p1=11, p2=12, p3=13)


SYNC = """
client = Client(sys.argv[1])
client.board("b")  # the connection that the children inherit
run(lambda number: [client.entry("b", f"p{number}").stats["xp"] for _ in range(60)])
"""
ASYNC = """
client, parent = AsyncClient(sys.argv[1]), asyncio.new_event_loop()
parent.run_until_complete(client.board("b"))

async def read(number):
    return [(await client.entry("b", f"p{number}")).stats["xp"] for _ in range(60)]

run(lambda number: (asyncio.new_event_loop() if number else parent).run_until_complete(read(number)))
"""


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "async"])
async def test_each_process_gets_the_answers_to_its_own_requests(service: Service, program: str) -> None:
    assert await run_forked(service, program) == [[10 + number] * 60 for number in range(4)]


@pytest.mark.usefixtures("board")
async def test_a_stream_that_was_opened_before_a_fork_is_opened_again_by_each_child(service: Service) -> None:
    found = await run_forked(
        service,
        """
        client = Client(sys.argv[1], pause=lambda seconds: None)
        events = client.stream("b", "xp", top=1)
        next(events)

        def follow(number):
            client.post("b", [{"owner": "p3", "stats": {"xp": 1}}])
            while not (event := next(events)).data.entries[0].value >= 17:
                pass
            return event.data.entries[0].owner

        run(follow)
        """,
    )
    assert found == ["p3"] * 4


@pytest.mark.usefixtures("board")
async def test_a_program_may_end_with_a_stream_open(service: Service) -> None:
    found = await run_forked(
        service,
        """
        events = Client(sys.argv[1]).stream("b", "xp", top=1)
        print(json.dumps([next(events).data.entries[0].owner]))
        """,
    )
    assert found == ["p3"]


async def test_a_child_neither_extends_a_held_lease_nor_gives_it_back(service: Service) -> None:
    await service.must("PUT", "/v1/pools/acme/numbers")
    await service.must("POST", "/v1/pools/acme/numbers/resources", {"region": "eu", "resources": ["a", "b"]})
    found = await run_forked(
        service,
        """
        def work(number):
            if not number:
                return None
            block.__exit__(None, None, None)
            return leases.get("acme", "numbers", "k", 60.0).version

        client = Client(sys.argv[1])
        leases = client.leases("eu")
        block = leases.hold("acme", "numbers", "k")
        lease = block.__enter__()
        run(work)
        """,
    )
    assert found == [None, 1, 1, 1], "the lease stayed the same"


async def test_children_that_failed_together_do_not_come_back_together(service: Service) -> None:
    found = await run_forked(
        service,
        """
        client = Client(sys.argv[1])
        run(lambda number: client._sender.retries.draw_pause_s(5))
        """,
    )
    assert len(set(found)) == 4


async def test_an_answer_about_another_owner_is_an_error() -> None:
    async def answer(_: web.Request) -> web.Response:
        entry = {"owner": "other", "updated_at": "2026-11-20T10:00:00Z", "stats": {}, "positions": []}
        return web.json_response(entry | {"results": [{"owner": "other", "status": "applied"}]})

    async with serving_handler(answer) as url, AsyncClient(url) as client:
        for ask in (
            lambda: client.entry("b", "ada"),
            lambda: client.positions("b", "ada"),
            lambda: client.positions_on_boards("ada", ["b"], "xp"),
            lambda: client.post("b", [{"owner": "ada", "stats": {"xp": 1}}]),
        ):
            with pytest.raises(UnexpectedAnswerError, match=r"'other'.*'ada'"):
                await ask()


async def test_an_owner_may_be_named_in_another_unicode_form_than_the_service_answers(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    async with AsyncClient(service.base) as client:
        for owner in ("Zoe\u0308", "\ufb01", "\u212b"):
            [result] = await client.post("b", [{"owner": owner, "stats": {"xp": 1}}])
            assert (await client.entry("b", owner)).owner == result.owner
