"""Views of a real service: entries, lookups, many boards, curve documents, buckets and the next better place."""

import asyncio
import random
from decimal import Decimal
from typing import Any

from service.views.rankings.curves import curve_etag
from tests.service.real_service import WAIT_S, Service, escaped, without

B = "/v1/leaderboards/b"
LAP = {"name": "lap", "merge": "min", "best": "low", "scale": 3, "min": 0}


async def create_small_board(service: Service) -> None:
    """Make a board of 30 owners. Owner `p0` has no value of lap, and owner `idle` has no ranked value."""
    await service.board("b", {"name": "xp"}, LAP, {"name": "tag", "sorted": False, "type": "text"})
    stats: list[dict[str, Any]] = [{"xp": i, "lap": f"{60 + i // 3}.250", "tag": f"t{i}"} for i in range(30)]
    del stats[0]["lap"]
    posts = [{"owner": f"p{i}", "stats": each} for i, each in enumerate(stats)]
    await service.post("b", *posts, {"owner": "idle", "stats": {"tag": "x"}})


async def test_an_entry_shows_every_column_and_the_time_of_its_last_change(service: Service) -> None:
    await create_small_board(service)
    (result,) = await service.post("b", {"owner": "p3", "stats": {"lap": "59.5"}})
    entry = await service.get(f"{B}/entries/p3")
    stats = {"xp": 3, "lap": Decimal("59.500"), "tag": "t3"}
    assert entry == {"owner": "p3", "updated_at": result["updated_at"], "stats": stats}
    assert (await service.get(f"{B}/entries/idle"))["stats"] == {"xp": None, "lap": None, "tag": "x"}
    assert await service.refused("GET", f"{B}/entries/nobody") == (404, "unknown_owner")
    assert await service.refused("GET", "/v1/leaderboards/none/entries/p3") == (404, "unknown_board")


async def test_positions_come_in_the_requested_order_with_null_where_an_owner_has_no_value(service: Service) -> None:
    await create_small_board(service)
    path = f"{B}/entries/p0/positions"
    lap, xp, again = (await service.get(f"{path}?columns=lap,xp,lap"))["positions"]
    assert lap == again == {"column": "lap", "value": None, "rank": None}
    assert (xp["rank"], xp["total"], xp["percentile"]) == (30, 30, 0)
    assert await service.refused("GET", f"{path}?columns=lap") == (404, "not_ranked")
    assert await service.refused("GET", f"{B}/entries/idle/positions") == (404, "not_ranked")
    assert await service.refused("GET", f"{B}/entries/nobody/positions") == (404, "unknown_owner")
    for unranked in ("none", "tag", "xp,none"):
        assert await service.refused("GET", f"{path}?columns={unranked}") == (404, "unknown_column")


async def test_a_lookup_answers_in_the_requested_order_and_lists_missing_owners(service: Service) -> None:
    await create_small_board(service)
    asked = ["p7", "ghost", "p0", "idle", "p7", "é", "ghost", "p29"]
    found = await service.must("POST", f"{B}/entries/lookup", {"owners": asked, "column": "lap"})
    assert [entry["owner"] for entry in found["entries"]] == ["p7", "p0", "idle", "p7", "p29"]
    assert found["missing"] == ["ghost", "é"]
    p7, p0, idle, again, p29 = found["entries"]
    assert p7 == again
    assert (p0["position"], idle["position"]) == (None, None)
    assert (p7["position"]["rank"], p7["position"]["value"]) == (6, Decimal("62.250"))
    assert (p29["position"]["rank"], p29["position"]["total"]) == (27, 29)
    bare = await service.must("POST", f"{B}/entries/lookup", {"owners": asked})
    assert all("position" not in entry for entry in bare["entries"])
    assert bare["entries"] == without(found["entries"], "position", "place")


async def test_a_lookup_of_no_owners_is_empty(service: Service) -> None:
    await create_small_board(service)
    for column in ({}, {"column": "lap"}):
        found = await service.must("POST", f"{B}/entries/lookup", {"owners": [], **column})
        assert (found["entries"], found["missing"]) == ([], [])
    assert await service.refused("POST", "/v1/leaderboards/none/entries/lookup", {"owners": []}) == (
        404,
        "unknown_board",
    )
    bad = {"owners": [], "column": "none"}
    assert await service.refused("POST", f"{B}/entries/lookup", bad) == (404, "unknown_column")


