"""Test the C# client, compiled and run by Mono, against a real service."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.contract.values import format_us
from storage.log.cells import Padding
from storage.records import Best, Ties
from tests.clients.csharp_builds import CLIENT, build_client, build_program, mono, run_program
from tests.service.closing import grant_prize
from tests.service.offline_ranks import board_of, decode_document, make_curve, make_tied_curve, move_entries, rank_of
from tests.service.real_service import ROOT, WAIT_S, Service, without

OWNERS = 1_000
LINES_MAX = 1_060
COLUMNS_MAX = 120
TIERS = [{"name": "first", "to_rank": 60}, {"name": "second", "to_percent": 7.07}]
SMALL = {"predictor": {"exact_top": 10, "samples": 40, "method": "skip"}}
PROGRAMS = ROOT / "tests" / "clients"
LAP = {"name": "lap", "merge": "min", "best": "low", "scale": 3}
SHOWN = "1. cy 57.000 | 2. ada 58.250 | 3. bob 60.000 | cy is #1 | ada is #2 | bob is #3"
SHOWN_LATER = "1. bob 50.000 | 2. cy 57.000 | 3. ada 58.250 | bob is #1 | cy is #2 | ada is #3"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(tmp_path_factory.mktemp("csharp"))


@pytest.fixture
async def game(tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service with a key. Board `low` has decimals, and the earliest of equal values is better there."""
    async with Service(tmp_path, player_token_keys=["s" * 32]).running() as service:
        by_value = {"high": {"name": "third", "value": 3_000}, "low": {"name": "fast", "value": 90}}
        high = {"name": "xp", "merge": "sum", "tiers": [*TIERS, by_value["high"]]}
        low = {"name": "xp", "merge": "min", "best": "low", "scale": 2, "tiers": [*TIERS, by_value["low"]]}
        await service.board("high", high, ties="shared", **SMALL)
        await service.board("low", low, ties="earliest", **SMALL)
        for board, value in (("high", lambda index: index * 37 % 5_000), ("low", lambda index: f"{index % 300}.25")):
            posts = [{"owner": f"p{index}", "stats": {"xp": value(index)}} for index in range(OWNERS)]
            await service.post(board, *posts)
            await service.refresh(board, "xp")
        family = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "periods": ["all", "week"]}
        await service.must("PUT", "/v1/families/season", {**family, "facets": [[], ["clan"]]})
        league = {"column": "xp", "period": "week", "cohort": 3, "divisions": [{"name": "bronze"}]}
        await service.must("PUT", "/v1/leagues/zenith", {"columns": family["columns"], **league})
        await grant_prize(service)
        await service.create_first_key()
        yield service


async def ask_service(game: Service) -> dict[str, Any]:
    """Return what the service answers to the requests of the session, before it posts."""
    high, low = "/v1/leaderboards/high", "/v1/leaderboards/low"
    lookup = {"owners": ["p7", "p8", "nobody"], "column": "xp"}
    expected = {
        "positions": (await game.get(f"{high}/entries/p7/positions?columns=xp&rank=exact&next=true"))["positions"][0],
        "around": await game.get(f"{high}/entries/p7/around?column=xp&better=1&worse=1"),
        "entry": await game.get(f"{low}/entries/p7"),
        "lookup": await game.must("POST", f"{high}/entries/lookup", lookup),
        "fromRank": await game.get(f"{high}/rankings/xp?limit=2&from_rank=100"),
        "families": (await game.get("/v1/families"))["families"],
        "owners": [
            row["owner"] async for page in game.pages(f"{high}/rankings/xp?limit=100") for row in page["entries"]
        ],
    }
    for board, values in (("high", range(0, 300 * 19, 19)), ("low", [Decimal(index) * 5 / 4 for index in range(300)])):
        found = []
        for part in (",".join(map(str, values[start : start + 50])) for start in range(0, 300, 50)):
            path = f"/v1/leaderboards/{board}/rankings/xp/positions?values={part}&rank=estimate"
            found += (await game.get(path))["positions"]
        expected[f"offline {board}"] = [[each[name] for name in ("rank", "low", "high", "exact")] for each in found]
        expected[f"kept {board}"] = expected[f"offline {board}"]
        expected[f"tiers {board}"] = [[each["tier"], each.get("tier_certain", True)] for each in found]
    return expected


