"""Test boards with an end over HTTP: when a board accepts posts, and what remains after it is closed and archived.

The tests compare the answers of an archived board with the answers of the same board before it was archived.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from storage.boards.board_changes import change_board
from storage.records import Season
from tests.service.cli_fake_service import run
from tests.service.closing import close_as_of
from tests.service.real_service import ONE_PROCESS, RARELY, Service

NOW = datetime.now(UTC).replace(microsecond=0)
COLUMNS: list[dict[str, Any]] = [
    {"name": "xp", "sorted": True, "merge": "sum"},
    {"name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 3, "min": 0, "max": 100},
    {"name": "clan", "sorted": False, "merge": "last", "type": "text"},
]
TOP = 10
OWNERS = 40
DAY = timedelta(days=1)
END = NOW + timedelta(hours=1)
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0)
DAYS: dict[str, Any] = {
    "columns": COLUMNS, "periods": ["all", "day"], "facets": [[], ["org"]], "grace_seconds": 3 * 86_400,
    "keep": {"day": 2},
}  # fmt: skip


EXPORTS = (("xp",), ("lap", "--format", "ndjson"))
Spec = Callable[..., dict[str, Any]]


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    bounds = {"archive_top_rows": TOP, "archive_block_rows": 8, "archive_step_rows": 16}
    async with Service(tmp_path, jobs="none", **bounds, **either_store).running() as made:
        yield made


@pytest.fixture
def spec(table: str) -> Spec:
    predictor = {**RARELY, "exact_top": 5, "samples": 20}
    return lambda **more: {"columns": COLUMNS, "table": table, "predictor": predictor, **more}


def at(when: datetime) -> str:
    return when.isoformat()


def xp(owner: str, when: datetime, value: int = 1, **more: Any) -> dict[str, Any]:
    return {"owner": owner, "stats": {"xp": value}, "at": at(when), **more}


async def fill(service: Service, path: str, when: datetime) -> None:
    """Post values of many owners. There are only a few different values, so many owners tie."""
    rng = random.Random(2)
    posts = []
    for number in range(OWNERS):
        stats: dict[str, Any] = {"xp": rng.randrange(25), "clan": f"clan {number}"}
        if number % 4:
            stats["lap"] = f"{rng.randrange(100)}.{rng.randrange(10)}"
        posts.append({"owner": f"o{number:02}", "stats": stats, "at": at(when)})
    answer = await service.must("POST", f"{path}/posts", {"posts": posts})
    assert {result["status"] for result in answer["results"]} == {"applied"}


async def fill_season(service: Service, spec: Spec, name: str = "s", *, keep_seconds: int = 0) -> str:
    """Make a board that closes at `END`, and fill it with posts. Return the board's path."""
    path = f"/v1/leaderboards/{name}"
    await service.must("PUT", path, spec(closes_at=at(END), grace_seconds=0, keep_seconds=keep_seconds))
    await fill(service, path, NOW)
    return path


async def answers(service: Service, board: str) -> dict[str, Any]:
    reads = [f"/entries/o{number:02}" for number in range(OWNERS)]
    reads += [f"/entries/o{number:02}/positions?rank=exact" for number in range(OWNERS)]
    reads += ["/entries/o05/positions?columns=lap,xp&next=true", "/entries/o08/positions?columns=lap,xp"]
    for column in ("xp", "lap"):
        reads += [
            f"/rankings/{column}?limit=4",
            f"/rankings/{column}?limit=3&from_rank=5",
            f"/rankings/{column}/positions?values=0,5,7,24,99&rank=exact",
            f"/rankings/{column}/values?ranks=1,3,9,20,39,100&percentiles=0,50,99.5",
            f"/rankings/{column}/buckets?buckets=7",
            f"/rankings/{column}/curve",
        ]
    found = {read: await service.get(board + read) for read in reads}
    lookup = {"owners": ["o03", "nobody", "o30"], "column": "xp"}
    found["lookup"] = await service.must("POST", f"{board}/entries/lookup", lookup)
    many = {"boards": [board.rpartition("/")[2].replace("%3A", ":").replace("%3D", "=")], "column": "xp"}
    found["many"] = await service.must("POST", "/v1/owners/o03/positions", many)
    found["first"] = await _around_first(service, board)
    return found


