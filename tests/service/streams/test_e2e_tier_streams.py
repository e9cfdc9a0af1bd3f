"""Test that streams say the tier of an owner and of the best rows, and that a changed tier causes an event."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.event_stream import events_of
from tests.service.real_service import Service

TIERS = [{"name": "diamond", "to_percent": 10}, {"name": "gold", "to_rank": 3}]
TOP = "/v1/leaderboards/b/stream?column=xp&top=2"
BOB = "/v1/leaderboards/b/stream?column=xp&owner=bob"


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, jobs="none", **either_store).running() as made:
        yield made


async def board(service: Service, *tiers: dict[str, Any]) -> None:
    await service.board("b", {"name": "xp", "tiers": [*tiers]}, {"name": "shots", "sorted": False, "merge": "sum"})


async def add_worse(service: Service, first: int, count: int) -> None:
    """Post for owners who are worse than all others."""
    await service.post("b", *({"owner": f"w{n}", "stats": {"xp": -n}} for n in range(first, first + count)))


async def test_an_owner_gets_an_event_when_only_its_tier_changes(service: Service) -> None:
    await board(service, *TIERS)
    await service.post_xp("b", ada=30, bob=20)
    async with events_of(service.base, BOB) as stream:
        first = await stream.expect_event("position")
        assert (first.data["rank"], first.data["tier"]) == (2, "gold")
        await add_worse(service, 1, 8)
        await service.post("b", {"owner": "bob", "stats": {"shots": 1}})  # neither of both posts changes the tier
        await add_worse(service, 9, 1)
        second = await stream.expect_event("position")
        assert (second.data["rank"], second.data["tier"], second.data["total"]) == (2, "diamond", 11)
        assert (second.data["previous_rank"], second.data["overtaken_by"]) == (2, [])
        await service.must("PUT", "/v1/owners/w3/hidden")
        assert (await stream.expect_event("position")).data["tier"] == "gold"
        await service.post_xp("b", cy=25, dan=26)
        third = await stream.await_event("position", rank=4)
        assert third.data["tier"] is None
        await service.must("PUT", "/v1/owners/bob/hidden")
        gone = await stream.await_event("position", rank=None)
        assert gone.data["tier"] is None


async def test_the_top_is_sent_again_when_only_tiers_change(service: Service) -> None:
    await board(service, *TIERS)
    await service.post_xp("b", ada=30, bob=20)
    async with events_of(service.base, TOP) as stream:
        first = await stream.expect_event("top")
        assert [row["tier"] for row in first.data["entries"]] == ["diamond", "gold"]
        await add_worse(service, 1, 8)
        await add_worse(service, 9, 1)
        second = await stream.expect_event("top")
        assert (second.data["total"], [row["tier"] for row in second.data["entries"]]) == (11, ["diamond"] * 2)


async def test_a_client_that_comes_back_is_told_that_its_tier_has_changed(service: Service) -> None:
    await board(service, *TIERS)
    await service.post_xp("b", ada=30, bob=20)
    for path, name in ((BOB, "position"), (TOP, "top")):
        async with events_of(service.base, path) as keeper, events_of(service.base, path) as stream:
            await keeper.expect_event(name)
            last = (await stream.expect_event(name)).text_id
            stream.response.close()
            await add_worse(service, 1, 9)
            await keeper.expect_event(name)
            async with events_of(service.base, path, last_id=last) as again:
                event = await again.expect_event(name)
                tier = event.data["tier"] if name == "position" else event.data["entries"][1]["tier"]
                assert tier == "diamond"
        for number in range(1, 10):
            await service.must("DELETE", f"/v1/leaderboards/b/entries/w{number}")


async def test_a_stream_that_begins_after_other_tiers_were_set_has_these(service: Service) -> None:
    await board(service, *TIERS)
    await service.post_xp("b", ada=30, bob=20)
    async with events_of(service.base, BOB) as old, events_of(service.base, TOP) as old_top:
        assert (await old.expect_event("position")).data["tier"] == "gold"
        await old_top.expect_event("top")
        await board(service, {"name": "all", "to_percent": 100})
        async with events_of(service.base, BOB) as new, events_of(service.base, TOP) as new_top:
            assert (await new.expect_event("position")).data["tier"] == "all"
            assert (await new_top.expect_event("top")).data["entries"][0]["tier"] == "all"
            await service.post_xp("b", bob=31)
            assert (await new.expect_event("position")).data["tier"] == "all"
        assert await old.read_event() is None, "the stream ends, so that its client connects again"
        assert await old_top.read_event() is None


async def test_a_stream_of_a_column_without_tiers_has_no_member_for_them(service: Service) -> None:
    await board(service)
    await service.post_xp("b", ada=30, bob=20)
    async with events_of(service.base, BOB) as stream, events_of(service.base, TOP) as top:
        assert "tier" not in (await stream.expect_event("position")).data
        assert all("tier" not in row for row in (await top.expect_event("top")).data["entries"])
