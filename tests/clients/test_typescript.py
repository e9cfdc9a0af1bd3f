"""Test the TypeScript client against a real service: in Node, and on a page of another site in a browser."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import open_page
from tests.clients.typescript_builds import build_typescript, serving_site
from tests.installed_clients import CLIENTS, node
from tests.service.closing import grant_prize
from tests.service.real_service import WAIT_S, Service, without

OWNERS = 1_000
TIERS = [{"name": "first", "to_rank": 60}, {"name": "second", "to_percent": 7.07}]
SMALL = {"predictor": {"exact_top": 10, "samples": 40, "method": "skip"}}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_typescript(tmp_path_factory.mktemp("typescript"))


@pytest.fixture
async def game(tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service with a key that pages may read without it. Board `low` has decimals, and the earliest wins."""
    open_to_pages = {"anonymous_role": "reader", "anonymous_reads_per_s": 0, "cors_origins": ("*",)}
    async with Service(tmp_path, player_token_keys=["s" * 32], **open_to_pages).running() as service:
        high = {"name": "xp", "merge": "sum", "tiers": [*TIERS, {"name": "third", "value": 3_000}]}
        low = {
            "name": "xp",
            "merge": "min",
            "best": "low",
            "scale": 2,
            "tiers": [*TIERS, {"name": "fast", "value": 90}],
        }
        await service.board("high", high, ties="shared", **SMALL)
        await service.board("low", low, ties="earliest", **SMALL)
        for board, value in (("high", lambda index: index * 37 % 5_000), ("low", lambda index: f"{index % 300}.25")):
            posts = [{"owner": f"p{index}", "stats": {"xp": value(index)}} for index in range(OWNERS)]
            await service.post(board, *posts)
            await service.refresh(board, "xp")
        await grant_prize(service)
        await service.create_first_key()
        yield service


async def run_session(dist: Path, game: Service) -> dict[str, Any]:
    key = game.headers["Authorization"].removeprefix("Bearer ")
    session = await asyncio.create_subprocess_exec(
        node(), CLIENTS / "typescript_session.mjs", dist, game.base, key, stdout=-1, stderr=-1
    )
    printed, errors = await asyncio.wait_for(session.communicate(), WAIT_S)
    assert session.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(printed)
    return found


async def test_a_program_in_node_reads_posts_follows_and_ranks_offline(dist: Path, game: Service) -> None:
    high = "/v1/leaderboards/high"
    expected = {
        "positions": await game.get(f"{high}/entries/p7/positions?columns=xp&rank=exact"),
        "around": await game.get(f"{high}/entries/p7/around?column=xp&better=1&worse=1"),
        "entry": await game.get(f"{high}/entries/p7"),
        "lookup": await game.must("POST", f"{high}/entries/lookup", {"owners": ["p7", "nobody"], "column": "xp"}),
        "onBoards": await game.must("POST", "/v1/owners/p7/positions", {"boards": ["high", "low"], "column": "xp"}),
        "values": await game.get(f"{high}/rankings/xp/values?ranks=1,2"),
        "valueAround": await game.get(f"{high}/rankings/xp/around?value=50&better=1&worse=1"),
        "buckets": await game.get(f"{high}/rankings/xp/buckets?buckets=3"),
        "owners": [
            row["owner"] async for page in game.pages(f"{high}/rankings/xp?limit=100") for row in page["entries"]
        ],
    }
    divisions = [{"name": "bronze"}, {"name": "gold"}]
    league = {"columns": [{"name": "lap", "merge": "sum"}], "column": "lap", "period": "week", "cohort": 3}
    await game.must("PUT", "/v1/leagues/zenith", {**league, "divisions": divisions})
    found = await run_session(dist, game)
    for name, answer in expected.items():
        plain = json.loads(json.dumps(answer, default=float))
        assert without(found[name], "as_of") == without(plain, "as_of"), name
    assert found["unknown"] == ["ApiError", 404, "unknown_owner"]
    assert found["badKey"] == ["ApiError", 401, "unauthorized"]
    assert found["nowhere"][0] == found["late"][0] == "UnreachableError"
    for board in ("high", "low"):
        assert len(found["offline"][board]) == 300
        assert found["offline"][board] == found["service"][board], board
        assert found["renewed"][board] is False
        assert found["offlineTiers"][board] == found["serviceTiers"][board], board
        assert len({each["name"] for each in found["offlineTiers"][board]}) == 4, "three tiers, and none"
    assert found["badKeys"] == [[True, False]] * 4, "a key that can't be sent is refused at once, and not shown"
    check_streams(found)
    assert found["one"] == ["applied"], "one post needs no list"
    # The answers to some tries were lost, and the posts count once.
    assert (found["tries"], [each["status"] for each in found["posted"]]) == (4, ["duplicate"])
    assert (await game.get("/v1/leaderboards/high/entries/new"))["stats"] == {"xp": 5}
    assert [(each["board"], each["stats"]) for each in found["voided"]["boards"]] == [("high", None)]
    assert found["notVoided"] == ["ApiError", 404, "unknown_family"]
    unknown = ["ApiError", 404, "unknown_owner"]
    assert found["dots"] == [".", ".", unknown, "..", "..", unknown], "names that URLs take for folders"
    assert found["erasedOnce"] == [["UnreachableError", None, None], 1]
    assert found["many"] == 1_500
    assert (await game.get("/v1/leaderboards/high/entries/often"))["stats"] == {"xp": 1_500}

    check_what_is_short(found)
    check_the_buffer(found)
    check_tokens(found)
    assert (await game.get("/v1/leaderboards/laps"))["entries"] == 3 + 990 + 2


