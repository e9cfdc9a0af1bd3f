"""Test that an operator's change at one process takes effect at a second process on the same store.

Both processes read the board before the change, so that each of them has an outdated copy of the board.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from predictor import Curve, Knot
from storage.curves.stored_curves import store_curve
from tests.memcached import OpenMemcached
from tests.servers import PostgresServer, postgres
from tests.service.closing import close_as_of
from tests.service.real_service import Figures, Service, without

XP = {"name": "xp", "merge": "sum", "best": "high", "sorted": True}
KILLS = {**XP, "name": "kills"}
BOARD = "/v1/leaderboards/b"
VIEWS = ("/entries/ada", "/entries/ada/positions", "/rankings/xp", "/entries/ada/around?column=xp")
ADA = {"owner": "ada", "stats": {"xp": 1}}
WAIT_S = 60


@dataclass
class Pair:
    """Two processes on one store. Operators send their requests to one of them."""

    operator: Service
    other: Service

    async def recreate_board(self) -> None:
        await self.operator.must("DELETE", BOARD)
        await self.operator.board("b", XP)
        await self.operator.post_xp("b", ada=7)

    async def compare(self, path: str) -> None:
        """Fail unless the other process answers a read of the board as the operator's process does."""
        shown, expected = [await service.get(BOARD + path) for service in (self.other, self.operator)]
        assert without(shown, "as_of") == without(expected, "as_of"), path