async def _around_first(service: Service, board: str) -> Any:
    first = (await service.get(f"{board}/rankings/xp?limit=3"))["entries"][2]
    return await service.get(f"{board}/entries/{first['owner']}/around?column=xp&better=2&worse=4")


def without_times(answer: Any) -> Any:
    """Return an answer without times, methods and cursors, because these members change when a board is archived."""
    if isinstance(answer, dict):
        left = {name: without_times(each) for name, each in answer.items()}
        for name in ("as_of", "method", "next", "prev"):
            if name in ("next", "prev") and not isinstance(left.get(name), str):
                continue
            left.pop(name, None)
        return left
    return [without_times(each) for each in answer] if isinstance(answer, list) else answer


@ONE_PROCESS
async def test_a_season_takes_posts_from_its_opening_to_its_end(service: Service, spec: Spec) -> None:
    season = spec(opens_at=at(NOW - timedelta(hours=1)), closes_at=at(END))
    made = await service.must("PUT", "/v1/leaderboards/s", season)
    assert [datetime.fromisoformat(made[name]) for name in ("opens_at", "closes_at")] == [NOW - timedelta(hours=1), END]
    assert (made["grace_seconds"], made["keep_seconds"], made["closed"], made["archived"]) == (3600, None, False, False)
    assert (await service.call("PUT", "/v1/leaderboards/s", season)).status == 200
    posts = "/v1/leaderboards/s/posts"
    assert await service.refused("POST", posts, xp("ada", NOW - timedelta(hours=2))) == (409, "not_open_yet")
    assert await service.refused("POST", posts, xp("ada", NOW + timedelta(hours=1))) == (422, "at_in_future")
    await service.must("POST", posts, xp("ada", NOW))
    await close_as_of(service, NOW + timedelta(hours=1, minutes=59))
    assert await service.refused("POST", posts, xp("ada", NOW + timedelta(hours=1))) == (409, "period_closed")
    await service.must("POST", posts, xp("ada", NOW))
    assert (await service.get("/v1/leaderboards/s"))["closed"] is False
    await close_as_of(service, NOW + timedelta(hours=2))
    assert await service.refused("POST", posts, xp("ada", NOW)) == (409, "period_closed")
    shown = await service.get("/v1/leaderboards/s")
    assert (shown["closed"], shown["archived"], shown["entries"]) == (True, False, 1)
    assert (await service.get("/v1/leaderboards/s/entries/ada"))["stats"]["xp"] == 2
    assert (await service.get("/v1/leaderboards/s/rankings/xp/curve"))["certificate"] == 0
    assert await service.refused("POST", "/v1/leaderboards/s/reset") == (409, "period_closed")
    assert (await service.call("DELETE", "/v1/leaderboards/s")).status == 204


async def test_a_board_that_was_created_without_an_end_gets_one_later(service: Service, spec: Spec) -> None:
    for name, more in (("s", {}), ("parts", {"segments": 3, "table": "own"})):
        path = f"/v1/leaderboards/{name}"
        await service.must("PUT", path, spec(**more))
        await service.must("POST", f"{path}/posts", [xp(f"o{number}", NOW) for number in range(9)])
        for times in ({"opens_at": at(NOW - DAY)}, {"opens_at": at(NOW + DAY)}, {"closes_at": at(NOW - DAY)}):
            assert await service.refused("PUT", path, spec(**more, **times)) == (409, "spec_conflict")
        ending = spec(**more, closes_at=at(END), grace_seconds=0, keep_seconds=0)
        for _ in range(2):
            made = await service.must("PUT", path, ending)
            assert (datetime.fromisoformat(made["closes_at"]), made["entries"], made["closed"]) == (END, 9, False)
        assert await service.refused("PUT", path, spec(**more)) == (409, "spec_conflict")
        await service.must("POST", f"{path}/posts", [xp(f"o{number}", NOW) for number in range(9)])
        wider = [*COLUMNS, {"name": "kills", "sorted": True, "merge": "sum"}]
        await service.must("PUT", path, {**ending, "columns": wider})
        assert (await service.get(f"{path}/rankings/xp"))["entries"][0]["value"] == 2
    await close_as_of(service, END)
    for name in ("s", "parts"):
        path = f"/v1/leaderboards/{name}"
        assert await service.refused("POST", f"{path}/posts", xp("o1", NOW)) == (409, "period_closed")
        assert (await service.get(path))["archived"] is True
        assert (await service.get(f"{path}/rankings/xp"))["total"] == 9


