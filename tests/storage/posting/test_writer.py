"""Test what the writer answers to each request, and when. If a client gets 200, the posts must be stored."""

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from config.settings import PostingSettings
from querybuilder import Bound
from storage.errors import LostRaceError, QueueFullError, StoreBusyError, WaitTooLongError
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.posting.waiting_posts import WaitTimer
from storage.posting.writer import Writer
from storage.records import Board, PartOutcome, Post
from tests.meter import RecordingMeter
from tests.storage.deployment import LIMITS, Deployment, part, ranked
from tests.storage.meddling import MeddlingStore, version_moved

XP = ranked("xp")


class Bounds(random.Random):
    """A random generator that always returns the lower bound. It records the upper bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        self.longest_s.append(b)
        return a


class HeldWriter:
    """A writer and a board to post to. The test can block the writes of the writer's store."""

    def __init__(
        self, deployment: Deployment, board: Board, limits: PostingSettings, meddle: list[Bound | Exception]
    ) -> None:
        self.deployment, self.board = deployment, board
        self.meter, self.chance = RecordingMeter(), Bounds()
        self.store = MeddlingStore(deployment.store, meddle)
        self.writer: Writer = deployment.writer(self.meter, store=self.store, limits=limits, rng=self.chance)

    def posts(self, *owners: str) -> list[Post]:
        return [self.deployment.post(owner, part(self.board, {"xp": 1})) for owner in owners]

    async def submit(self, *owners: str) -> list[list[PartOutcome]]:
        return await self.writer.submit(self.posts(*owners))

    async def submit_behind_write(self, *requests: Sequence[str]) -> list[asyncio.Task[list[list[PartOutcome]]]]:
        """Block a transaction, submit requests that wait behind it, and return the tasks of both."""
        self.store.hold()
        first = asyncio.create_task(self.submit("first"))
        await self.store.wait_for_write()
        tasks = [asyncio.create_task(self.submit(*owners)) for owners in requests]
        await asyncio.sleep(0)
        return [first, *tasks]

    async def xp(self, *owners: str) -> list[object]:
        found = [await self.deployment.stats(self.board, owner) for owner in owners]
        return [stats["xp"] if stats is not None else None for stats in found]


@asynccontextmanager
async def open_held_writer(
    deployment: Deployment, *, limits: PostingSettings = LIMITS, meddle: Sequence[Bound | Exception] = ()
) -> AsyncIterator[HeldWriter]:
    held = HeldWriter(deployment, await deployment.create("b", XP), limits, list(meddle))
    held.writer.start()
    yield held
    held.store.release()
    await held.writer.close()
    assert held.meter.gauges.get("rankcurve_write_queue_posts", 0) == 0


async def test_posts_that_wait_during_a_commit_go_into_the_next_transaction(deployment: Deployment) -> None:
    async with open_held_writer(deployment) as held:
        tasks = await held.submit_behind_write(["ada"], ["bob", "ada"], ["cyd"])
        await asyncio.sleep(0)  # the writer reports the posts when it finds them
        assert held.meter.gauges.get("rankcurve_write_queue_posts", 0) == 4
        held.store.release()
        outcomes = await asyncio.gather(*tasks)
        assert held.meter.values["rankcurve_write_batch_posts"] == [1, 4]
        assert [[part.stats for [part] in each] for each in outcomes] == [[[1]], [[1]], [[1], [2]], [[1]]]
        assert await held.xp("first", "ada", "bob", "cyd") == [1, 2, 1, 1]


async def test_a_transaction_takes_whole_requests_up_to_a_bound_and_a_larger_one_alone(deployment: Deployment) -> None:
    async with open_held_writer(deployment, limits=LIMITS.model_copy(update={"group_posts_max": 3})) as held:
        tasks = await held.submit_behind_write(["a", "b"], ["c", "d"], ["e"], ["f"] * 5, ["g"])
        held.store.release()
        await asyncio.gather(*tasks)
        assert held.meter.values["rankcurve_write_batch_posts"] == [1, 2, 3, 5, 1]
        assert await held.xp("a", "e", "f", "g") == [1, 1, 5, 1]


async def test_the_bounds_count_a_post_once_for_each_of_its_boards(deployment: Deployment) -> None:
    other = await deployment.create("other", XP)
    limits = LIMITS.model_copy(update={"group_posts_max": 3, "queue_posts_max": 5})
    async with open_held_writer(deployment, limits=limits) as held:
        tasks = await held.submit_behind_write()
        wide = [deployment.post(owner, part(held.board, {"xp": 1}), part(other, {"xp": 1})) for owner in ("a", "b")]
        tasks += [asyncio.create_task(held.writer.submit([post])) for post in wide]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="4 posts are waiting"):
            await held.writer.submit(wide[:1])
        held.store.release()
        await asyncio.gather(*tasks)
        assert held.meter.values["rankcurve_write_batch_posts"] == [1, 1, 1]


async def test_a_full_queue_refuses_a_whole_request(deployment: Deployment) -> None:
    async with open_held_writer(deployment, limits=LIMITS.model_copy(update={"queue_posts_max": 3})) as held:
        tasks = await held.submit_behind_write(["a", "b"])
        with pytest.raises(QueueFullError, match="2 posts are waiting"):
            await held.submit("c", "d")
        tasks += [asyncio.create_task(held.submit("e"))]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await held.submit("f")
        held.store.release()
        await asyncio.gather(*tasks)
        assert await held.xp("a", "b", "c", "d", "e", "f") == [1, 1, None, None, 1, None]
        # If no other request waits, a request may have more posts than the queue allows.
        await held.submit("c", "d", "e", "f", "g")
        assert await held.xp("g") == [1]


