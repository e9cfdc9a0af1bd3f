"""Why here: a newcomer starts with the README, so what it lists is compared with what exists.

The one rule: the tables are read from the file as it stands; nothing here knows their content.
"""

import re
from pathlib import Path

import pytest

from service.api import ROUTES
from service.operating import with_operating
from service.routes import Route

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `([A-Z]+) (\S+)` \| (\w+) \| (.+) \|$", re.MULTILINE)


def _endpoint_rows() -> dict[tuple[str, str], str]:
    """Role by method and path, of every row of the endpoint table."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("<!-- endpoints -->\n")[2].partition("<!-- /endpoints -->")[0]
    rows = {(method, path): role for method, path, role, _ in ROW.findall(table)}
    assert len(rows) == table.count("\n") - 2, "a row that is not `METHOD /path` | role | text, or one listed twice"
    return rows


@pytest.mark.parametrize("route", with_operating(ROUTES), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_in_the_readme_with_its_role(route: Route) -> None:
    role = route.role.name.lower() if route.role is not None else "open"
    assert _endpoint_rows().get((route.method, route.path)) == role


def test_the_readme_lists_no_endpoint_that_is_not_there() -> None:
    assert _endpoint_rows().keys() == {(route.method, route.path) for route in with_operating(ROUTES)}


def test_every_make_target_that_the_readme_shows_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = set(re.findall(r"\bmake (?:[A-Z]+=\S+ )*([a-z]+)", readme))
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert shown - targets == set()


def test_every_file_that_the_readme_links_to_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", readme)
    assert [link for link in links if not (ROOT / link).exists()] == []