async def test_a_program_reads_posts_follows_and_ranks_offline(library: Path, game: Service) -> None:
    key = game.headers["Authorization"].removeprefix("Bearer ")
    expected = await ask_service(game)
    session = build_program(library, PROGRAMS / "csharp_session.cs")
    found: dict[str, Any] = json.loads(await run_program(session, game.base, key), parse_float=Decimal)
    for name, answer in expected.items():
        assert without(found[name], "as_of") == without(answer, "as_of"), name
    first = expected["positions"]
    assert found["typed"][:6] == [first[name] for name in ("value", "rank", "low", "high", "total", "percentile")]
    assert found["typed"][6:] == [int(first["as_of"][:4]), None, True, first["next"]["rank"]]
    ranks = {each["owner"]: each["position"]["rank"] for each in expected["lookup"]["entries"]}
    assert found["friends"] == [f"2 p7 {ranks['p7']}", f"1 p8 {ranks['p8']}"]
    assert (found["missing"], found["row"]) == (["nobody"], Decimal("0.25"))
    for board in ("high", "low"):
        assert found[f"unchanged {board}"] is True
        assert found[f"renewed {board}"] == [OWNERS, OWNERS + 1]
        assert len({name for name, _ in found[f"tiers {board}"]}) == 4, "three tiers, and none"
    assert found["week"] == 1
    assert found["family"] == [["season", "applied", 1]] * 2  # all time, and this week
    assert found["league"] == ["bronze", "bronze-1", 2, True, "ada", 1, 9, "safe"]
    assert found["granted"] == ["ada prize gold 1 5"]
    assert found["claimed"] == [True, False, True, None, 0]
    assert found["followed"] == ["position", "position", 1, True], "the stream went on after the id of its last event"
    assert found["top"][0] == "p7"
    await check_posts(found, game)
    check_failures(found)
    expired = ["ApiException", 401, "token_expired"]
    assert (found["byToken"], found["badToken"]) == (["applied", "duplicate", 5, 2], "ArgumentException")
    assert found["tokens"] == ["t1", "t2", expired], "no loop"
    assert found["tokens lost"] == ["t1", "t1", expired], "with another token, the lost post would count again"


async def check_posts(found: dict[str, Any], game: Service) -> None:
    """Check that the posts of the session count once, whatever was lost, with exact numbers and unchanged names."""
    assert found["lost"] == [4, "duplicate", "new", {"xp": 5}]
    assert found["kept"] == "duplicate"
    assert found["placed"] == [1, None]
    assert found["many"] == 1_500
    assert found["rejected"] == "applied,rejected"
    for owner, xp in (("new", 5), ("kept", 5), ("often", 1_500), ("fine", 1)):
        assert (await game.get(f"/v1/leaderboards/high/entries/{owner}"))["stats"] == {"xp": xp}
    assert found["numbers"] == [Decimal(text) for text in ("58.25", "0.1", "1.5", "7.25")]
    for name in ("a/b?c#d", "%2F ü\\ +&=", "\U0001f3c1"):
        assert found[f"owner {name}"] == name
    assert found["owner e\u0301"] == "\u00e9", "names are in NFC"


def check_failures(found: dict[str, Any]) -> None:
    assert found["refused"] == ["ApiException", 400, "bad_request"]
    assert found["unknown"] == ["ApiException", 404, "unknown_owner"]
    assert found["nowhere"] == ["ApiException", 404, "unknown_board"]
    assert found["joined"] == ["ApiException", 409, "no_entry_rules"]
    assert found["badKey"] == ["ApiException", 401, "unauthorized"]
    assert found["away"] == found["late"] == "UnreachableException"
    assert found["ended"] == found["disposed"] == "OperationCanceledException"
    unknown = ["ApiException", 404, "unknown_owner"]
    assert found["dots"] == [".", unknown, "..", unknown], "names that URLs take for folders, before and after erasing"
    nonsense = [each for name, each in found.items() if name.startswith(("foreign ", "nonsense "))]
    assert nonsense == ["UnexpectedAnswerException"] * 8
    assert found["badAddresses"] == ["refused"] * 6, "at once, and without showing the key"
    # Ten thousand posts were answered at the second attempt, and ten thousand streams were opened twice.
    assert found["repeated"] == [10_000, 40_000, 40_000], "every answer is closed"


