"""Every process of a node does what an operator asks, or is named if it fails. Growth comes from snapshots."""

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from config.settings import ManagedSettings
from service.monitoring.managed.history import MetricHistory, quantile
from service.monitoring.managed.metric_mapping import map_metrics
from service.monitoring.managed.node_objects import Act, NodeChannel
from service.monitoring.managed.objects import RefusedError
from service.telemetry.metrics.node_metrics import NodeMember
from service.telemetry.metrics.process import Metrics

PATIENT, HASTY = (
    ManagedSettings().model_copy(update={"managed_wait_s_max": 60}),
    ManagedSettings().model_copy(update={"managed_wait_s_max": 0.1}),
)


def channel(folder: Path | None, name: str, act: Act, *, limits: ManagedSettings = PATIENT) -> NodeChannel:
    return NodeChannel(act, limits, None if folder is None else NodeMember(folder, name))


def make_act(jobs: Collection[str], done: list[tuple[str, str]]) -> Act:
    """Return what a process with these jobs does. It notes each action in `done`."""

    def act(action: str, job: str) -> bool:
        done.append((action, job))
        return job in jobs

    return act


def break_down(action: str, job: str) -> bool:
    raise ValueError("broken")


async def test_every_process_acts_and_those_with_the_job_count(tmp_path: Path) -> None:
    done: list[tuple[str, str]] = []
    one = channel(tmp_path, "worker1", make_act(["watch"], done))
    async with AsyncExitStack() as stack:
        for process in (one, channel(tmp_path, "worker2", make_act(["watch"], done)),
                        channel(tmp_path, "jobs1", make_act(["fold"], done))):  # fmt: skip
            await stack.enter_async_context(process.listen_for_actions())
        assert await one.run_everywhere("pause", "watch") == 2
        assert await one.run_everywhere("run", "fold") == 1
        assert done == [("pause", "watch")] * 3 + [("run", "fold")] * 3
        with pytest.raises(RefusedError, match="no process of this node currently has the job nothing"):
            await one.run_everywhere("run", "nothing")
    assert await one.run_everywhere("pause", "watch") == 1, "the others have removed their sockets"


async def test_a_single_process_acts_itself() -> None:
    alone = channel(None, "", make_act(["fold"], []))
    async with alone.listen_for_actions():
        assert await alone.run_everywhere("run", "fold") == 1


async def test_an_error_names_the_failed_process_and_the_others_act(tmp_path: Path) -> None:
    done: list[tuple[str, str]] = []
    one = channel(tmp_path, "worker1", make_act(["fold"], done))
    async with one.listen_for_actions(), channel(tmp_path, "worker2", break_down).listen_for_actions():
        with pytest.raises(RefusedError, match="worker2: "):
            await one.run_everywhere("run", "fold")
    assert done == [("run", "fold")]


async def test_an_error_names_the_process_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await asyncio.start_unix_server(silent, tmp_path / "worker2.sock")
    with pytest.raises(RefusedError, match="worker2: TimeoutError"):
        await channel(tmp_path, "worker1", make_act(["fold"], []), limits=HASTY).run_everywhere("run", "fold")
    server.close()


async def test_a_socket_of_a_killed_process_is_ignored_and_its_successor_reuses_it(tmp_path: Path) -> None:
    act = make_act(["fold"], [])
    one = channel(tmp_path, "worker1", act)
    left_behind = await asyncio.start_unix_server(lambda *_: None, tmp_path / "worker2.sock")
    left_behind.close()
    await left_behind.wait_closed()
    (tmp_path / "worker2.sock").touch()
    assert await one.run_everywhere("run", "fold") == 1
    async with channel(tmp_path, "worker2", act).listen_for_actions():
        assert await one.run_everywhere("run", "fold") == 2


