"""Test that every post whose `submit` returned counts exactly once, and that a buffer says what became of it."""

import asyncio
import json
import os
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
from rankcurve.errors import BufferFullError, ForbiddenError, SpoolError, UnsentPostsError
from rankcurve.post_buffer import BUFFER_RETRIES
from rankcurve.spool import AGE_S_MAX, SEGMENT_POSTS, Spool

from tests.clients.served import serving_app
from tests.servers import free_port
from tests.service.real_service import Service

TARGET = "/v1/leaderboards/game/posts"
POST = b'{"owner":"ada","stats":{"xp":1},"post_id":"a"}'
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
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        posts = (await request.json())["posts"]
        self.sizes.append(len(posts))
        self.arrivals.put_nowait(None)
        if self.hold is not None:
            await self.hold.wait()
        fault = self.faults.pop(0) if self.faults else ""
        assert request.transport is not None
        if fault == "busy":
            return web.json_response({"code": "store_busy"}, status=503, headers={"Retry-After": "0"})
        if fault == "disk full":
            return web.json_response({"code": "store_full", "detail": "no space"}, status=507)
        if fault == "refused":
            return web.json_response({"code": "forbidden", "detail": "no"}, status=403)
        if fault == "lost before":
            request.transport.abort()
            return web.Response()
        results = [self.apply_post(post) for post in posts]
        if fault == "lost after":
            request.transport.abort()
        return web.json_response({"results": results})

    def apply_post(self, post: dict[str, Any]) -> dict[str, Any]:
        if post["owner"] == "bad":
            problem = {"code": "unknown_column", "detail": "no such column", "title": "t", "status": 422}
            return {"owner": "bad", "status": "rejected", "error": problem}
        known = self.applied.get(post["post_id"])
        if known is not None:
            assert known == post, "a retry repeats the id, the time and the stats"
            return {"owner": post["owner"], "status": "duplicate"}
        self.applied[post["post_id"]] = post
        self.order.append(post["owner"])
        return {"owner": post["owner"], "status": "applied"}


@asynccontextmanager
async def fake_posts() -> AsyncIterator[FakePosts]:
    made, app = FakePosts(), web.Application()
    app.router.add_post(TARGET, made.answer)
    async with serving_app(app) as made.url:
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


FAULTS = st.lists(st.sampled_from(["", "lost before", "lost after", "busy", "disk full"]), max_size=12)


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


async def test_a_callback_that_fails_does_not_end_the_buffer(fake: FakePosts) -> None:
    def fail(_: Receipt) -> None:
        raise ZeroDivisionError

    async with buffering(fake, on_result=fail, posts_per_request=1) as buffer:
        for owner in "ab":
            await buffer.submit(owner, {"xp": 1})
    assert fake.order == ["a", "b"]


async def test_a_refused_key_ends_the_buffer_which_hands_back_its_posts(fake: FakePosts) -> None:
    fake.faults = ["refused"]
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


def tear_segment(folder: Path) -> None:
    """Add half a line to the only segment, as a process does that is killed while it writes."""
    [segment] = folder.glob("*.posts")
    with segment.open("ab") as stream:
        stream.write(b'{"owner":"bob","stats":{"xp"')


@pytest.mark.parametrize(
    "content", [b"no header\n{}\n", b'{"target":"/v1/leaderboards/game/posts","begun_at_s":9e9}\n{"owner\n']
)
def test_a_damaged_spool_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    segment = tmp_path / "000000000001.posts"
    segment.write_bytes(content)
    for _ in range(2):
        with Client("http://127.0.0.1:9") as client, pytest.raises(SpoolError, match="is not a file of a spool"):
            client.buffer("game", spool=tmp_path)
    assert segment.read_bytes() == content


async def test_a_torn_last_line_of_a_spool_was_never_accepted(fake: FakePosts, tmp_path: Path) -> None:
    spool = Spool(tmp_path, TARGET)
    spool.append(b'{"owner":"ada","stats":{"xp":1},"post_id":"a"}')
    spool.close()
    tear_segment(tmp_path)
    async with buffering(fake, spool=tmp_path):
        pass
    assert fake.order == ["ada"]


def test_a_spool_is_for_one_process_one_target_and_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, TARGET)
    with pytest.raises(SpoolError, match="in use"):
        Spool(tmp_path, TARGET)
    spool.append(b'{"owner":"ada","post_id":"a"}')
    spool.close()
    with pytest.raises(SpoolError, match="has posts for"):
        Spool(tmp_path, "/v1/leaderboards/other/posts")
    with monkeypatch.context() as later:
        later.setattr("rankcurve.spool.AGE_S_MAX", -1)
        with pytest.raises(SpoolError, match="may count its posts twice"):
            Spool(tmp_path, TARGET)
    again = Spool(tmp_path, TARGET)
    assert [left.post_id for left in again.leftover] == ["a"]
    again.close()
    assert AGE_S_MAX < 30 * 86_400, "the service forgets post ids after 30 days"


def test_a_spool_keeps_only_segments_with_unsettled_posts(tmp_path: Path) -> None:
    spool = Spool(tmp_path, TARGET)
    segments = [spool.append(POST) for _ in range(SEGMENT_POSTS + 1)]
    assert len(list(tmp_path.glob("*.posts"))) == 2
    spool.settle(segments[0], SEGMENT_POSTS)
    assert len(list(tmp_path.glob("*.posts"))) == 1
    spool.settle(segments[-1], 1)
    assert list(tmp_path.glob("*.posts")) == []
    spool.append(POST)
    spool.close()
    assert [len(spool.leftover) for spool in [Spool(tmp_path, TARGET)]] == [1]


def test_a_post_that_cannot_be_written_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("http://127.0.0.1:9") as client:
        buffer = client.buffer("game", spool=tmp_path, delay_s=LONG_S)
        buffer.submit("ada", {"xp": 1})
        with monkeypatch.context() as full:
            full.setattr("os.write", lambda _file, text: len(text) // 2)
            with pytest.raises(SpoolError, match="No space left"):
                buffer.submit("bob", {"xp": 1})
        with pytest.raises(UnsentPostsError) as unsent:
            buffer.close(timeout_s=0)
    assert [post["owner"] for post in unsent.value.posts] == ["ada"]
    [segment] = tmp_path.glob("*.posts")
    assert [json.loads(line).get("owner") for line in segment.read_text().splitlines()] == [None, "ada"]


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