async def test_a_lookup_refuses_invalid_requests(service: Service) -> None:
    await create_small_board(service)
    path = f"{B}/entries/lookup"
    many = [f"p{i}" for i in range(1001)]
    assert len((await service.must("POST", path, {"owners": many[:1000]}))["missing"]) == 970
    assert await service.refused("POST", path, {"owners": many}) == (400, "too_many_owners")
    for column in ("none", "tag"):
        assert await service.refused("POST", path, {"owners": ["p1"], "column": column}) == (404, "unknown_column")
    for owners in (["\u0000"], [""], [7], ["x" * 129], "p1", None):
        assert await service.refused("POST", path, {"owners": owners}) == (400, "bad_request")
    unknown = "/v1/leaderboards/none/entries/lookup"
    assert await service.refused("POST", unknown, {"owners": ["a"]}) == (404, "unknown_board")


async def test_positions_on_no_boards_are_empty(service: Service) -> None:
    assert (await service.must("POST", "/v1/owners/ada/positions", {"boards": []}))["positions"] == []


async def test_positions_of_one_owner_on_many_boards_come_in_the_requested_order(service: Service) -> None:
    for index, board in enumerate(("a", "b", "c")):
        await service.board(board, {"name": "xp"}, {"name": "kills"})
        stats = [{"kills": i, **({"xp": i} if i > index else {})} for i in range(4)]
        await service.post(board, *({"owner": f"p{i}", "stats": each} for i, each in enumerate(stats)))
    found = await service.must("POST", "/v1/owners/p2/positions", {"boards": ["c", "a", "b", "a"], "column": "xp"})
    assert found["owner"] == "p2"
    assert [(each["board"], each["rank"]) for each in found["positions"]] == [("c", None), ("a", 2), ("b", 2), ("a", 2)]
    assert found["positions"][0] == {"board": "c", "column": "xp", "value": None, "rank": None}
    ghost = await service.must("POST", "/v1/owners/ghost/positions", {"boards": ["a"], "column": "xp"})
    assert ghost["positions"] == [{"board": "a", "column": "xp", "value": None, "rank": None}]
    path = "/v1/owners/p2/positions"
    assert await service.refused("POST", path, {"boards": ["a", "none"], "column": "xp"}) == (404, "unknown_board")
    assert await service.refused("POST", path, {"boards": ["a"], "column": "none"}) == (404, "unknown_column")
    assert await service.refused("POST", path, {"boards": ["a"] * 1001, "column": "xp"}) == (400, "too_many_boards")


async def test_the_curve_document_shows_its_knots_and_an_unchanged_one_is_answered_304(service: Service) -> None:
    await create_small_board(service)
    path = f"{B}/rankings/lap/curve"
    assert await service.refused("GET", path) == (404, "no_curve")
    done = await service.must("POST", f"{B}/rankings/lap/refresh")
    first = await service.call("GET", path)
    assert without(done, "seconds").items() <= first.body.items()
    assert (first.body["best"], first.body["scale"], first.body["ties"], first.body["step"]) == ("low", 3, "shared", 1)
    assert (first.body["errors"], first.body["shapes"]) == (None, None)
    assert (first.body["column"], first.body["method"], first.body["total"]) == ("lap", "skip", 29)
    knots = [(str(knot["value"]), knot["rank"], knot["ties"]) for knot in first.body["knots"]]
    assert "reached_at" not in first.body["knots"][0], "ties are shared"
    assert knots[:3] == [("60.250", 1, 2), ("61.250", 3, 3), ("62.250", 6, 3)]
    etag = first.headers["ETag"]
    assert etag.startswith('W/"')
    for known in (etag, etag.removeprefix("W/"), "*", f'"older", {etag}'):
        again = await service.call("GET", path, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, None, etag)
    assert (await service.call("GET", path, headers={"If-None-Match": '"older"'})).status == 200
    await service.post("b", {"owner": "p30", "stats": {"lap": 59}})
    await service.refresh("b", "lap")
    newer = await service.call("GET", path, headers={"If-None-Match": etag})
    assert (newer.status, newer.body["total"]) == (200, 30)
    assert newer.headers["ETag"] != etag
    assert (await service.get(B))["curves"]["lap"]["total"] == 30
    assert (await service.get(B))["curves"]["xp"] is None


