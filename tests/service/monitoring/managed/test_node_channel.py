"""Every process of a node runs an action, or is named if it fails. Rates come from snapshots of the metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from config.settings import ManagedSettings
from service.monitoring.managed.history import MetricHistory, quantile
from service.monitoring.managed.metric_mapping import MetricMapping
from service.monitoring.managed.node_channel import Action, NodeChannel, ProcessFailedError
from service.telemetry.metrics.node import NodeMember
from service.telemetry.metrics.process import Metrics

PATIENT, HASTY = (
    ManagedSettings().model_copy(update={"managed_wait_s_max": 60}),
    ManagedSettings().model_copy(update={"managed_wait_s_max": 0.1}),
)


def channel(folder: Path | None, name: str, *, limits: ManagedSettings = PATIENT, **actions: Action) -> NodeChannel:
    return NodeChannel(actions, limits, None if folder is None else NodeMember(folder, name))


def make_action(result: object) -> Callable[..., Awaitable[object]]:
    async def act(*arguments: str) -> object:
        return None if result is None else [result, *arguments]

    return act


async def test_every_process_that_has_the_action_answers_under_its_name(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    async with AsyncExitStack() as stack:
        for process in (
            one, channel(tmp_path, "worker2", run=make_action(2)), channel(tmp_path, "jobs1", run=make_action(None)),
            channel(tmp_path, "old"),
        ):  # fmt: skip
            await stack.enter_async_context(process.listen_for_actions())
        given = ["a\nb", "é"]
        assert await one.run_everywhere("run", *given) == {"worker1": [1, *given], "worker2": [2, *given]}
        assert await one.run_everywhere("nothing") == {}
    assert not list(one.list_sockets())


async def test_a_single_process_runs_an_action_itself() -> None:
    alone = channel(None, "", run=make_action(1))
    async with alone.listen_for_actions():
        assert await alone.run_everywhere("run") == {"process": [1]}


async def test_an_error_names_the_failed_process_and_the_others_run_the_action(tmp_path: Path) -> None:
    done: list[str] = []

    async def act() -> bool:
        done.append("worker1")
        return True

    async def fail() -> None:
        raise ValueError("broken")

    one = channel(tmp_path, "worker1", run=act)
    async with one.listen_for_actions(), channel(tmp_path, "worker2", run=fail).listen_for_actions():
        with pytest.raises(ProcessFailedError, match="worker2: broken"):
            await one.run_everywhere("run")
    assert done == ["worker1"]


async def test_an_error_names_the_process_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await asyncio.start_unix_server(silent, tmp_path / "worker2.sock")
    with pytest.raises(ProcessFailedError, match="worker2: TimeoutError"):
        await channel(tmp_path, "worker1", limits=HASTY, run=make_action(1)).run_everywhere("run")
    server.close()


async def test_a_socket_of_a_killed_process_is_ignored_and_its_successor_reuses_it(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    left_behind = await asyncio.start_unix_server(lambda *_: None, tmp_path / "worker2.sock")
    left_behind.close()
    await left_behind.wait_closed()
    (tmp_path / "worker2.sock").touch()
    assert await one.run_everywhere("run") == {"worker1": [1]}
    async with channel(tmp_path, "worker2", run=make_action(2)).listen_for_actions():
        assert await one.run_everywhere("run") == {"worker1": [1], "worker2": [2]}


async def test_a_malformed_request_is_refused_and_the_channel_keeps_working(tmp_path: Path) -> None:
    one = channel(tmp_path, "worker1", run=make_action(1))
    async with one.listen_for_actions():
        for line in (b"nonsense\n", b'{"action": 3}\n', b""):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "worker1.sock")
            writer.write(line)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert await channel(tmp_path, "other").run_everywhere("run") == {"worker1": [1]}


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
        objects = MetricMapping("sqlite", self.metrics.totals).map_metrics()
        [store] = [managed for name, managed in objects.items() if name.values["type"] == "Store"]
        found: dict[str, Any] = store.attributes[name].read(self.history.read_moment())
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
