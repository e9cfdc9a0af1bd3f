"""Take the screenshots of the dashboard that the documents show, from the season of the demo.

.venv/bin/python -m docs.take_screenshots        (`make screenshots`)

Needs Chromium, which `tests/install_missing.sh` installs. A small season is enough for a picture.
"""

import asyncio
import tempfile
from pathlib import Path

from examples.season_demo import BOARD, LOG, owner_name, serving, set_up
from tests.browser import Page, open_page
from tests.chromium import chromium
from tests.servers import free_port

DOCS = Path(__file__).parent
PLAYERS = 100_000
SIZE = (1280, 800)
# The name of each picture, the part of the page's address after `#`, and a text that the complete page has.
VIEWS = {
    "dashboard": (f"/boards/{BOARD}?owner={owner_name(PLAYERS // 3)}", "Around by xp"),
    "dashboard_overview": ("/boards", "entries"),
    "dashboard_owner": (f"/owners/{owner_name(PLAYERS // 3)}", "Acts"),
    "dashboard_moderation": ("/moderation", "posts of the last hour"),
}


async def take_screenshots(url: str, address: str) -> None:
    for name, (place, complete) in VIEWS.items():
        for theme in ("light", "dark"):
            async with open_page(address) as page:
                picture = await take_screenshot(page, f"{url}/#{place}", theme, complete)
            write_picture(DOCS / f"{name}_{theme}.png", picture)


async def take_screenshot(page: Page, url: str, theme: str, complete: str) -> bytes:
    await page.show(SIZE, dark=theme == "dark")
    await page.goto(url)
    await page.wait_for_text(complete)
    await page.settle()
    return await page.screenshot(height_px=SIZE[1])


def write_picture(path: Path, picture: bytes) -> None:
    path.write_bytes(picture)
    print(f"{path.relative_to(DOCS.parent)}: {len(picture):,} bytes")


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        with serving(port, folder) as server:
            set_up(url, PLAYERS, server, folder / LOG)
            asyncio.run(take_screenshots(url, browser.address))


if __name__ == "__main__":
    main()
