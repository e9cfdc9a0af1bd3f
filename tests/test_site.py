"""Build the site of the documents, as `make site` does, and look at its pages, its search and what models read."""

import json
import re
from pathlib import Path

import pytest

from docs.build_site import build

pytestmark = pytest.mark.filterwarnings("ignore:.*Sphinx:PendingDeprecationWarning")  # myst-parser's own calls
LOADED = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|srcset|href)=["'](?:https?:)?//[^"']+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


def test_no_page_loads_anything_from_another_site(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert {page.name: found for page in pages if (found := LOADED.findall(page.read_text(encoding="utf-8")))} == {}
    styles = [path for path in site.rglob("*.css") if re.search(r"url\(['\"]?(?:https?:)?//", path.read_text())]
    assert styles == []


def test_the_navigation_leads_to_every_page_of_the_documents(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'<li class="toctree-l1[^"]*"><a class="reference internal" href="([^"#]+)"', home))
    pages = {page.relative_to(site).as_posix() for page in (site / "docs").glob("*.html")} - {"docs/README.html"}
    assert pages <= linked


def test_the_search_finds_the_pages_of_a_word(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = index["terms"]["memcach"]
    names = [index["docnames"][number] for number in (found if isinstance(found, list) else [found])]
    assert "docs/settings" in names


def test_models_find_every_source_that_they_are_sent_to(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not (site / link).is_file()] == []
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert all((site / link).read_text(encoding="utf-8") in whole for link in links if link.endswith(".md"))
