"""Test that a request need not name the column of a board with one ranked column, and has to on any other board."""

from typing import Any

import pytest

from tests.service.real_service import Caller, Service, without

XP: dict[str, Any] = {"name": "xp", "merge": "sum"}
SHOTS: dict[str, Any] = {"name": "shots", "merge": "sum", "sorted": False}
TAG: dict[str, Any] = {"name": "tag", "merge": "last", "type": "text"}
B, F = "/v1/leaderboards/b", "/v1/leaderboards/f%3Athis-week"
# Each request without its column, and the same request with it. `{}` is the path of a board.
BOTH = (
    ("{}/rankings?limit=2", "{}/rankings/xp?limit=2"),
    ("{}/rankings?column=xp&from_rank=2", "{}/rankings/xp?from_rank=2"),
    ("{}/rankings?order=owner", "{}/rankings/xp?order=owner"),
    ("{}/rankings?profiles=true", "{}/rankings/xp?profiles=true"),
    ("{}/rankings/-?limit=2", "{}/rankings/xp?limit=2"),
    ("{}/rankings/-/values?ranks=1,2&percentiles=50", "{}/rankings/xp/values?ranks=1,2&percentiles=50"),
    ("{}/rankings/-/positions?values=7", "{}/rankings/xp/positions?values=7"),
    ("{}/rankings/-/around?value=7&better=1", "{}/rankings/xp/around?value=7&better=1"),
    ("{}/rankings/-/buckets?buckets=2", "{}/rankings/xp/buckets?buckets=2"),
    ("{}/entries/bob/around?better=1", "{}/entries/bob/around?column=xp&better=1"),
)
SHORT = [short for short, _ in BOTH if "column=" not in short] + ["{}/stream?top=1", "{}/rankings/-/curve"]


async def fill(caller: Caller, *columns: dict[str, Any], segments: int = 1) -> None:
    await caller.board("b", *columns, segments=segments)
    await caller.must("PUT", "/v1/families/f", {"columns": list(columns), "periods": ["week", "day"]})
    for path in ("/v1/leaderboards/b/posts", "/v1/families/f/posts"):
        await caller.must("POST", path, [{"owner": each, "stats": {"xp": value}} for each, value in
                                         (("ada", 9), ("bob", 7), ("cy", 5), ("di", 1))])  # fmt: skip


@pytest.mark.parametrize("segments", [1, 3])
async def test_a_request_without_a_column_is_about_the_only_ranked_one(service: Service, segments: int) -> None:
    await fill(service, SHOTS, XP, TAG, segments=segments)
    for board in (B, F):
        for short, long in BOTH:
            answers = [without(await service.get(path.format(board)), "as_of") for path in (short, long)]
            assert answers[0] == answers[1], short
    page = await service.get(f"{B}/rankings?limit=2")
    assert (page["column"], [each["owner"] for each in page["entries"]]) == ("xp", ["ada", "bob"])
    following = await service.get(f"{B}/rankings?cursor={page['next']}")
    assert [each["owner"] for each in following["entries"]] == ["cy", "di"]
    await service.must("POST", f"{B}/rankings/-/refresh")
    assert (await service.get(f"{B}/rankings/-/curve"))["column"] == "xp"
    assert (await service.must("POST", f"{B}/rankings/-/audit"))["brackets_broken"] == 0
    found = await service.must("POST", "/v1/owners/bob/positions", {"boards": ["b", "f:this-week", "f:today"]})
    assert [(each["column"], each["rank"]) for each in found["positions"]] == [("xp", 2)] * 3
    [absent] = (await service.must("POST", "/v1/owners/nobody/positions", {"boards": ["b"]}))["positions"]
    assert (absent["column"], absent["rank"]) == ("xp", None)
    history = "/v1/families/f/owners/bob/history?period=week"
    assert await service.get(history) == await service.get(f"{history}&column=xp")
    assert (await service.get(history))["column"] == "xp"


async def test_a_board_with_several_ranked_columns_names_them_and_one_with_none_says_so(service: Service) -> None:
    await fill(service, XP, TAG, {"name": "kills", "merge": "sum"})
    others = {"boards": ["b"]}
    for board, name in ((B, "b"), (F, "f:")):
        for short in SHORT:
            answer = await service.call("GET", short.format(board))
            assert (answer.status, answer.body["code"]) == (400, "column_needed"), short
            assert f"'{name}" in answer.body["detail"], short
            assert answer.body["detail"].endswith("has several ranked columns: name one of xp, kills")
            assert answer.body["errors"][0]["pointer"] == "column"
    assert await service.refused("POST", "/v1/owners/bob/positions", others) == (400, "column_needed")
    assert await service.refused("GET", "/v1/families/f/owners/bob/history?period=day") == (400, "column_needed")
    await service.board("texts", TAG)
    answer = await service.call("GET", "/v1/leaderboards/texts/rankings")
    assert (answer.status, answer.body["code"]) == (404, "unknown_column")
    assert answer.body["detail"] == "'texts' has no ranked column"
    assert await service.refused("GET", "/v1/leaderboards/none/rankings") == (404, "unknown_board")


async def test_a_ranked_column_that_is_added_has_to_be_named_from_then_on(service: Service) -> None:
    await fill(service, XP)
    assert (await service.get(f"{B}/entries/bob/around"))["column"] == "xp"
    await service.board("b", XP, {"name": "kills", "merge": "sum"})
    assert await service.refused("GET", f"{B}/entries/bob/around") == (400, "column_needed")
    assert (await service.get(f"{B}/rankings?column=kills"))["entries"] == []


async def test_only_a_hyphen_stands_for_a_column(service: Service) -> None:
    await fill(service, XP)
    for odd in ("--", "%2D-", "_", "-xp", "XP"):
        assert await service.refused("GET", f"{B}/rankings/{odd}") == (400, "bad_request")
    assert await service.refused("GET", f"{B}/rankings?column=-") == (400, "bad_request")
    assert (await service.call("GET", f"{B}/rankings/")).status == 404
