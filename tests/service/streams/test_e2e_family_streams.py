"""Why here: boards of families come with a post and go with the family, under the eyes of those who follow them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.schemas import fresh_schema
from tests.service.event_stream import events_of
from tests.service.real_service import RARELY, Service

F = "/v1/families/game"
SPEC: dict[str, Any] = {
    "columns": [{"name": "xp", "sorted": True, "merge": "sum"}],
    "periods": ["all", "day"],
    "time_zone": "UTC",
    "facets": [[], ["org"], ["org", "location"]],
    "predictor": RARELY,
}
FACETS = {"org": "7", "location": "melb"}


@pytest.fixture(params=["sqlite-shared", "sqlite-own", "postgres-shared", "postgres-own"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    """A service with the family, on every store in both layouts."""
    store, table = request.param.split("-")
    if store == "sqlite":
        async for made in _served(Service(tmp_path), table):
            yield made
        return
    async with fresh_schema(request.getfixturevalue("postgres_url")) as url:
        async for made in _served(Service(tmp_path, store=url), table):
            yield made


async def _served(made: Service, table: str) -> AsyncIterator[Service]:
    await made.start()
    await made.must("PUT", F, {**SPEC, "table": table})
    yield made
    await made.stop()


async def posted(service: Service, body: dict[str, Any]) -> None:
    """One post to the family."""
    await service.must("POST", f"{F}/posts", body)


def xp(owner: str, value: int, facets: dict[str, str]) -> dict[str, Any]:
    """A post of now."""
    return {"owner": owner, "stats": {"xp": value}, "facets": facets}


async def test_who_follows_or_reads_the_journal_hears_of_the_end_of_a_family(service: Service) -> None:
    await posted(service, xp("ada", 5, facets=FACETS))
    await service.board("b", {"name": "xp"})
    await service.post("b", {"owner": "ada", "stats": {"xp": 1}})
    top = "/v1/leaderboards/{}/stream?column=xp&top=2"
    async with (
        events_of(service.base, top.format("game:all")) as ends,
        events_of(service.base, top.format("game:all:org=7")) as too,
        events_of(service.base, top.format("b")) as stays,
    ):
        await ends.must("top")
        await too.must("top")
        await stays.must("top")
        await service.must("DELETE", F)
        assert await ends.next() is None
        assert await too.next() is None, "what ends one says nothing of the other"
        await service.post("b", {"owner": "ada", "stats": {"xp": 9}})
        assert (await stays.must("top")).data["entries"][0]["value"] == 9
    lines = await service.get("/v1/journal?after=0&limit=100")
    gone = [line["board"] for line in lines if line["kind"] == "delete"]
    assert sorted(gone) == sorted(line["board"] for line in lines if line["kind"] == "post" and line["board"] != "b")


async def test_a_stream_of_a_board_that_no_post_has_reached_ends_when_one_does(service: Service) -> None:
    top = "/v1/leaderboards/game:all:org={}/stream?column=xp&top=2"
    async with events_of(service.base, top.format(7)) as seven, events_of(service.base, top.format(8)) as eight:
        last = await seven.must("top")
        await eight.must("top")
        assert last.data["entries"] == []
        await posted(service, xp("ada", 5, facets={"org": "7"}))
        assert await seven.next() is None
        async with events_of(service.base, top.format(7), last_id=last.id) as seven:
            assert (await seven.must("top")).data["entries"][0]["owner"] == "ada"
        await posted(service, xp("bob", 5, facets={"org": "8"}))
        assert await eight.next() is None, "it is not the board that the other one was"
