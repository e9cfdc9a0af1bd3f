"""Test that every post whose `submit` returned counts exactly once, and that a buffer says what became of it."""

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from rankcurve import AsyncClient, AsyncPostBuffer, Client, RankcurveError, Receipt
from rankcurve.errors import BufferFullError, ForbiddenError, UnknownBoardError, UnsentPostsError
from rankcurve.post_buffer import BUFFER_RETRIES

from service.contract.problems import CODES
from tests.clients.served import problem_answer, serving_handler
from tests.servers import free_port
from tests.service.real_service import Service

TARGET = "/v1/leaderboards/game/posts"
LONG_S = 3_600.0  # a delay that never ends during a test, so that only full requests and flushes are sent


class FakePosts:
    """Answer posts as the service does, and apply each id once. A test says what goes wrong on the way."""

    def __init__(self) -> None:
        self.applied: dict[str, dict[str, Any]] = {}  # the posts by id
        self.order: list[str] = []  # the owners, as they were applied
        self.sizes: list[int] = []  # of the requests
        self.faults: list[str] = []  # of the next requests: what goes wrong with each
        self.arrivals: asyncio.Queue[None] = asyncio.Queue()
        self.hold: asyncio.Event | None = None
        self.posts_max = 10_000  # with more in a request, a proxy says 413
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert (request.method, request.path) == ("POST", TARGET)
        posts = (await request.json())["posts"]
        self.sizes.append(len(posts))
        self.arrivals.put_nowait(None)
        if self.hold is not None:
            await self.hold.wait()
        fault = self.faults.pop(0) if self.faults else "413" if len(posts) > self.posts_max else ""
        assert request.transport is not None
        if fault in CODES:
            return problem_answer(fault)
        if fault == "busy":
            return problem_answer("store_busy", **{"Retry-After": "0"})
        if fault.isdecimal():
            return web.Response(status=int(fault), text="<html>", headers={"Location": "/elsewhere"})
        if fault == "of another":
            return web.json_response({"results": [{"owner": "somebody", "status": "applied"} for _ in posts]})
        if fault == "lost before":
            request.transport.abort()
            return web.Response()
        results = [self.apply_post(post) for post in posts]
        if fault == "lost after":
            request.transport.abort()
        return web.json_response({"results": results})

    def apply_post(self, post: dict[str, Any]) -> dict[str, Any]:
        if post["owner"].startswith("bad"):
            problem = {"code": "unknown_column", "detail": "no such column", "title": "t", "status": 422}
            if post["owner"] != "bad":
                problem |= {"code": "not_known", "detail": "new\n\x1b[2J"}
            return {"owner": post["owner"], "status": "rejected", "error": problem}
        known = self.applied.get(post["post_id"])
        if known is not None:
            assert known == post, "a retry repeats the id, the time and the stats"
            return {"owner": post["owner"], "status": "duplicate"}
        self.applied[post["post_id"]] = post
        self.order.append(post["owner"])
        return {"owner": post["owner"], "status": "applied"}


@asynccontextmanager
async def fake_posts() -> AsyncIterator[FakePosts]:
    made = FakePosts()
    async with serving_handler(made.answer) as made.url:
        yield made


@pytest.fixture
async def fake() -> AsyncIterator[FakePosts]:
    async with fake_posts() as made:
        yield made


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def buffering(fake: FakePosts, **options: Any) -> AsyncIterator[AsyncPostBuffer]:
    defaults: dict[str, Any] = {
        "delay_s": LONG_S,
        "posts_per_request": 10,
        "retries": replace(BUFFER_RETRIES, attempts_max=20),
    }
    options = defaults | options
    async with AsyncClient(fake.url, pause=no_pause) as client, client.buffer("game", **options) as buffer:
        yield buffer


async def test_posts_are_sent_when_a_request_is_full_and_the_rest_at_the_end(fake: FakePosts) -> None:
    async with buffering(fake) as buffer:
        receipts = [await buffer.submit(f"p{index}", {"xp": index}) for index in range(25)]
        await buffer.wait(receipts[9])
        assert fake.sizes[0] == 10
    assert (sum(fake.sizes), max(fake.sizes), buffer.unsettled) == (25, 10, 0)
    assert fake.order == [f"p{index}" for index in range(25)]
    assert [receipt.result and receipt.result.status for receipt in receipts] == ["applied"] * 25
    assert len({receipt.post_id for receipt in receipts}) == 25


