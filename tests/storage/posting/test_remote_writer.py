"""Posts of front processes: frames keep everything, and every request gets one outcome, even if the owner dies."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import PostingSettings
from storage import errors
from storage.errors import (
    LeaseTakenError,
    OutcomeUnknownError,
    OverloadedError,
    PostError,
    QueueFullError,
    StorageError,
    StoreAwayError,
    StoreDamagedError,
    ValueOutOfRangeError,
    WaitTooLongError,
)
from storage.meter import NO_METER
from storage.posting import post_server, remote_writer
from storage.posting.frames import (
    AnswerFrame,
    decode_answers,
    decode_posts,
    encode_answers,
    encode_posts,
    make_post_frame,
    unpack_requests,
)
from storage.posting.post_server import PostServer
from storage.posting.remote_writer import FRAME_REQUESTS_MAX, FRAME_REQUESTS_MIN, RemoteWriter
from storage.posting.waiting_posts import WaitingRequest
from storage.records import (
    BoardPost,
    ColumnChange,
    Gate,
    Leaf,
    PartOutcome,
    Place,
    Post,
    PostScope,
    PostStatus,
    PostTerms,
    TracedOutcome,
)
from tests.storage.deployment import LIMITS, counter, label, ranked, spec

MANY = 1_000
PATIENT = LIMITS.model_copy(update={"post_wait_s_max": 3_600.0})  # however slow the machine is, no request is given up
LEAVES = (
    Leaf(1, "season", spec(ranked("xp")), Place(0)),
    Leaf(2, "arena:2026-W48", spec(ranked("xp", scale=2), counter("games"), label("clan")), Place(0, 7, 2), Gate(3), 9),
)
SCOPE = PostScope(9, 0)
_values = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
_changes = st.lists(st.builds(ColumnChange, st.integers(0, 2), _values, st.booleans()), max_size=3)
_parts = st.lists(st.builds(BoardPost, st.sampled_from(LEAVES), _changes), max_size=4)
_texts = st.none() | st.text(max_size=4)
_terms = st.none() | st.builds(PostTerms, *[st.booleans()] * 5, st.none() | _values)
_posts = st.builds(
    Post, st.text(min_size=1, max_size=5), _parts, _texts, st.none() | st.integers(0, 2**60), st.text(max_size=4),
    st.none(), _texts, terms=_terms,
)  # fmt: skip


@given(requests=st.lists(st.tuples(st.lists(_posts, min_size=1, max_size=3), st.booleans()), max_size=4))
def test_a_frame_brings_every_request_to_the_owner_unchanged(requests: list[tuple[list[Post], bool]]) -> None:
    for posts, to_family in requests:
        for post in posts:
            post.scope = SCOPE if to_family else None
    numbered = [(number, posts) for number, (posts, _) in enumerate(requests)]
    assert unpack_requests(decode_posts(encode_posts(make_post_frame(numbered, 1.5)))) == numbered


def test_only_requests_that_ask_for_the_cells_before_their_posts_have_longer_frames() -> None:
    plain, asking = (Post("ada", [], None, None, "", tells_before=each) for each in (False, True))
    frame = encode_posts(make_post_frame([(1, [plain])], 1.5))
    assert len(msgspec.msgpack.decode(frame)) == 4
    numbered = [(1, [plain]), (2, [asking, asking])]
    assert unpack_requests(decode_posts(encode_posts(make_post_frame(numbered, 1.5)))) == numbered
    outcome = PartOutcome(PostStatus.APPLIED, 5, [1], leaf_key=4)
    traced = TracedOutcome(PostStatus.APPLIED, 5, [1], leaf_key=4, before=["0001", None, 7])
    sent = encode_answers(AnswerFrame([(7, [[outcome], [traced]], None)]))
    assert [len(part) for [part] in msgspec.msgpack.decode(sent)[0][0][1]] == [5, 6]
    [(_, found, _)] = decode_answers(sent).answers
    assert found is not None
    assert [part.before for [part] in found] == [None, traced.before]


@given(stats=st.none() | st.lists(st.none() | _values), at_us=st.none() | st.integers(0, 2**60))
def test_an_outcome_comes_back_unchanged(stats: list[int | str | None] | None, at_us: int | None) -> None:
    outcomes = [[PartOutcome(status, at_us, stats, leaf_key=4)] for status in PostStatus]
    [(number, found, error)] = decode_answers(encode_answers(AnswerFrame([(7, outcomes, None)]))).answers
    assert (number, error) == (7, None)
    assert found is not None
    arrived = [[PartOutcome(*msgspec.structs.astuple(part)[:5]) for part in parts] for parts in found]
    assert arrived == outcomes


def test_errors_come_back_with_their_kind_their_message_their_place_and_when_to_try_again() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StorageError)]
    for kind in kinds:
        if kind is LeaseTakenError:  # needs another argument, and no post raises it
            continue
        sent = kind("the reason", pointer="/stats/xp", retry_after_s=2.5)
        rejected = PartOutcome(PostStatus.REJECTED, error=sent if isinstance(sent, PostError) else None)
        [(_, outcomes, failed)] = decode_answers(encode_answers(AnswerFrame([(1, [[rejected]], sent)]))).answers
        assert outcomes is not None
        for error in (failed, outcomes[0][0].error or failed):
            assert error is not None
            found = type(error), error.detail, error.pointer, error.retry_after_s
            assert found == (kind, "the reason", "/stats/xp", 2.5)


class _OwnersWriter:
    """Stands for the owner's writer. A test answers the requests that arrive."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[WaitingRequest] = asyncio.Queue()
        self.refuses: StorageError | None = None

    def enqueue(self, posts: Sequence[Post]) -> WaitingRequest:
        if self.refuses is not None:
            raise self.refuses
        waiting = WaitingRequest(posts, len(posts), asyncio.get_running_loop().create_future())
        self.arrived.put_nowait(waiting)
        return waiting

    async def answer(self) -> list[str]:
        """Answer the next request. Return the owners of its posts."""
        waiting = await self.arrived.get()
        waiting.done.set_result([[PartOutcome(PostStatus.APPLIED, int(post.owner), [1])] for post in waiting.posts])
        return [post.owner for post in waiting.posts]


