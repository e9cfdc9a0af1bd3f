"""Test streams of the boards of a family. A board is created by its first post and deleted with its family."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.event_stream import events_of
from tests.service.real_service import RARELY, Service

F = "/v1/families/game"
SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "periods": ["all", "day"], "time_zone": "UTC",
    "facets": [[], ["org"], ["org", "location"]], "predictor": RARELY,
}  # fmt: skip


@pytest.fixture
async def service(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        await made.must("PUT", F, {**SPEC, "table": table})
        yield made


async def post(service: Service, owner: str, **facets: str) -> None:
    await service.must("POST", f"{F}/posts", {"owner": owner, "stats": {"xp": 5}, "facets": facets})


async def test_streams_and_the_journal_report_the_end_of_a_family(service: Service) -> None:
    await post(service, "ada", org="7", location="melb")
    await service.board("b", {"name": "xp"})
    await service.post_xp("b", ada=1)
    top = "/v1/leaderboards/{}/stream?column=xp&top=2"
    async with (
        events_of(service.base, top.format("game:all")) as ends,
        events_of(service.base, top.format("game:all:org=7")) as too,
        events_of(service.base, top.format("b")) as stays,
    ):
        for stream in (ends, too, stays):
            await stream.expect_event("top")
        await service.must("DELETE", F)
        assert await ends.read_event() is None
        assert await too.read_event() is None, "both streams end"
        await service.post_xp("b", ada=9)
        assert (await stays.expect_event("top")).data["entries"][0]["value"] == 9
    lines = await service.get("/v1/journal?after=0&limit=100")
    gone = [line["board"] for line in lines if line["kind"] == "delete"]
    assert sorted(gone) == sorted(line["board"] for line in lines if line["kind"] == "post" and line["board"] != "b")


async def test_a_stream_of_a_board_without_posts_ends_with_the_first_post_to_it(service: Service) -> None:
    top = "/v1/leaderboards/game:all:org={}/stream?column=xp&top=2"
    everybody = "/v1/leaderboards/game:all/stream?column=xp&top=2"
    async with (
        events_of(service.base, top.format(7)) as seven,
        events_of(service.base, top.format(8)) as eight,
        events_of(service.base, everybody) as all_time,
    ):
        last = await seven.expect_event("top")
        for stream in (eight, all_time):
            await stream.expect_event("top")
        assert last.data["entries"] == []
        await post(service, "ada", org="7")
        assert await seven.read_event() is None
        assert await all_time.read_event() is None, "the post created this board, too"
        async with events_of(service.base, top.format(7), last_id=last.id) as seven:
            assert (await seven.expect_event("top")).data["entries"][0]["owner"] == "ada"
        await post(service, "bob", org="8")
        assert await eight.read_event() is None, "the second board is a new one too"


async def test_the_first_post_to_a_family_is_the_first_event_of_its_owner(service: Service) -> None:
    ada = "/v1/leaderboards/game:all:org=7/stream?column=xp&owner=ada"
    async with events_of(service.base, ada) as stream:
        await post(service, "ada", org="7")
        assert await stream.read_event() is None, "the client connects again to the board that the post has made"
    async with events_of(service.base, ada) as stream:
        assert (await stream.expect_event("position")).data["rank"] == 1
