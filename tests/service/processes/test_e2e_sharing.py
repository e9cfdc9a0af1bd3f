"""A process serves the curves that others stored, with or without memcached, and readers notice no difference.

Only one process can use a SQLite file, so a test writes the curves of "another process" directly into the store.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from predictor import Curve, Knot
from storage.curves.stored_curves import store_curve
from tests.memcached import OpenMemcached
from tests.schemas import fresh_schema
from tests.service.real_service import Figures, Service

B = "/v1/leaderboards/b"
WAIT_S = 60


@pytest.fixture
def server() -> Iterator[OpenMemcached]:
    with OpenMemcached() as started:
        yield started


@pytest.fixture
async def sharing(tmp_path: Path, server: OpenMemcached) -> AsyncIterator[Service]:
    async with Service(
        tmp_path, memcached_servers=[server.address], curve_poll_s=0.05, memcached_failures_max=1
    ).running() as service:
        yield service


async def store_elsewhere(service: Service, total: int) -> None:
    store = service.context.store
    board = await service.context.catalog.find_board("b")
    curve = Curve((Knot(-5, 0, total),), total=total, as_of_us=1_000 + total)
    await store.write(lambda: store_curve(board, 0, curve))


async def wait_for_curve(service: Service, total: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await service.call("GET", f"{B}/rankings/xp/curve")
            if answer.status == 200 and answer.body["total"] == total:
                return


async def test_a_process_without_jobs_notices_the_curves_of_others(tmp_path: Path) -> None:
    service = Service(tmp_path, jobs="none", curve_poll_s=0.05)
    await service.start()
    try:
        await service.board("b", {"name": "xp"})
        for total in (3, 4):
            await store_elsewhere(service, total)
            await wait_for_curve(service, total)
    finally:
        await service.stop()


async def test_the_next_start_reads_a_refreshed_curve_from_memcached(sharing: Service, server: OpenMemcached) -> None:
    await sharing.board("b", {"name": "xp"})
    await sharing.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(30)))
    await sharing.refresh("b", "xp")
    assert len(server.held()) == 1
    assert (await sharing.figures())["rankcurve_shared_curve_writes_total", "stored"] == 1
    await sharing.restart()
    assert (await sharing.get(f"{B}/rankings/xp/curve"))["total"] == 30
    assert (await sharing.figures())["rankcurve_shared_curve_reads_total", "hit"] == 1


async def test_a_service_without_memcached_refreshes_polls_and_starts(sharing: Service, server: OpenMemcached) -> None:
    await sharing.board("b", {"name": "xp"})
    await sharing.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(30)))
    server.pause()
    await sharing.refresh("b", "xp")
    await store_elsewhere(sharing, 7)
    await wait_for_curve(sharing, 7)
    found = await sharing.figures()
    assert found["rankcurve_shared_curve_writes_total", "failed"] == 1
    assert found["rankcurve_memcached_errors_total",] == 1, "the server is left alone after one error"
    assert found["rankcurve_memcached_servers_left_alone",] == 1
    server.kill()
    await sharing.restart()
    assert (await sharing.get(f"{B}/rankings/xp/curve"))["total"] == 7
    assert (await sharing.figures())["rankcurve_shared_curve_reads_total", "miss"] == 1


async def test_a_front_end_reads_curves_from_memcached_or_else_from_the_table(
    postgres_url: str, tmp_path: Path, server: OpenMemcached
) -> None:
    async with fresh_schema(postgres_url) as url:
        shared = {"store": url, "memcached_servers": [server.address], "curve_poll_s": 0.05}
        job, front = Service(tmp_path, **shared), Service(tmp_path, jobs="none", **shared)
        await job.start()
        try:
            await job.board("b", {"name": "xp"})
            await job.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(30)))
            await job.refresh("b", "xp")
            await front.start()  # not before: a curve reaches memcached a moment after it reaches the table
            await wait_for_curve(front, 30)
            assert read_counter(await front.figures(), "rankcurve_shared_curve_reads_total") == {"hit": 1}
            server.kill()
            await job.post_xp("b", p30=30)
            await job.refresh("b", "xp")
            await wait_for_curve(front, 31)
            found = await front.figures()
            assert read_counter(found, "rankcurve_shared_curve_reads_total") == {"hit": 1, "miss": 1}
            assert found["rankcurve_memcached_errors_total",] == 1
        finally:
            await front.stop()
            await job.stop()


def read_counter(found: Figures, name: str) -> dict[str, float]:
    return {key[1]: value for key, value in found.items() if key[0] == name and value}