class _Node:
    """An owner and a front in this process. The owner can be replaced."""

    def __init__(self, folder: Path, limits: PostingSettings) -> None:
        self.path, self.limits = folder / "posts.owner", limits
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.path))
        self.listening.listen()
        self.writer, self.damaged = _OwnersWriter(), asyncio.Event()
        self.server: PostServer

    async def start_owner(self) -> None:
        self.writer = _OwnersWriter()
        self.server = PostServer(self.writer, self.damaged)  # type: ignore[arg-type]
        await self.server.listen(self.listening.dup())

    def kill_owner(self) -> None:
        assert self.server._server is not None
        self.server._server.close()
        for link in list(self.server._answers):
            link._transport.abort()

    async def start_front(self) -> RemoteWriter:
        self.front = RemoteWriter(self.path, self.limits, NO_METER)
        await self.front.wait_ready()
        return self.front


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[_Node]:
    made = _Node(tmp_path, PATIENT)
    await made.start_owner()
    await made.start_front()
    yield made
    for waiting in [*made.front._sent.values(), *made.front._unsent.values()]:
        waiting.done.cancel()
    await made.front.close()
    made.kill_owner()
    made.listening.close()


def post_of(number: int, *, post_id: str | None = None) -> Post:
    part = BoardPost(LEAVES[0], [ColumnChange(0, number, False)])
    return Post(str(number), [part], post_id, None, "", None, post_id)


def submit(front: RemoteWriter, *posts: Post) -> asyncio.Task[list[list[PartOutcome]]]:
    return asyncio.create_task(front.submit(posts))


async def test_every_request_gets_its_own_outcomes(node: _Node) -> None:
    requests = [
        submit(node.front, post_of(2 * number), post_of(2 * number + 1)) for number in range(3 * FRAME_REQUESTS_MAX)
    ]
    for number in range(len(requests)):
        assert await node.writer.answer() == [str(2 * number), str(2 * number + 1)]
    for number, request in enumerate(requests):
        assert [parts[0].updated_at_us for parts in await request] == [2 * number, 2 * number + 1]
    assert node.front._parts == 0


@pytest.mark.parametrize(
    ("callers", "frames"), [(1, 1), (FRAME_REQUESTS_MIN, 1), (16, 2), (2 * FRAME_REQUESTS_MAX, 2), (256, 8)]
)
async def test_half_of_the_callers_fill_a_frame_so_that_both_processes_work(
    node: _Node, monkeypatch: pytest.MonkeyPatch, callers: int, frames: int
) -> None:
    sizes: list[int] = []

    def note_size(requests: Sequence[Any], deadline_s: float) -> Any:
        sizes.append(len(requests))
        return make_post_frame(requests, deadline_s)

    monkeypatch.setattr(remote_writer, "make_post_frame", note_size)
    for _ in range(2):  # the front learns from the first round how many callers there are
        sizes.clear()
        requests = [submit(node.front, post_of(number)) for number in range(callers)]
        for _ in requests:
            await node.writer.answer()
        await asyncio.gather(*requests)
    assert len(sizes) == frames
    assert sum(sizes) == callers


async def test_a_refusal_by_the_owner_reaches_the_caller(node: _Node) -> None:
    node.writer.refuses = OverloadedError("too many", retry_after_s=3)
    with pytest.raises(OverloadedError) as refused:
        await node.front.submit([post_of(1)])
    assert refused.value.retry_after_s == 3
    node.writer.refuses = None
    request = submit(node.front, post_of(1))
    (await node.writer.arrived.get()).fail(ValueOutOfRangeError("too large"))
    with pytest.raises(ValueOutOfRangeError, match="too large"):
        await request