def check_what_is_short(found: dict[str, Any]) -> None:
    assert found["joined"] == [2, ["ApiError", 409, "board_full"]]
    assert found["claimed"] == ["gold", True, False]
    assert found["created"] == [[True, "low"]]
    assert (found["lap"]["stats"], found["again"]) == ({"lap": 58.25}, "duplicate")
    assert (found["placed"]["rank"], found["placed"]["rank_before"]) == (1, 1)
    assert found["top"] == [[1, "bob", 58.25], [2, "ada", 58.25]], "the earliest of equal laps is better"
    assert (found["rank"], found["laps"]) == ([2, 3], 3)
    assert found["ambiguous"] == [["ApiError", 400, "column_needed"], ["RankcurveError", None, None]]
    assert found["family"] == ["weeks", ["day", "week"], "weeks", "zenith"]
    assert found["country"]["board"].startswith("weeks:")
    assert found["country"]["board"].endswith(":country=Côte d'Ivoire")
    assert (found["countries"], found["ivorians"]) == ([["Côte d'Ivoire", 1]], ["ada"])
    assert found["league"] == ["bronze-1", "safe", 1, "bob", [1, 1]]
    assert found["history"] == ["weeks:2026-11-20", "weeks:2026-11-19"]
    history = "http://x/v1/families/weeks/owners/ada/history?period=day&country=se"
    assert found["asked"] == [history, f"{history}&cursor=more"]


def check_the_buffer(found: dict[str, Any]) -> None:
    """Check that each post counts once and in order, although many answers are lost or those of a proxy."""
    buffer = found["buffer"]
    assert (buffer["results"], buffer["inOrder"], buffer["unsettled"]) == (1001, True, 250)
    assert buffer["rejected"] == {"bad_value": 10, "bad_request": 1}
    assert (buffer["last"], buffer["closed"][0], buffer["one"]) == ("bad_request", "RankcurveError", {"lap": 90})
    assert buffer["sent"] > 20
    assert found["refused"] == [["RankcurveError", None, None], ["ApiError", 401, "unauthorized"], 1]
    assert found["away"] == ["RankcurveError", None, None]
    assert found["slept"] == ["applied", "applied", "lost"], "patience ends after three attempts of more than a minute"


def check_tokens(found: dict[str, Any]) -> None:
    """Check that a token that is over is replaced once, and not for a post that may have been applied."""
    assert found["byToken"] == ["applied", "duplicate", "rejected", 5, True]
    assert found["renewed1"] == ["applied", "t1", "t2"]
    assert found["renewed2"] == ["token_voided", "t2", "t3"], "no loop"
    assert (found["renewed3"], found["renewed4"]) == (["applied"] * 3, ["token_expired", "t4", "t4"])
    assert found["tokenless"] == [["RankcurveError", None, None]] * 2 + [1, 4], "three parallel posts asked once"


def check_streams(found: dict[str, Any]) -> None:
    """Check that a stream that breaks goes on where it stopped, and that nonsense is an error or a bounded pause."""
    first, second = found["events"]
    assert (first["event"], second["event"], second["data"]["rank"]) == ("position", "position", 1)
    assert (found["opened"], found["resumedAt"]) == (2, first["id"])
    assert found["nonsense"] == [["RankcurveError", 0]] * 3 + [["ApiError", 1]] * 2


async def test_a_page_of_another_site_reads_and_follows_without_a_key(
    dist: Path, game: Service, chromium_address: str
) -> None:
    top = [row["owner"] for row in (await game.get("/v1/leaderboards/high/rankings/xp?limit=10"))["entries"]]
    async with serving_site({"/dist": dist, "/": CLIENTS}) as site, open_page(chromium_address) as page:
        await page.goto(f"{site}/typescript_page.html?service={game.base}")
        await page.wait_for("document.querySelector('#top').children.length === 10")
        assert await page.texts("#top li") == top
        await page.wait_for_text("rank", within="#live")
        await page.evaluate("again()")
        figures = await game.figures()
        assert figures["rankcurve_requests_total", "page", "3xx"] == 1, "the browser asks whether the page has changed"
        assert await page.evaluate("refused()") == "ApiError", "a post needs a token"
        [position] = (await game.get("/v1/leaderboards/high/rankings/xp/positions?values=600&rank=estimate"))[
            "positions"
        ]
        assert await page.evaluate("rank(600)") == position["rank"]
        await game.post("high", {"owner": "p7", "stats": {"xp": 10_000}})
        await page.wait_for("document.querySelector('#live').textContent === 'rank 1'")