async def test_a_malformed_request_is_refused_and_the_channel_keeps_working(tmp_path: Path) -> None:
    act = make_act(["fold"], [])
    async with channel(tmp_path, "worker1", act).listen_for_actions():
        for line in (b"nonsense\n", b'{"action": 3}\n', b""):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "worker1.sock")
            writer.write(line)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert await channel(tmp_path, "other", act).run_everywhere("run", "fold") == 2


class World:
    """Metrics, their history, and the clock of that history."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.now_s = 0.0
        self.history = MetricHistory(self.metrics, ManagedSettings(rates_tick_s=5), monotonic=lambda: self.now_s)
        self.history.note_snapshot()

    def pass_time(self, seconds: float, posts_per_s: float = 0) -> None:
        """Advance the clock by `seconds`. At each tick, count the posts since the last tick and take a snapshot."""
        for _ in range(round(seconds / 5)):
            self.metrics.meter.add("rankcurve_posts", 5 * posts_per_s, "applied")
            self.now_s += 5
            self.history.note_snapshot()

    def growth(self, window_s: float) -> float:
        """Return how much the posts grew over the window."""
        return self.history.read_moment().growth("rankcurve_posts", ("applied",), window_s)[0]

    def attribute(self, name: str) -> dict[str, Any]:
        objects = map_metrics(self.history.read_moment(), store="sqlite")
        found: dict[str, Any] = objects["rankcurve:name=sqlite,type=Store"].read(name)
        return found


def test_growth_covers_its_window_or_the_lifetime_if_that_is_shorter() -> None:
    world = World()
    world.pass_time(600, posts_per_s=2)
    world.pass_time(60, posts_per_s=8)
    assert [world.growth(window_s) for window_s in (60, 300, 900)] == [480, 240 * 2 + 60 * 8, 1680]
    posts = world.attribute("Posts")
    assert (posts["Count"], posts["outcome"]["applied"], posts["outcome"]["rejected"]) == (
        1680, {"Count": 1680}, {"Count": 0},
    )  # fmt: skip


def test_growth_falls_to_zero_after_the_last_event_and_old_snapshots_are_dropped() -> None:
    world = World()
    world.pass_time(300, posts_per_s=5)
    world.pass_time(2000)
    assert (world.attribute("Posts")["Count"], world.growth(60), world.growth(900)) == (1500, 0, 0)
    assert len(world.history._past) <= 900 / 5 + 2


def test_percentiles_cover_the_last_five_minutes_and_are_null_without_events() -> None:
    world = World()
    for _ in range(100):
        world.metrics.meter.observe("rankcurve_write_seconds", 3.9)
    world.pass_time(305)
    assert world.attribute("WriteSeconds")["P50"] is None
    for value in (0.5, 0.5, 1.5, 1.5):
        world.metrics.meter.observe("rankcurve_write_seconds", value)
    found = world.attribute("WriteSeconds")
    assert found["P50"] == pytest.approx(1.0)
    assert found["P75"] == pytest.approx(3.0)
    assert found["Count"] == 104
    assert found["Mean"] == pytest.approx((390 + 4) / 104)


def test_a_quantile_past_the_last_bound_is_that_bound() -> None:
    assert quantile((1, 2), (0, 0, 10), 0.5) == 2
    assert quantile((1, 2), (10, 0, 0), 0.5) == pytest.approx(0.5)
    assert quantile((1, 2), (0, 0, 0), 0.5) is None
    assert quantile((), (), 0.5) is None


async def test_a_metric_that_raises_does_not_stop_the_snapshots() -> None:
    ticks: list[int] = []

    class Broken(Metrics):
        def read_processes(self) -> dict[str, float]:
            ticks.append(1)
            raise ValueError("broken")

    rested = asyncio.Event()

    async def rest(_seconds: float) -> None:
        if len(ticks) >= 3:
            rested.set()
            await asyncio.Event().wait()

    history = MetricHistory(Broken(), ManagedSettings(rates_tick_s=5), monotonic=lambda: 0.0, sleep=rest)
    running = asyncio.create_task(history.run())
    async with asyncio.timeout(60):
        await rested.wait()
    running.cancel()
