"""Test the boards of a real service: callers create, confirm, widen, empty and delete boards, and erase owners."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from rankcurve.column_words import parse_column

from config.settings import Settings
from service.views.boards import boards
from service.views.owners import owners
from storage.boards.boards import list_boards
from storage.records import Board
from storage.store import Program
from tests.service.real_service import RARELY, Service, without

ROOT = Path(__file__).parents[4]
B = "/v1/leaderboards/b"
XP: dict[str, Any] = {"name": "xp", "sorted": True, "merge": "sum"}
LAP: dict[str, Any] = {"name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 3, "min": 0, "max": 86400}
TAG: dict[str, Any] = {"name": "tag", "sorted": False, "merge": "last", "type": "text"}


async def put(service: Service, *columns: dict[str, Any], **spec: Any) -> tuple[int, Any]:
    answer = await service.call("PUT", B, {"columns": list(columns), **spec})
    return answer.status, answer.body


async def test_a_new_board_shows_every_default_and_the_same_spec_confirms_it(service: Service) -> None:
    status, body = await put(service, XP, LAP, TAG)
    assert status == 201
    xp, lap, tag = body["columns"]
    assert xp == {**XP, "best": "high", "scale": 0, "min": -(10**15), "max": 10**15, "type": "number"}
    assert lap == {**LAP, "type": "number"}
    assert tag == {**TAG, "best": "high", "scale": 0, "min": None, "max": None}
    assert (body["id"], body["ties"], body["table"], body["entries"]) == ("b", "shared", "own", 0)
    assert body["predictor"] == {"samples": 1000, "exact_top": 500, "refresh_seconds": 60, "method": "auto"}
    assert body["curves"] == {"xp": None, "lap": None}
    assert await put(service, XP, LAP, TAG) == (200, body)
    assert (await service.get(B)) == body
    spelled = {name: body[name] for name in ("ties", "table", "predictor")}
    columns = [{k: v for k, v in column.items() if v is not None} for column in body["columns"]]
    assert await put(service, *columns, **spelled) == (200, body)
    await service.restart()
    assert await service.get(B) == body


async def test_a_spec_from_the_largest_and_smallest_defaults_is_taken_back(tmp_path: Path) -> None:
    fields = {name: Settings.model_fields[f"default_{name}"] for name in ("samples", "exact_top", "refresh_seconds")}
    for end, at in (("ge", 0), ("le", 1)):
        chosen = {f"default_{name}": getattr(field.metadata[at], end) for name, field in fields.items()}
        async with Service(tmp_path / end, **chosen).running() as service:
            status, body = await put(service, XP)
            assert status == 201
            assert {f"default_{name}": body["predictor"][name] for name in fields} == chosen
            assert await put(service, XP, predictor=body["predictor"]) == (200, body)


async def test_the_least_value_of_a_min_column_ranks_first_unless_the_spec_says_otherwise(service: Service) -> None:
    lap = {"name": "lap", "sorted": True, "merge": "min"}
    words = [lap, {**lap, "name": "low", "best": "low"}, {**lap, "name": "high", "best": "high"}]
    names = ["sum", "max", "last"]
    words += [{"name": name, "sorted": True, "merge": name} for name in names]
    expected = dict.fromkeys(names, "high") | {"lap": "low", "low": "low", "high": "high"}
    for path, more in ((B, {}), ("/v1/families/f", {"periods": ["all"]})):
        made = await service.must("PUT", path, {"columns": words[1:], **more})
        added = await service.must("PUT", path, {"columns": [*words[1:], lap], **more})
        assert {each["name"]: each["best"] for each in added["columns"]} == expected
        assert added["columns"][:-1] == made["columns"]
        for same in (lap, {**lap, "best": "low"}, added["columns"][-1]):
            again = await service.call("PUT", path, {"columns": [*words[1:], same], **more})
            assert (again.status, again.body) == (200, added)
        other = {"columns": [*words[1:], {**lap, "best": "high"}], **more}
        assert await service.refused("PUT", path, other) == (409, "spec_conflict")
    await service.must("POST", "/v1/families/f/posts", [{"owner": each, "stats": {"lap": value}} for each, value in
                                                        (("slow", 90), ("fast", 60))])  # fmt: skip
    page = await service.get("/v1/leaderboards/f%3Aall/rankings/lap")
    assert [each["owner"] for each in page["entries"]] == ["fast", "slow"]


async def test_numbers_are_ranked_and_texts_are_not_unless_the_spec_says_otherwise(service: Service) -> None:
    xp: dict[str, Any] = {"name": "xp", "merge": "sum"}
    tag, clip = (
        {"name": "tag", "merge": "last", "type": "text"},
        {"name": "clip", "merge": "with", "of": "xp", "scale": 1},
    )
    words = [xp, {**xp, "name": "shots", "sorted": False}, tag, clip]
    for path, more in ((B, {}), ("/v1/families/f", {"periods": ["all"]})):
        made = await service.must("PUT", path, {"columns": words, **more})
        assert {each["name"]: each["sorted"] for each in made["columns"]} == {
            "xp": True, "shots": False, "tag": False, "clip": False
        }  # fmt: skip
        for same in (words, [{**xp, "sorted": True}, words[1], {**tag, "sorted": False}, {**clip, "sorted": False}]):
            again = await service.call("PUT", path, {"columns": same, **more})
            assert (again.status, again.body) == (200, made)
        # A default never reinterprets a stored column: `shots` is not ranked, whatever a later PUT leaves out.
        left_out = [xp, {**xp, "name": "shots"}, tag, clip]
        assert await service.refused("PUT", path, {"columns": left_out, **more}) == (409, "spec_conflict")
        assert await service.refused("PUT", path, {"columns": [{**xp, "sorted": False}, *words[1:]], **more}) == (
            409, "spec_conflict"
        )  # fmt: skip
        assert without(await service.get(path), "curves") == without(made, "curves")
    ranked_text = {"columns": [xp, {**tag, "sorted": True}]}
    assert await service.refused("PUT", "/v1/leaderboards/c", ranked_text) == (422, "bad_spec")
    tiers = [{"name": "gold", "to_rank": 1}]
    assert (await put(service, {**xp, "tiers": tiers}, *words[1:]))[0] == 200, "a column that is ranked by default"


async def test_boards_past_the_limit_of_own_tables_must_share_a_table(service: Service) -> None:
    await service.restart(own_tables_max=1)
    assert (await put(service, XP))[0] == 201
    path = "/v1/leaderboards/c"
    answer = await service.call("PUT", path, {"columns": [XP]})
    assert (answer.status, answer.body["code"]) == (409, "own_tables_full")
    assert '"table": "shared"' in answer.body["detail"]
    assert answer.body["errors"][0]["pointer"] == "/table"
    assert (await service.call("PUT", path, {"columns": [XP], "table": "shared"})).status == 201
    assert (await put(service, XP))[0] == 200, "an existing board is confirmed"


async def test_default_bounds_of_a_column_fit_64_bits(service: Service) -> None:
    _, body = await put(service, {**XP, "scale": 3}, {**XP, "name": "fine", "scale": 9})
    plain, fine = body["columns"]
    assert (plain["min"], plain["max"]) == (-(10**15), 10**15)
    assert str(fine["max"]) == "9223372036.854775807"


async def test_the_column_of_the_readme_takes_18_digits_and_the_default_column_does_not(service: Service) -> None:
    [words] = set(re.findall(r"gold:\S*?max=[0-9]+", (ROOT / "README.md").read_text(encoding="utf-8")))
    gold = parse_column(words)
    await service.board("b", gold, {"name": "xp", "merge": "sum"})
    [most, over] = await service.post("b", *({"owner": "a", "stats": {name: 10**18 - 1}} for name in ("gold", "xp")))
    assert (most["stats"]["gold"], over["error"]["code"]) == (10**18 - 1, "value_out_of_range")


async def test_a_column_added_to_a_board_is_empty_and_then_ranked(service: Service) -> None:
    await service.board("b", XP)
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(5)))
    await service.refresh("b", "xp")
    status, body = await put(service, LAP, XP, TAG, predictor=RARELY)
    assert (status, [column["name"] for column in body["columns"]]) == (200, ["xp", "lap", "tag"])
    assert (body["entries"], body["curves"]["xp"]["total"], body["curves"]["lap"]) == (5, 5, None)
    assert (await service.get(f"{B}/entries/p1"))["stats"] == {"xp": 1, "lap": None, "tag": None}
    assert (await service.get(f"{B}/rankings/lap"))["entries"] == []
    await service.post("b", {"owner": "p1", "stats": {"lap": 60, "tag": "x"}}, {"owner": "new", "stats": {"lap": 50}})
    rows = (await service.get(f"{B}/rankings/lap"))["entries"]
    assert [(row["owner"], row["rank"]) for row in rows] == [("new", 1), ("p1", 2)]
    (lap,) = (await service.get(f"{B}/entries/p1/positions?columns=lap"))["positions"]
    assert (lap["rank"], lap["total"]) == (2, 2)
    assert (await service.get(B))["entries"] == 6


RUN = {"name": "time", "merge": "with", "of": "lap", "sorted": False, "best": "low"}


@pytest.mark.parametrize(
    ("columns", "ties", "pointer"),
    [
        ((LAP, {**RUN, "of": "none"}), "shared", "/columns/1/of"),
        ((LAP, {**RUN, "of": "time"}), "shared", "/columns/1/of"),
        ((LAP, {**RUN, "sorted": True}), "shared", "/columns/1/of"),
        ((LAP, {**RUN, "merge": "last"}), "shared", "/columns/1/of"),
        ((LAP, without(RUN, "of")), "shared", "/columns/1/of"),
        ((LAP, TAG, {**RUN, "of": "tag"}), "shared", "/columns/2/of"),
        ((LAP, TAG), ["tag"], "/ties/0"),
        ((LAP, RUN), ["time", "none"], "/ties/1"),
        ((LAP, RUN), ["time", "time"], "/ties"),
        ((LAP, RUN), ["earliest", "time"], "/ties/0"),
        ((LAP, XP, RUN, {**XP, "name": "other"}), ["time", "lap", "xp", "other"], "/ties/3"),
        ((LAP,), [], "/ties"),
    ],
)
async def test_columns_that_cannot_follow_or_break_ties_are_refused(
    service: Service, columns: tuple[dict[str, Any], ...], ties: Any, pointer: str
) -> None:
    answer = await service.call("PUT", B, {"columns": list(columns), "ties": ties})
    assert answer.status in (400, 422), answer.body
    assert answer.body["errors"][0]["pointer"].startswith(pointer)


async def test_a_better_run_replaces_its_time_and_replay_and_a_worse_one_leaves_them(service: Service) -> None:
    replay = {"name": "replay", "merge": "with", "of": "score", "sorted": False, "type": "text"}
    spec = {"columns": [{"name": "score", "merge": "max", "sorted": True}, {**RUN, "of": "score"}, replay]}
    made = await service.must("PUT", B, {**spec, "ties": ["time", "earliest"]})
    assert (made["ties"], made["columns"][1]["of"]) == (["time", "earliest"], "score")
    spec["columns"] = [{k: v for k, v in column.items() if v is not None} for column in made["columns"]]
    assert await service.must("PUT", B, {**spec, "ties": made["ties"]}) == made
    assert (await service.call("PUT", B, {**spec, "ties": "earliest"})).status == 409
    for stats, kept in (
        ({"score": 100, "time": 50, "replay": "a"}, (100, 50, "a")),
        ({"score": 100, "time": 60, "replay": "b"}, (100, 50, "a")),
        ({"score": 90, "time": 1, "replay": "c"}, (100, 50, "a")),
        ({"score": 100, "time": 41, "replay": "d"}, (100, 41, "d")),
        ({"time": 3, "replay": "e"}, (100, 41, "d")),
        ({"score": 101}, (101, None, None)),
        ({"score": 101, "time": 70}, (101, 70, None)),
    ):
        [result] = await service.post("b", {"owner": "ada", "stats": stats})
        assert tuple(result["stats"].values()) == kept
    await service.post(
        "b", {"owner": "bob", "stats": {"score": 101, "time": 69}}, {"owner": "eve", "stats": {"score": 101}}
    )
    rows = (await service.get(f"{B}/rankings/score"))["entries"]
    assert [(row["owner"], row["rank"]) for row in rows] == [("bob", 1), ("ada", 2), ("eve", 3)]
    await service.refresh("b", "score")
    curve = await service.get(f"{B}/rankings/score/curve")
    assert [column["column"] for column in curve["tie_columns"]] == ["time"]
    assert [knot["tie_values"] for knot in curve["knots"]] == [[69], [70], [None]]
    await service.must("POST", f"{B}/posts", {"owner": "ada", "set": {"replay": "f"}})
    assert (await service.get(f"{B}/entries/ada"))["stats"] == {"score": 101, "time": 70, "replay": "f"}


async def test_ties_cannot_change_and_the_predictor_can(service: Service) -> None:
    await put(service, XP, predictor=RARELY)
    assert (await put(service, XP, ties="earliest"))[0] == 409
    status, body = await put(service, XP, predictor={**RARELY, "samples": 7, "exact_top": 3})
    assert (status, body["predictor"]["samples"], body["predictor"]["exact_top"]) == (200, 7, 3)
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(100)))
    await service.refresh("b", "xp")
    assert (await service.get(B))["curves"]["xp"]["knots"] <= 7


async def test_a_board_that_is_scanned_shows_the_certificate_of_its_curve(service: Service) -> None:
    status, body = await put(service, XP, predictor={**RARELY, "method": "scan", "samples": 10})
    assert (status, body["predictor"]["method"]) == (201, "scan")
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i * i * i}} for i in range(200)))
    answer = await service.must("POST", f"{B}/rankings/xp/refresh")
    state = (await service.get(B))["curves"]["xp"]
    curve = await service.get(f"{B}/rankings/xp/curve")
    assert {answer["method"], state["method"], curve["method"]} == {"scan"}
    assert answer["certificate"] == state["certificate"] == curve["certificate"] > 0
    for i in (3, 77, 150):
        position = (await service.get(f"{B}/rankings/xp/positions?rank=estimate&values={i * i * i}"))["positions"][0]
        assert abs(position["rank"] - (200 - i)) <= curve["certificate"] * (200 - i)


async def test_an_inconsistent_spec_creates_no_board(service: Service) -> None:
    inconsistent: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({"columns": [XP, XP]}, (422, "bad_spec")),
        ({"columns": [{**XP, "min": 5, "max": 5}]}, (422, "bad_spec")),
        ({"columns": [{**XP, "min": "1.5"}]}, (422, "bad_value")),
        ({"columns": [{**XP, "max": 2**63}]}, (422, "value_out_of_range")),
        ({"columns": [{**TAG, "sorted": True}]}, (422, "bad_spec")),
        ({"columns": [{**TAG, "merge": "sum"}]}, (422, "bad_spec")),
        ({"columns": [{**XP, "scale": 10}]}, (400, "bad_request")),
        ({"columns": [{**XP, "name": "Xp"}]}, (400, "bad_request")),
        ({"columns": [{**XP, "merge": "avg"}]}, (400, "bad_request")),
        ({"columns": [{**XP, "colour": 1}]}, (400, "unknown_field")),
        ({"columns": []}, (400, "bad_request")),
        ({"ties": "none"}, (400, "bad_request")),
        ({"predictor": {"samples": 1}}, (400, "bad_request")),
        ({"entries": 5}, (400, "unknown_field")),
    ]
    for spec, refusal in inconsistent:
        assert await service.refused("PUT", B, {"columns": [XP], **spec}) == refusal, spec
    assert await service.refused("GET", B) == (404, "unknown_board")


async def list_ids(service: Service, query: str) -> list[str]:
    """Return the ids of a list, read in pages of two."""
    pages = service.pages(f"/v1/leaderboards?limit=2{query}")
    return [board["id"] async for page in pages for board in page["leaderboards"]]


async def make_boards(service: Service) -> None:
    for board in ("Season-1", "season-2", "daily", "other"):
        await service.board(board, XP)
    await service.call("PUT", "/v1/families/arena", {"columns": [XP], "periods": ["all"], "facets": [[], ["clan"]]})
    post = {"owner": "ada", "stats": {"xp": 1}, "facets": {"clan": "fox"}}
    await service.call("POST", "/v1/families/arena/posts", post)


async def test_boards_are_found_by_any_part_of_their_ids_in_either_case(service: Service) -> None:
    await make_boards(service)
    assert await list_ids(service, "&contains=EAS") == ["Season-1", "season-2"]
    assert await list_ids(service, "&contains=a&prefix=d") == ["daily"]
    assert await list_ids(service, "&contains=nowhere") == []
    assert await list_ids(service, "&contains=%25") == []
    assert await list_ids(service, "&families=false") == ["Season-1", "daily", "other", "season-2"]
    assert len(await list_ids(service, "")) == 6


async def test_boards_by_activity_begin_with_the_last_changed_one(service: Service) -> None:
    await make_boards(service)
    for board in ("other", "daily", "Season-1"):
        await service.post(board, {"owner": "ada", "stats": {"xp": 1}})
    assert await list_ids(service, "&order=activity&families=false") == ["Season-1", "daily", "other", "season-2"]
    await service.post("daily", {"owner": "ada", "stats": {"xp": 1}})
    assert await list_ids(service, "&order=activity&families=false&contains=a") == ["daily", "Season-1", "season-2"]
    assert (await list_ids(service, "&order=activity"))[0] == "daily"
    [daily, *_] = (await service.get("/v1/leaderboards?order=activity"))["leaderboards"]
    assert daily["active_at"] > daily["created_at"]


async def test_the_changes_of_a_board_grow_with_each_row_that_is_written(service: Service) -> None:
    await make_boards(service)
    seen = [(await service.get("/v1/leaderboards/daily"))["changes"]]
    for owner, xp in (("ada", 1), ("bob", 2), ("ada", 3)):
        await service.post("daily", {"owner": owner, "stats": {"xp": xp}})
        seen.append((await service.get("/v1/leaderboards/daily"))["changes"])
    assert [after - before for before, after in pairwise(seen)] == [1, 1, 1]
    [listed] = (await service.get("/v1/leaderboards?prefix=daily"))["leaderboards"]
    assert listed["changes"] == seen[-1]


async def test_a_cursor_of_another_order_or_filter_is_refused(service: Service) -> None:
    await make_boards(service)
    for one, other in (("", "&order=activity"), ("&order=activity", ""), ("&contains=a", ""), ("", "&families=false")):
        cursor = (await service.get(f"/v1/leaderboards?limit=1{one}"))["next"]
        assert await service.refused("GET", f"/v1/leaderboards?limit=1{other}&cursor={cursor}") == (400, "bad_cursor")


async def test_more_boards_than_the_order_by_activity_takes_are_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_boards(service)
    monkeypatch.setattr(boards, "ACTIVE_BOARDS_MAX", 4)
    answer = await service.call("GET", "/v1/leaderboards?order=activity")
    assert answer.body["code"] == "too_many_boards"
    assert len(await list_ids(service, "&order=activity&families=false")) == 4


async def test_families_are_listed_by_id_with_their_specifications(service: Service) -> None:
    for family in ("b", "c", "a"):
        await service.call("PUT", f"/v1/families/{family}", {"columns": [XP], "periods": ["day"]})
    first = await service.get("/v1/families?limit=2")
    rest = await service.get(f"/v1/families?limit=2&cursor={first['next']}")
    assert [each["id"] for each in first["families"] + rest["families"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert first["families"][0] == await service.get("/v1/families/a")


async def test_the_boards_of_an_owner_are_those_with_an_entry(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_boards(service)
    monkeypatch.setattr(owners, "EXAMINED_BOARDS_MAX", 2)
    for board in ("other", "season-2"):
        await service.post(board, {"owner": "ada", "stats": {"xp": 7}}, {"owner": "bob", "stats": {"xp": 8}})
    found = [each async for page in service.pages("/v1/owners/ada/boards?limit=1") for each in page["boards"]]
    assert [each["board"] for each in found] == ["arena:all", "arena:all:clan=fox", "other", "season-2"]
    assert found[-1]["stats"] == {"xp": 7}
    assert await service.get("/v1/owners/nobody/boards?limit=9") == {"owner": "nobody", "boards": [], "next": ANY}


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_a_board_that_is_deleted_during_the_search_for_an_owner_is_left_out(
    service: Service, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    for board in ("gone", "kept"):
        await service.board(board, XP, table=table)
        await service.post(board, {"owner": "ada", "stats": {"xp": 7}})
    listed = await service.context.store.read(lambda: list_boards(prefix="", after="", limit=9))
    await service.must("DELETE", "/v1/leaderboards/gone")
    outdated = [listed]

    def list_late(**query: Any) -> Program[list[Board]]:
        return outdated.pop() if outdated else (yield from list_boards(**query))

    monkeypatch.setattr(owners, "list_boards", list_late)
    found = await service.get("/v1/owners/ada/boards")
    assert [each["board"] for each in found["boards"]] == ["kept"]
    assert outdated == []


async def test_boards_are_listed_by_id_with_prefix_limit_and_cursor(service: Service) -> None:
    ids = ["B", "a", "a.1", "a.2", "a:x", "b", "b-1"]
    for board in reversed(ids):
        await service.board(board, XP)
    await service.post("a.1", {"owner": "x", "stats": {"xp": 1}})
    assert await list_ids(service, "") == sorted(ids)
    assert await list_ids(service, "&prefix=a") == ["a", "a.1", "a.2", "a:x"]
    assert await list_ids(service, "&prefix=a.") == ["a.1", "a.2"]
    assert await list_ids(service, "&prefix=zz") == []
    boards = (await service.get("/v1/leaderboards"))["leaderboards"]
    assert {board["id"]: board["entries"] for board in boards if board["entries"]} == {"a.1": 1}
    cursor = (await service.get("/v1/leaderboards?limit=2&prefix=a"))["next"]
    assert await service.refused("GET", f"/v1/leaderboards?cursor={cursor}") == (400, "bad_cursor")
    assert await service.refused("GET", "/v1/leaderboards?limit=1001") == (400, "too_many_entries")


async def test_a_deleted_board_is_unknown_and_a_new_one_with_its_name_is_empty(service: Service) -> None:
    await service.board("b", XP)
    post = {"owner": "a", "stats": {"xp": 1}, "post_id": "id"}
    await service.post("b", post)
    await service.refresh("b", "xp")
    cursor_path = f"{B}/rankings/xp?limit=1&from_rank=1"
    await service.must("DELETE", B)
    gone = (B, f"{B}/entries/a", f"{B}/entries/a/positions", cursor_path, f"{B}/rankings/xp/curve")
    for path in gone:
        assert await service.refused("GET", path) == (404, "unknown_board")
    assert await service.refused("DELETE", B) == (404, "unknown_board")
    assert await service.refused("POST", f"{B}/posts", post) == (404, "unknown_board")
    await service.board("b", LAP, XP)
    assert (await service.get(B))["entries"] == 0
    assert await service.refused("GET", f"{B}/rankings/xp/curve") == (404, "no_curve")
    assert (await service.post("b", post))[0]["status"] == "applied"


async def test_an_erased_owner_leaves_totals_rankings_and_every_board(service: Service) -> None:
    for board in ("b", "c", "d"):
        await service.board(board, XP, LAP)
        await service.post(board, {"owner": "a", "stats": {"xp": 1}}, {"owner": "z", "stats": {"xp": 2, "lap": 3}})
    await service.must("DELETE", f"{B}/entries/z")
    assert await service.refused("GET", f"{B}/entries/z") == (404, "unknown_owner")
    assert await service.refused("DELETE", f"{B}/entries/z") == (404, "unknown_owner")
    assert (await service.get(B))["entries"] == 1
    assert [(await service.get(f"{B}/rankings/{name}"))["total"] for name in ("xp", "lap")] == [1, 0]
    assert (await service.get("/v1/leaderboards/c/entries/z"))["owner"] == "z"
    await service.must("DELETE", "/v1/owners/z")
    await service.must("DELETE", "/v1/owners/z")
    for board in ("c", "d"):
        assert await service.refused("GET", f"/v1/leaderboards/{board}/entries/z") == (404, "unknown_owner")
        (left,) = (await service.get(f"/v1/leaderboards/{board}/entries/a/positions?columns=xp"))["positions"]
        assert (left["rank"], left["total"]) == (1, 1)
    (result,) = await service.post_xp("b", z=7)
    assert (result["status"], result["stats"]["xp"]) == ("applied", 7)


async def test_erasing_an_owner_on_every_board_works_while_boards_are_deleted(service: Service) -> None:
    for index in range(12):
        await service.board(f"b{index:02d}", XP)
        await service.post(f"b{index:02d}", {"owner": "z", "stats": {"xp": 1}})
    deletes = [service.call("DELETE", f"/v1/leaderboards/b{index:02d}") for index in range(0, 12, 2)]
    erased, *deleted = await asyncio.gather(service.call("DELETE", "/v1/owners/z"), *deletes)
    assert [erased.status, *(answer.status for answer in deleted)] == [200, *[204] * 6]
    for index in range(1, 12, 2):
        assert await service.refused("GET", f"/v1/leaderboards/b{index:02d}/entries/z") == (404, "unknown_owner")


async def test_a_board_can_be_deleted_and_reset_while_others_post_and_read(service: Service) -> None:
    for act in (("DELETE", B), ("POST", f"{B}/reset")):
        await service.board("b", XP)
        await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(50)))
        busy = [service.call("POST", f"{B}/posts", {"owner": f"p{i}", "stats": {"xp": 1}}) for i in range(20)]
        reads = (f"{B}/entries/p1/positions", f"{B}/rankings/xp", f"{B}/rankings/xp/buckets", f"{B}/entries/p1", B)
        busy += [service.call("GET", path) for path in reads * 3]
        busy.append(service.call("POST", f"{B}/rankings/xp/refresh"))
        busy.append(service.call("POST", f"{B}/entries/lookup", {"owners": ["p1"]}))
        answers = await asyncio.gather(*busy[:18], service.call(*act), *busy[18:])
        assert {answer.status for answer in answers} <= {200, 204, 404}