async def test_posts_are_sent_a_while_after_the_oldest(fake: FakePosts) -> None:
    async with buffering(fake, delay_s=0.001) as buffer:
        await buffer.submit("ada", {"xp": 1})
        await fake.arrivals.get()
    assert fake.order == ["ada"]


async def test_a_flush_and_a_wait_send_what_waits(fake: FakePosts) -> None:
    async with buffering(fake) as buffer:
        receipt = await buffer.submit("ada", {"xp": 1})
        assert (await buffer.wait(receipt)).status == "applied"
        await buffer.submit("bob", {"xp": 1})
        await buffer.flush()
        assert (fake.order, buffer.unsettled) == (["ada", "bob"], 0)


PASSING = ["200", "302", "400", "404", "408", "413", "422", "429", "503", "of another", "busy"]
FAULTS = st.lists(st.sampled_from(["", "lost before", "lost after", "store_full", *PASSING]), max_size=12)


@given(faults=FAULTS, posts=st.integers(0, 60), per_request=st.integers(1, 20))
def test_every_post_counts_once_whatever_is_lost_on_the_way(faults: list[str], posts: int, per_request: int) -> None:
    async def post() -> None:
        async with fake_posts() as fake:
            fake.faults = list(faults)
            async with buffering(fake, posts_per_request=per_request) as buffer:
                for index in range(posts):
                    await buffer.submit(f"p{index}", {"xp": index})
            assert fake.order == [f"p{index}" for index in range(posts)]

    asyncio.run(post())


async def test_submit_waits_while_too_many_posts_wait(fake: FakePosts) -> None:
    fake.hold = asyncio.Event()
    async with buffering(fake, posts_max=3, posts_per_request=2) as buffer:
        for owner in "abc":
            await buffer.submit(owner, {"xp": 1})
        with pytest.raises(BufferFullError):
            await buffer.submit("refused", {"xp": 1}, timeout_s=0)
        fourth = asyncio.create_task(buffer.submit("d", {"xp": 1}))
        await fake.arrivals.get()
        assert not fourth.done()
        fake.hold.set()
        await fourth
    assert fake.order == list("abcd")


async def test_a_rejected_post_is_reported_and_the_others_stand(
    fake: FakePosts, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Receipt] = []
    async with buffering(fake, on_result=told.append) as buffer:
        for owner in ("ada", "bad", "bob"):
            await buffer.submit(owner, {"xp": Decimal("1.5")})
    statuses = [(receipt.owner, receipt.result and receipt.result.status) for receipt in told]
    assert statuses == [("ada", "applied"), ("bad", "rejected"), ("bob", "applied")]
    async with buffering(fake) as buffer:
        await buffer.submit("bad", {"xp": 1})
    assert "was rejected: unknown_column: no such column" in caplog.text


async def test_the_first_rejection_of_each_kind_is_logged_on_one_line_and_all_are_counted(
    fake: FakePosts, caplog: pytest.LogCaptureFixture
) -> None:
    async with buffering(fake, on_result=lambda _: None) as buffer:
        for number in range(3):
            await buffer.submit("bad", {"xp": 1}, post_id=f"{number}\n\x1b[2J")
        await buffer.submit("bad\r\x1b[31m", {"xp": 1}, post_id="strange")
    first, second, summary = [record.getMessage() for record in caplog.records]
    assert first == "post 0??[2J of bad was rejected: unknown_column: no such column"
    assert second == "post strange of bad??[31m was rejected: not_known: new??[2J"
    assert summary == f"4 posts to {TARGET} were rejected: 3 unknown_column, 1 other"
    assert buffer.rejected == {"unknown_column": 3, "other": 1}


