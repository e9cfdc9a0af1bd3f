"""However a service or a worker ends, it loses no accepted post, queued or not, and no retry counts twice."""

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import ClientError

from tests.service.real_service import ONE_PROCESS, Caller, Process, Spawn, command_line
from tests.service.views.posts.test_e2e_queued import BOARD, QUEUED, WAIT_S

BOARDS = ("a", "b", "c", "d", "e")
CHAMPION = "champion"
CLIENTS = 6
KILLS = 2
OWNERS = 12
ROUNDS_BETWEEN = 12  # how many requests must be answered between two kills
SETTINGS = ("--set", "ingest_lease_s=0.5")


async def create_boards(caller: Caller) -> None:
    """Make the boards. Their columns xp and posts are merged by sum."""
    for board in BOARDS:
        await caller.board(board, {"name": "xp", "merge": "sum"}, {"name": "posts", "merge": "sum"})


class Ledger:
    """The posts whose request got status 200, and the status of each post."""

    def __init__(self) -> None:
        self.settled: list[dict[str, Any]] = []
        self.statuses: Counter[str] = Counter()
        self.answered = asyncio.Event()
        self.stop = False

    def sums(self) -> dict[tuple[str, str], tuple[int, int]]:
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for post in self.settled:
            for board in post["boards"]:
                xp, posts = sums.get((board, post["owner"]), (0, 0))
                sums[board, post["owner"]] = xp + post["stats"]["xp"], posts + 1
        return sums


async def post_until_stopped(process: Callable[[], Process], up: asyncio.Event, name: str, ledger: Ledger) -> None:
    """Send requests until `ledger.stop` is set. Repeat each request until it gets status 200."""
    rng, number = random.Random(name), 0
    while not ledger.stop:
        number += 1
        posts = [
            {
                "owner": rng.choice((CHAMPION, f"p{rng.randrange(9)}")),
                "stats": {"xp": rng.randrange(1, 2**24), "posts": 1},
                "post_id": f"{name}/{number}/{index}",
                "boards": rng.choice((list(BOARDS), [rng.choice(BOARDS)])),
            }
            for index in range(rng.choice((1, 12)))
        ]
        results = await settle_posts(process, up, {"posts": posts})
        assert len(results) == len(posts)
        ledger.settled += posts
        ledger.statuses.update(result["status"] for result in results)
        ledger.answered.set()


