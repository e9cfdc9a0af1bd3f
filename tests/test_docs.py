"""Test that the documentation agrees with the code: links, names, examples and figures.

The tests read figures and names from the pages, so that these are written down only once.
"""

import json
import re
import runpy
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from benchmarks import performance
from benchmarks.bucket_study import take_study
from config import Settings
from service.api import ROUTES
from service.cli import app
from service.contract.problems import CODES
from service.health_routes import add_health_routes
from service.telemetry.metrics.process import Metrics
from storage.records import Merge
from tests.service.closing import us
from tests.service.real_service import Service

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
CELL_CHARS_MAX = 200  # a longer cell should be a paragraph below the table
FIGURES = re.compile(r"^\| ([\d,]+) uniform scores, (.+?) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# The names come from the page, because a process exposes a metric only after it has a value for the metric.
# tests/service/telemetry/test_e2e_series.py compares the page with all metrics.
METRICS = re.findall(r"^\| `(rankcurve_\w+)` \|", text_of(ROOT / "docs" / "metrics.md"), re.MULTILINE)


def heading_ids(page: Path) -> set[str]:
    """Return the ids of the headings on a page, as usual renderers make them. A link names such an id after `#`."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_every_file_and_heading_that_a_page_links_to_exists(page: Path) -> None:
    files = re.findall(r"\]\(([^)#:]+)\)", text_of(page))
    assert [link for link in files if not (page.parent / link).exists()] == []
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text_of(page))
    assert [link for link in links if link[1] not in heading_ids(page.parent / link[0] if link[0] else page)] == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_no_cell_of_a_table_is_a_paragraph(page: Path) -> None:
    long = [
        f"{page.name}:{number} {cell[:60]}"
        for number, line in enumerate(text_of(page).splitlines(), start=1)
        if line.startswith("|")
        for cell in map(str.strip, re.split(r"(?<!\\)\|", line))
        if len(cell) > CELL_CHARS_MAX
    ]
    assert long == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_every_picture_is_small_and_shown_on_a_page(picture: Path) -> None:
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.stat().st_size < 64 * 1024
    assert any(f"({picture.name})" in text_of(page) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_request_setting_and_metric_of_a_page_exists(page: Path) -> None:
    text = text_of(page)
    for command in set(re.findall(r"`rankcurve (\w+)", text)):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
    for method, tail in re.findall(r"`(GET|POST|PUT|DELETE) …(/[^?`]+)", text):
        assert any(route.method == method and route.path.endswith(tail) for route in ROUTES), tail
    for module in set(re.findall(r"`python -m (benchmarks[.\w]+)", text)):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    shown = "".join(f"# TYPE {name} " for name in METRICS) + Metrics().text().decode()
    for metric in set(re.findall(r"`(rankcurve_\w+)`", text)):
        assert f"# TYPE {metric} " in shown
    views = {route.view for route in ROUTES}
    assert set(re.findall(r"`(audit_\w+)`", text)) - views <= Settings.model_fields.keys()


async def test_the_service_accepts_the_family_and_the_post_of_the_families_page(tmp_path: Path) -> None:
    spec, post, found, seasons = map(
        json.loads, re.findall(r"^```json\n(.*?)^```", text_of(ROOT / "docs" / "families.md"), re.M | re.S)
    )
    service = Service(tmp_path)
    service.clock = lambda: us(datetime(2026, 12, 1, tzinfo=UTC))
    await service.start()
    await service.must("PUT", "/v1/families/arena", spec)
    answer = await service.must("POST", "/v1/families/arena/posts", post)
    query = "period=week&at=2026-12-05T00:00:00Z&clan=fox"
    assert await service.get(f"/v1/families/arena/boards?{query}") == found
    assert f"?{query}`" in text_of(ROOT / "docs" / "families.md")
    assert (await service.must("PUT", "/v1/families/seasons", seasons))["periods"] == seasons["periods"]
    await service.stop()
    assert [each["status"] for each in answer["results"][0]["boards"]] == ["applied"] * 6


def test_the_curve_page_quotes_the_figures_that_the_study_of_buckets_computes() -> None:
    rows = FIGURES.findall(text_of(ROOT / "docs" / "curve.md"))
    assert {row[0] for row in rows} == {"10,000", "100"}
    found = {}
    for players, buckets in ((10_000, 5), (100, 10)):
        for name, errors in take_study(players, buckets).items():
            found[f"{players:,}", frozenset(re.findall(r"\w+", name))] = errors
    for players, name, *percents in rows:
        errors = found[players, frozenset(re.findall(r"\w+", name))]
        for quoted, measured in zip(percents, (errors.mean, errors.p99, errors.worst), strict=True):
            assert float(quoted) == pytest.approx(100 * measured, rel=0.05, abs=0.005)


def test_the_page_and_the_chart_of_the_speed_are_what_the_command_wrote() -> None:
    figures = performance.read_figures()
    assert figures.keys() == set(performance.PROGRAMS)
    assert all(row.bar in figures[row.program]["bars"] for row in performance.ROWS)
    assert text_of(ROOT / "docs" / "performance.md") == performance.render_page(figures)
    assert text_of(ROOT / "docs" / "performance.svg") == performance.render_chart(figures)


REFERENCE = runpy.run_path(str(ROOT / "docs" / "write_reference.py"))["PAGES"]


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_a_page_of_the_reference_is_what_its_script_writes(page: Path) -> None:
    assert text_of(page) == REFERENCE[page](), "renew it with: .venv/bin/python docs/write_reference.py"


def test_the_reference_lists_every_route_with_its_role_and_every_code() -> None:
    routes = add_health_routes(ROUTES)
    roles = {(each.method, each.path): "open" if each.role is None else each.role.name.lower() for each in routes}
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| (\w+) \| .+ \|$", text_of(ROOT / "docs" / "endpoints.md"), re.MULTILINE)
    assert len(rows) == len(roles)
    assert {(method, path): role for method, path, role in rows} == roles
    codes = re.findall(r"^\| `(\w+)` \| (\d+) \|", text_of(ROOT / "docs" / "problems.md"), re.MULTILINE)
    assert sorted(codes) == sorted((code, str(meaning.status)) for code, meaning in CODES.items())


def test_what_the_page_calls_missing_is_missing() -> None:
    told = (
        text_of(ROOT / "docs" / "boundaries.md").partition("no path with any of these words:")[2].partition("\n\n")[0]
    )
    words = re.findall(r"`(\w+)`", told)
    assert len(words) > 8
    assert [(word, route.path) for word in words for route in ROUTES if word in route.path] == []
    [merges] = re.findall(r"\| merges (.+?)\. ", text_of(ROOT / "docs" / "boundaries.md"))
    assert set(re.findall(r"`(\w+)`", merges)) == {merge.value for merge in Merge}


def test_the_debian_packages_that_a_page_names_are_those_that_the_tests_install() -> None:
    installed = (ROOT / "tests" / "install_missing.sh").read_text(encoding="utf-8")
    named = [
        name
        for page in PAGES
        for line in re.findall(r"apt-get install ([^`\n]+)", text_of(page))
        for name in line.split()
    ]
    assert len(named) >= 3
    assert [name for name in named if not re.search(rf"\b{re.escape(name)}\b", installed)] == []