async def test_a_request_that_waited_too_long_is_withdrawn_unless_it_was_taken(deployment: Deployment) -> None:
    async with open_held_writer(deployment, limits=LIMITS.model_copy(update={"post_wait_s_max": 0.01})) as held:
        tasks = await held.submit_behind_write(["ada"])
        for task in tasks:
            with pytest.raises(WaitTooLongError):
                await task
        assert held.meter.gauges.get("rankcurve_write_queue_posts", 0) == 0
        held.store.release()
        await held.writer.close()
        assert await held.xp("first", "ada") == [1, None]


async def test_a_cancelled_request_is_withdrawn_unless_it_was_taken(deployment: Deployment) -> None:
    async with open_held_writer(deployment) as held:
        first, second, third = await held.submit_behind_write(["ada"], ["bob"])
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])
        held.store.release()
        await third
        assert held.meter.values["rankcurve_write_batch_posts"] == [1, 1]
        assert await held.xp("first", "ada", "bob") == [1, None, 1]


@pytest.mark.parametrize("races", [1, 3])
async def test_a_lost_race_is_read_again_after_a_bounded_jittered_pause(deployment: Deployment, races: int) -> None:
    limits = LIMITS.model_copy(update={"write_backoff_base_s": 0.001, "write_backoff_s_max": 0.003})
    async with open_held_writer(deployment, limits=limits) as held:
        await held.submit("ada")
        held.store.meddle += [version_moved(deployment.store, held.board, "ada") for _ in range(races)]
        [[outcome]] = await held.submit("ada")
        assert outcome.stats == [2]
        assert held.meter.counts["rankcurve_write_conflicts"] == races
        assert held.chance.longest_s == [0.001, 0.002, 0.003][:races]
        assert await held.xp("ada") == [2]
        assert await deployment.totals(held.board) == {ALL_ENTRIES: 1, CHANGES: 2, 0: 1}


async def test_a_race_lost_by_one_request_makes_its_whole_group_run_again(deployment: Deployment) -> None:
    async with open_held_writer(deployment) as held:
        await held.submit("ada")
        tasks = await held.submit_behind_write(["ada", "bob"], ["cyd"])
        held.store.meddle += [version_moved(deployment.store, held.board, "ada"), LostRaceError()]
        held.store.release()
        await asyncio.gather(*tasks)
        assert await held.xp("first", "ada", "bob", "cyd") == [1, 2, 1, 1]
        assert held.meter.counts["rankcurve_write_conflicts"] == 2
        assert held.meter.values["rankcurve_write_batch_posts"] == [1, 1, 3]


async def test_a_group_fails_after_its_last_attempt_to_win_a_race(deployment: Deployment) -> None:
    async with open_held_writer(deployment, meddle=[LostRaceError() for _ in range(LIMITS.write_attempts_max)]) as held:
        with pytest.raises(StoreBusyError, match="4 attempts"):
            await held.submit("ada")
        assert held.store.writes == held.meter.counts["rankcurve_write_conflicts"] == LIMITS.write_attempts_max
        assert len(held.chance.longest_s) == LIMITS.write_attempts_max - 1, "nobody waits after the last attempt"
        assert await held.xp("ada") == [None]
        await held.submit("ada")
        assert await held.xp("ada") == [1]


async def test_a_poisonous_request_fails_alone(deployment: Deployment) -> None:
    async with open_held_writer(deployment) as held:
        tasks = await held.submit_behind_write(["ada"], ["bob", "lone surrogate \ud800"], ["cyd"])
        held.store.release()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[2], StoreBusyError)
        assert results[2].__cause__ is not None
        assert await held.xp("first", "ada", "bob", "cyd") == [1, 1, None, 1]
        assert await deployment.totals(held.board) == {ALL_ENTRIES: 3, CHANGES: 3, 0: 3}


class Posts(list[Post]):
    """A list that can have a weak reference."""


async def test_an_idle_writer_keeps_no_posts_in_memory(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitTimer, "add_waiting", lambda *_: None)  # the timer lets go of them after the longest wait
    async with open_held_writer(deployment) as held:
        posts = Posts(held.posts("ada"))
        kept = weakref.ref(posts)
        await held.writer.submit(posts)
        del posts
        await asyncio.sleep(0)  # the task of the group ends
        gc.collect()
        assert kept() is None


async def test_closing_applies_accepted_posts_and_takes_no_more(deployment: Deployment) -> None:
    async with open_held_writer(deployment, limits=LIMITS.model_copy(update={"group_posts_max": 1})) as held:
        tasks = await held.submit_behind_write(["ada"], ["bob"])
        closing = asyncio.create_task(held.writer.close())
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="shutting down"):
            await held.submit("cyd")
        held.store.release()
        await closing
        assert all(task.done() for task in tasks[:2])
        await asyncio.gather(*tasks)
        assert await held.xp("first", "ada", "bob", "cyd") == [1, 1, 1, None]