async def test_a_passing_answer_is_met_with_a_least_pause_and_for_an_hour(fake: FakePosts) -> None:
    fake.faults, pauses = ["busy"] * 100, []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with AsyncClient(fake.url, pause=pause) as client, client.buffer("game") as buffer:
        await buffer.submit("ada", {"xp": 1})
    assert (fake.order, len(pauses), min(pauses) >= 0.1, min(pauses[10:]) >= 2.5) == (["ada"], 100, True, True)
    retries = replace(BUFFER_RETRIES, rng=random.Random(1))
    assert sum(retries.draw_asked_pause_s("0", attempt) for attempt in range(1, retries.attempts_max)) > 3_600


async def test_an_outage_is_logged_once_and_named_when_the_time_for_closing_is_over(
    fake: FakePosts, caplog: pytest.LogCaptureFixture
) -> None:
    fake.faults = ["404"] * 50
    third = asyncio.Event()

    async def pause(_: float) -> None:
        if len(fake.sizes) == 3:
            third.set()
            await asyncio.Event().wait()

    async with AsyncClient(fake.url, pause=pause) as client:
        buffer = client.buffer("game")
        await buffer.submit("ada", {"xp": 1})
        await third.wait()
        with pytest.raises(UnsentPostsError, match=r"the time for closing is over \(http_404: no problem document\)"):
            await buffer.close(timeout_s=0)
    assert caplog.messages == [f"posts to {TARGET} wait, and are sent again: http_404: no problem document"]


async def test_a_request_that_is_too_large_for_a_proxy_is_halved_and_no_post_is_rejected(fake: FakePosts) -> None:
    fake.posts_max = 3
    async with buffering(fake) as buffer:
        for index in range(10):
            await buffer.submit(f"p{index}", {"xp": 1})
    assert fake.order == [f"p{index}" for index in range(10)]
    assert buffer.rejected == {}


async def test_a_post_that_the_key_may_not_make_is_rejected_alone(game: Service, tmp_path: Path) -> None:
    ops = (await game.must("POST", "/v1/keys", {"name": "ops", "role": "ops"}))["key"]
    async with AsyncClient(game.base, ops) as client:
        writer, reader = [
            (await client.request("POST", "/v1/keys", dict, body={"name": role, "role": role}))["key"]
            for role in ("writer", "reader")
        ]
    async with AsyncClient(game.base, writer) as client:
        async with client.buffer("game", spool=tmp_path) as buffer:
            receipts = [await buffer.submit(f"p{number}", {"xp": 1}) for number in range(3)]
            receipts.insert(1, await buffer.submit("cheat", set={"xp": 9}))
        results = [receipt.result for receipt in receipts if receipt.result is not None]
        assert [result.status for result in results] == ["applied", "rejected", "applied", "applied"]
        assert results[1].error is not None
        assert results[1].error.code == "forbidden"
        async with client.buffer("game", retries=replace(BUFFER_RETRIES, attempts_max=1)) as buffer:
            await buffer.submit("p1", {"xp": 1})
    async with AsyncClient(game.base, reader) as client:
        buffer = client.buffer("game")
        await buffer.submit("p1", {"xp": 1})
        with pytest.raises(UnsentPostsError, match="forbidden"):
            await buffer.close()


@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_two_callers_can_close_one_buffer_at_the_same_time(fake: FakePosts, tmp_path: Path, kind: str) -> None:
    for _ in range(20):
        if kind == "tasks":
            async with AsyncClient(fake.url) as client:
                buffer = client.buffer("game", spool=tmp_path)
                await buffer.submit("ada", {"xp": 1})
                await asyncio.gather(buffer.close(), buffer.close())
        else:
            client_of_threads = Client(fake.url)
            shared = client_of_threads.buffer("game", spool=tmp_path)
            await asyncio.to_thread(shared.submit, "ada", {"xp": 1})
            await asyncio.gather(asyncio.to_thread(shared.close), asyncio.to_thread(shared.close))
            client_of_threads.close()
    assert len(fake.order) == 20


