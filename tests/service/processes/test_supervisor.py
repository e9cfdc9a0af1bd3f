"""Test how a supervisor treats processes that become ready, crash, refuse to start, or do not stop."""

import asyncio
import signal
from asyncio.subprocess import Process
from typing import cast

import pytest

from service.processes import supervisor
from service.processes.supervisor import (
    PAUSE_S,
    PAUSE_S_MAX,
    STEADY_S,
    NodeFailedError,
    ProcessSlot,
    Report,
    Supervisor,
    encode_line,
)

WAIT_S = 60
ONE = (ProcessSlot("worker1", "serve"),)
READY = Report("ready")
TURNS = 5  # turns of the event loop in which the supervisor reads a report


class FakeChild:
    """A fake process. The test decides when it reports and when it ends."""

    pid = 4711

    def __init__(self, place: ProcessSlot, *, obeys: bool) -> None:
        self.place = place
        self._obeys = obeys
        self.stdout = asyncio.StreamReader()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def tell(self, report: Report) -> None:
        self.stdout.feed_data(encode_line(report) + b"\n")

    def end(self, code: int) -> None:
        self.stdout.feed_eof()
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await self._code

    def send_signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.end(-9)
        elif self._obeys:
            self.end(0)


class Stage:
    """A supervisor whose processes, clock and pauses the test controls."""

    def __init__(
        self, *places: ProcessSlot, obeys: bool = True, stop_s_max: float = WAIT_S, hang_s_max: float = 0
    ) -> None:
        self.obeys = obeys
        self.started: asyncio.Queue[FakeChild] = asyncio.Queue()
        self.pauses: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()
        self.ready = asyncio.Event()
        self.ended: list[str] = []
        self.supervisor = Supervisor(
            places or ONE,
            self._spawn,
            stop_s_max=stop_s_max,
            hang_s_max=hang_s_max,
            ready=self.ready.set,
            ended=lambda place: self.ended.append(place.name),
            sleep=self._sleep,
            monotonic=lambda: self.now_s,
        )
        self.now_s = 0.0
        self.running = asyncio.create_task(self.supervisor.run())

    async def _spawn(self, place: ProcessSlot) -> Process:
        child = FakeChild(place, obeys=self.obeys)
        self.started.put_nowait(child)
        return cast(Process, child)

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self.pauses.put_nowait((seconds, over))
        await over.wait()

    async def child(self) -> FakeChild:
        return await asyncio.wait_for(self.started.get(), WAIT_S)

    async def pause(self) -> float:
        """Wait until the supervisor pauses, and end the pause immediately. Return the intended length in seconds."""
        seconds, over = await asyncio.wait_for(self.pauses.get(), WAIT_S)
        over.set()
        return seconds

    async def crash(self, report: Report | None = READY, *, after_s: float = 0) -> float:
        """Let the next process report, and crash `after_s` later. Return the length of the supervisor's next pause."""
        child = await self.child()
        self.now_s += after_s
        if report is not None:
            child.tell(report)
            for _ in range(TURNS):  # until the supervisor has read the report
                await asyncio.sleep(0)
        child.end(1)
        return await self.pause()

    async def stop(self) -> None:
        self.supervisor.stop()
        await asyncio.wait_for(self.running, WAIT_S)

    async def failed(self) -> str:
        with pytest.raises(NodeFailedError) as failure:
            await asyncio.wait_for(self.running, WAIT_S)
        return str(failure.value)


async def test_a_node_is_ready_once_every_process_is_and_stops_all_of_them() -> None:
    stage = Stage(ProcessSlot("a", "serve"), ProcessSlot("b", "jobs"))
    ready = asyncio.create_task(stage.ready.wait())
    first, second = await stage.child(), await stage.child()
    first.tell(READY)
    await asyncio.sleep(0)
    assert not ready.done()
    second.tell(READY)
    await asyncio.wait_for(ready, WAIT_S)
    await stage.stop()
    assert sorted(stage.ended) == ["a", "b"]


@pytest.mark.parametrize("report", [READY, Report("refused", "no server"), None])
async def test_a_process_that_was_ready_once_is_replaced_after_ever_longer_pauses(report: Report | None) -> None:
    stage = Stage()
    assert await stage.crash() == PAUSE_S
    pauses_s = [await stage.crash(report=report) for _ in range(20)]
    assert pauses_s == [min(PAUSE_S * 2**crashes, PAUSE_S_MAX) for crashes in range(1, 21)]
    assert await stage.crash(after_s=STEADY_S) == PAUSE_S, "it had run for long enough"
    await stage.stop()


async def test_a_process_that_gives_no_sign_of_life_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BEAT_S", 0.001)
    stage = Stage(hang_s_max=0.01)
    child = await stage.child()
    assert stage.ended == [], "a process that starts may take its time"
    child.tell(READY)
    child.stdout.feed_data(b"\n\n\n")
    assert await stage.pause() == PAUSE_S
    assert (await child.wait(), stage.ended) == (-9, ["worker1"])
    await stage.child()
    await stage.stop()


async def test_a_crash_at_the_first_start_ends_the_node() -> None:
    stage = Stage(ProcessSlot("a", "serve"), ProcessSlot("b", "serve"))
    first, steady = await stage.child(), await stage.child()
    steady.tell(READY)
    first.end(3)
    assert await stage.failed() == "a crashed (exit code 3)"
    assert stage.ended == ["a", "b"]


async def test_a_refusal_by_the_first_process_ends_the_node_with_its_message() -> None:
    stage = Stage()
    child = await stage.child()
    child.tell(Report("refused", "the store is not what it should be"))
    child.end(1)
    assert await stage.failed() == "the store is not what it should be"


@pytest.mark.parametrize("moment", ["starting", "pausing"])
async def test_a_stop_interrupts_a_start_or_a_pause_at_once(moment: str) -> None:
    stage = Stage()
    child = await stage.child()
    if moment == "pausing":
        child.tell(READY)
        await asyncio.wait_for(stage.ready.wait(), WAIT_S)
        child.end(1)
        await stage.pauses.get()
    await stage.stop()
    assert stage.started.empty()


async def test_a_process_that_is_killed_or_fails_while_it_stops_is_named() -> None:
    # In the second round, the process ends with an error while it stops.
    for stop_s_max, code in ((0, -9), (WAIT_S, 3)):
        stage = Stage(obeys=False, stop_s_max=stop_s_max)
        child = await stage.child()
        child.tell(READY)
        await asyncio.wait_for(stage.ready.wait(), WAIT_S)
        stage.supervisor.stop()
        if code > 0:
            await asyncio.sleep(0)
            child.end(code)
        assert await stage.failed() == f"not stopped cleanly: worker1 (exit code {code})"