async def test_an_end_that_another_process_sets_holds_at_once(service: Service, spec: Spec) -> None:
    context, season = service.context, Season(None, round(END.timestamp() * 1e6), 0, None)
    # Closed ones come first: no board is shut while posts from before its end wait in the queue.
    for state, sharing, mode in product(("closed", "open"), ("own", "shared"), ("", "?mode=queued")):
        board = f"{state}-{sharing}{mode[6:]}"
        path = f"/v1/leaderboards/{board}"
        await service.must("PUT", path, spec(table=sharing))
        await service.must("POST", f"{path}/posts", xp("ada", NOW))
        known = await context.catalog.find_board(board)
        await context.store.write(partial(change_board, board_id=board, wanted=replace(known.spec, season=season)))
        assert context.catalog.find_known(board) is known, "this process has not noticed it"
        if state == "closed":
            await close_as_of(service, END)
            assert await service.refused("POST", f"{path}/posts{mode}", xp("ada", NOW)) == (409, "period_closed")
        else:
            await service.must("POST", f"{path}/posts{mode}", xp("ada", NOW))
        if state == "closed" or not mode:  # a queued post counts when a job has applied it
            counted = 2 if state == "open" else 1
            assert (await service.get(f"{path}/entries/ada"))["stats"]["xp"] == counted, board


async def test_inconsistent_times_of_a_season_are_refused(service: Service) -> None:
    for times, refusal in (
        ({"opens_at": at(NOW), "closes_at": at(NOW)}, (422, "bad_spec")),
        ({"keep_seconds": 5}, (422, "bad_spec")),
        ({"closes_at": "soon"}, (400, "bad_request")),
        ({"closes_at": at(NOW), "grace_seconds": -1}, (400, "bad_request")),
    ):
        assert await service.refused("PUT", "/v1/leaderboards/s", {"columns": COLUMNS} | times) == refusal


@ONE_PROCESS
@pytest.mark.parametrize("segments", [1, 3])
async def test_an_archived_season_answers_as_it_did_with_its_rows(service: Service, spec: Spec, segments: int) -> None:
    if segments > 1:
        spec = partial(spec, table="own", segments=segments)
    board = await fill_season(service, spec, keep_seconds=60)
    await close_as_of(service, END)
    closed = await answers(service, board)
    await close_as_of(service, END + timedelta(seconds=60))
    assert (await service.get(board))["archived"] is True
    archived = await answers(service, board)
    for read, answer in closed.items():
        assert without_times(archived[read]) == without_times(answer), read
    await _refused_past_the_top(service, board)
    await service.restart()
    again = await answers(service, board)
    assert without_times(again) == without_times(archived)
    assert (await service.get("/v1/leaderboards"))["leaderboards"][0]["archived"] is True
    assert (await service.call("DELETE", board)).status == 204
    assert await service.refused("GET", f"{board}/entries/o01") == (404, "unknown_board")


async def _refused_past_the_top(service: Service, board: str) -> None:
    page = await service.get(f"{board}/rankings/xp?limit=6")
    last = await service.get(f"{board}/rankings/xp?limit=6&cursor={page['next']}")
    assert page["entries"] + last["entries"] == (await service.get(f"{board}/rankings/xp?limit=100"))["entries"]
    assert len(last["entries"]) == 4
    back = await service.get(f"{board}/rankings/xp?limit=6&cursor={last['prev']}")
    assert back["entries"] == page["entries"]
    for beyond in (f"cursor={last['next']}", "from_rank=11", "from_rank=40"):
        assert await service.refused("GET", f"{board}/rankings/xp?{beyond}") == (410, "archived"), beyond
    assert (await service.get(f"{board}/rankings/xp?from_rank=41"))["entries"] == []
    worst = (await service.get(f"{board}/rankings/xp/values?ranks=40"))["values"][0]["value"]
    assert await service.refused("GET", f"{board}/rankings/xp/around?value={worst}") == (410, "archived")
    await _around_ends_with_the_top(service, board, page["entries"] + last["entries"])
    assert await service.refused("POST", f"{board}/rankings/xp/refresh") == (410, "archived")
    assert await service.refused("GET", f"{board}/entries/nobody") == (404, "unknown_owner")
    assert await service.refused("GET", f"{board}/entries/o08/positions?columns=lap") == (404, "not_ranked")
    etag = (await service.call("GET", f"{board}/rankings/lap/curve")).headers["ETag"]
    again = await service.call("GET", f"{board}/rankings/lap/curve", headers={"If-None-Match": etag})
    assert again.status == 304


