"""Builds the documentation as a searchable site in build/site (`make site`).

Sphinx renders the documents as they are, and the navigation comes from the tables of docs/README.md. For language
models, the site also offers `llms.txt`, the source of every page beside the page, and `llms-full.txt` with all of the
sources. Neither the pages nor their search load anything from another site.
"""

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
HOME = "README"
PAGES = ("*.md", "docs/*.md", "examples/*.md", "clients/*/README.md", "benchmarks/README.md")
NOT_SEARCHED = [".*", "build", "data", "deploy", "tests", "**/node_modules", "service", "storage", "jobs"]
# The theme furo loads no fonts or scripts of other sites.
CONFIGURATION = {
    "project": "rankcurve",
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    "html_title": "rankcurve",
    "html_copy_source": False,
    "html_show_sphinx": False,
    "root_doc": HOME,
    "include_patterns": list(PAGES),
    "exclude_patterns": NOT_SEARCHED,
    "myst_heading_anchors": 4,
    "suppress_warnings": ["toc.not_included", "toc.no_title"],
}
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([\w./]+)\.md\)")


def navigation() -> str:
    """Return the tables of docs/README.md as trees of pages, one for each section, in MyST's notation."""
    _, *parts = SECTION.split((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    found = []
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        pages = [(ROOT / "docs" / link).resolve().relative_to(ROOT.resolve()) for link in LINK.findall(text)]
        found += ["", "```{toctree}", ":hidden:", f":caption: {title}", "", *map(str, pages), "```", ""]
    return "\n".join(found)


def build(site: Path) -> None:
    """Build the site in an empty folder. Raises SystemExit if a document has a broken link."""

    def add_navigation(_: Sphinx, page: str, source: list[str]) -> None:
        if page == HOME:
            source[0] += navigation()

    work = site.with_name(f"{site.name}-pages")
    app = Sphinx(ROOT, None, site, work, "html", CONFIGURATION, status=None, warningiserror=True, parallel=2)
    app.connect("source-read", add_navigation)
    app.build()
    if app.statuscode:
        sys.exit(app.statuscode)
    shutil.copy(site / f"{HOME}.html", site / "index.html")
    pages = sorted(f"{page}.md" for page in app.env.found_docs)
    for page in pages:
        shutil.copy(ROOT / page, site / page)
    shutil.copy(ROOT / "docs" / "llms.txt", site)
    texts = [f"<!-- {page} -->\n\n{(ROOT / page).read_text(encoding='utf-8')}" for page in pages]
    (site / "llms-full.txt").write_text("\n".join(texts), encoding="utf-8")
    shutil.rmtree(work)


if __name__ == "__main__":
    shutil.rmtree(SITE, ignore_errors=True)
    build(SITE)
    print(f"file://{SITE}/index.html")
