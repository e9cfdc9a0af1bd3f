"""Test several groups in flight, and which posts are refused if the store is too slow."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from config.settings import PostingSettings
from storage.errors import OverloadedError, StoreBusyError
from storage.posting import writer
from storage.posting.writer import Writer
from storage.records import Board, PartOutcome
from storage.store import Program, Rows, Store
from tests.meter import RecordingMeter
from tests.storage.deployment import LIMITS, Deployment, part, ranked
from tests.storage.passing import PassingStore

T = TypeVar("T")


class TurnstileStore(PassingStore):
    """A store that accepts several writes at once. Each waits until the test lets it continue or fail."""

    def __init__(self, store: Store, *, writes_at_once: int) -> None:
        super().__init__(store)
        self.writes_at_once = writes_at_once
        self.waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self.open = False

    async def read_query(self, query: object) -> Rows:
        raise AssertionError("a writer asks for nothing outside its programs")

    async def write(self, program: Callable[[], Program[T]]) -> T:
        if not self.open:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.put_nowait(turn)
            await turn
        return await self._store.write(program)


class Flow:
    """A writer on a turnstile store, with a clock that the test moves."""

    def __init__(self, deployment: Deployment, board: Board, limits: PostingSettings, writes_at_once: int) -> None:
        self.deployment, self.board, self.meter = deployment, board, RecordingMeter()
        self.store = TurnstileStore(deployment.store, writes_at_once=writes_at_once)
        self.now_s = 0.0
        self.writer: Writer = deployment.writer(
            self.meter, store=self.store, limits=limits, monotonic=lambda: self.now_s
        )

    def post(self, *owners: str) -> asyncio.Task[list[list[PartOutcome]]]:
        """Submit a request with one post for each owner, and return its task. Each post adds one point."""
        posts = [self.deployment.post(owner, part(self.board, {"xp": 1})) for owner in owners]
        return asyncio.create_task(self.writer.submit(posts))


@asynccontextmanager
async def open_flow(
    deployment: Deployment, *, limits: PostingSettings = LIMITS, writes_at_once: int = 1
) -> AsyncIterator[Flow]:
    flow = Flow(deployment, await deployment.create("b", ranked("xp")), limits, writes_at_once)
    flow.writer.start()
    yield flow
    flow.store.open = True
    while not flow.store.waiting.empty():
        flow.store.waiting.get_nowait().set_result(None)
    await flow.writer.close()
    assert flow.meter.gauges.get("rankcurve_write_queue_posts", 0) == 0
    assert flow.meter.gauges.get("rankcurve_writes_in_flight", 0) == 0


SINGLES = LIMITS.model_copy(update={"group_posts_max": 1, "writes_in_flight": 2})


async def test_groups_are_in_flight_together_unless_they_share_an_owner(deployment: Deployment) -> None:
    async with open_flow(deployment, limits=SINGLES, writes_at_once=2) as flow:
        first, again, other = flow.post("ada"), flow.post("ada"), flow.post("bob")
        turn_ada, turn_bob = await flow.store.waiting.get(), await flow.store.waiting.get()
        turn_bob.set_result(None)
        await other
        assert not again.done()
        assert flow.store.waiting.empty(), "the owner's second post stays behind the first"
        turn_ada.set_result(None)
        (await flow.store.waiting.get()).set_result(None)
        assert [(await request)[0][0].stats for request in (first, again)] == [[1], [2]]


async def test_the_store_has_the_next_batch_before_a_batch_is_answered(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_POSTS", 2)
    async with open_flow(deployment) as flow:
        first = flow.post("ada", "bob")
        turn = await flow.store.waiting.get()
        other = flow.post("eve", "kim")
        turn.set_result(None)
        turn = await flow.store.waiting.get()
        assert not first.done()
        assert [[outcome.stats for outcome in each] for each in await first] == [[[1]], [[1]]]
        assert not other.done()
        turn.set_result(None)
        await other


@pytest.mark.parametrize(("cores", "groups"), [(None, 1), (1, 1), (2, 1), (3, 2), (64, 2)])
async def test_by_default_a_machine_with_more_than_two_cores_has_two_groups_in_flight(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, cores: int | None, groups: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    default = SINGLES.model_copy(update={"writes_in_flight": 0})
    async with open_flow(deployment, limits=default, writes_at_once=8) as flow:
        requests = [flow.post(f"p{number}") for number in range(10)]
        for _ in requests:
            turn = await flow.store.waiting.get()
            turn.set_result(None)
        await asyncio.gather(*requests)
        assert max(flow.meter.values["rankcurve_writes_in_flight"]) == groups


async def test_a_store_for_one_write_gets_one_write_at_a_time(deployment: Deployment) -> None:
    async with open_flow(deployment, limits=SINGLES.model_copy(update={"writes_in_flight": 8})) as flow:
        requests = [flow.post(f"p{number}") for number in range(50)]
        for _ in requests:
            turn = await flow.store.waiting.get()
            flow.now_s += 0.1
            assert flow.store.waiting.empty()
            turn.set_result(None)
        await asyncio.gather(*requests)
        assert max(flow.meter.values["rankcurve_writes_in_flight"]) == 1


async def test_posts_that_would_wait_too_long_are_refused_at_once_with_their_wait(deployment: Deployment) -> None:
    async with open_flow(deployment, limits=SINGLES) as flow:
        waiting = [flow.post(f"p{number}") for number in range(9)]
        # The store writes one post per second. The six waiting posts wait a short enough time, but a seventh would not.
        for _ in range(3):
            turn = await flow.store.waiting.get()
            flow.now_s += 1.0
            turn.set_result(None)
        turn = await flow.store.waiting.get()
        with pytest.raises(OverloadedError) as caught:
            await flow.post("late")
        assert caught.value.retry_after_s == pytest.approx(6, rel=0.1)
        assert flow.meter.by_label("rankcurve_write_refused_posts") == {"overloaded": 1}
        flow.store.open = True
        turn.set_result(None)
        await asyncio.gather(*waiting)
        await flow.post("later")


async def test_a_post_is_taken_if_no_others_wait_whatever_the_store_did_before(deployment: Deployment) -> None:
    async with open_flow(deployment, limits=SINGLES) as flow:
        waiting = [flow.post("a"), flow.post("b")]
        turn = await flow.store.waiting.get()
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        flow.now_s += 1_000
        waiting.append(flow.post("c"))
        turn.set_result(None)
        (await flow.store.waiting.get()).set_result(None)
        await asyncio.gather(waiting[0], waiting[2])
        assert flow.meter.by_label("rankcurve_write_refused_posts") == {}


async def test_a_cancelled_request_of_a_failed_group_is_not_retried_alone(deployment: Deployment) -> None:
    async with open_flow(deployment) as flow:
        first = flow.post("first")
        turn = await flow.store.waiting.get()
        gone, stays = flow.post("gone"), flow.post("stays")
        await asyncio.sleep(0)
        turn.set_result(None)
        await first
        turn = await flow.store.waiting.get()
        gone.cancel()
        await asyncio.wait([gone])
        turn.set_exception(StoreBusyError("away"))
        (await flow.store.waiting.get()).set_result(None)
        assert (await stays)[0][0].stats == [1]
        assert await deployment.stats(flow.board, "gone") is None