async def _around_ends_with_the_top(service: Service, board: str, top: list[Any]) -> None:
    """Check the rows around owners and values near the end of the archived top.

    These answers have `next`, because the ranking continues. A request for a page below the archived top gets 410.
    """
    for number in (2, 8, 9):
        wanted = top[number - 1 : number + 4]
        row, sides = top[number], "better=1&worse=3"
        of_owner = await service.get(f"{board}/entries/{row['owner']}/around?column=xp&{sides}")
        assert of_owner["entries"] == wanted
        of_value = await service.get(f"{board}/rankings/xp/around?value={row['value']}&{sides}")
        assert of_value["entries"][-1] in top
        for found in (of_owner, of_value):
            follows = top.index(found["entries"][-1]) + 1
            if follows < len(top):
                after = await service.get(f"{board}/rankings/xp?limit=1&cursor={found['next']}")
                assert after["entries"] == top[follows : follows + 1]
            else:
                beyond = f"{board}/rankings/xp?limit=1&cursor={found['next']}"
                assert await service.refused("GET", beyond) == (410, "archived")


@ONE_PROCESS
async def test_each_day_of_a_family_closes_and_is_archived_while_the_next_opens(service: Service, spec: Spec) -> None:
    own = spec(**DAYS)
    await service.must("PUT", "/v1/families/f", own)
    first = MIDNIGHT - DAY + timedelta(hours=5)
    name = quote(f"f:{first.date()}", safe="")
    board = f"/v1/leaderboards/{name}"
    await fill(service, "/v1/families/f", first)
    closes = MIDNIGHT + 3 * DAY
    await close_as_of(service, closes - timedelta(seconds=1))
    late = xp("o01", first, facets={"org": "7"}, post_id="late")
    assert (await service.must("POST", "/v1/families/f/posts", late))["results"][0]["status"] == "applied"
    await close_as_of(service, closes)
    later = (await service.must("POST", "/v1/families/f/posts", xp("o01", first)))["results"][0]
    statuses = {each["board"]: each["status"] for each in later["boards"]}
    assert statuses == {"f:all": "applied", f"f:{first.date()}": "rejected"}
    again = (await service.must("POST", "/v1/families/f/posts", late))["results"][0]
    assert {each["status"] for each in again["boards"]} == {"duplicate"}
    shown = await service.get(f"/v1/families/f/boards?period=day&at={quote(at(first))}")
    assert (shown["period"]["closed"], shown["archived"]) == (True, False)
    closed = await answers(service, board)
    assert closed["/entries/o01"]["stats"]["clan"] == "clan 1"
    await fill(service, "/v1/families/f", closes)
    await close_as_of(service, closes + 2 * DAY)
    assert (await service.get(f"/v1/families/f/boards?period=day&at={quote(at(first))}"))["archived"] is True
    archived = await answers(service, board)
    for read, answer in closed.items():
        assert without_times(archived[read]) == without_times(answer), read
    later = (await service.must("POST", "/v1/families/f/posts", xp("o01", first)))["results"][0]
    assert later["boards"][1]["error"]["code"] == "period_closed"
    everybody = await service.get("/v1/leaderboards/f:all/entries/o01")
    assert everybody["stats"]["xp"] == 2 * closed["/entries/o01"]["stats"]["xp"] + 1
    today = await service.get(f"/v1/families/f/boards?period=day&at={quote(at(closes))}")
    assert (await service.get(f"/v1/leaderboards/{quote(today['board'])}"))["entries"] == OWNERS
    orgs = await service.get(f"/v1/families/f/facets?facet=org&period=day&at={quote(at(first))}")
    assert [(each["value"], each["entries"]) for each in orgs["values"]] == [("7", 1)]
    wider = {**own, "columns": [*COLUMNS, {"name": "wins", "sorted": True, "merge": "sum"}]}
    await service.must("PUT", "/v1/families/f", wider)
    entry = await service.get(f"{board}/entries/o01")
    assert entry["stats"] == {**closed["/entries/o01"]["stats"], "wins": None}
    assert await service.refused("GET", f"{board}/entries/o01/positions?columns=wins") == (404, "not_ranked")
    assert (await service.get(f"{board}/rankings/wins"))["entries"] == []
    assert (await service.get(f"{board}/rankings/wins/positions?values=3"))["positions"][0]["rank"] == 1
    assert (await service.get(f"{board}/rankings/xp?limit=1"))["entries"][0]["stats"]["wins"] is None
    assert (await service.call("DELETE", "/v1/families/f")).status == 204
    assert await service.refused("GET", board) == (404, "unknown_board")


