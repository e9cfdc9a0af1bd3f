"""Test that the metrics that operators watch keep their names, and that no caller can add a label value."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.metrics import process
from service.telemetry.metrics.families import FAMILIES
from service.telemetry.metrics.process import Metrics
from service.telemetry.metrics.views import ServingCurve
from storage.engines.sqlite import SqliteStore
from tests.service.real_service import WAIT_S
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked


def by_sample(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return by_sample(text_string_to_metric_families(metrics.text().decode()))


def test_the_metrics_show_the_figures_of_the_writer() -> None:
    metrics = Metrics()
    metrics.writes_in_flight(2, limit=3)
    metrics.posts_refused("overloaded", 40)
    found = samples(metrics)
    assert (found["rankcurve_writes_in_flight", ()], found["rankcurve_writes_in_flight_limit", ()]) == (2, 3)
    assert found["rankcurve_write_refused_posts_total", (("reason", "overloaded"),)] == 40
    assert found["rankcurve_write_refused_posts_total", (("reason", "expired"),)] == 0
    assert found["rankcurve_posts_total", (("outcome", "rejected"),)] == 0, "each outcome starts at zero"


def test_the_metrics_show_curves_of_all_boards_without_naming_a_board() -> None:
    metrics = Metrics()
    metrics.watch_curves(
        lambda: [ServingCurve(90_000_000, 1000, live=True), ServingCurve(40_000_000, 2)], now_s=lambda: 100.0
    )
    found = samples(metrics)
    assert found["rankcurve_curve_age_seconds_max", ()] == 60
    assert found["rankcurve_curve_age_seconds_bucket", (("le", "10.0"),)] == 1
    assert found["rankcurve_curve_knots_count", ()] == 2
    assert found["rankcurve_curve_knots_sum", ()] == 1002
    assert (found["rankcurve_curves_live", ()], found["rankcurve_live_lag_seconds_max", ()]) == (1, 10)


def test_refreshes_failures_and_lost_log_lines_are_counted() -> None:
    metrics = Metrics()
    metrics.refreshed(0.05)
    metrics.refresh_failed()
    metrics.curve_corrupt()
    metrics.folded(0, changes=7, void=2, seconds=0.1)
    metrics.log_age(0, 12)
    metrics.log_lines_dropped(1)
    found = samples(metrics)
    assert found["rankcurve_refresh_seconds_count", ()] == 1
    assert found["rankcurve_fold_seconds_count", ()] == 1
    assert found["rankcurve_change_log_age_seconds", ()] == 12
    assert (found["rankcurve_changes_folded_total", ()], found["rankcurve_live_counts_void_total", ()]) == (7, 2)
    assert found["rankcurve_refresh_failures_total", ()] == 1
    assert found["rankcurve_curves_corrupt_total", ()] == 1
    assert found["rankcurve_log_lines_dropped_total", ()] == 1


def test_the_code_counts_every_family_of_the_table_and_no_other() -> None:
    named = re.findall(r'"(rankcurve_\w+)"', Path(process.__file__).read_text(encoding="utf-8"))
    assert {*named} - {"rankcurve_memcached_servers_left_alone"} == {family.name for family in FAMILIES}


async def test_a_local_store_is_measured_every_second_with_its_log(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS)
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    metrics, rests, ends = Metrics(), asyncio.Queue[float](), asyncio.Queue[None]()

    async def rest(seconds: float) -> None:
        rests.put_nowait(seconds)
        await ends.get()

    sizes = metrics.watch_store(version="1", store="sqlite")
    async with sizes.measure_periodically(store, rest, wait_s_max=WAIT_S):
        assert await rests.get() == 1
        for count in (1, 500):
            before = metrics.read_view("rankcurve_store_bytes")
            await deployment.apply(*(deployment.post(f"owner-{n}", part(board, {"xp": n})) for n in range(count)))
            ends.put_nowait(None)
            assert await rests.get() == 1
            files = sum((tmp_path / f"boards.db{end}").stat().st_size for end in ("", "-wal"))
            assert metrics.read_view("rankcurve_store_bytes") == files > before
    await store.close()
