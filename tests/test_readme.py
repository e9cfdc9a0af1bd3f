"""Compare the lists and examples of the README with the code, because newcomers start with the README."""

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.api import ROUTES
from service.demo import BOARD, SPEC, lines_to_try, season_posts
from service.health_routes import add_health_routes
from tests.service.real_service import Service

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `([A-Z]+) (\S+)` \| (\w+) \| (.+) \|$", re.MULTILINE)


def _endpoint_rows() -> dict[tuple[str, str], str]:
    """Return the role in each row of the endpoint table, by method and path."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("<!-- endpoints -->\n")[2].partition("<!-- /endpoints -->")[0]
    rows = {(method, path): role for method, path, role, _ in ROW.findall(table)}
    assert len(rows) == table.count("\n") - 2, "a row that is not `METHOD /path` | role | text, or one listed twice"
    return rows


def test_the_readme_lists_every_route_with_its_role() -> None:
    routes = add_health_routes(ROUTES)
    roles = {(each.method, each.path): "open" if each.role is None else each.role.name.lower() for each in routes}
    assert _endpoint_rows() == roles


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_a_page_shows_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z]+)", text, re.MULTILINE))
    assert {"check", "quick", "test"} <= shown
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert shown - targets == set()


@pytest.mark.parametrize(("store", "processes"), [("postgresql://user@host/db", 1), ("", 3)])
def test_tests_that_share_a_given_server_run_in_one_process(store: str, processes: int) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [words] = re.findall(r"`RANKCURVE_TEST_STORE=\S+ make (test [^`]+)`", guide)
    kept = {name: value for name, value in os.environ.items() if name not in ("TEST_PROCESSES", "MAKEFLAGS")}
    command = ["make", "--dry-run", *words.split()]
    shown = subprocess.run(
        command, cwd=ROOT, env={**kept, "RANKCURVE_TEST_STORE": store}, capture_output=True, text=True, check=True
    ).stdout
    assert f"--numprocesses {processes} --dist loadfile --no-loadscope-reorder tests/storage" in shown


def test_every_file_folder_and_test_that_the_guide_for_contributors_names_exists() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"[ `]((?:service|jobs|storage|tests|config|docs|benchmarks)/[\w/.]*\w)", guide)
    assert len(places) > 40
    assert [place for place in places if not (ROOT / place).exists()] == []
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py"))
    tests = re.findall(r"`(test_\w+)`\s+in `tests/test_tidy.py`", guide)
    assert tests
    assert [name for name in tests if f"def {name}(" not in sources] == []


def _first_block(kind: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    return str(next(block for block in blocks if kind != "sh" or block.startswith("curl")))


def _shape(value: Any) -> Any:
    """Replace each value in a JSON value by its type. Keep the members `owner`, `column` and `value`."""
    if isinstance(value, dict):
        kept = ("owner", "column", "value")
        return {name: str(member) if name in kept else _shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shape(member) for member in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


async def test_the_service_answers_the_request_of_the_readme_as_shown_there(tmp_path: Path) -> None:
    command = _first_block("sh").strip()
    assert command == lines_to_try("http://127.0.0.1:8080", 100_000)[0]
    path = command.removeprefix("curl 'http://127.0.0.1:8080").removesuffix("'")
    season = list(season_posts(33_334, random.Random(2026)))
    async with Service(tmp_path).running() as service:
        await service.must("PUT", f"/v1/leaderboards/{BOARD}", SPEC)
        await service.post(BOARD, *season[:2000], season[-1])
        await service.refresh(BOARD, "xp", "best_lap")
        answer = await service.get(path)
    shown = json.loads(_first_block("json"))
    assert _shape(json.loads(json.dumps(answer, default=float))) == _shape(shown)
    for position in shown["positions"]:
        assert position["low"] <= position["rank"] <= position["high"]
        assert position["exact"] == (position["low"] == position["high"])
