"""Test how questions share reads, and when many questions at the same time count as a crowd."""

import asyncio
from collections.abc import Sequence

import pytest

from storage.coalesce import CROWD_ENDS, CROWD_MEMORY_S, Coalescer, Crowd

CROWD_MIN = 16


class Answers:
    """Answers questions when the test says so, and keeps the groups in which they came."""

    def __init__(self, *, tasks_max: int, crowd: Crowd | None = None) -> None:
        self.groups: list[list[int]] = []
        self.began: asyncio.Queue[None] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.coalescer = Coalescer(self._answer, batch_max=100, waiting_max=100, tasks_max=tasks_max, crowd=crowd)

    async def _answer(self, questions: list[int]) -> Sequence[int]:
        self.groups.append(questions)
        self.began.put_nowait(None)
        await self.may_answer.wait()
        return [-question for question in questions]

    def ask(self, *questions: int) -> list[asyncio.Future[int]]:
        return [self.coalescer.ask("kind", question) for question in questions]

    async def wait_for_group(self) -> None:
        async with asyncio.timeout(30):
            await self.began.get()


def count_tasks() -> int:
    return sum(task.get_name() == "coalesced-reads" for task in asyncio.all_tasks())


async def test_questions_that_come_together_take_one_task_and_one_read() -> None:
    answers = Answers(tasks_max=2)
    asked = answers.ask(1, 2, 3)
    assert count_tasks() == 1
    answers.may_answer.set()
    assert await asyncio.gather(*asked) == [-1, -2, -3]
    assert answers.groups == [[1, 2, 3]]


async def test_finishing_the_questions_never_waits_for_a_task_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, waiting for ended tasks takes no turn of the event loop, so it must not be repeated."""
    waits: list[list[bool]] = []
    gather = asyncio.gather

    def note_wait(*tasks: asyncio.Task[None]) -> asyncio.Future[list[None]]:
        waits.append([task.done() for task in tasks])
        assert len(waits) < 10
        return gather(*tasks)

    answers = Answers(tasks_max=2)
    answers.may_answer.set()
    [asked] = answers.ask(1)
    assert await asked == -1
    monkeypatch.setattr(asyncio, "gather", note_wait)
    answers.ask(2)
    await answers.coalescer.finish_questions()
    await answers.coalescer.finish_questions()
    assert waits == [[False]]
    assert answers.groups == [[1], [2]]


async def test_a_second_read_begins_once_as_many_questions_wait_as_are_being_answered() -> None:
    answers = Answers(tasks_max=2)
    asked = answers.ask(1, 2)
    await answers.wait_for_group()
    asked += answers.ask(3)
    assert count_tasks() == 1
    asked += answers.ask(4, 5)
    assert count_tasks() == 2
    await answers.wait_for_group()
    asked += answers.ask(6, 7, 8, 9, 10, 11)
    assert count_tasks() == 2
    answers.may_answer.set()
    assert await asyncio.gather(*asked) == [-number for number in range(1, 12)]
    assert answers.groups == [[1, 2], [3, 4, 5], [6, 7, 8, 9, 10, 11]]


class Visits:
    """A crowd on a clock that only the test advances."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.crowd = Crowd(CROWD_MIN, clock=lambda: self.now_s)

    def come_and_go(self, questions: int, times: int = 100) -> None:
        for _ in range(times):
            self.crowd.enter(questions)
            self.crowd.leave(questions)


@pytest.fixture
def visits() -> Visits:
    return Visits()


def test_a_crowd_begins_when_many_questions_come_together_on_average(visits: Visits) -> None:
    visits.come_and_go(CROWD_MIN - 1)
    assert not visits.crowd.is_crowded()
    visits.come_and_go(2 * CROWD_MIN)
    assert visits.crowd.is_crowded()


def test_one_large_group_is_no_crowd(visits: Visits) -> None:
    visits.come_and_go(CROWD_MIN // 2)
    visits.come_and_go(2 * CROWD_MIN, times=1)
    assert not visits.crowd.is_crowded()


def test_a_burst_in_a_quiet_process_is_no_crowd(visits: Visits) -> None:
    visits.come_and_go(1)
    for _ in range(10):
        visits.now_s += 2 * CROWD_MEMORY_S
        visits.come_and_go(3 * CROWD_MIN, times=1)
        assert not visits.crowd.is_crowded()


def test_a_crowd_stays_between_its_two_bounds(visits: Visits) -> None:
    visits.come_and_go(2 * CROWD_MIN)
    visits.come_and_go(CROWD_MIN - 1)
    assert visits.crowd.is_crowded()
    visits.come_and_go(int(CROWD_MIN * (1 - CROWD_ENDS)))
    assert not visits.crowd.is_crowded()
    visits.come_and_go(CROWD_MIN - 1)
    assert not visits.crowd.is_crowded()


def test_questions_under_way_count_with_those_that_come(visits: Visits) -> None:
    visits.crowd.enter(CROWD_MIN)
    visits.come_and_go(1, times=1000)
    assert visits.crowd.is_crowded()


def test_a_crowd_is_forgotten_when_nobody_comes_any_more(visits: Visits) -> None:
    visits.come_and_go(2 * CROWD_MIN)
    visits.crowd.enter(CROWD_MIN)
    visits.now_s += 2 * CROWD_MEMORY_S
    visits.come_and_go(1, times=1)
    assert visits.crowd.is_crowded()
    visits.crowd.leave(CROWD_MIN)
    visits.now_s += 2 * CROWD_MEMORY_S
    assert not visits.crowd.is_crowded()
    visits.come_and_go(1, times=1)
    assert not visits.crowd.is_crowded()


def test_single_questions_between_large_groups_hardly_change_the_average(visits: Visits) -> None:
    for _ in range(100):
        visits.come_and_go(2 * CROWD_MIN, times=1)
        visits.come_and_go(1, times=2)
    assert visits.crowd.is_crowded()


async def test_a_coalescer_tells_the_crowd_how_many_questions_are_being_answered(visits: Visits) -> None:
    answers = Answers(tasks_max=1, crowd=visits.crowd)
    asked = answers.ask(*range(5 * CROWD_MIN))
    await answers.wait_for_group()
    visits.now_s += 2 * CROWD_MEMORY_S
    assert visits.crowd.is_crowded()
    answers.may_answer.set()
    await asyncio.gather(*asked)
    assert not visits.crowd.is_crowded()