async def wait_folded(service: Service, *, total: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            await service.get(B)
            board = await service.context.catalog.find_board("b")
            served = service.context.curves.book.find_served(board.leaf, 0)
            if served is not None and served.live_version and served.curve.total == total:
                return


async def test_a_curve_that_becomes_live_without_changes_is_answered_304(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"p{i}", "stats": {"xp": i}} for i in range(30)))
    await service.refresh("b", "xp")
    path = f"{B}/rankings/xp/curve"
    board = await service.context.catalog.find_board("b")
    served = service.context.curves.book.find_served(board.leaf, 0)
    assert served is not None
    etag = curve_etag(board, 0, served.fit)
    fitted = await service.get(path)
    await wait_folded(service, total=30)
    live = await service.get(path)
    assert {**live, "as_of": None} == {**fitted, "as_of": None}
    assert (await service.call("GET", path, headers={"If-None-Match": etag})).status == 304
    await service.post_xp("b", new=5)
    await wait_folded(service, total=31)
    moved = await service.call("GET", path, headers={"If-None-Match": etag})
    assert (moved.status, moved.body["total"]) == (200, 31)


async def test_buckets_hold_every_entry_once(service: Service) -> None:
    await create_small_board(service)
    await service.post_xp("b", low=-41)
    for count in (1, 2, 7, 20, 1000):
        buckets = (await service.get(f"{B}/rankings/xp/buckets?buckets={count}"))["buckets"]
        assert len(buckets) <= count
        assert sum(bucket["entries"] for bucket in buckets) == 31
        assert (buckets[0]["from"], buckets[-1]["to"]) == (-41, 29)
        values = [-41, *range(30)]
        for index, bucket in enumerate(buckets):
            last = index == len(buckets) - 1
            end = bucket["to"] + (1 if last else 0)
            assert bucket["entries"] == sum(bucket["from"] <= value < end for value in values)
            assert last or bucket["to"] == buckets[index + 1]["from"]
    assert len((await service.get(f"{B}/rankings/xp/buckets"))["buckets"]) == 20
    lap = (await service.get(f"{B}/rankings/lap/buckets?buckets=3"))["buckets"]
    assert sum(bucket["entries"] for bucket in lap) == 29
    assert await service.refused("GET", f"{B}/rankings/xp/buckets?buckets=1001") == (400, "too_many_buckets")
    assert await service.refused("GET", f"{B}/rankings/xp/buckets?buckets=0") == (400, "bad_request")


