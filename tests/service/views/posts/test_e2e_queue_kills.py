"""Kills of the service and of its workers lose no queued post, count none twice, and keep each owner's posts in order.

A caller repeats a request with the same post ids until the request is accepted, and only then sends the next one.
"""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import ClientError

from tests.service.real_service import Caller, Process, Spawn
from tests.service.views.posts.test_e2e_queued import BOARD, QUEUED, WAIT_S

OWNERS = 12
KILLS = 4
ROUNDS_BETWEEN = 12  # how many requests must be answered between two kills
SETTINGS = ("--set", "ingest_lease_s=0.5")


class Callers:
    """A caller for each owner. Each post of a caller contains a number, which is 1 more than in the previous post."""

    def __init__(self, serving: Callable[[], Process]) -> None:
        self._serving = serving
        self.sent = [0] * OWNERS
        self.answered: asyncio.Semaphore = asyncio.Semaphore(0)
        self.stop = False
        self.up = asyncio.Event()
        self.up.set()

    async def post_for_owner(self, owner: int) -> None:
        for number in itertools.count(1):
            if self.stop:
                return
            post = {"owner": f"p{owner}", "stats": {"xp": 1, "last": number}, "post_id": f"{owner}/{number}"}
            await self._send_until_accepted(post)
            self.sent[owner] = number
            self.answered.release()

    async def _send_until_accepted(self, post: Mapping[str, object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                await self.up.wait()
                try:
                    async with Caller(self._serving().url) as caller:
                        answer = await caller.call("POST", BOARD + QUEUED, post)
                except (ClientError, OSError):
                    continue
                if answer.status == 202:
                    return
                assert answer.status in (429, 503), answer.body

    @asynccontextmanager
    async def run_callers(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for owner in range(OWNERS):
                group.create_task(self.post_for_owner(owner))
            yield
            self.stop = True

    async def wait_for_answers(self) -> None:
        async with asyncio.timeout(WAIT_S):
            for _ in range(ROUNDS_BETWEEN):
                await self.answered.acquire()


async def check_entries(caller: Caller, sent: list[int]) -> None:
    """Wait until each owner's last post is applied; fail if a post is missing or counted twice."""
    for owner, number in enumerate(sent):
        async with asyncio.timeout(WAIT_S):
            while (await caller.get(f"{BOARD}/posts/{owner}%2F{number}"))["status"] == "pending":
                continue
        entry = await caller.get(f"{BOARD}/entries/p{owner}")
        assert entry["stats"] == {"xp": number, "last": number}, f"p{owner}"


async def create_board(caller: Caller) -> None:
    await caller.board("b", {"name": "xp", "merge": "sum"}, {"name": "last", "merge": "last", "sorted": False})


async def test_kills_of_workers_lose_no_queued_post_and_count_none_twice(store_url: str, spawn: Spawn) -> None:
    serving = spawn("--store", store_url, "--jobs", "none").ready()

    def worker() -> Process:
        started = spawn("--store", store_url, *SETTINGS, command=("jobs",))
        started.await_line("working")
        return started

    workers = [worker(), worker()]
    async with Caller(serving.url) as caller:
        await create_board(caller)
        callers = Callers(lambda: serving)
        async with callers.run_callers():
            for kill in range(KILLS):
                await callers.wait_for_answers()
                await asyncio.to_thread(workers[kill % 2].end, signal.SIGKILL)
                await callers.wait_for_answers()
                workers[kill % 2] = await asyncio.to_thread(worker)
        await check_entries(caller, callers.sent)


async def check_kills(spawn: Spawn, *arguments: str) -> None:
    """Kill a service, which applies its queued posts itself, KILLS times under load. Then check the entries."""
    serving = spawn(*arguments, *SETTINGS).ready()
    async with Caller(serving.url) as caller:
        await create_board(caller)
    callers = Callers(lambda: serving)
    async with callers.run_callers():
        for _ in range(KILLS):
            await callers.wait_for_answers()
            callers.up.clear()
            await asyncio.to_thread(serving.end, signal.SIGKILL)
            serving = await asyncio.to_thread(lambda: spawn(*arguments, *SETTINGS).ready())
            callers.up.set()
        await callers.wait_for_answers()
    async with Caller(serving.url) as caller:
        await check_entries(caller, callers.sent)


async def test_kills_of_a_service_lose_no_queued_post_and_count_none_twice(
    either_store: dict[str, str], spawn: Spawn
) -> None:
    await check_kills(spawn, *(("--store", either_store["store"]) if either_store else ()))