async def test_an_owner_hidden_after_archiving_is_nobody_there_until_shown_again(service: Service, spec: Spec) -> None:
    board, ranking = await fill_season(service, spec), "/v1/leaderboards/s/rankings/xp?limit=9"
    await close_as_of(service, END)
    top, before = await read_top(service), await service.get(ranking)
    cheat, other = (before["entries"][place]["owner"] for place in (1, 4))
    entry = await service.get(f"{board}/entries/{cheat}")
    place = await service.get(f"{board}/entries/{cheat}/positions?columns=xp")
    assert await service.must("PUT", f"/v1/owners/{cheat}/hidden") == {"entries": 1}
    now = await service.get(ranking)
    assert now["entries"] == without_owners(top, cheat)
    assert now["total"] == before["total"]
    assert await service.get(f"{board}/entries/{cheat}") == {**entry, "hidden": True}
    assert await service.refused("GET", f"{board}/entries/{cheat}/positions?columns=xp") == (404, "not_ranked")
    assert (await service.get(f"{board}/entries/{other}"))["owner"] == other
    assert await service.must("DELETE", f"/v1/owners/{cheat}/hidden") == {"entries": 1}
    assert without_times(await service.get(ranking)) == without_times(before)
    assert await service.get(f"{board}/entries/{cheat}/positions?columns=xp") == place
    assert await service.must("PUT", f"/v1/owners/{cheat}/hidden") == {"entries": 1}
    assert await service.must("DELETE", f"/v1/owners/{cheat}") == {"entries": 1}
    assert await service.refused("GET", f"{board}/entries/{cheat}") == (404, "unknown_owner")


async def test_an_owner_hidden_during_archiving_is_not_in_the_archive(service: Service, spec: Spec) -> None:
    await fill_season(service, spec, keep_seconds=60)
    owners = [row["owner"] for row in (await service.get("/v1/leaderboards/s/rankings/xp?limit=3"))["entries"]]
    for owner in owners[:2]:
        assert (await service.call("PUT", f"/v1/owners/{owner}/hidden")).status == 200
    late = {"owner": owners[0], "stats": {"xp": 1}, "at": at(NOW)}
    await close_as_of(service, END)
    assert await service.refused("POST", "/v1/leaderboards/s/posts", late) == (409, "period_closed")
    assert (await service.get(f"/v1/leaderboards/s/entries/{owners[0]}"))["hidden"] is True
    await service.must("DELETE", f"/v1/owners/{owners[1]}/hidden")  # show the owner again before the board is archived
    await close_as_of(service, END + timedelta(seconds=60))
    page = await service.get("/v1/leaderboards/s/rankings/xp?limit=2")
    assert (page["total"], [row["owner"] for row in page["entries"]]) == (OWNERS - 1, owners[1:])
    assert await service.refused("GET", f"/v1/leaderboards/s/entries/{owners[0]}") == (404, "unknown_owner")
    assert (await service.call("DELETE", f"/v1/owners/{owners[0]}/hidden")).status == 200
    assert (await service.call("PUT", f"/v1/owners/{owners[2]}/hidden")).status == 200
    after = await service.get("/v1/leaderboards/s/rankings/xp?limit=2")
    assert (after["total"], after["entries"][:1]) == (OWNERS - 1, page["entries"][:1])
    assert owners[2] not in [row["owner"] for row in after["entries"]]
    assert len(after["entries"]) == 2


