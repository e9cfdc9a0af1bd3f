"""Follow the tutorial and the recipes literally, from an empty folder, and compare what they show."""

import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from rankcurve import Client

from tests.installed_clients import newtonsoft
from tests.pages import run_block, shell_environment
from tests.schemas import fresh_schema
from tests.servers import RedisServer
from tests.service.real_service import ROOT, Process

BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<kind>sh|python|csharp|toml|text)\n(?P<text>.*?)```", re.DOTALL)
RUNNING = re.compile(r"^rankcurve serve|python token_endpoint\.py")
FILE = re.compile(r"`(\w+\.(?:py|cs|toml))`:$")


def normalised(text: str) -> str:
    """Return a text without times, ids of keys, milliseconds, methods and estimated ranks, which differ in each run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"^[0-9a-f]{10}(?=  )", "KEY", text, flags=re.MULTILINE)
    # The job may have made the first curve before. Then the refresh of the page is the second, and reads every row.
    text = re.sub(r"^(best_lap) +(?:skip|scan) +(\d+) +\d+", r"\1 READ \2 MS", text, flags=re.MULTILINE)
    text = re.sub(r'"rank":\d+,"low":\d+,"high":\d+,("exact":false,.*"percentile":)\d+\.\d+', r"BRACKET,\1N", text)
    text = re.sub(r" (count|knot|gap) +TIME", " METHOD TIME", text)
    return re.sub(r" +", " ", re.sub(r" +$", "", text, flags=re.MULTILINE)).strip()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of somebody who has the command on the path, and a service on a free port."""
    return shell_environment()


def follow(
    page: str, folder: Path, environment: dict[str, str], start: Callable[[str], object] = lambda _: None
) -> int:
    """Do what a page says, in a folder. Return the number of outputs that were compared.

    `start` is called with each command that the page leaves running.
    """
    compared, printed = 0, ""
    for block in BLOCK.finditer((ROOT / "docs" / page).read_text(encoding="utf-8")):
        text = block["text"].replace(":8080", f":{environment['RANKCURVE_PORT']}")
        text = text.replace("9000", environment.get("PAGE_PORT", "9000"))
        if block["kind"] in ("python", "csharp", "toml"):
            named = FILE.search(block["before"])
            assert named, f"which file? {block['before']}"
            (folder / named[1]).write_text(text)
        elif block["kind"] == "text":
            assert normalised(printed) == normalised(text)
            compared += 1
        elif RUNNING.search(text):
            start(text)
        else:
            printed = run_block(text, folder, environment)
    return compared


@pytest.fixture
async def old_stores(environment: dict[str, str], postgres_url: str) -> AsyncIterator[None]:
    """Start the Redis, and make the database, from which `migrating.md` moves leaderboards, and an empty database."""
    async with fresh_schema(postgres_url) as url, fresh_schema(postgres_url) as environment["EMPTY"]:
        database, _, schema = url.partition("?search_path=")
        with RedisServer() as server:
            environment |= {"REDIS": f"redis://{server.address}", "DATABASE": database}
            environment["PGOPTIONS"] = f"-c search_path={schema}"
            yield


def test_every_request_and_call_in_the_table_of_commands_finds_what_it_asks_for(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    rows = re.findall(
        r"^\| `[^|]+ \| (.+) \| (.+) \|$", (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    spec = {"columns": [{"name": "xp", "sorted": True, "merge": "max"}]}
    with (
        Process(tmp_path, "--port", environment["RANKCURVE_PORT"]) as process,
        Client(process.url) as client,
        httpx.Client(base_url=process.url) as http,
    ):
        client.create_board("arena", spec)
        client.post("arena", [{"owner": owner, "stats": {"xp": 120}} for owner in ("ada", "bob")])
        done = 0
        for requests, calls in rows:
            for path in re.findall(r"`GET …(/\S+)`", requests):
                path = path.replace("/leaderboards/{board}", "").format(owner="ada", column="xp")
                answer = http.get(f"/v1/leaderboards/arena{path}")
                assert answer.status_code == 200, answer.text
                done += 1
            for call in re.findall(r"`client\.([^`…]+)`", calls):
                eval(f"client.{call}", {"client": client})
                done += 1
    assert done > len(rows)


@pytest.mark.parametrize(
    ("page", "outputs"),
    [("tutorial.md", 9), ("contest.md", 5), ("how_to.md", 15), ("rewards.md", 2), ("migrating.md", 8), ("llms.txt", 2)],
)
def test_a_page_does_what_it_shows(
    page: str, outputs: int, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Follow a page with a new service, and check that `outputs` outputs were compared."""
    environment |= {"PROJECT": str(ROOT), "NEWTONSOFT": str(newtonsoft())}
    if page == "migrating.md":
        request.getfixturevalue("old_stores")
    assert shutil.which("curl"), "apt-get install curl"
    folder = tmp_path / "empty"
    folder.mkdir()
    with Process(tmp_path, "--port", environment["RANKCURVE_PORT"]):
        assert follow(page, folder, environment) == outputs