def make_questions() -> list[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Return documents of curves, and values with the ranks that the Python client gives them."""
    asked: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = []
    for best in Best:
        for ties in Ties:
            for seed in range(6):
                rng, board = random.Random(seed), board_of(best, ties)
                padding = Padding(board.spec, board.spec.columns[0])
                curve = make_curve(rng, padding, shaped=seed % 2 == 0)
                document = decode_document(board, move_entries(rng, curve, padding, step=4) if seed < 4 else curve)
                questions: list[tuple[Any, ...]] = []
                for number in range(-700, 700, 7):
                    value, reached_at = Decimal(number).scaleb(-2), format_us(rng.randrange(1, 10**6))
                    questions.append((value, reached_at, {}, tuple(rank_of(document, value, reached_at))))
                    questions.append((value, None, {}, tuple(rank_of(document, value))))
                asked += [(document, questions), make_tied_curve(rng, best, ties)]
    return asked


async def test_offline_ranks_are_those_of_the_python_client(library: Path, tmp_path: Path) -> None:
    asked = make_questions()
    lines = [
        json.dumps({"document": json.dumps(document, default=float), "questions": questions}, default=float)
        for document, questions in asked
    ]
    (tmp_path / "asked.json").write_text("\n".join(lines))
    program = build_program(library, PROGRAMS / "csharp_ranks.cs")
    printed = await run_program(program, str(tmp_path / "asked.json"))
    found = [[tuple(rank) for rank in json.loads(line)] for line in printed.splitlines()]
    assert found == [[question[-1] for question in questions] for _, questions in asked]
    assert sum(low < high for ranks in found for _, low, high in ranks) > 1_000


async def test_the_sample_scene_shows_the_board_and_follows_it(library: Path, service: Service) -> None:
    await service.board("laps", LAP)
    await service.post("laps", *({"owner": owner, "stats": {"lap": lap}} for owner, lap in (("bob", 60), ("cy", 57))))
    program = build_program(
        library, PROGRAMS / "csharp_unity.cs", CLIENT / "Samples~" / "RacingBoard" / "RacingBoard.cs"
    )
    playing = await asyncio.create_subprocess_exec(mono(), program, service.base, stdin=-1, stdout=-1)
    assert playing.stdin is not None
    assert playing.stdout is not None
    async with asyncio.timeout(WAIT_S):
        while (line := (await playing.stdout.readline()).decode().rstrip()) != SHOWN:
            assert line == "…"
        await service.post("laps", {"owner": "bob", "stats": {"lap": 50}})
        assert (await playing.stdout.readline()).decode().rstrip() == SHOWN_LATER
        playing.stdin.close()
        assert "canceled" in (await playing.stdout.read()).decode()
        assert await playing.wait() == 0, "what awaits on the main thread goes on there"


def test_the_package_is_one_of_unity() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert [(CLIENT / sample["path"]).is_dir() for sample in package["samples"]] == [True]
    assembly = json.loads((CLIENT / "Runtime" / "Rankcurve.asmdef").read_text(encoding="utf-8"))
    assert assembly["precompiledReferences"] == ["Newtonsoft.Json.dll"]
    # Unity ignores a file of an installed package that has no .meta file, and takes files with the same id for one.
    files = [path for path in (*CLIENT.glob("*"), *CLIENT.glob("Runtime/*")) if not path.name.endswith(("~", ".meta"))]
    metas = [Path(f"{path}.meta").read_text(encoding="utf-8") for path in files]
    ids = {found[1] for meta in metas if (found := re.search(r"^guid: ([0-9a-f]{32})$", meta, re.MULTILINE))}
    assert len(ids) == len(files) == len([*CLIENT.glob("*.meta"), *CLIENT.glob("Runtime/*.meta")])


def test_the_client_is_small() -> None:
    lines = [line for path in CLIENT.rglob("*.cs") for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX or line != line.rstrip()] == []


async def test_the_lines_of_the_page_post_and_show_a_board(library: Path, service: Service) -> None:
    await service.board("laps", LAP)
    await service.post("laps", {"owner": "bob", "stats": {"lap": 57}})
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```csharp\nusing Rankcurve;\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert "http://127.0.0.1:8080" in code
    source = library.parent / "page.cs"
    source.write_text(PAGE_PROGRAM.replace("LINES", code.replace("http://127.0.0.1:8080", service.base)))
    printed = await run_program(build_program(library, source))
    assert printed.splitlines() == ["#2 of 2", "1. bob 57.000", "2. ada 58.250", "2 2"]


# A program around the lines of the page, which has what Unity has.
PAGE_PROGRAM = """
using System;
using System.Threading.Tasks;
using Rankcurve;

static class Debug {
    public static void Log(string line) => Console.WriteLine(line);
}

static class Script {
    static void Main() => RunAsync().GetAwaiter().GetResult();

    static async Task RunAsync() {
        LINES
        Debug.Log($"{near.Rows.Count} {friends.Entries.Count}");
    }
}
"""
