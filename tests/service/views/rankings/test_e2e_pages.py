"""Test that pages show every entry once with its exact rank, whatever changes between two pages."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.service.plain_board import EPOCH_US, PlainBoard, PlainColumn
from tests.service.real_service import Service, escaped

B = "/v1/leaderboards/b"
XP = f"{B}/rankings/xp"
AT = "2026-01-01T00:00:00Z"


async def full_board(service: Service, ties: str, best: str = "high", owners: int = 90) -> PlainBoard:
    """Make a board `b` with many ties in column xp. One entry has no value in this column."""
    board = PlainBoard([PlainColumn("xp", "last", best, 0, -20, 20), PlainColumn("more", least=0)], ties)
    await service.board("b", *(column.body() for column in board.columns), ties=ties)
    rng = random.Random(5)
    await post(service, board, {f"p{index}": rng.randint(-6, 6) for index in rng.sample(range(owners), owners)})
    await service.post("b", {"owner": "unranked", "stats": {"more": 1}})
    return board


async def post(service: Service, board: PlainBoard, values: dict[str, int]) -> None:
    for owner, value in values.items():
        board.post(owner, {"xp": value}, EPOCH_US)
    await service.post("b", *({"owner": owner, "stats": {"xp": value}, "at": AT} for owner, value in values.items()))


def check_page(board: PlainBoard, page: Any) -> None:
    """Compare a page with the plain board. Fail unless every rank on the page was counted."""
    ranks = board.ranks("xp")
    assert (page["column"], page["total"]) == ("xp", len(ranks))
    for row in page["entries"]:
        assert (row["rank"], row["exact"]) == (ranks[row["owner"]], True)
        assert row["value"] == board.value("xp", row["owner"])


def owners(page: Any) -> list[str]:
    return [row["owner"] for row in page["entries"]]


async def walk(service: Service, board: PlainBoard, page: Any, limits: random.Random, to: str = "next") -> list[str]:
    """Follow the pages in one direction. Return the owners of these pages and of this page, best first."""
    met = [owners(page)]
    while page[to] is not None:
        page = await service.get(f"{XP}?limit={limits.randint(1, 17)}&cursor={page[to]}")
        check_page(board, page)
        assert page["entries"], "every cursor leads to entries"
        met.append(owners(page))
    return [owner for part in (met if to == "next" else reversed(met)) for owner in part]


@pytest.mark.parametrize("best", ["high", "low"])
@pytest.mark.parametrize("ties", ["shared", "earliest"])
async def test_a_walk_over_pages_meets_every_entry_once_in_order_in_both_directions(
    service: Service, ties: str, best: str
) -> None:
    board = await full_board(service, ties, best)
    order = board.order("xp")
    for limit in (1, 2, 7, 89, 90, 91):
        page = await service.get(f"{XP}?limit={limit}")
        check_page(board, page)
        assert page["prev"] is None
        assert await walk(service, board, page, random.Random(limit)) == order
    last = await service.get(f"{XP}?limit=1&from_rank={len(order)}")
    assert last["next"] is None
    assert await walk(service, board, last, random.Random(7), to="prev") == order


async def test_a_page_holds_100_entries_by_default_and_1000_at_most(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"p{index}", "stats": {"xp": index}} for index in range(130)))
    assert len((await service.get(XP))["entries"]) == 100
    whole = await service.get(f"{XP}?limit=1000")
    assert (len(whole["entries"]), whole["next"], whole["prev"]) == (130, None, None)
    assert await service.refused("GET", f"{XP}?limit=1001") == (400, "too_many_entries")


@pytest.mark.parametrize("ties", ["shared", "earliest"])
async def test_a_page_from_a_rank_starts_at_that_row_even_inside_a_tie(service: Service, ties: str) -> None:
    board = await full_board(service, ties)
    order = board.order("xp")
    for rank in range(1, len(order) + 1, 4):
        page = await service.get(f"{XP}?from_rank={rank}&limit=5")
        check_page(board, page)
        assert owners(page) == order[rank - 1 : rank + 4]
        assert (page["prev"] is None) == (rank == 1)
        if page["prev"] is not None:
            before = await service.get(f"{XP}?limit=1000&cursor={page['prev']}")
            check_page(board, before)
            assert owners(before) == order[: rank - 1]
        if page["next"] is not None:
            after = await service.get(f"{XP}?limit=1000&cursor={page['next']}")
            check_page(board, after)
            assert owners(after) == order[rank + 4 :]


async def test_a_page_past_the_end_is_empty(service: Service) -> None:
    board = await full_board(service, "shared")
    for rank in (91, 92, 10**6, 2**63 - 1):
        page = await service.get(f"{XP}?from_rank={rank}")
        assert (page["entries"], page["next"], page["total"]) == ([], None, 90)
        check_page(board, page)
        before = await service.get(f"{XP}?limit=7&cursor={page['prev']}")
        check_page(board, before)
        assert owners(before) == board.order("xp")[-7:]
        assert owners(await service.get(f"{XP}?cursor={before['prev']}&limit=1")) == [board.order("xp")[-8]]


async def test_a_page_past_the_end_of_an_empty_ranking_leads_nowhere(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    page = await service.get(f"{XP}?from_rank=5")
    assert (page["entries"], page["next"], page["prev"], page["total"]) == ([], None, None, 0)


async def test_a_cursor_is_valid_for_its_ranking_only_and_cannot_be_forged(service: Service) -> None:
    await full_board(service, "shared")
    await service.board("other", {"name": "xp"})
    cursor = (await service.get(f"{XP}?limit=5"))["next"]
    listed = (await service.get("/v1/leaderboards?limit=1"))["next"]
    others = ("/v1/leaderboards/other/rankings/xp", "/v1/leaderboards/b/rankings/more", "/v1/leaderboards")
    for path in others:
        assert await service.refused("GET", f"{path}?cursor={cursor}") == (400, "bad_cursor")
    other = "A" if cursor[9] != "A" else "B"
    tampered = [cursor[:9] + other + cursor[10:], cursor[:-1], cursor + "A", cursor[1:]]
    for wrong in [*tampered, listed, "", "AAAA", "*", "%C3%A9", "A" * 4000]:
        assert await service.refused("GET", f"{XP}?cursor={wrong}") == (400, "bad_cursor")
    assert (await service.get(f"{XP}?limit=5&cursor={cursor}"))["entries"]


async def test_cursors_survive_a_restart_and_not_a_reset(service: Service) -> None:
    board = await full_board(service, "shared")
    page = await service.get(f"{XP}?limit=10")
    await service.restart()
    assert await walk(service, board, page, random.Random(1)) == board.order("xp")
    await service.must("POST", "/v1/leaderboards/b/reset")
    assert await service.refused("GET", f"{XP}?cursor={page['next']}") == (400, "bad_cursor")


@pytest.mark.parametrize("best", ["high", "low"])
@pytest.mark.parametrize("ties", ["shared", "earliest"])
@pytest.mark.parametrize("to", ["next", "prev"])
async def test_a_walk_during_posts_meets_unmoved_owners_once(service: Service, ties: str, best: str, to: str) -> None:
    board = await full_board(service, ties, best)
    rng = random.Random(f"{ties}{best}{to}")
    still = set(rng.sample(board.order("xp"), 45))
    start = 1 if to == "next" else 90
    page = await service.get(f"{XP}?limit=3&from_rank={start}")
    met = Counter(owners(page))
    while page[to] is not None:
        await change_board(service, board, rng, still, owners(page))
        page = await service.get(f"{XP}?limit={rng.randint(1, 9)}&cursor={page[to]}")
        check_page(board, page)
        met.update(owners(page))
    assert {owner: met[owner] for owner in still} == dict.fromkeys(still, 1)


async def change_board(
    service: Service, board: PlainBoard, rng: random.Random, still: set[str], shown: list[str]
) -> None:
    """Change the values of some owners, and add one owner. Erase the last owner in `shown` that is not in `still`.

    Owners in `still` never change.
    """
    moving = [owner for owner in board.rows if owner not in still]
    leaving = [owner for owner in shown if owner not in still][-1:]
    await post(service, board, {owner: rng.randint(-6, 6) for owner in rng.sample(moving, min(5, len(moving)))})
    await post(service, board, {f"new{rng.randrange(10**6)}": rng.randint(-6, 6)})
    for owner in leaving:
        await service.must("DELETE", f"/v1/leaderboards/b/entries/{escaped(owner)}")
        board.erase(owner)


@pytest.mark.parametrize("has_curve", [False, True])
async def test_the_cursors_of_the_rows_around_an_owner_reach_the_whole_board(service: Service, has_curve: bool) -> None:
    board = await full_board(service, "shared")
    order = board.order("xp")
    await service.board("b", *(column.body() for column in board.columns), predictor={"samples": 4, "exact_top": 3})
    if has_curve:
        await service.refresh("b", "xp")
    for at in (0, 1, 44, 88, 89):
        page = await service.get(f"/v1/leaderboards/b/entries/{order[at]}/around?column=xp&better=2&worse=2")
        assert owners(page) == order[max(0, at - 2) : at + 3]
        assert (page["prev"] is None, page["next"] is None) == (at <= 2, at >= 87)
        before = await walk(service, board, page, random.Random(at), to="prev")
        after = await walk(service, board, page, random.Random(at))
        assert [*before, *after[len(page["entries"]) :]] == order


@pytest.mark.parametrize("ties", ["shared", "earliest"])
async def test_rows_around_a_value_lead_to_both_sides_even_if_no_row_is_shown(service: Service, ties: str) -> None:
    await service.must("PUT", "/v1/leaderboards/few", {"columns": [{"name": "xp", "merge": "max"}], "ties": ties})
    for owner, xp in (("ada", 5), ("bob", 4), ("cleo", 4), ("dora", 3)):
        await service.post("few", {"owner": owner, "stats": {"xp": xp}})
    page = "/v1/leaderboards/few/rankings/xp"
    found = await service.get(f"{page}/around?value=4&better=0&worse=0")
    assert found["entries"] == []
    before, after = [("ada", 1), ("bob", 2), ("cleo", 2 if ties == "shared" else 3)], [("dora", 4)]
    if ties == "shared":
        before, after = before[:1], before[1:] + after
    for _ in range(2):
        prev, following = [await service.get(f"{page}?cursor={found[each]}") for each in ("prev", "next")]
        assert [(row["owner"], row["rank"]) for row in prev["entries"]] == before
        assert [(row["owner"], row["rank"]) for row in following["entries"]] == after
        await service.post("few", {"owner": "eve", "stats": {"xp": 1}})  # the rows before the cursor are counted anew
        after = [*after, ("eve", 5)]


async def test_the_rows_around_an_owner_have_the_requested_and_bounded_sizes(service: Service) -> None:
    board = await full_board(service, "shared")
    order, ranks = board.order("xp"), board.ranks("xp")
    around = f"/v1/leaderboards/b/entries/{order[40]}/around?column=xp"
    assert owners(await service.get(around)) == order[35:46]
    assert owners(await service.get(f"{around}&better=0&worse=0")) == [order[40]]
    assert owners(await service.get(f"{around}&better=500&worse=500")) == order
    assert await service.refused("GET", around.replace("=xp", "=none")) == (404, "unknown_column")
    assert await service.refused("GET", around.replace(order[40], "nobody")) == (404, "unknown_owner")
    assert await service.refused("GET", around.replace(order[40], "unranked")) == (404, "not_ranked")
    rows = (await service.get(around))["entries"]
    assert all(row["rank"] == ranks[row["owner"]] for row in rows)
    assert all(before["rank"] <= after["rank"] for before, after in pairwise(rows))


async def test_an_unchanged_page_is_answered_304_until_the_board_changes(service: Service) -> None:
    board = await full_board(service, "shared", owners=30)
    first = await service.call("GET", f"{XP}?limit=5")
    etag, later = first.headers["ETag"], f"{XP}?limit=5&cursor={first.body['next']}"
    for path in (f"{XP}?limit=5", later, f"{XP}?limit=5&from_rank=7"):
        for known in (etag, etag.removeprefix("W/"), f'"older", {etag}'):
            again = await service.call("GET", path, headers={"If-None-Match": known})
            assert (again.status, again.body, again.headers["ETag"]) == (304, None, etag)
        other = await service.call("GET", path, headers={"If-None-Match": '"older"'})
        assert (other.status, other.headers["ETag"]) == (200, etag)
    head = await service.call("HEAD", XP, headers={"If-None-Match": etag})
    assert (head.status, head.headers["ETag"]) == (304, etag)
    tags = {etag}
    wider = [column.body() for column in (*board.columns, PlainColumn("most", least=0))]
    for method, path, body in (
        ("POST", f"{B}/posts", {"owner": "unranked", "stats": {"more": 2}}),
        ("PUT", "/v1/owners/p3/hidden", None),
        ("PUT", B, {"columns": wider, "ties": "shared"}),
        ("POST", f"{B}/reset", None),
    ):
        await service.must(method, path, body)
        changed = await service.call("GET", f"{XP}?limit=5", headers={"If-None-Match": ", ".join(tags)})
        assert changed.status == 200, path
        tags.add(changed.headers["ETag"])
    assert len(tags) == 5


async def test_a_page_with_profiles_has_no_entity_tag(service: Service) -> None:
    await full_board(service, "shared", owners=3)
    found = await service.call("GET", f"{XP}?profiles=true", headers={"If-None-Match": "*"})
    assert (found.status, "ETag" in found.headers) == (200, False)