async def test_after_the_owners_death_only_requests_whose_posts_all_have_ids_are_sent_again(node: _Node) -> None:
    requests = [
        submit(node.front, post_of(1, post_id="a"), post_of(2, post_id="b")),
        submit(node.front, post_of(3)),
        submit(node.front, post_of(4, post_id="c"), post_of(5)),
    ]
    for _ in requests:
        await node.writer.arrived.get()
    node.kill_owner()
    for request in requests[1:]:
        with pytest.raises(OutcomeUnknownError):
            await request
    assert not node.front.alive
    late = submit(node.front, post_of(6))  # waits for the next owner
    await node.start_owner()
    assert await node.writer.answer() == ["1", "2"]
    assert await node.writer.answer() == ["6"]
    assert len(await requests[0]) == 2
    assert len(await late) == 1


async def test_without_an_owner_posts_are_refused_after_a_while(node: _Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_writer, "AWAY_S_MAX", 0.0)
    node.kill_owner()
    await node.front._lost.wait()
    with pytest.raises(StoreAwayError):
        await node.front.submit([post_of(1)])


async def test_posts_that_arrive_after_their_deadline_are_not_applied(node: _Node) -> None:
    node.front._limits = LIMITS.model_copy(update={"post_wait_s_max": -1.0})
    with pytest.raises(WaitTooLongError):
        await node.front.submit([post_of(1)])
    assert node.writer.arrived.empty()


async def test_a_front_takes_no_more_posts_than_its_queue_may_hold(node: _Node) -> None:
    node.front._limits = LIMITS.model_copy(update={"queue_posts_max": 2})
    kept = submit(node.front, post_of(1), post_of(2))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await node.front.submit([post_of(3)])
    await node.writer.answer()
    await kept
    later = submit(node.front, post_of(3))
    assert await node.writer.answer() == ["3"]
    await later


async def test_a_thousand_callers_that_left_leave_nothing_behind(node: _Node) -> None:
    for begin in range(0, MANY, 500):
        requests = [submit(node.front, post_of(number)) for number in range(begin, begin + 500)]
        for _ in requests:
            waiting = await node.writer.arrived.get()
            requests[int(waiting.posts[0].owner) - begin].cancel()
            waiting.done.set_result([[PartOutcome(PostStatus.APPLIED)]])
        await asyncio.gather(*requests, return_exceptions=True)
    last = submit(node.front, post_of(MANY))
    assert await node.writer.answer() == [str(MANY)]
    await last
    assert (node.front._sent, node.front._unsent, node.front._parts) == ({}, {}, 0)


async def test_a_request_with_an_id_survives_a_thousand_deaths_of_the_owner(node: _Node) -> None:
    request = submit(node.front, post_of(1, post_id="a"))
    for _ in range(MANY):
        await node.writer.arrived.get()
        node.kill_owner()
        await node.start_owner()
    assert await node.writer.answer() == ["1"]
    assert len(await request) == 1
    assert node.front._parts == 0


async def test_the_owner_serves_its_fronts_until_they_have_ended(node: _Node) -> None:
    request = submit(node.front, post_of(1))
    stopping = asyncio.create_task(node.server.close(60))
    await node.writer.answer()
    await request
    assert not stopping.done()
    await node.front.close()
    await stopping


async def test_the_owner_learns_that_a_front_has_found_damaged_data(node: _Node) -> None:
    node.front.report_damage()
    await asyncio.wait_for(node.damaged.wait(), 60)
    assert node.writer.arrived.empty()


async def test_a_front_learns_from_a_refused_post_that_the_owner_has_found_damaged_data(node: _Node) -> None:
    node.writer.refuses = StoreDamagedError()
    with pytest.raises(StoreDamagedError):
        await node.front.submit([post_of(1)])
    assert node.front.damaged.is_set()


async def wait_until_alive(front: RemoteWriter) -> None:
    async with asyncio.timeout(60):
        while not front.alive:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0)


async def test_a_front_is_not_ready_while_its_owner_hangs(node: _Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_writer, "HEARTBEAT_S", 0.001)
    given_up = asyncio.Event()
    assert node.server._beat is not None
    node.server._beat.cancel()
    for _ in range(int(remote_writer.SILENT_S_MAX)):
        assert node.front.alive
        node.front._beat.cancel()
        node.front._silent_s += 1
    assert not node.front.alive
    assert not node.front.hangs()
    node.front._silent_s, node.front.when_hung = remote_writer.HUNG_S, given_up.set
    node.front._miss_heartbeat()
    assert given_up.is_set()
    with pytest.raises(StoreAwayError):
        await node.front.submit([post_of(1)])
    node.server._send_heartbeats()
    await wait_until_alive(node.front)
    assert not node.front.hangs()


async def test_a_front_that_does_not_understand_the_owner_is_not_ready_and_connects_ever_less_often(
    node: _Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: asyncio.Queue[float] = asyncio.Queue()
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses_s.put_nowait(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for first in (encode_answers(AnswerFrame([], "another")), b"no frame"):
        monkeypatch.setattr(post_server, "encode_answers", lambda _, first=first: first)
        node.kill_owner()
        await node.start_owner()
        assert [await pauses_s.get() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]
        assert not node.front.alive
        monkeypatch.undo()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        node.kill_owner()
        await node.start_owner()
        await wait_until_alive(node.front)
        while not pauses_s.empty():
            pauses_s.get_nowait()