async def test_an_exception_in_the_block_is_raised_without_waiting_for_a_service_that_is_away(
    fake: FakePosts, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()

    async def pause(_: float) -> None:
        failed.set()
        await asyncio.Event().wait()

    async def post(buffer: AsyncPostBuffer) -> None:
        async with buffer:
            await buffer.submit("ada", {"xp": 1})
            await failed.wait()
            raise ZeroDivisionError

    async with AsyncClient(f"http://127.0.0.1:{free_port()}", pause=pause) as client:
        buffer = client.buffer("game")
        with pytest.raises(ZeroDivisionError):
            await post(buffer)
        with pytest.raises(RankcurveError, match="closed"):
            await buffer.submit("bob", {"xp": 1})
    assert "1 posts are not settled: the time for closing is over (no answer" in caplog.messages[-1]


async def test_an_exception_in_the_block_does_not_lose_posts_of_a_service_that_answers(fake: FakePosts) -> None:
    async def post() -> None:
        async with buffering(fake) as buffer:
            for owner in "abc":
                await buffer.submit(owner, {"xp": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await post()
    assert fake.order == list("abc")


FORKED = """
import os, signal, sys
from rankcurve import Client, RankcurveError
from rankcurve.errors import UnsentPostsError
from rankcurve.spool import Spool

folder, target = sys.argv[1:]
with Client("http://127.0.0.1:9") as client:
    buffer = client.buffer("game", spool=folder, delay_s=3_600)
    receipt = buffer.submit("ada", {"xp": 1})
    ended, end = os.pipe()
    child = os.fork()
    if not child:
        calls = (lambda: buffer.submit("bob", {"xp": 1}), buffer.flush, lambda: buffer.wait(receipt), buffer.close)
        for call in calls:
            try:
                call()
            except RankcurveError as error:
                assert f"process {os.getppid()}" in str(error)
            else:
                os._exit(1)
        try:
            with buffer:
                raise KeyError
        except KeyError:
            os.write(end, b"c")
        signal.pause()
    assert os.read(ended, 1) == b"c"
    try:
        buffer.close(timeout_s=0)
    except UnsentPostsError as unsent:
        assert [post["owner"] for post in unsent.posts] == ["ada"]
    spool = Spool(folder, target)  # the idle child does not have the lock
    print([left.owner for left in spool.leftover])
    os.kill(child, 9)
    os.waitpid(child, 0)
"""


def test_a_child_process_can_not_use_the_buffer_and_does_not_keep_its_spool(tmp_path: Path) -> None:
    # From Python 3.12 on, a fork beside the threads of the buffer warns: here it is what is tested.
    words = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORKED, str(tmp_path), TARGET]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['ada']\n", "")


async def test_a_callback_that_fails_does_not_end_the_buffer(fake: FakePosts) -> None:
    def fail(_: Receipt) -> None:
        raise ZeroDivisionError

    async with buffering(fake, on_result=fail, posts_per_request=1) as buffer:
        for owner in "ab":
            await buffer.submit(owner, {"xp": 1})
    assert fake.order == ["a", "b"]


async def test_a_refused_key_ends_the_buffer_which_hands_back_its_posts(fake: FakePosts) -> None:
    fake.faults = ["forbidden"]
    async with AsyncClient(fake.url) as client:
        buffer = client.buffer("game")
        receipt = await buffer.submit("ada", {"xp": 1})
        with pytest.raises(RankcurveError, match="forbidden"):
            await buffer.wait(receipt)
        with pytest.raises(RankcurveError, match="given up: forbidden") as refused:
            await buffer.submit("bob", {"xp": 1})
        assert isinstance(refused.value.__cause__, ForbiddenError)
        with pytest.raises(UnsentPostsError) as unsent:
            await buffer.close()
        [post] = unsent.value.posts
        assert (post["owner"], post["stats"], post["post_id"]) == ("ada", {"xp": 1}, receipt.post_id)
        assert [result.status for result in await client.post("game", unsent.value.posts)] == ["applied"]


async def test_a_buffer_of_a_missing_service_ends_in_time(unused_tcp_port: int) -> None:
    async with AsyncClient(f"http://127.0.0.1:{unused_tcp_port}") as client:
        buffer = client.buffer("game")
        await buffer.submit("ada", {"xp": 1})
        with pytest.raises(UnsentPostsError, match="1 posts are not settled: the time"):
            await buffer.close(timeout_s=0)
        await buffer.close()
        with pytest.raises(RankcurveError, match="closed"):
            await buffer.submit("bob", {"xp": 1})


async def test_a_buffer_whose_client_was_closed_gives_up(fake: FakePosts) -> None:
    def post() -> list[dict[str, Any]]:
        with Client(fake.url) as client:
            buffer = client.buffer("game", delay_s=LONG_S)
        buffer.submit("ada", {"xp": 1})
        with pytest.raises(UnsentPostsError, match="client has been closed") as unsent:
            buffer.close()
        return list(unsent.value.posts)

    assert [post["owner"] for post in await asyncio.to_thread(post)] == ["ada"]


async def test_what_a_process_leaves_in_its_spool_the_next_one_sends(fake: FakePosts, tmp_path: Path) -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port()}") as client:
        buffer = client.buffer("game", spool=tmp_path)
        for owner in "abc":
            await buffer.submit(owner, {"xp": 1})
        with pytest.raises(UnsentPostsError):
            await buffer.close(timeout_s=0)
    told: list[Receipt] = []
    async with buffering(fake, spool=tmp_path, on_result=told.append) as buffer:
        await buffer.submit("d", {"xp": 1})
    assert fake.order == list("abcd")
    assert [receipt.owner for receipt in told] == list("abcd")
    assert os.listdir(tmp_path) == ["lock"]


@pytest.fixture
async def game(service: Service) -> Service:
    await service.board("game", {"name": "xp", "merge": "sum"})
    return service


async def test_threads_that_share_a_buffer_post_to_the_real_service(game: Service, tmp_path: Path) -> None:
    statuses: Counter[str] = Counter()

    def note(receipt: Receipt) -> None:
        assert receipt.result is not None
        statuses[receipt.result.status] += 1

    def post() -> None:
        with (
            Client(game.base) as client,
            client.buffer("game", posts_per_request=50, posts_max=100, spool=tmp_path, on_result=note) as buffer,
        ):

            def submit() -> None:
                for index in range(250):
                    buffer.submit(f"p{index % 10}", {"xp": 1})

            threads = [threading.Thread(target=submit) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await asyncio.to_thread(post)
    assert statuses == {"applied": 1000}
    for index in range(10):
        assert (await game.get(f"/v1/leaderboards/game/entries/p{index}"))["stats"] == {"xp": 100}


async def test_a_buffer_rounds_floats_if_wished(service: Service, tmp_path: Path) -> None:
    await service.board("laps", {"name": "lap", "scale": 3, "best": "low"})
    async with AsyncClient(service.base) as client:
        async with client.buffer("laps", spool=tmp_path, round_floats=True) as buffer:
            await buffer.submit("ada", {"lap": 0.1 + 0.2})
            await buffer.submit("bob", {"lap": Decimal("0.3001")})
        assert buffer.rejected == {"bad_value": 1}
        assert (await client.entry("laps", "ada")).stats == {"lap": Decimal("0.300")}
        with pytest.raises(ValueError, match="round floats"):
            client.buffer(round_floats=True)
        buffer = client.buffer("no-such-board", round_floats=True)
        with pytest.raises(UnknownBoardError):
            await buffer.submit("ada", {"lap": 0.5})
        await buffer.close()


async def test_a_buffer_posts_to_boards_and_to_families(game: Service) -> None:
    columns = [{"name": "xp", "sorted": True, "merge": "sum"}]
    async with AsyncClient(game.base) as client:
        await client.create_family("arena", {"columns": columns, "periods": ["all"], "facets": [[], ["clan"]]})
        async with client.buffer(family="arena") as posts:
            receipt = await posts.submit("ada", {"xp": 5}, facets={"clan": "fox"})
        assert receipt.result is not None
        assert [each.board for each in receipt.result.boards] == ["arena:all", "arena:all:clan=fox"]
        async with client.buffer() as posts:
            receipt = await posts.submit("ada", {"xp": 5}, boards=["game"], post_id="mine")
            again = await posts.submit("ada", set={"xp": 1}, boards=["game"])
        assert [(await client.entry("game", "ada")).stats] == [{"xp": 1}]
        assert receipt.result is not None
        assert (receipt.post_id, receipt.result.boards[0].status) == ("mine", "applied")
        assert again.result is not None
        with pytest.raises(ValueError, match="board or for a family"):
            client.buffer("game", family="arena")