@pytest.fixture
async def pair(store_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """Start both processes. The first creates the board, and the second posts the value 3 for ada."""
    shared: dict[str, Any] = {"store": store_url, "curve_poll_s": 0.05}
    async with Service(tmp_path, **shared).running() as operator, Service(tmp_path, **shared).running() as other:
        await operator.board("b", XP)
        await other.post_xp("b", ada=3)
        yield Pair(operator, other)


async def test_a_recreated_board_takes_posts_at_another_process(pair: Pair) -> None:
    await pair.recreate_board()
    [one] = await pair.other.post("b", ADA)
    assert (one["status"], one["stats"]) == ("applied", {"xp": 8})
    await pair.recreate_board()
    single = await pair.other.must("POST", f"{BOARD}/posts", ADA)
    assert single["results"][0]["stats"] == {"xp": 8}
    await pair.operator.board("c", XP)
    await pair.recreate_board()
    named = [{**ADA, "boards": ["c", "b"]}, {**ADA, "boards": ["c"]}, {**ADA, "boards": ["b", "nowhere"]}]
    fan = (await pair.other.must("POST", "/v1/posts", {"posts": named}))["results"]
    assert [result["status"] for result in fan] == ["applied", "applied", "rejected"]
    assert [part["stats"] for part in fan[0]["boards"]] == [{"xp": 2}, {"xp": 8}]
    assert (await pair.operator.get(f"{BOARD}/entries/ada"))["stats"] == {"xp": 8}
    assert (await pair.operator.get("/v1/leaderboards/c/entries/ada"))["stats"] == {"xp": 2}


async def test_every_view_of_another_process_shows_a_recreated_board(pair: Pair) -> None:
    for path in (
        *VIEWS, "/rankings/xp/buckets", "/rankings/xp/positions?values=7", "/rankings/xp/around?value=7",
        "/rankings/xp/values?ranks=1",
    ):  # fmt: skip
        await pair.recreate_board()
        await pair.compare(path)


async def test_another_process_can_look_up_erase_and_refresh_on_a_recreated_board(pair: Pair) -> None:
    await pair.recreate_board()
    found = await pair.other.must("POST", f"{BOARD}/entries/lookup", {"owners": ["ada"]})
    assert [entry["stats"] for entry in found["entries"]] == [{"xp": 7}]
    await pair.recreate_board()
    everywhere = await pair.other.must("POST", "/v1/owners/ada/positions", {"boards": ["b"], "column": "xp"})
    assert [position["value"] for position in everywhere["positions"]] == [7]
    await pair.recreate_board()
    await pair.other.refresh("b", "xp")
    await pair.operator.must("POST", f"{BOARD}/reset")
    await pair.other.refresh("b", "xp")
    await pair.recreate_board()
    await pair.other.must("DELETE", f"{BOARD}/entries/ada")
    assert await pair.operator.refused("GET", f"{BOARD}/entries/ada") == (404, "unknown_owner")


async def test_no_curve_from_before_a_reset_serves_at_another_process(pair: Pair) -> None:
    await pair.operator.must("DELETE", BOARD)
    await pair.operator.board("b", XP, predictor={"exact_top": 0, "samples": 10})
    await pair.other.post("b", *({"owner": f"o{xp}", "stats": {"xp": xp}} for xp in range(100)))
    await pair.other.refresh("b", "xp")
    assert (await pair.other.get(f"{BOARD}/rankings/xp/curve"))["total"] == 100
    for path in ("/rankings/xp/curve", "/rankings/xp/positions?values=7", "/entries/o7/positions?rank=estimate"):
        await pair.operator.must("POST", f"{BOARD}/reset")
        await pair.operator.post_xp("b", o7=7)
        answer = await pair.other.call("GET", BOARD + path)
        if path.endswith("curve"):
            assert (answer.status, answer.body["code"]) == (404, "no_curve")
        else:
            [position] = answer.body["positions"]
            assert (position["rank"], position["total"], position["method"]) == (1, 1, "count")
        await pair.other.refresh("b", "xp")


async def test_every_view_of_another_process_shows_an_added_column(pair: Pair) -> None:
    for path in VIEWS:
        await pair.recreate_board()
        await pair.other.post_xp("b", ada=1)
        await pair.operator.board("b", XP, KILLS)
        await pair.operator.post("b", {"owner": "ada", "stats": {"kills": 5}})
        await pair.compare(path)
        [posted] = await pair.other.post_xp("b", ada=1)
        assert posted["stats"] == {"xp": 9, "kills": 5}


async def test_every_view_of_another_process_shows_changed_tiers(pair: Pair) -> None:
    paths = [*VIEWS[1:], "/rankings/xp/positions?values=7", "/rankings/xp/around?value=7", "/rankings/xp?order=owner"]
    for rank, path in enumerate([*paths, "/entries/ada/positions?next=true", "/rankings/xp?from_rank=1"], start=1):
        await pair.other.get(BOARD + path)
        await pair.operator.board("b", {**XP, "tiers": [{"name": f"top_{rank}", "to_rank": rank}]})
        shown = await pair.other.get(BOARD + path)
        assert shown["entries" if "entries" in shown else "positions"][0]["tier"] == f"top_{rank}", path
    await pair.operator.board("b", XP)
    found = await pair.other.must("POST", f"{BOARD}/entries/lookup", {"owners": ["ada"], "column": "xp"})
    assert "tier" not in found["entries"][0]["position"]


async def test_another_process_shows_changed_tiers_of_an_archive_and_of_a_family(
    store_url: str, tmp_path: Path
) -> None:
    shared: dict[str, Any] = {"store": store_url, "jobs": "none"}
    async with Service(tmp_path, **shared).running() as operator, Service(tmp_path, **shared).running() as other:
        await operator.board("b", XP)
        await operator.post_xp("b", ada=7)
        end = datetime.now(UTC) + timedelta(hours=1)
        times = {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
        await operator.board("b", XP, **times)
        family = {"columns": [XP], "periods": ["all"], "facets": [[], ["clan"]]}
        await operator.must("PUT", "/v1/families/f", family)
        await other.must("POST", "/v1/families/f/posts", {**ADA, "facets": {"clan": "fox"}})
        await close_as_of(operator, end + timedelta(seconds=1))
        boards = {"b": True, "f%3Aall": False, "f%3Aall%3Aclan%3Dfox": False, "f%3Aall%3Aclan%3Downer": False}
        for board, archived in boards.items():
            assert (await other.get(f"/v1/leaderboards/{board}"))["archived"] is archived
        paths = (
            "entries/ada/positions",
            "rankings/xp",
            "rankings/xp/positions?values=1",
            "entries/ada/around?column=xp",
        )
        for number, path in enumerate(paths):
            tiered = {**XP, "tiers": [{"name": f"t{number}", "to_rank": 9}]}
            await operator.board("b", tiered, **times)
            await operator.must("PUT", "/v1/families/f", {**family, "columns": [tiered]})
            for board in [*boards][:3]:
                shown = await other.get(f"/v1/leaderboards/{board}/{path}")
                assert shown["entries" if "entries" in shown else "positions"][0]["tier"] == f"t{number}", (board, path)
            unreached = await other.get("/v1/leaderboards/f%3Aall%3Aclan%3Downer/rankings/xp/positions?values=5")
            assert unreached["positions"][0]["tier"] == f"t{number}"


async def test_a_deleted_board_is_unknown_at_another_process(pair: Pair) -> None:
    await pair.operator.must("DELETE", BOARD)
    for method, path, body in (
        ("POST", f"{BOARD}/posts", ADA),
        ("GET", f"{BOARD}/entries/ada", None),
        ("GET", f"{BOARD}/rankings/xp", None),
        ("POST", f"{BOARD}/rankings/xp/refresh", None),
        ("DELETE", f"{BOARD}/entries/ada", None),
    ):
        assert await pair.other.refused(method, path, body) == (404, "unknown_board")


async def test_requests_are_answered_503_while_the_store_is_frozen(tmp_path: Path) -> None:
    with postgres() as server:
        hasty = {"connect_timeout_s": 0.2, "statement_timeout_s": 0.2, "commit_timeout_s": 0.2, "store_attempts_max": 2}
        service = Service(tmp_path, store=server.url(), retry_after_s=3, **hasty)
        async with asyncio.timeout(WAIT_S):
            await service.start()
            await service.board("b", XP)
            await service.post("b", ADA)
            await _stands_still(server, service)
            while (await service.call("GET", "/readyz")).status != 200:  # until a probe finds that the server answers
                pass
            [again] = await service.post("b", {**ADA, "post_id": "one"})
            assert again["status"] in ("applied", "duplicate")
            assert again["stats"] == {"xp": 2}
            assert (await service.get(f"{BOARD}/entries/ada"))["stats"] == {"xp": 2}
            await service.get("/readyz")
            await service.stop()


async def _stands_still(server: PostgresServer, service: Service) -> None:
    server.send(signal.SIGSTOP)
    try:
        asked = await asyncio.gather(
            service.call("GET", f"{BOARD}/entries/ada"),
            service.call("GET", f"{BOARD}/rankings/xp"),
            service.call("POST", f"{BOARD}/posts", {**ADA, "post_id": "one"}),
            service.call("GET", "/readyz"),
        )
        assert [(answer.status, answer.headers.get("Retry-After")) for answer in asked] == [(503, "3")] * 4
        assert (await service.call("GET", "/healthz")).status == 200
    finally:
        server.send(signal.SIGCONT)


@pytest.fixture
async def sharing(tmp_path: Path, cache: OpenMemcached) -> AsyncIterator[Service]:
    async with Service(
        tmp_path, memcached_servers=[cache.address], curve_poll_s=0.05, memcached_failures_max=1
    ).running() as service:
        yield service


async def fill(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    await service.post_xp("b", **{f"p{i}": i for i in range(30)})


async def store_elsewhere(service: Service, total: int) -> None:
    store = service.context.store
    board = await service.context.catalog.find_board("b")
    curve = Curve((Knot(-5, 0, total),), total=total, as_of_us=1_000 + total)
    await store.write(lambda: store_curve(board.leaf, 0, curve))


async def wait_for_curve(service: Service, total: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await service.call("GET", f"{BOARD}/rankings/xp/curve")
            if answer.status == 200 and answer.body["total"] == total:
                return


async def test_the_next_start_reads_a_refreshed_curve_from_memcached(sharing: Service, cache: OpenMemcached) -> None:
    await fill(sharing)
    await sharing.refresh("b", "xp")
    assert len(cache.held()) == 1
    assert (await sharing.figures())["rankcurve_shared_curve_writes_total", "stored"] == 1
    await sharing.restart()
    assert (await sharing.get(f"{BOARD}/rankings/xp/curve"))["total"] == 30
    assert (await sharing.figures())["rankcurve_shared_curve_reads_total", "hit"] == 1


async def test_a_service_without_memcached_refreshes_polls_and_starts(sharing: Service, cache: OpenMemcached) -> None:
    await fill(sharing)
    cache.pause()
    await sharing.refresh("b", "xp")
    await store_elsewhere(sharing, 7)
    await wait_for_curve(sharing, 7)
    found = await sharing.figures()
    assert found["rankcurve_shared_curve_writes_total", "failed"] == 1
    assert found["rankcurve_memcached_errors_total",] == 1, "the server is left alone after one error"
    assert found["rankcurve_memcached_servers_left_alone",] == 1
    cache.kill()
    await sharing.restart()
    assert (await sharing.get(f"{BOARD}/rankings/xp/curve"))["total"] == 7
    assert (await sharing.figures())["rankcurve_shared_curve_reads_total", "miss"] == 1


async def test_a_front_end_reads_curves_from_memcached_or_else_from_the_table(
    store_url: str, tmp_path: Path, cache: OpenMemcached
) -> None:
    shared: dict[str, Any] = {"store": store_url, "memcached_servers": [cache.address], "curve_poll_s": 0.05}
    async with Service(tmp_path, **shared).running() as job:
        await fill(job)
        await job.refresh("b", "xp")
        # A curve reaches memcached a moment after it reaches the table, so the front end starts only now.
        async with Service(tmp_path, jobs="none", **shared).running() as front:
            await wait_for_curve(front, 30)
            assert read_counter(await front.figures(), "rankcurve_shared_curve_reads_total") == {"hit": 1}
            cache.kill()
            await job.post_xp("b", p30=30)
            await job.refresh("b", "xp")
            await wait_for_curve(front, 31)
            found = await front.figures()
            assert read_counter(found, "rankcurve_shared_curve_reads_total") == {"hit": 1, "miss": 1}
            assert found["rankcurve_memcached_errors_total",] == 1


def read_counter(found: Figures, name: str) -> dict[str, float]:
    return {key[1]: value for key, value in found.items() if key[0] == name and value}
