"""Rates and percentiles are computed from snapshots of the exposed metrics. The tests move the clock."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from config.settings import ManagedSettings
from service.monitoring.managed.history import MetricHistory, quantile
from service.monitoring.managed.metric_mapping import MetricMapping


class World:
    """A few metrics, their history, and the clock of that history."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.now_s = 0.0
        self.posts = Counter("rankcurve_posts", "Posts", ["outcome"], registry=self.registry)
        self.seconds = Histogram("rankcurve_write_seconds", "Time", buckets=(1, 2, 4), registry=self.registry)
        limits = ManagedSettings(rates_tick_s=5)
        self.history = MetricHistory(self.registry.collect, limits, monotonic=lambda: self.now_s)
        self.history.note_snapshot()

    def pass_time(self, seconds: float, posts_per_s: float = 0) -> None:
        """Advance the clock by `seconds`. At each tick, count the posts since the last tick and take a snapshot."""
        for _ in range(round(seconds / 5)):
            self.posts.labels("applied").inc(5 * posts_per_s)
            self.now_s += 5
            self.history.note_snapshot()

    def attribute(self, name: str) -> dict[str, float]:
        moment = self.history.read_moment()
        objects = MetricMapping("sqlite").map_metrics(self.history.families)
        [store] = [managed for name, managed in objects.items() if name.values["type"] == "Store"]
        found: dict[str, float] = store.attributes[name].read(moment)
        return found


def test_a_rate_covers_its_window_or_the_lifetime_if_that_is_shorter() -> None:
    world = World()
    world.pass_time(600, posts_per_s=2)
    world.pass_time(60, posts_per_s=8)
    posts = world.attribute("Posts")
    assert posts["Count"] == 1680
    assert posts["OneMinuteRate"] == pytest.approx(8)
    assert posts["FiveMinuteRate"] == pytest.approx((240 * 2 + 60 * 8) / 300)
    assert posts["FifteenMinuteRate"] == pytest.approx(1680 / 660)
    assert posts["outcome"] == {"applied": {name: posts[name] for name in posts if name != "outcome"}}  # type: ignore[comparison-overlap]


def test_rates_fall_to_zero_after_the_last_event_and_old_snapshots_are_dropped() -> None:
    world = World()
    world.pass_time(300, posts_per_s=5)
    world.pass_time(2000)
    posts = world.attribute("Posts")
    assert (posts["Count"], posts["OneMinuteRate"], posts["FifteenMinuteRate"]) == (1500, 0, 0)
    assert len(world.history._past) <= 900 / 5 + 2


def test_percentiles_cover_the_last_five_minutes_and_are_null_without_events() -> None:
    world = World()
    for _ in range(100):
        world.seconds.observe(3.9)
    world.pass_time(305)
    assert world.attribute("WriteSeconds")["P50"] is None
    for value in (0.5, 0.5, 1.5, 1.5):
        world.seconds.observe(value)
    found = world.attribute("WriteSeconds")
    assert found["P50"] == pytest.approx(1.0)
    assert found["P75"] == pytest.approx(1.5)
    assert found["Count"] == 104
    assert found["Mean"] == pytest.approx((390 + 4) / 104)


def test_a_quantile_past_the_last_bound_is_that_bound() -> None:
    infinite = float("inf")
    assert quantile((1, 2, infinite), (0, 0, 10), 0.5) == 2
    assert quantile((1, 2, infinite), (10, 10, 10), 0.5) == pytest.approx(0.5)
    assert quantile((1, 2, infinite), (0, 0, 0), 0.5) is None
    assert quantile((), (), 0.5) is None


async def test_a_metric_that_raises_does_not_stop_the_snapshots() -> None:
    ticks: list[int] = []

    def collect() -> list[Metric]:
        ticks.append(1)
        raise ValueError("broken")

    rested = asyncio.Event()

    async def rest(_seconds: float) -> None:
        if len(ticks) >= 3:
            rested.set()
            await asyncio.Event().wait()

    history = MetricHistory(collect, ManagedSettings(rates_tick_s=5), monotonic=lambda: 0.0, sleep=rest)
    running = asyncio.create_task(history.run())
    async with asyncio.timeout(60):
        await rested.wait()
    running.cancel()