@pytest.mark.parametrize(("ties", "segments"), [("shared", 1), ("earliest", 3)])
async def test_an_export_of_an_archive_has_all_owners_in_order_of_rank(
    service: Service, tmp_path: Path, ties: str, segments: int
) -> None:
    async def export(column: str, *more: str) -> str:
        """Return what the command writes into a file: the service of the test logs to the same standard output."""
        words = ("export", "s", "--column", column, "--page", "7", *more, "-o", str(tmp_path / "out"))
        await asyncio.to_thread(run, *words, "--url", service.base, code=0)
        return (tmp_path / "out").read_text()

    season = {"columns": COLUMNS, "ties": ties, "segments": segments, "closes_at": at(END), "grace_seconds": 0}
    await service.must("PUT", "/v1/leaderboards/s", season | {"keep_seconds": 60})
    posts = []
    for number in range(OWNERS):  # with `ties: earliest`, owners who reached a value earlier come first
        stats = {"xp": number % 9, "lap": f"{number % 5}.125", "clan": "a,b"}
        when = NOW - timedelta(seconds=7 * number % OWNERS)
        posts.append({"owner": f"o{number:02}", "stats": stats, "at": at(when)})
    await service.must("POST", "/v1/leaderboards/s/posts", {"posts": posts})
    await close_as_of(service, END)
    closed = [await export(*words) for words in EXPORTS]
    await close_as_of(service, END + timedelta(seconds=60))
    assert [await export(*words) for words in EXPORTS] == closed
    assert [len(text.splitlines()) for text in closed] == [1 + OWNERS, OWNERS]

    champion = closed[0].splitlines()[1].split(",")[1]
    await service.must("PUT", f"/v1/owners/{champion}/hidden")
    left = (await export("xp")).splitlines()
    page = await service.get(f"/v1/leaderboards/s/rankings/xp?limit={TOP - 1}")
    shown = [tuple(line.split(",")[:2]) for line in left[1:]]
    assert shown[: TOP - 1] == [(str(row["rank"]), row["owner"]) for row in page["entries"]]
    assert len(shown) == OWNERS - 1
    assert champion not in [owner for _, owner in shown]


async def test_the_owners_of_an_archive_are_listed_by_name_with_their_ranks(service: Service, spec: Spec) -> None:
    board = await fill_season(service, spec)
    await close_as_of(service, END)
    listed = [
        row async for page in service.pages(f"{board}/rankings/lap?order=owner&limit=7") for row in page["entries"]
    ]
    assert [row["owner"] for row in listed] == [f"o{number:02}" for number in range(OWNERS) if number % 4]
    for row in listed:
        [known] = (await service.get(f"{board}/entries/{row['owner']}/positions?columns=lap"))["positions"]
        assert (row["rank"], row["exact"], row["value"]) == (known["rank"], True, known["value"])
    await service.must("DELETE", "/v1/owners/o39")
    await service.must("PUT", "/v1/owners/o38/hidden")
    page = await service.get(f"{board}/rankings/lap?order=owner&limit=500")
    assert [row["owner"] for row in page["entries"]] == [row["owner"] for row in listed[:-2]]
    assert (page["next"], page["prev"]) == (None, None)
    for wrong in ("from_rank=3", "profiles=true"):
        refused = await service.refused("GET", f"{board}/rankings/lap?order=owner&{wrong}")
        assert refused == (400, "bad_request")
    cursor = (await service.get(f"{board}/rankings/lap?order=owner&limit=1"))["next"]
    for other in (f"lap?cursor={cursor}", f"xp?order=owner&cursor={cursor}"):
        assert await service.refused("GET", f"{board}/rankings/{other}") == (400, "bad_cursor")


