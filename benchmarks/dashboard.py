"""Measure the dashboard in headless Chromium: when it first paints, when a view is complete, how many bytes it loads.

    python -m benchmarks.dashboard [--rows N]

Each of four views is loaded ten times, each time in a new profile, so that nothing is cached. All requests of a view
are counted.

Bars for each view: first paint at most 150 ms (median), bytes sent with headers at most 150 kB, at most 4 files of the
page itself, and a layout shift of at most 0.1 (the metric CLS of Web Vitals). Bars for the owner's view: complete after
at most 400 ms (median), at most 8 requests to the API.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks import report
from benchmarks.boards import BOARD, owner_at, prepare_store
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file
from tests.browser import Page, open_page
from tests.chromium import chromium

_LOADS = 10
_PAINT_MS_MAX = 150.0
_OWNER_COMPLETE_MS_MAX = 400.0
_OWN_FILES_MAX = 4
_SHIFT_MAX = 0.1
_OWNER_API_REQUESTS_MAX = 8
_KB_MAX = 150.0
_CURVE = "document.querySelector('#curve svg') && document.querySelector('#spread svg')"
# For each view, its route and an expression that is true once the view is complete.
_VIEWS = {
    "boards": ("", "document.querySelector('#view tbody tr')"),
    "board": (f"#/boards/{BOARD}", f"document.querySelector('#ranking tbody tr') && {_CURVE}"),
    "owner": (
        f"#/boards/{BOARD}?owner={owner_at(0)}",
        f"document.querySelector('#owner .ranks') && document.querySelector('#owner table') && {_CURVE}",
    ),
    "node": ("#/node", "document.querySelector('#node-jobs table')"),
}
_SHIFTED = """new Promise((done) => {
  let sum = 0;
  const add = (list) => list.getEntries().forEach((each) => { sum += each.value; });
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 50);
})"""
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@dataclass(frozen=True, slots=True)
class Load:
    paint_ms: float
    complete_ms: float
    encoded_bytes: int
    own_files: int
    api_requests: int
    shift: float  # how much of the page moved while it loaded


async def load_view(page: Page, url: str, complete: str) -> Load:
    """Open a view in a browser page without a cache, and return the figures."""
    await page.command("Network.setCacheDisabled", cacheDisabled=True)
    await page.goto(url)
    complete_ms = await page.wait_for(f"({complete}) && performance.now()")
    paint_ms = await page.wait_for(_PAINTED)
    await page.settle()
    sent = page.sent
    if failed := [each.url for each in sent if each.status != 200]:
        raise RuntimeError(f"not answered: {failed}")
    paths = [urlsplit(each.url).path for each in sent]
    own_files = len([path for path in paths if path == "/" or path.startswith("/dashboard/")])
    return Load(
        paint_ms,
        complete_ms,
        sum(each.encoded_bytes for each in sent),
        own_files,
        len(sent) - own_files,
        await page.evaluate(_SHIFTED),
    )


async def load_views(address: str, url: str) -> dict[str, list[Load]]:
    """Load all views in turn, for several rounds, and return the loads by view. The first round is not counted."""
    found: dict[str, list[Load]] = {name: [] for name in _VIEWS}
    for number in range(_LOADS + 1):
        for name, (route, complete) in _VIEWS.items():
            async with open_page(address) as page:
                one = await load_view(page, f"{url}/{route}", complete)
            if number:
                found[name].append(one)
    return found


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = prepare_store(options, folder, rows=options.rows)
    with serve_file(store) as server, chromium() as browser:
        found = asyncio.run(load_views(browser.address, server.url))
    columns = ("view", "first paint ms", "slowest", "complete ms", "kB", "own files", "API requests", "shift")
    figures = {
        name: (
            median(one.paint_ms for one in found[name]), max(one.paint_ms for one in found[name]),
            median(one.complete_ms for one in found[name]), max(one.encoded_bytes for one in found[name]) / 1000,
            max(one.own_files for one in found[name]), max(one.api_requests for one in found[name]),
            max(one.shift for one in found[name]),
        )
        for name in _VIEWS
    }  # fmt: skip
    report.print_table(columns, [(name, *row) for name, row in figures.items()])
    bars = []
    for name, (paint_ms, _, complete_ms, kilobytes, own_files, api_requests, shift) in figures.items():
        bars += [
            report.Bar(f"first paint, {name}", paint_ms, _PAINT_MS_MAX, " ms", at_most=True),
            report.Bar(f"bytes sent, {name}", kilobytes, _KB_MAX, " kB", at_most=True),
            report.Bar(f"files of the page, {name}", own_files, _OWN_FILES_MAX, at_most=True),
            report.Bar(f"layout shift, {name}", shift, _SHIFT_MAX, at_most=True),
        ]
        if name == "owner":
            bars += [
                report.Bar("complete, owner", complete_ms, _OWNER_COMPLETE_MS_MAX, " ms", at_most=True),
                report.Bar("API requests, owner", api_requests, _OWNER_API_REQUESTS_MAX, at_most=True),
            ]
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=100_000)
    return report.run_benchmark(
        options, f"dashboard in Chromium: a board of {options.rows:,} rows, {_LOADS} loads each", measure
    )


if __name__ == "__main__":
    sys.exit(main())
