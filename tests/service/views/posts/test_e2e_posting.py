"""Test posts to a real service: a single post, a list, or one post per line, to one board or to several boards.

The posts are new, repeated, or refused.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.views.posts import posts as posts_view
from storage.errors import QueueFullError
from storage.records import PartOutcome, Post
from tests.service.real_service import Service, without

B = "/v1/leaderboards/b"
POSTS = f"{B}/posts"
LINES = {"Content-Type": "application/x-ndjson"}
COLUMNS: list[dict[str, Any]] = [
    {"name": "xp", "merge": "sum", "min": -100, "max": 100},
    {"name": "top", "merge": "max", "min": 0, "max": 1000},
    {"name": "lap", "merge": "min", "best": "low", "scale": 3, "min": 0, "max": 86400},
    {"name": "mood", "merge": "last", "min": -9, "max": 9},
    {"name": "shots", "merge": "sum", "sorted": False},
    {"name": "tag", "merge": "last", "sorted": False, "type": "text"},
]


@pytest.fixture
async def b(service: Service) -> Service:
    """Start a service with a board `b`, which has a column for every merge rule."""
    await service.board("b", *COLUMNS)
    return service


async def stats(service: Service, owner: str, board: str = "b") -> dict[str, Any]:
    found = (await service.get(f"/v1/leaderboards/{board}/entries/{owner}"))["stats"]
    return {name: value for name, value in found.items() if value is not None}


def codes(results: list[dict[str, Any]]) -> list[str]:
    return [result["error"]["code"] if "error" in result else result["status"] for result in results]


async def test_a_list_lines_and_single_posts_have_the_same_outcome(service: Service) -> None:
    posts = [{"owner": f"p{i % 3}", "stats": {"xp": i, "lap": f"{i}.5"}, "post_id": f"id{i}"} for i in range(1, 9)]
    for board in ("one", "list", "array", "lines"):
        await service.board(board, *COLUMNS)
    singles = []
    for post in posts:
        body = await service.must("POST", "/v1/leaderboards/one/posts", post)
        assert len(body["results"]) == 1
        singles += body["results"]
    listed = await service.post("list", *posts)
    array = (await service.must("POST", "/v1/leaderboards/array/posts", posts))["results"]
    lines = "\n\n  \r\n".join(json.dumps(post) for post in posts).encode() + b"\n"
    answer = await service.call("POST", "/v1/leaderboards/lines/posts", lines, LINES)
    for results in (listed, array, answer.body["results"]):
        assert [without(each, "updated_at") for each in results] == [without(each, "updated_at") for each in singles]


async def test_a_json_list_is_taken_by_every_way_to_post(service: Service) -> None:
    await service.board("b", *COLUMNS)
    await service.must("PUT", "/v1/families/f", {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}],
                                                 "periods": ["all"]})  # fmt: skip
    posts = [{"owner": owner, "stats": {"xp": 2}, "post_id": f"m/{owner}"} for owner in ("a", "b")]
    named = [{**each, "boards": ["b"]} for each in posts]
    for path, body in (("/v1/leaderboards/b/posts", posts), ("/v1/posts", named), ("/v1/families/f/posts", posts)):
        found = (await service.must("POST", path, body))["results"]
        assert [each["owner"] for each in found] == ["a", "b"]
        assert await service.must("POST", f"{path}?mode=queued", body) == {"accepted": 2}
    assert (await service.get("/v1/leaderboards/b/entries/a"))["stats"]["xp"] == 2
    wrong = [*posts, {"owner": "c", "stats": {"no": 1}}]
    refused = await service.call("POST", "/v1/leaderboards/b/posts?mode=queued", wrong)
    assert [each["pointer"] for each in refused.body["errors"]] == ["/posts/2/stats/no"]


async def test_a_post_goes_to_all_its_boards_or_to_none(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, {"name": "xp", "merge": "sum", "max": 10 if board == "b" else 100})
    posts = [
        {"owner": "x", "stats": {"xp": 6}, "boards": ["a", "b"]},
        {"owner": "x", "stats": {"xp": 6}, "boards": ["a", "b"]},
        {"owner": "x", "stats": {"xp": 1}, "boards": ["a", "none", "b"]},
        {"owner": "x", "stats": {"xp": 2}, "boards": ["b"]},
    ]
    results = (await service.must("POST", "/v1/posts", {"posts": posts}))["results"]
    assert [result["status"] for result in results] == ["applied", "rejected", "rejected", "applied"]
    assert [codes(result["boards"]) for result in results] == [
        ["applied", "applied"], ["post_rejected", "value_out_of_range"],
        ["post_rejected", "unknown_board", "post_rejected"], ["applied"],
    ]  # fmt: skip
    assert all("stats" not in result and "updated_at" not in result for result in results)
    assert [part["stats"] for part in results[0]["boards"]] == [{"xp": 6}, {"xp": 6}]
    assert (await stats(service, "x", "a"), await stats(service, "x", "b")) == ({"xp": 6}, {"xp": 8})


async def test_a_single_post_that_every_board_rejects_is_answered_with_the_problem(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, {"name": "xp", "max": 10 if board == "b" else 100})
    post = {"owner": "x", "stats": {"xp": 50}, "boards": ["a", "b"]}
    assert await service.refused("POST", "/v1/posts", post) == (422, "value_out_of_range")
    assert await service.refused("POST", "/v1/posts", {**post, "boards": ["none", "b"]}) == (404, "unknown_board")
    assert await service.refused("GET", "/v1/leaderboards/a/entries/x") == (404, "unknown_owner")


async def test_a_post_to_several_boards_has_the_best_of_their_statuses(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, {"name": "top", "merge": "max"}, ties="shared")

    async def post(boards: list[str], top: int, post_id: str | None = None) -> tuple[str, list[str]]:
        body = {"owner": "x", "stats": {"top": top}, "boards": boards, "post_id": post_id}
        (result,) = (await service.must("POST", "/v1/posts", {"posts": [body]}))["results"]
        return result["status"], codes(result["boards"])

    assert await post(["a"], 5) == ("applied", ["applied"])
    assert await post(["a", "b"], 5, "one") == ("applied", ["unchanged", "applied"])
    assert await post(["a", "b"], 5, "one") == ("duplicate", ["duplicate", "duplicate"])
    assert await post(["a", "b"], 4) == ("unchanged", ["unchanged", "unchanged"])
    assert await post(["a"], 4, "two") == ("unchanged", ["unchanged"])
    assert await post(["a", "b"], 4, "two") == ("unchanged", ["duplicate", "unchanged"])
    assert await post(["b", "none"], 9) == ("rejected", ["post_rejected", "unknown_board"])


async def test_a_repeated_post_id_answers_the_first_outcome_and_applies_nothing(b: Service) -> None:
    post = {"owner": "a", "stats": {"xp": 5, "lap": "60.250"}, "post_id": "m/1", "at": "2026-01-01T00:00:00Z"}
    (first,) = await b.post("b", post)
    await b.post_xp("b", a=7)
    spelled = {**post, "stats": {"lap": 60.25, "xp": "5"}, "at": "2026-01-01T01:00:00+01:00"}
    other = {"owner": "b", "stats": {"xp": 1}, "post_id": "m/2"}
    again, once_more, in_batch, twin = await b.post("b", post, spelled, other, other)
    for duplicate in (again, once_more):
        assert (duplicate["status"], duplicate["updated_at"]) == ("duplicate", first["updated_at"])
        assert duplicate["stats"] == first["stats"]
    assert (in_batch["status"], twin["status"]) == ("applied", "duplicate")
    assert twin["stats"] == in_batch["stats"]
    assert (await stats(b, "a"))["xp"] == 12
    assert (await b.must("POST", POSTS, post))["results"][0]["status"] == "duplicate"


async def test_a_post_id_of_the_same_owner_with_other_stats_or_another_time_is_a_conflict(b: Service) -> None:
    post = {"owner": "a", "stats": {"xp": 5}, "post_id": "id"}
    await b.post("b", post)
    others: list[dict[str, Any]] = [
        {"stats": {"xp": 6}}, {"stats": {"xp": 5, "top": 1}}, {"stats": {"shots": 5}},
        {"at": "2026-01-01T00:00:00Z"}, {"stats": {}, "set": {"xp": 5}},
    ]  # fmt: skip
    for other in others:
        assert codes(await b.post("b", {**post, **other})) == ["post_id_conflict"]
        assert await b.refused("POST", POSTS, {**post, **other}) == (409, "post_id_conflict")
    assert await stats(b, "a") == {"xp": 5}
    assert codes(await b.post("b", {**post, "owner": "b"}, {**post, "owner": "c"})) == ["applied", "applied"]


async def test_every_board_recognizes_a_retry_whatever_its_scale(service: Service) -> None:
    await service.board("whole", {"name": "xp", "merge": "sum"})
    await service.board("fine", {"name": "xp", "merge": "sum", "scale": 3})
    post = {"owner": "a", "stats": {"xp": 5}, "post_id": "id"}
    await service.must("POST", "/v1/posts", {**post, "boards": ["whole", "fine"]})
    for boards in (["fine", "whole"], ["fine"], ["whole"]):
        (result,) = (await service.must("POST", "/v1/posts", {**post, "boards": boards}))["results"]
        assert (result["status"], codes(result["boards"])) == ("duplicate", ["duplicate"] * len(boards))
    assert codes(await service.post("fine", post)) == ["duplicate"]


async def test_set_overwrites_beside_or_instead_of_stats(b: Service) -> None:
    await b.post("b", {"owner": "a", "stats": {"xp": 50, "top": 9, "lap": 10}})
    (result,) = await b.post("b", {"owner": "a", "stats": {"top": 10}, "set": {"xp": -1, "lap": "99.5"}})
    assert result["status"] == "applied"
    assert await stats(b, "a") == {"xp": -1, "top": 10, "lap": Decimal("99.500")}
    again = await b.post("b", *({"owner": "a", "set": {"xp": xp}} for xp in (-1, 101)))
    assert codes(again) == ["unchanged", "value_out_of_range"]
    assert await b.refused("POST", POSTS, {"owner": "a", "stats": {"xp": 1}, "set": {"xp": 1}}) == (400, "bad_request")


async def test_a_value_out_of_range_is_rejected_and_the_rest_of_the_list_applies(b: Service) -> None:
    sent: list[dict[str, Any]] = [
        {"xp": 60}, {"xp": 41, "top": 1}, {"xp": 40}, {"lap": "1.0005"}, {"lap": "1.5000"}, {"lap": 86400.001},
        {"xp": True}, {"tag": 5}, {"xp": "1e"}, {"mood": 1e0}, {"none": 1, "xp": -1},
    ]  # fmt: skip
    results = await b.post("b", *({"owner": "a", "stats": each} for each in sent))
    assert codes(results) == [
        "applied", "value_out_of_range", "applied", "bad_value", "applied", "value_out_of_range",
        "bad_value", "bad_value", "bad_value", "applied", "unknown_column",
    ]  # fmt: skip
    assert [result["error"]["status"] for result in results if "error" in result] == [422] * 7
    assert results[1]["error"]["errors"][0]["pointer"] == "/stats/xp"
    assert await stats(b, "a") == {"xp": 100, "lap": Decimal("1.500"), "mood": 1}


async def test_a_refused_value_is_told_the_exact_range_and_that_a_column_can_be_made_wider(service: Service) -> None:
    columns = {"name": "gold", "merge": "sum", "max": 1234567}, {"name": "lap", "merge": "min", "scale": 3}
    await service.board("b", *columns, {"name": "xp", "merge": "max"})
    sent: dict[str, tuple[object, str]] = {
        "gold": (1234568, "-1000000000000000 to 1234567"),
        "xp": (10**15 + 1, "-1000000000000000 to 1000000000000000"),
    }
    sent["lap"] = ("1000000000000000.001", "-1000000000000000.000 to 1000000000000000.000")
    for name, (value, bounds) in sent.items():
        for how in ("stats", "set"):
            [result] = await service.post("b", {"owner": "ada", how: {name: value}})
            assert result["error"]["code"] == "value_out_of_range"
            assert f"outside {bounds}" in result["error"]["detail"]
            assert '"min" and "max"' in result["error"]["detail"]
    asked = await service.call("GET", f"{B}/rankings/gold/positions?values=1234568")
    assert "-1000000000000000 to 1234567" in asked.body["detail"]


async def test_no_body_that_is_not_utf_8_is_an_error_of_the_service(service: Service) -> None:
    await service.board("b", *COLUMNS)
    column = b'{"columns": [{"name": "xp", "merge": "sum", "%s": "\xff"}]}'
    bodies = {
        ("PUT", "/v1/owners/ada/profile"): [b'{"name": "\xff"}', b'{"\xff": 1}'],
        ("PUT", "/v1/leaderboards/c"): [column % b"min", column % b"type", column % b"\xff"],
        ("POST", POSTS): [b'{"owner": "\xff", "stats": {"xp": 1}}', b'{"owner": "a", "stats": {"\xff": 1}}', b"\xff"],
        ("POST", "/v1/keys"): [b'{"name": "\xff", "role": "reader"}'],
        ("POST", f"{B}/entries/lookup"): [b'{"owners": ["\xff"]}'],
        ("POST", "/v1/pools/shop/eu/resources"): [b'{"region": "eu", "resources": ["\xff"]}'],
    }
    for (method, path), sent in bodies.items():
        for body in sent:
            answer = await service.call(method, path, body)
            assert answer.status in (400, 404, 422), (path, body, answer.body)
    for name in ("xp", "tag"):
        answer = await service.call("POST", POSTS, b'{"owner": "a", "stats": {"%s": "\xff"}}' % name.encode())
        assert (answer.status, answer.body["code"]) in ((422, "bad_value"), (400, "bad_json"))


async def test_bounds_of_times_are_told_exactly(tmp_path: Path) -> None:
    async with Service(tmp_path, at_ahead_s_max=86_399, lease_s_max=1_234_567).running() as service:
        await service.board("b", {"name": "xp"})
        post = {"owner": "a", "stats": {"xp": 1}, "at": (datetime.now(UTC) + timedelta(days=2)).isoformat()}
        [result] = await service.post("b", post)
        assert "more than 86399 s in the future" in result["error"]["detail"]
        await service.must("PUT", "/v1/pools/shop/eu")
        lease = {"client_id": "shop", "pool_id": "eu", "key": "k", "region": "eu", "lease_seconds": 1_234_568}
        answer = await service.call("POST", "/v1/leases", lease)
        assert "at most 1234567 s" in answer.body["detail"]


async def test_setting_null_clears_the_value_of_every_type(service: Service) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "xp", "merge": "sum"},
        {"name": "top", "merge": "max"},
        {"name": "car", "merge": "with", "of": "top", "type": "text"},
        {"name": "shots", "merge": "sum", "sorted": False},
        {"name": "tag", "merge": "last", "type": "text"},
    ]
    await service.board("b", *columns, predictor={"exact_top": 0})
    stats_of_ada = {"xp": 5, "top": 7, "car": "kart", "shots": 3, "tag": "fox"}
    await service.post("b", {"owner": "ada", "stats": stats_of_ada}, {"owner": "bob", "stats": {"xp": 4, "top": 9}})
    await service.refresh("b", "xp")
    clear = {"owner": "ada", "set": dict.fromkeys(stats_of_ada), "post_id": "clear"}
    assert codes(await service.post("b", clear, clear, {**clear, "post_id": "again"})) == [
        "applied", "duplicate", "unchanged",
    ]  # fmt: skip
    assert await stats(service, "ada") == {}
    page = await service.get(f"{B}/rankings/xp")
    assert ([each["owner"] for each in page["entries"]], page["total"]) == (["bob"], 1)
    assert (await service.get(f"{B}/entries/bob/positions?columns=xp&rank=exact"))["positions"][0]["rank"] == 1
    assert (await service.get(B))["entries"] == 2
    lines = (await service.get("/v1/owners/ada/posts"))["posts"]
    assert (lines[-2]["set"], lines[-2]["stored"]) == (clear["set"], clear["set"])
    await service.post(
        "b", {"owner": "ada", "stats": {"xp": 1, "top": 1}}, {"owner": "ada", "set": {"xp": None}, "stats": {"top": 3}}
    )
    assert await stats(service, "ada") == {"top": 3}
    assert (await service.get(f"{B}/rankings/xp"))["total"] == 1
    await service.must("DELETE", f"{POSTS}/clear?owner=ada")
    assert (await service.get(f"{B}/rankings/top"))["entries"][0]["owner"] == "bob"
    refused = [{"owner": "ada", "stats": {"tag": None}}, {"owner": "ada", "stats": {"xp": None}}]
    assert codes(await service.post("b", *refused)) == ["bad_value", "bad_value"]


async def test_a_row_that_is_cleared_and_filled_in_one_request_is_counted_once(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    fill, clear = {"owner": "ada", "stats": {"xp": 5}}, {"owner": "ada", "set": {"xp": None}}
    for sent, total in (
        ([clear], 0),
        ([fill, clear], 0),
        ([fill, clear, fill], 1),
        ([clear, fill], 1),
        ([fill, clear], 0),
    ):
        await service.post("b", *sent)
        assert (await service.get(f"{B}/rankings/xp"))["total"] == total
        assert len((await service.get(f"{B}/rankings/xp"))["entries"]) == total


async def test_a_queued_null_clears_the_value_too(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    await service.post("b", {"owner": "ada", "stats": {"xp": 5}})
    queued = {"owner": "ada", "set": {"xp": None}, "post_id": "clear"}
    await service.must("POST", f"{POSTS}?mode=queued", queued)
    await service.wait_applied()
    assert await stats(service, "ada") == {}


async def test_a_value_may_be_asked_for_as_any_json_library_writes_it(service: Service) -> None:
    """Take the value of an answer, and send it wherever a value is taken. Python and JavaScript write 2E-9 and 2e-9."""
    t = {"name": "t", "sorted": True, "merge": "max", "scale": 9, "min": "-1e-8", "max": 1e3}
    made = await service.board("b", t)
    assert [made["columns"][0][name] for name in ("min", "max")] == [Decimal("-0.00000001"), 1_000]
    await service.post("b", {"owner": "a", "stats": {"t": "2E-9"}}, {"owner": "z", "stats": {"t": 1}})
    value = (await service.get("/v1/leaderboards/b/entries/a"))["stats"]["t"]
    assert str(value) == "2E-9"
    for text in (str(value), "2e-9", "0.000000002", "0.2E-8"):
        [found] = (await service.get(f"/v1/leaderboards/b/rankings/t/positions?values={text}"))["positions"]
        assert (found["rank"], found["value"]) == (2, value)
        around = await service.get(f"/v1/leaderboards/b/rankings/t/around?value={text}")
        assert [each["owner"] for each in around["entries"]][-1] == "a"
        results = await service.post("b", {"owner": text, "stats": {"t": text}}, {"owner": text, "set": {"t": text}})
        assert [each["stats"]["t"] for each in results] == [value, value]
    answer = await service.call("GET", "/v1/leaderboards/b/rankings/t/positions?values=2E-10")
    assert (answer.status, answer.body["code"]) == (422, "bad_value")


async def test_the_least_and_greatest_64_bit_values_are_stored_and_ranked(service: Service) -> None:
    least, most = -(2**63), 2**63 - 1
    for ties in ("shared", "earliest"):
        for best in ("high", "low"):
            board = f"{ties}-{best}"
            xp = {"name": "xp", "best": best, "min": least, "max": most}
            await service.board(board, xp, {**xp, "name": "plain", "sorted": False}, ties=ties)
            values = [least, least + 1, -1, 0, 1, most - 1, most]
            stats = [{"xp": str(value), "plain": value} for value in values]
            await service.post(board, *({"owner": f"o{n}", "stats": each} for n, each in enumerate(stats)))
            await service.refresh(board, "xp")
            page = await service.get(f"/v1/leaderboards/{board}/rankings/xp")
            assert [row["value"] for row in page["entries"]] == sorted(values, reverse=best == "high")
            assert all(row["stats"] == dict.fromkeys(("xp", "plain"), row["value"]) for row in page["entries"])
            ends = f"values={least},{most}&rank=estimate"
            found = await service.get(f"/v1/leaderboards/{board}/rankings/xp/positions?{ends}")
            assert {each["value"] for each in found["positions"]} == {least, most}
            too_much = [{"owner": "x", "stats": {name: most + 1}} for name in ("xp", "plain")]
            assert codes(await service.post(board, *too_much)) == ["value_out_of_range"] * 2


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_a_time_far_in_the_future_is_rejected_and_a_near_one_is_accepted(b: Service) -> None:
    late = {"owner": "a", "stats": {"xp": 1}, "at": in_s(310)}
    assert codes(await b.post("b", {**late, "at": in_s(250)}, late)) == ["applied", "at_in_future"]
    assert await b.refused("POST", POSTS, late) == (422, "at_in_future")
    fan = (await b.must("POST", "/v1/posts", {"posts": [{**late, "boards": ["b"]}]}))["results"]
    assert codes(fan[0]["boards"]) == ["at_in_future"]
    await b.restart(at_ahead_s_max=1000)
    assert codes(await b.post("b", late)) == ["applied"]
    for at in ("yesterday", "2026-01-01", "2026-01-01T00:00:00", 5, "1969-12-31T23:59:59Z"):
        assert await b.refused("POST", POSTS, {**late, "at": at}) == (400, "bad_request")


async def test_a_request_past_a_limit_has_the_code_of_the_limit_and_applies_nothing(b: Service) -> None:
    post = {"owner": "a", "stats": {"xp": 1}}
    assert await b.refused("POST", POSTS, {"posts": [post] * 10_001}) == (400, "too_many_posts")
    lines = b"\n".join([json.dumps(post).encode()] * 10_001)
    assert await b.refused("POST", POSTS, lines, **LINES) == (400, "too_many_posts")
    assert await b.refused("POST", "/v1/posts", {**post, "boards": ["b"] * 101}) == (400, "too_many_boards")
    many = {**post, "boards": [f"b{number}" for number in range(100)]}
    assert await b.refused("POST", "/v1/posts", {"posts": [many] * 101}) == (400, "too_many_boards")
    assert await b.refused("POST", POSTS, b" " * (8 * 2**20 + 1)) == (413, "body_too_large")
    assert await b.refused("POST", "/v1/posts", post) == (400, "bad_request")
    assert await b.refused("POST", POSTS, {**post, "boards": ["b"]}) == (400, "unknown_field")
    assert await b.refused("POST", "/v1/leaderboards/none/posts", post) == (404, "unknown_board")
    assert (await b.get(B))["entries"] == 0


async def test_a_full_queue_is_answered_429_with_a_time_to_retry_and_a_retry_applies(b: Service) -> None:
    await b.restart(queue_posts_max=1, retry_after_s=3)
    posts = [{"owner": "a", "stats": {"xp": 1}, "post_id": f"id{i}"} for i in range(40)]
    answers = await asyncio.gather(*(b.call("POST", POSTS, post) for post in posts))
    full = [answer for answer in answers if answer.status == 429]
    assert full, "40 concurrent posts never filled the queue"
    assert {(answer.body["code"], answer.headers["Retry-After"]) for answer in full} == {("queue_full", "3")}
    assert {answer.status for answer in answers} == {200, 429}
    results = [(await b.must("POST", POSTS, post))["results"][0]["status"] for post in posts]
    assert results.count("applied") == len(full)
    assert await stats(b, "a") == {"xp": 40}


async def test_a_slow_store_is_answered_503_and_a_retry_tells_the_outcome(b: Service) -> None:
    await b.restart(post_wait_s_max=0.01, retry_after_s=2)
    posts = [{"owner": f"p{i}", "stats": {"xp": 1}} for i in range(5000)]
    late = {"posts": [{**post, "post_id": post["owner"]} for post in posts]}
    answer = await b.call("POST", POSTS, late)
    assert (answer.status, answer.body["code"], answer.headers["Retry-After"]) == (503, "timeout", "2")
    await b.restart(post_wait_s_max=10)
    results = (await b.must("POST", POSTS, late))["results"]
    assert {result["status"] for result in results} <= {"applied", "duplicate"}
    assert {result["stats"]["xp"] for result in results} == {1}


async def test_a_batch_of_many_values_is_applied_and_answered_in_small_pieces(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{index}" for index in range(8)]
    for board in ("b", "d"):
        await service.board(board, *({"name": name, "merge": "sum"} for name in names))
    await service.must("PUT", "/v1/families/f", {"columns": [{"name": name, "merge": "sum"} for name in names],
                                                 "periods": ["all", "day"]})  # fmt: skip
    monkeypatch.setattr(posts_view, "PIECE_VALUES_MAX", 80)
    groups = note_groups(service, monkeypatch)
    posts = [{"owner": f"p{index % 7}", "stats": dict.fromkeys(names, 1)} for index in range(25)]
    results = await service.post("b", *posts)
    assert groups == [10, 10, 5], "a group has at most 80 values"
    assert [each["owner"] for each in results] == [each["owner"] for each in posts]
    assert [each["stats"]["c7"] for each in results] == [1 + index // 7 for index in range(25)]
    groups.clear()
    found = await service.must("POST", "/v1/posts", {"posts": [{**each, "boards": ["b", "d"]} for each in posts]})
    assert groups == [5] * 5, "a value counts once for each board that the post names"
    assert [len(each["boards"]) for each in found["results"]] == [2] * 25
    groups.clear()
    await service.must("POST", "/v1/families/f/posts", posts)
    assert groups == [5] * 5, "and once for each board of a family"


async def test_a_batch_of_few_values_stays_one_transaction(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    groups = note_groups(service, monkeypatch)
    await service.post("b", *({"owner": f"player-{index}", "stats": {"xp": index}} for index in range(10_000)))
    assert groups == [10_000]


async def test_a_batch_that_fails_between_its_pieces_says_how_many_posts_were_applied(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    monkeypatch.setattr(posts_view, "PIECE_VALUES_MAX", 4)
    posts = [{"owner": f"p{index}", "stats": {"xp": 1}, "post_id": "m1"} for index in range(10)]
    groups = note_groups(service, monkeypatch, fails_after=2)
    answer = await service.call("POST", POSTS, posts)
    assert (answer.status, answer.body["code"]) == (503, "timeout")
    assert "the first 8 were applied" in answer.body["detail"]
    groups.clear()
    monkeypatch.undo()
    assert [each["status"] for each in await service.post("b", *posts)] == ["duplicate"] * 8 + ["applied"] * 2


async def test_a_batch_that_fails_in_its_first_piece_has_the_error_of_a_batch_that_was_not_applied(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    monkeypatch.setattr(posts_view, "PIECE_VALUES_MAX", 4)
    note_groups(service, monkeypatch, fails_after=0)
    posts = [{"owner": f"p{index}", "stats": {"xp": 1}} for index in range(10)]
    assert await service.refused("POST", POSTS, posts) == (429, "queue_full")
    assert await service.refused("GET", f"{B}/entries/p0") == (404, "unknown_owner")


def note_groups(service: Service, monkeypatch: pytest.MonkeyPatch, fails_after: int | None = None) -> list[int]:
    """Return a list that gets the number of posts of each group that a request hands to the writer."""
    groups: list[int] = []
    writer = service.context.posting.writer
    submit = writer.submit

    async def note(posts: Sequence[Post]) -> list[list[PartOutcome]]:
        if len(groups) == fails_after:
            raise QueueFullError("too many")
        groups.append(len(posts))
        return await submit(posts)

    monkeypatch.setattr(writer, "submit", note)
    return groups