@pytest.mark.parametrize("act", ["hide", "erase", "erase here"])
async def test_an_archived_top_closes_up_when_its_champion_goes_and_the_record_stays(
    service: Service, spec: Spec, act: str
) -> None:
    board = await fill_season(service, spec)
    await close_as_of(service, END)
    top, rank = await read_top(service), f"{board}/entries/{{}}/positions?columns=xp"
    gone, *left = [row["owner"] for row in top]
    records = [without_times(await service.get(rank.format(owner))) for owner in left]
    tag = (await service.call("GET", f"{board}/rankings/xp?limit=3")).headers["ETag"]
    second = (await service.get(f"{board}/rankings/xp?limit=3"))["next"]
    asked = {"hide": f"owners/{gone}/hidden", "erase": f"owners/{gone}", "erase here": f"leaderboards/s/entries/{gone}"}
    await service.must("PUT" if act == "hide" else "DELETE", f"/v1/{asked[act]}")

    first = await service.call("GET", f"{board}/rankings/xp?limit=3", headers={"If-None-Match": tag})
    assert first.status == 200, "the tag of an answer with the champion is no longer good"
    wanted = without_owners(top, gone)
    assert (await service.get(f"{board}/rankings/xp?limit=3"))["entries"] == wanted[:3]
    # The cursor was made before, after the third row, which is the second one now.
    after = await service.get(f"{board}/rankings/xp?limit=3&cursor={second}")
    assert after["entries"] == wanted[2:5]
    assert (await service.get(f"{board}/rankings/xp?limit=3&cursor={after['prev']}"))["entries"] == wanted[:2]
    assert (await service.get(f"{board}/rankings/xp?limit=3&from_rank=4"))["entries"] == wanted[3:6]
    around = await service.get(f"{board}/entries/{left[3]}/around?column=xp&better=2&worse=2")
    assert around["entries"] == wanted[1:6]
    whole = await service.get(f"{board}/rankings/xp?limit=100")
    assert (whole["entries"], whole["total"]) == (wanted, OWNERS)
    if act != "hide":
        for method in ("GET", "DELETE"):
            assert await service.refused(method, f"{board}/entries/{gone}") == (404, "unknown_owner")
    assert await service.refused("GET", f"{board}/rankings/xp?cursor={whole['next']}") == (410, "archived")
    assert await service.refused("GET", f"{board}/rankings/xp?from_rank=10") == (410, "archived")
    assert [without_times(await service.get(rank.format(owner))) for owner in left] == records
    best = (await service.get(f"{board}/rankings/xp/values?ranks=1"))["values"][0]["value"]
    assert best == top[0]["value"], "the value of rank 1 is that of the record"


async def test_an_archive_with_all_rows_has_no_page_after_the_last_one_when_somebody_goes(
    service: Service, spec: Spec
) -> None:
    await service.must("PUT", "/v1/leaderboards/s", spec(closes_at=at(END), grace_seconds=0, keep_seconds=0))
    posts = [xp(owner, NOW, value) for owner, value in (("ada", 3), ("bob", 2), ("cy", 1))]
    await service.must("POST", "/v1/leaderboards/s/posts", {"posts": posts})
    await close_as_of(service, END)
    await service.must("PUT", "/v1/owners/bob/hidden")
    for read in ("rankings/xp?limit=9", "entries/cy/around?column=xp", "rankings/xp/around?value=0"):
        page = await service.get(f"/v1/leaderboards/s/{read}")
        assert [(row["owner"], row["rank"]) for row in page["entries"]] == [("ada", 1), ("cy", 2)], read
        assert page["next"] is None
    assert (await service.get("/v1/leaderboards/s/rankings/xp?from_rank=3"))["entries"] == []


async def read_top(service: Service) -> list[Any]:
    """Return all rows of the archived top of the board `s`."""
    return list((await service.get(f"/v1/leaderboards/s/rankings/xp?limit={TOP}"))["entries"])


def without_owners(rows: list[Any], *gone: str) -> list[Any]:
    """Return a top without some owners, with the ranks that the others then have."""
    left = [row for row in rows if row["owner"] not in gone]
    values = [row["value"] for row in left]
    return [{**row, "rank": 1 + values.index(row["value"])} for row in left]


async def test_an_archive_of_segments_orders_the_owners_who_reached_a_value_together(service: Service) -> None:
    board, owners = "/v1/leaderboards/together", [f"o{number:03}" for number in range(60)]
    season = {"closes_at": at(END), "grace_seconds": 0, "keep_seconds": 60}
    predictor = {"samples": 12, "exact_top": 5, **RARELY}
    wanted = {"columns": COLUMNS[:1], "ties": "earliest", "segments": 4, "predictor": predictor, **season}
    await service.must("PUT", board, wanted)
    posts = [{"owner": owner, "stats": {"xp": int(owner[1:]) % 2}, "at": at(NOW)} for owner in owners]
    await service.must("POST", f"{board}/posts", {"posts": posts})
    await close_as_of(service, END + timedelta(seconds=60))
    assert (await service.get(board))["archived"] is True
    ordered = sorted(owners, key=lambda owner: (-(int(owner[1:]) % 2), owner))
    for rank, owner in enumerate(ordered, 1):
        (found,) = (await service.get(f"{board}/entries/{owner}/positions?next=true"))["positions"]
        assert (found["rank"], found["exact"]) == (rank, True)
        following = found["next"]
        if rank == 1:
            assert following is None
            continue
        value = int(ordered[rank - 2][1:]) % 2
        assert (following["rank"], following["low"], following["high"], following["exact"]) == (*[rank - 1] * 3, True)
        assert (following["value"], following["points"]) == (value, value - found["value"] + 1)
