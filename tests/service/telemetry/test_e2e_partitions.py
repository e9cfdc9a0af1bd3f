"""Test what operators see of the partitions of a store: readiness and metrics."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from config import Settings
from storage.engines.postgres import PostgresStore
from storage.leaves import hidden_owners
from tests.service.real_service import Service

XP = {"name": "xp", "merge": "sum"}


@pytest.fixture
async def service(tmp_path: Path, store_url: str) -> AsyncIterator[Service]:
    """Run a service on two partitions. The board `b0` is in partition 0 and `b1` is in partition 1."""
    async with Service(tmp_path, store=store_url).running() as made:
        assert isinstance(made.context.store, PostgresStore)
        await made.board("b0", XP)
        await made.context.store.add_partition(hidden_owners.copy_states)
        await made.board("b1", XP)
        yield made


async def measure(service: Service) -> None:
    """Measure the store, as the service does periodically."""
    figures = service.context.store_figures
    await figures.measure_size()
    await figures.check_partitions()


async def lose_partition(url: str, number: int, *, back: bool = False) -> None:
    [schema] = parse_qs(urlsplit(url).query)["search_path"]
    there, away = f"{schema}_p{number}", f"{schema}_p{number + 10}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"ALTER SCHEMA {away if back else there} RENAME TO {there if back else away}")
    await connection.close()


async def test_a_service_is_ready_while_one_of_its_partitions_is_away(service: Service, store_url: str) -> None:
    assert await service.get("/readyz") == {"status": "ok"}
    await lose_partition(store_url, 1)
    assert await service.get("/readyz") == {"status": "ok", "partitions_away": [1]}
    await service.post_xp("b0", ada=1)


async def test_a_process_starts_while_a_partition_is_away_and_loads_its_curves_later(
    tmp_path: Path, store_url: str
) -> None:
    store = await PostgresStore.open(store_url, Settings())
    await store.create_apart(2)
    await store.close()
    service = Service(tmp_path, store=store_url)
    async with service.running():
        for number in range(2):
            await service.board(f"b{number}", XP, partition=number)
            await service.post_xp(f"b{number}", ada=1, eve=2)
            await service.refresh(f"b{number}", "xp")
    await lose_partition(store_url, 0)
    await service.start()
    assert await service.get("/readyz") == {"status": "ok", "partitions_away": [0]}
    book = service.context.curves.book
    assert [each.partition for each in book.list_served()] == [1]
    await service.post_xp("b1", ada=3)
    await lose_partition(store_url, 0, back=True)
    await book.poll(0)
    assert sorted(each.partition for each in book.list_served()) == [0, 1]
    await service.stop()


async def test_the_metrics_show_each_partition_by_its_number(service: Service, store_url: str) -> None:
    await service.post_xp("b0", ada=1)
    await service.post_xp("b1", ada=1, eve=1)
    await service.post_xp("b1", ada=1)
    await measure(service)
    found = await service.figures()
    for name, shown in (("posts_applied_total", [1, 3]), ("reachable", [1, 1])):
        assert [found[f"rankcurve_partition_{name}", str(number)] for number in range(2)] == shown
    assert all(found["rankcurve_partition_bytes", str(number)] > 0 for number in range(2))
    await lose_partition(store_url, 1)
    await measure(service)
    found = await service.figures()
    assert [found["rankcurve_partition_reachable", str(number)] for number in range(2)] == [1, 0]


async def test_queued_posts_count_in_their_partition(service: Service) -> None:
    posts = {"posts": [{"owner": owner, "stats": {"xp": 1}} for owner in ("ada", "eve")]}
    await service.must("POST", "/v1/leaderboards/b0/posts?mode=queued", posts)
    await service.wait_applied()
    assert (await service.figures())["rankcurve_partition_posts_applied_total", "0"] == 2
