"""Compare the lists and examples of the README with the code, because newcomers start with the README."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import performance
from examples.season_demo import BOARD, SPEC, lines_to_try, season_posts
from tests.service.real_service import Service

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_LINES_MAX = 150


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize(
    ("page", "least"), [("README.md", {"demo", "test"}), ("CONTRIBUTING.md", {"check", "quick", "test"})]
)
def test_every_make_target_that_a_page_shows_exists(page: str, least: set[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z]+)", text, re.MULTILINE))
    assert least <= shown
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert shown - targets == set()


def test_every_file_folder_and_test_that_the_guide_for_contributors_names_exists() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"[ `]((?:service|jobs|storage|tests|config|docs|benchmarks)/[\w/.]*\w)", guide)
    assert len(places) > 40
    assert [place for place in places if not (ROOT / place).exists()] == []
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py"))
    tests = re.findall(r"`(test_\w+)`\s+in `tests/test_tidy.py`", guide)
    assert tests
    assert [name for name in tests if f"def {name}(" not in sources] == []


def _shape(value: Any) -> Any:
    """Replace each value in a JSON value by its type. Keep the name of the column."""
    if isinstance(value, dict):
        kept = ("column",)
        return {name: str(member) if name in kept else _shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shape(member) for member in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


async def test_the_service_answers_the_requests_of_the_readme_as_shown_there(tmp_path: Path) -> None:
    shown = re.findall(r"^```sh\n(curl [^\n]+)\n```\n\n```json\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert [command for command, _ in shown] == lines_to_try("http://127.0.0.1:8080", 100_000)[:3]
    season = list(season_posts(33_334, random.Random(2026)))
    async with Service(tmp_path).running() as service:
        await service.must("PUT", f"/v1/leaderboards/{BOARD}", SPEC)
        await service.post(BOARD, *season[:4000], season[-1])
        await service.refresh(BOARD, "xp", "best_lap")
        for command, text in shown:
            answer = await service.get(command.removeprefix("curl 'http://127.0.0.1:8080").removesuffix("'"))
            told = json.loads(text)
            assert _shape(json.loads(json.dumps(answer, default=float))) == _shape(told)
            for position in told.get("positions", []):
                assert position["low"] <= position["rank"] <= position["high"]
                assert position["exact"] == (position["low"] == position["high"])


def test_the_comparison_with_redis_shows_the_measured_figures() -> None:
    measured = performance.read_figures()["against_redis"]["bars"]
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) times as many \| 1 \|$", README, re.MULTILINE)
    names = {
        "positions a second": "positions, service / Redis",
        "rows around a player": "around, service / Redis of scores alone",
        "top 10": "top 10, service / Redis of scores alone",
        "single posts": "single posts, service / Redis of scores alone",
        "batches of 1,000 posts": "batch posts, service / Redis",
    }
    assert [name for name, _ in rows] == list(names)
    for name, text in rows:
        assert text == f"{measured[names[name]]:.2g}"
    season = performance.read_figures()["busy_season"]["bars"]
    posts_ms = season.pop("posts, p99")
    told = re.search(r"99 % of the posts took at most (\d+) ms,\s+and 99 % of the reads at most (\d+) ms", README)
    assert told
    assert [int(text) for text in told.groups()] == [round(posts_ms), round(max(season.values()))]
