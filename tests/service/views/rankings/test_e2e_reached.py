"""Test that rows and positions say when a value was reached, on boards where the earlier of equal values is better."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.closing import close_as_of
from tests.service.event_stream import events_of
from tests.service.real_service import Service

B = "/v1/leaderboards/b"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
REACHED = {"ada": -3, "bob": -2, "cleo": -1}  # owner -> seconds after noon


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, jobs="none").running() as made:
        yield made


def at(seconds: int) -> str:
    return (NOON + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def fill(service: Service, ties: Any, **more: Any) -> None:
    columns = [{"name": "best", "merge": "max"}, {"name": "xp", "merge": "sum"}]
    await service.must("PUT", B, {"columns": columns, "ties": ties, **more})
    for owner, seconds in (*REACHED.items(), ("ada", 5), ("bob", -9)):
        await service.post("b", {"owner": owner, "stats": {"best": 7 if seconds != -9 else 1}, "at": at(seconds)})


async def read_rows(service: Service) -> list[list[tuple[str, str | None]]]:
    """Return owners and times as every view with rows or positions has them."""
    look_up = {"owners": list(REACHED), "column": "best"}
    entries = (await service.must("POST", f"{B}/entries/lookup", look_up))["entries"]
    positions = [(await service.get(f"{B}/entries/{owner}/positions"))["positions"][0] for owner in REACHED]
    following = [(await service.get(f"{B}/entries/{owner}/positions?next=true"))["positions"][0] for owner in REACHED]
    many = [
        (await service.must("POST", f"/v1/owners/{owner}/positions", {"boards": ["b"], "column": "best"}))["positions"][
            0
        ]
        for owner in REACHED
    ]
    pages = [
        (await service.get(f"{B}/{path}"))["entries"]
        for path in (
            "rankings/best", "rankings/best?from_rank=1", "rankings/best?order=owner", "rankings/best?profiles=true",
            "rankings/best/around?value=7&better=5", "entries/bob/around?column=best",
        )
    ]  # fmt: skip
    assert [entry.get("reached_at") for entry in entries] == [entry["position"].get("reached_at") for entry in entries]
    lists = [entries, *([{"owner": owner, **each} for owner, each in zip(REACHED, found, strict=True)]
             for found in (positions, following, many)), *pages]  # fmt: skip
    return [[(each["owner"], each.get("reached_at")) for each in found] for found in lists]


@pytest.mark.parametrize("segments", [1, 3])
async def test_every_row_and_position_says_when_its_value_was_reached(service: Service, segments: int) -> None:
    await fill(service, "earliest", segments=segments)
    expected = [(owner, at(seconds)) for owner, seconds in REACHED.items()]
    for found in await read_rows(service):
        assert found == expected
    [arrival] = (await service.get(f"{B}/rankings/best/positions?values=7"))["positions"]
    assert "reached_at" not in arrival, "nobody has reached it yet"
    async with events_of(service.base, f"{B}/stream?column=best&top=3") as stream:
        event = await stream.expect_event("top")
        assert [(row["owner"], row["reached_at"]) for row in event.data["entries"]] == expected
    async with events_of(service.base, f"{B}/stream?column=best&owner=bob") as stream:
        assert (await stream.expect_event("position")).data["reached_at"] == at(-2)
        await service.post("b", {"owner": "bob", "stats": {"best": 7}, "at": at(-4)})
        event = await stream.expect_event("position")
        assert (event.data["rank"], event.data["reached_at"]) == (1, at(-4)), "an earlier time is a change"


async def test_an_archive_says_when_values_were_reached(service: Service) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    await fill(service, ["xp", "earliest"], closes_at=end.isoformat(), grace_seconds=0, keep_seconds=60)
    await close_as_of(service, end + timedelta(seconds=60))
    assert (await service.get(B))["archived"] is True
    for found in await read_rows(service):
        assert found == [(owner, at(seconds)) for owner, seconds in REACHED.items()]


@pytest.mark.parametrize("ties", ["shared", ["xp"]])
async def test_boards_whose_ties_have_no_time_do_not_say_when(service: Service, ties: Any) -> None:
    await fill(service, ties)
    for found in await read_rows(service):
        assert found == [(owner, None) for owner in REACHED]
