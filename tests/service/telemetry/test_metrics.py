"""Test that the metrics that operators watch keep their names, and that no caller can add a label value."""

import ast
import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.metrics.metric_families import FAMILIES
from service.telemetry.metrics.process import Metrics
from service.telemetry.metrics.store_figures import StoreFigures
from storage.engines.sqlite import SqliteStore
from storage.store import StoreSize
from tests.service.real_service import WAIT_S
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked

ROOT = Path(__file__).parents[3]
KINDS = {
    "add": {"counter"}, "add_from_any_thread": {"counter"}, "set": {"gauge", "latest"}, "clear": {"latest"},
    "observe": {"histogram", "summary"},
}  # fmt: skip


def by_sample(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return by_sample(text_string_to_metric_families(metrics.text().decode()))


def test_no_count_is_lost_if_many_threads_add_to_a_counter() -> None:
    metrics = Metrics()

    def add_many(_: int) -> None:
        for _ in range(5_000):
            metrics.meter.add_from_any_thread("rankcurve_store_statements", 1, "select")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add_many, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert samples(metrics)["rankcurve_store_statements_total", (("kind", "select"),)] == 20_000


def find_reports() -> Iterator[tuple[str, str, int]]:
    """Yield each report to a meter: the method, the name of the family, and how many labels it gives."""
    for path in (path for package in ("storage", "jobs", "service") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            method = ast.unparse(node.func).rpartition(".")[2]
            name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            if method in KINDS and isinstance(name, str) and name.startswith("rankcurve_"):
                assert not [each for each in node.args if isinstance(each, ast.Starred)], ast.unparse(node)
                yield method, name, max(0, len(node.args) - (1 if method == "clear" else 2))
            else:
                assert not re.search(r"meter\.(add|add_from_any_thread|set|clear|observe)$", ast.unparse(node.func)), (
                    ast.unparse(node)
                )


def test_every_report_names_a_family_with_its_labels_and_every_family_is_reported() -> None:
    families = {family.name: family for family in FAMILIES}
    reports = set(find_reports())
    assert {name for _, name, _ in reports} == families.keys()
    for method, name, labels in reports:
        assert families[name].kind in KINDS[method], name
        assert method == "clear" or labels == len(families[name].labels), name
    shared = {name for method, name, _ in reports if method == "add_from_any_thread"}
    assert shared.isdisjoint(name for method, name, _ in reports if method == "add"), "an addition would be lost"
    assert all(all(families[name].labels.values()) for name in shared), "all samples exist before threads start"


async def test_a_local_store_is_measured_every_second_with_its_log(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS)
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    metrics, rests, ends = Metrics(), asyncio.Queue[float](), asyncio.Queue[None]()

    async def rest(seconds: float) -> None:
        rests.put_nowait(seconds)
        await ends.get()

    figures = StoreFigures(store, metrics.meter, version="1", wait_s_max=WAIT_S)
    metrics.watch(figures.collect)
    async with figures.measure_periodically(rest):
        assert await rests.get() == 1
        for count in (1, 500):
            before = samples(metrics)["rankcurve_store_bytes", ()]
            await deployment.apply(*(deployment.post(f"owner-{n}", part(board, {"xp": n})) for n in range(count)))
            ends.put_nowait(None)
            assert await rests.get() == 1
            files = sum((tmp_path / f"boards.db{end}").stat().st_size for end in ("", "-wal"))
            assert samples(metrics)["rankcurve_store_bytes", ()] == files > before
    await store.close()


class SlowStore(SqliteStore):
    """Tells when it is measured, and answers when the test lets it."""

    asked, answered = asyncio.Event(), asyncio.Event()

    async def size(self) -> StoreSize:
        self.asked.set()
        await self.answered.wait()
        return await super().size()


async def test_a_start_does_not_wait_for_a_store_that_is_slow_to_measure(tmp_path: Path) -> None:
    store, rested = await SlowStore.open(tmp_path / "boards.db", SQLITE_LIMITS), asyncio.Event()
    await Deployment.on(store)
    figures = StoreFigures(store, Metrics().meter, version="1", wait_s_max=WAIT_S)

    async def rest(_seconds: float) -> None:
        rested.set()
        await asyncio.Event().wait()

    async with figures.measure_periodically(rest):
        await SlowStore.asked.wait()
        before = figures.size
        SlowStore.answered.set()
        await rested.wait()
        assert (before is None, figures.size is None) == (True, False)
    await store.close()