async def settle_posts(process: Callable[[], Process], up: asyncio.Event, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a request, and repeat it until it gets status 200. Return the results of the posts."""
    for _ in range(100):
        await up.wait()
        serving = process()
        try:
            async with Caller(serving.url) as caller:
                answer = await caller.call("POST", "/v1/posts", body)
        except (ClientError, OSError, TimeoutError):
            if process() is serving:  # the process has ended, and the next process does not accept requests yet
                up.clear()
            continue
        if answer.status == 200:
            found: list[dict[str, Any]] = answer.body["results"]
            return found
        assert answer.status in (429, 503), answer.body
    raise AssertionError("a post was never settled")


async def check_ledger(caller: Caller, ledger: Ledger) -> None:
    """Check that every owner has the right sums, and that the service recognizes every post id of the ledger."""
    for (board, owner), told in ledger.sums().items():
        stats = (await caller.get(f"/v1/leaderboards/{board}/entries/{owner}"))["stats"]
        assert (stats["xp"], stats["posts"]) == told, f"{owner} on {board}"
    for start in range(0, len(ledger.settled), 1000):
        body = await caller.must("POST", "/v1/posts", {"posts": ledger.settled[start : start + 1000]})
        assert {part["status"] for result in body["results"] for part in result["boards"]} == {"duplicate"}


async def test_kills_under_load_lose_no_post_and_retries_count_none_twice(spawn: Spawn) -> None:
    serving = spawn().ready()
    up, ledger = asyncio.Event(), Ledger()
    up.set()
    async with Caller(serving.url) as caller:
        await create_boards(caller)
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(post_until_stopped(lambda: serving, up, f"c{i}", ledger)) for i in range(CLIENTS)]
        for _ in range(KILLS):
            for _ in range(10):
                ledger.answered.clear()
                async with asyncio.timeout(60):
                    await ledger.answered.wait()
            await asyncio.to_thread(serving.end, signal.SIGKILL)
            serving = await asyncio.to_thread(lambda: spawn().ready())
            up.set()
        ledger.stop = True
    assert all(task.done() for task in clients)
    assert {board for board, owner in ledger.sums() if owner == CHAMPION} == set(BOARDS)
    async with Caller(serving.url) as caller:
        await check_ledger(caller, ledger)


async def test_a_service_finishes_accepted_posts_on_sigterm_and_exits_with_0(spawn: Spawn) -> None:
    serving = spawn().ready()
    posts = [{"owner": f"p{i % 1000}", "stats": {"xp": 1, "posts": 1}, "post_id": f"id{i}"} for i in range(12_000)]
    posts = [{**post, "boards": ["a"]} for post in posts]
    bodies = [{"posts": posts[start : start + 1500]} for start in range(0, 12_000, 1500)]
    async with Caller(serving.url) as caller:
        await create_boards(caller)
        calls = [asyncio.create_task(caller.call("POST", "/v1/posts", body)) for body in bodies]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        code = await asyncio.to_thread(serving.end)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert code == 0
    events = [(line.get("process"), line["event"]) for line in serving.lines]
    events = [each for each in events if each[1] != "read_abandoned"]  # of a curve that is being fitted meanwhile
    assert [event for process, event in events if process == "owner"][-2:] == ["stopping", "stopped"]
    assert events[-1] == ("supervisor", "stopped")
    told = [not isinstance(answer, BaseException) and answer.status == 200 for answer in answers]
    assert sum(told) >= 2, "requests that ran at the signal were answered"
    async with Caller(spawn().ready().url) as caller:
        for body, was_told in zip(bodies, told, strict=True):
            results = (await caller.must("POST", "/v1/posts", body))["results"]
            assert not was_told or {result["status"] for result in results} == {"duplicate"}
        page = await caller.get("/v1/leaderboards/a/rankings/posts?limit=1000")
        assert {row["value"] for row in page["entries"]} == {12}


async def test_idle_connections_and_half_sent_requests_do_not_delay_a_stop(spawn: Spawn) -> None:
    serving = spawn("--set", "shutdown_s=600", "--set", "body_idle_s_max=600").ready()
    _, idle = await asyncio.open_connection("127.0.0.1", serving.port)
    answers, half_sent = await asyncio.open_connection("127.0.0.1", serving.port)
    half_sent.write(b"POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    await half_sent.drain()
    async with Caller(serving.url) as caller:
        # After this answer, the service has also received the first half of the other request.
        await caller.get("/healthz")
        assert await asyncio.to_thread(serving.end, signal.SIGINT) == 0
    assert (await answers.read()).startswith(b"HTTP/1.1 503 ")
    for writer in (idle, half_sent):
        writer.close()


def test_a_service_reports_a_taken_port_or_a_wrong_file_in_one_line(spawn: Spawn, tmp_path: Path) -> None:
    first = spawn().ready()
    taken = command_line("serve", "--port", str(first.port), "--store", "sqlite:///other.db", cwd=tmp_path, code=1)
    assert f"cannot serve on 127.0.0.1:{first.port}" in taken.stderr.splitlines()[-1]
    (tmp_path / "text.db").write_text("this is no database, however long it may be " * 100)
    wrong = command_line("serve", "--port", "0", "--store", "sqlite:///text.db", cwd=tmp_path, code=1)
    assert "not a database" in wrong.stderr.splitlines()[-1]
    assert "Traceback" not in taken.stderr + wrong.stderr


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

    async def post_during_kills(self, kill: Callable[[int], Awaitable[None]]) -> None:
        """Let all callers post while `kill` kills processes KILLS times. Then check the entries."""
        async with Caller(self._serving().url) as caller:
            await caller.board("b", {"name": "xp", "merge": "sum"}, {"name": "last", "merge": "last", "sorted": False})
        async with asyncio.TaskGroup() as group:
            for owner in range(OWNERS):
                group.create_task(self.post_for_owner(owner))
            for number in range(KILLS):
                await self.wait_for_answers()
                await kill(number)
            await self.wait_for_answers()
            self.stop = True
        async with Caller(self._serving().url) as caller:
            await check_entries(caller, self.sent)

    async def wait_for_answers(self) -> None:
        async with asyncio.timeout(WAIT_S):
            for _ in range(ROUNDS_BETWEEN):
                await self.answered.acquire()


async def check_entries(caller: Caller, sent: list[int]) -> None:
    """Wait until each owner's last post is applied; fail if a post is missing or counted twice."""
    for owner, number in enumerate(sent):
        async with asyncio.timeout(WAIT_S):
            while (await caller.get(f"{BOARD}/posts/{owner}%2F{number}?owner=p{owner}"))["status"] == "pending":
                continue
        entry = await caller.get(f"{BOARD}/entries/p{owner}")
        assert entry["stats"] == {"xp": number, "last": number}, f"p{owner}"


async def test_kills_of_workers_lose_no_queued_post_and_count_none_twice(store_url: str, spawn: Spawn) -> None:
    serving = spawn("--store", store_url, "--jobs", "none").ready()

    def worker() -> Process:
        started = spawn("--store", store_url, *SETTINGS, command=("jobs",))
        started.await_line("working")
        return started

    workers = [worker(), worker()]
    callers = Callers(lambda: serving)

    async def kill_worker(number: int) -> None:
        await asyncio.to_thread(workers[number % 2].end, signal.SIGKILL)
        await callers.wait_for_answers()
        workers[number % 2] = await asyncio.to_thread(worker)

    await callers.post_during_kills(kill_worker)


@ONE_PROCESS
async def test_kills_of_a_service_lose_no_queued_post_and_count_none_twice(
    either_store: dict[str, str], spawn: Spawn
) -> None:
    words = (*(("--store", either_store["store"]) if either_store else ()), *SETTINGS)
    serving = spawn(*words).ready()  # the service applies its queued posts itself
    callers = Callers(lambda: serving)

    async def kill_service(_number: int) -> None:
        nonlocal serving
        callers.up.clear()
        await asyncio.to_thread(serving.end, signal.SIGKILL)
        serving = await asyncio.to_thread(lambda: spawn(*words).ready())
        callers.up.set()

    await callers.post_during_kills(kill_service)
