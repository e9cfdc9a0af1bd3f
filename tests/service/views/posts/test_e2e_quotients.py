"""Test columns that are computed from two others, on a real service: their specs, posts, rankings and archives."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.closing import close_as_of
from tests.service.real_service import Service

B, F = "/v1/leaderboards/b", "/v1/families/f"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
HITS, SHOTS = ({"name": name, "merge": "sum", "sorted": False} for name in ("hits", "shots"))
ACCURACY: dict[str, Any] = {
    "name": "accuracy", "merge": "quotient", "of": "hits", "per": "shots", "from": 100, "scale": 4,
    "tiers": [{"name": "sharp", "value": "0.5"}],
}  # fmt: skip


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path, **either_store).running() as made:
        yield made


@pytest.fixture
async def quiet(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    """Run a service without jobs, whose boards the test closes."""
    async with Service(tmp_path, jobs="none", **either_store).running() as made:
        yield made


def run(owner: str, hits: int, shots: int, seconds: int | None = None, **more: Any) -> dict[str, Any]:
    timed = {} if seconds is None else {"at": at(seconds)}
    return {"owner": owner, "stats": {"hits": hits, "shots": shots}, **timed, **more}


def at(seconds: int) -> str:
    return (NOON + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_a_quotient_is_computed_with_each_post_and_ranked(service: Service) -> None:
    made = await service.board("b", HITS, SHOTS, ACCURACY, ties=["shots"])
    shown = made["columns"][2]
    assert (shown["sorted"], shown["of"], shown["per"], shown["from"]) == (True, "hits", "shots", 100)
    assert await service.board("b", *made["columns"], ties=["shots"]) == made
    results = await service.post("b", run("ada", 20, 60), run("ada", 4, 39), run("ada", 1, 1), run("bob", 55, 110))
    assert [result["stats"]["accuracy"] for result in results] == [None, None, 0.25, 0.5]
    page = await service.get(f"{B}/rankings/accuracy")
    assert [(row["owner"], row["value"], row["tier"]) for row in page["entries"]] == [
        ("bob", 0.5, "sharp"),
        ("ada", 0.25, None),
    ]
    assert (await service.get(f"{B}/entries/ada"))["stats"] == {"hits": 25, "shots": 100, "accuracy": 0.25}
    await service.post("b", run("cleo", 100, 200, post_id="p"), run("cleo", 1, 0, post_id="q"))
    page = await service.get(f"{B}/rankings/accuracy?limit=2")
    assert [row["owner"] for row in page["entries"]] == ["cleo", "bob"]
    await service.must("DELETE", f"{B}/posts/q?owner=cleo")
    page = await service.get(f"{B}/rankings/accuracy?limit=2")
    assert [row["owner"] for row in page["entries"]] == ["cleo", "bob"], "equal quotients are ordered by more shots"
    [result] = await service.post("b", {"owner": "ada", "set": {"shots": 5}})
    assert result["stats"]["accuracy"] is None
    assert (await service.get(f"{B}/rankings/accuracy"))["total"] == 2


async def test_a_post_or_a_set_of_a_quotient_is_refused(service: Service) -> None:
    await service.board("b", HITS, SHOTS, ACCURACY)
    await service.must("PUT", F, {"columns": [HITS, SHOTS, ACCURACY], "periods": ["all"]})
    for member in ("stats", "set"):
        post = {"owner": "ada", member: {"accuracy": "no number"}}
        for path, body in (
            *((path + query, post) for path in (f"{B}/posts", f"{F}/posts") for query in ("", "?mode=queued")),
            ("/v1/posts", {**post, "boards": ["b"]}),
        ):
            answer = await service.call("POST", path, body)
            assert (answer.status, answer.body["code"]) == (422, "column_computed")
            assert answer.body["errors"][0]["pointer"] == f"/{member}/accuracy"
        [good, bad] = await service.post("b", run("bob", 1, 1), post)
        assert (good["status"], bad["status"], bad["error"]["code"]) == ("applied", "rejected", "column_computed")
    assert await service.refused("GET", f"{B}/entries/ada") == (404, "unknown_owner")


async def test_queued_posts_and_posts_to_a_family_compute_it_too(service: Service) -> None:
    await service.must("PUT", F, {"columns": [HITS, SHOTS, ACCURACY], "periods": ["all", "day"]})
    for _ in range(2):
        await service.must("POST", f"{F}/posts?mode=queued", run("ada", 30, 60, post_id=f"p{_}"))
    await service.wait_applied()
    answer = await service.must("POST", f"{F}/posts", run("ada", 0, 0))
    assert {board["stats"]["accuracy"] for board in answer["results"][0]["boards"]} == {0.5}


async def test_a_result_outside_its_range_rejects_the_post(service: Service) -> None:
    await service.board("b", HITS, SHOTS, {**ACCURACY, "max": 1, "min": 0})
    answer = await service.call("POST", f"{B}/posts", run("ada", 101, 100))
    assert (answer.status, answer.body["code"]) == (422, "value_out_of_range")
    assert "accuracy would be 1.0100, outside 0.0000 to 1.0000" in answer.body["detail"]


REACHED = [("ada", 30, 60, 30), ("ada", 20, 40, 10), ("bob", 100, 200, 20), ("cleo", 1, 2, 25), ("cleo", 99, 198, 5)]


@pytest.mark.parametrize("order", [1, -1])
async def test_it_is_reached_when_the_later_of_its_columns_was_in_any_order_of_arrival(
    quiet: Service, order: int
) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    times = {"closes_at": ends.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
    await quiet.board("b", HITS, SHOTS, ACCURACY, ties="earliest", **times)
    for each in REACHED[::order]:
        await quiet.post("b", run(*each))

    async def read() -> list[tuple[str, float, str]]:
        page = await quiet.get(f"{B}/rankings/accuracy")
        return [(row["owner"], row["value"], row["reached_at"]) for row in page["entries"]]

    expected = [("bob", 0.5, at(20)), ("cleo", 0.5, at(25)), ("ada", 0.5, at(30))]
    assert await read() == expected
    entry = await quiet.get(f"{B}/entries/ada")
    assert entry["stats"] == {"hits": 50, "shots": 100, "accuracy": 0.5}, "unranked columns keep their times unseen"
    lines = await quiet.must("GET", "/v1/owners/ada/posts")
    assert lines["posts"][0]["stored"] == entry["stats"]
    await close_as_of(quiet, ends + timedelta(minutes=1))
    assert (await quiet.get(B))["archived"]
    assert await read() == expected
    assert (await quiet.get(f"{B}/entries/ada"))["stats"] == entry["stats"]


NO = {"name": "no", "merge": "quotient", "of": "hits", "per": "shots"}


@pytest.mark.parametrize(
    ("columns", "pointer"),
    [
        ([{**NO, "per": "no"}], "/columns/3/per"),
        ([{**NO, "of": "nothing"}], "/columns/3/of"),
        ([{**NO, "of": "tag"}], "/columns/3/of"),
        ([{**NO, "per": "hits"}], "/columns/3/per"),
        ([NO, {**NO, "name": "twice", "of": "no"}], "/columns/4/of"),
        ([{**NO, "from": 10**15}, {**NO, "name": "few", "per": "few", "from": 5}], "/columns/4/per"),
        ([{"name": "few", "merge": "sum", "max": 4}, {**NO, "per": "few", "from": 5}], "/columns/4/from"),
        ([{"name": "no", "merge": "quotient", "of": "hits"}], "/columns/3"),
        ([{"name": "no", "merge": "quotient", "per": "hits"}], "/columns/3/of"),
        ([{"name": "no", "merge": "sum", "per": "hits"}], "/columns/3"),
        ([{"name": "no", "merge": "sum", "from": 5}], "/columns/3"),
        ([{"name": "no", "merge": "last", "type": "text", "from": 5}], "/columns/3"),
        ([{**NO, "type": "text"}], "/columns/3"),
        ([NO, {"name": "replay", "merge": "with", "of": "no"}], "/columns/4/of"),
    ],
)  # fmt: skip
async def test_a_spec_that_makes_no_sense_is_refused(service: Service, columns: list[Any], pointer: str) -> None:
    tag = {"name": "tag", "merge": "last", "type": "text"}
    answer = await service.call("PUT", B, {"columns": [HITS, SHOTS, tag, *columns]})
    assert (answer.status, answer.body["code"]) == (422, "bad_spec")
    assert answer.body["errors"][0]["pointer"] == pointer
    assert (await service.call("PUT", B, {"columns": [HITS, SHOTS, {**NO, "from": 0}]})).status == 400


async def test_a_quotient_can_be_added_and_then_not_changed(service: Service) -> None:
    await service.board("b", HITS, SHOTS, ties="earliest")
    await service.post("b", run("ada", 60, 120, 1))
    made = await service.board("b", HITS, SHOTS, ACCURACY, ties="earliest")
    assert await service.board("b", HITS, SHOTS, ACCURACY, ties="earliest") == made
    assert (await service.get(f"{B}/entries/ada"))["stats"]["accuracy"] is None
    [result] = await service.post("b", run("ada", 0, 0, 2))
    assert result["stats"]["accuracy"] == 0.5
    for other in ({"from": 50}, {"of": "shots", "per": "hits"}, {"scale": 3}):
        spec = {"columns": [HITS, SHOTS, {**ACCURACY, **other}], "ties": "earliest"}
        assert await service.refused("PUT", B, spec) == (409, "spec_conflict")