async def test_estimated_buckets_hold_the_counted_entries_in_their_brackets(service: Service) -> None:
    columns = {"name": "xp", "min": -1000}, {**LAP, "scale": 1}
    for number, ties in enumerate(("shared", "earliest")):
        await service.board(f"d{number}", *columns, ties=ties, predictor={"samples": 9})
        rng = random.Random(number)
        stats = [{"xp": rng.randrange(-90, 900) // 3, "lap": f"{rng.randrange(50, 70)}.5"} for _ in range(200)]
        await service.post(f"d{number}", *({"owner": f"p{i}", "stats": each} for i, each in enumerate(stats)))
        for column in ("xp", "lap"):
            path = f"/v1/leaderboards/d{number}/rankings/{column}/buckets?buckets="
            # Without a curve, the service counts entries even if the request allows estimates.
            assert "low" not in (await service.get(f"{path}5&rank=estimate"))["buckets"][0]
            await service.refresh(f"d{number}", column)
            for buckets in (1, 2, 7, 50):
                counted = (await service.get(f"{path}{buckets}"))["buckets"]
                read_off = (await service.get(f"{path}{buckets}&rank=estimate"))["buckets"]
                ends = [(each["from"], each["to"]) for each in counted]
                assert [(each["from"], each["to"]) for each in read_off] == ends
                assert sum(each["entries"] for each in read_off) == 200
                for truth, each in zip(counted, read_off, strict=True):
                    assert each["low"] <= truth["entries"] <= each["high"]
                    assert each["low"] <= each["entries"] <= each["high"]
                    assert each["exact"] == (each["low"] == each["high"])
    assert await service.refused("GET", f"{path}5&rank=auto") == (400, "bad_request")


async def test_a_board_of_no_or_one_owner_answers_every_request(service: Service) -> None:
    for ties in ("shared", "earliest"):
        await service.board("b", {"name": "xp"}, ties=ties)
        ranking = f"{B}/rankings/xp"
        for has_curve in (False, True):
            if has_curve:
                await service.refresh("b", "xp")
            nothing = {"value": None, "low": None, "high": None}
            for each in (await service.get(f"{ranking}/values?ranks=1,5&percentiles=50"))["values"]:
                assert {name: each[name] for name in nothing} == nothing
            assert (await service.get(f"{ranking}/buckets"))["buckets"] == []
            (arrival,) = (await service.get(f"{ranking}/positions?values=5"))["positions"]
            assert (arrival["rank"], arrival["low"], arrival["high"], arrival["percentile"]) == (1, 1, 1, 100)
            assert (await service.get(f"{ranking}/around?value=5"))["entries"] == []
        await service.post_xp("b", a=5)
        (own,) = (await service.get(f"{B}/entries/a/positions"))["positions"]
        assert (own["rank"], own["total"], own["percentile"], own["exact"]) == (1, 1, 100, True)
        (bucket,) = (await service.get(f"{ranking}/buckets"))["buckets"]
        assert bucket == {"from": 5, "to": 5, "entries": 1}
        await service.must("DELETE", B)


async def test_invalid_values_and_ranks_are_refused(service: Service) -> None:
    await service.board("b", {"name": "xp", "scale": 1, "min": -10, "max": 10})
    ranking = f"{B}/rankings/xp"
    assert await service.refused("GET", f"{ranking}/positions?values=5,10.1") == (422, "value_out_of_range")
    assert await service.refused("GET", f"{ranking}/around?value=-10.1") == (422, "value_out_of_range")
    for path in ("positions?values=1.25", "positions?values=", "around?value=%D9%A5", "around?value="):
        assert await service.refused("GET", f"{ranking}/{path}") == (422, "bad_value")
    many = ",".join("1" for _ in range(1001))
    for path in (f"positions?values={many}", f"values?ranks={many}", f"values?percentiles={many}"):
        assert await service.refused("GET", f"{ranking}/{path}") == (400, "too_many_values")
    halves = f"ranks={many[:1001]}&percentiles={many[:1003]}"
    assert await service.refused("GET", f"{ranking}/values?{halves}") == (400, "too_many_values")
    for path in ("", "/positions?values=1", "/around?value=1", "/values?ranks=1", "/curve", "/buckets"):
        assert await service.refused("GET", f"{B}/rankings/none{path}") == (404, "unknown_column")
        assert await service.refused("GET", f"/v1/leaderboards/none/rankings/xp{path}") == (404, "unknown_board")


async def test_a_refresh_without_a_job_process_is_answered_503(service: Service) -> None:
    await create_small_board(service)
    await service.restart(jobs="none")
    assert await service.refused("POST", f"{B}/rankings/xp/refresh") == (503, "no_job_process")
    assert await service.refused("POST", f"{B}/rankings/none/refresh") == (404, "unknown_column")
    assert await service.refused("GET", f"{B}/rankings/xp/curve") == (404, "no_curve")
    assert (await service.get(f"{B}/entries/p3/positions"))["positions"][0]["rank"] == 27


async def test_names_with_a_special_meaning_elsewhere_are_plain_names(service: Service) -> None:
    board = "A:b=c,d@e+f-g.h_i"
    await service.board(board, {"name": "select"}, {"name": "rowid"}, {"name": "owner"})
    for owner in ("..", ".", "a/b", "%2F", "a?b", "a+b", "#", "o'; DROP TABLE x;--", " ", "é\U0001f600", "x" * 128):
        await service.post(board, {"owner": owner, "stats": {"select": 1, "rowid": 2, "owner": 3}})
        path = f"/v1/leaderboards/{escaped(board)}/entries/{escaped(owner).replace('.', '%2E')}"
        assert (await service.get(path))["owner"] == owner
        assert (await service.get(f"{path}/positions?columns=rowid"))["owner"] == owner
        unlike_folders = f"/v1/leaderboards/{escaped(board)}/entries/{escaped(owner)}%25%7F"
        assert (await service.get(f"{unlike_folders}/positions?columns=rowid"))["owner"] == owner


async def test_an_owner_without_a_next_place_or_an_entry_is_told_so(service: Service) -> None:
    await service.board("b", {"name": "xp", "max": 10}, {"name": "kills"}, ties="earliest")
    posts = [{"owner": f"p{i}", "stats": {"xp": 10}, "at": f"2026-01-01T00:00:0{i}Z"} for i in range(2)]
    await service.post("b", *posts, {"owner": "idle", "stats": {"xp": 1}})
    path = f"{B}/entries"
    first, kills = (await service.get(f"{path}/p0/positions?next=true"))["positions"]
    assert (first["next"], kills) == (None, {"column": "kills", "value": None, "rank": None})
    (second, _) = (await service.get(f"{path}/p1/positions?next=true"))["positions"]
    assert (second["next"]["rank"], second["next"]["value"], second["next"]["points"]) == (1, 10, None)
    assert "next" not in (await service.get(f"{path}/p1/positions?next=false"))["positions"][0]
    assert await service.refused("GET", f"{path}/nobody/positions?next=true") == (404, "unknown_owner")
    assert await service.refused("GET", f"{path}/p0/positions?columns=kills&next=true") == (404, "not_ranked")
    assert await service.refused("GET", f"{path}/p0/positions?next=maybe") == (400, "bad_request")
