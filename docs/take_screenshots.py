"""Take the dashboard screenshots for the documentation, which show the demo's season and a few other boards.

    .venv/bin/python -m docs.take_screenshots        (`make screenshots`)

Chromium is required; `tests/install_missing.sh` installs it. A small season is enough for a picture.
"""

import asyncio
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from rankcurve import Client

from examples.season_demo import BOARD, LOG, SEED, SPEC, owner_name, serving, set_up
from tests.browser import Page, open_page
from tests.chromium import chromium
from tests.servers import free_port

DOCS = Path(__file__).parent
PLAYERS = 100_000
SIZE = (1280, 800)
# The name of each picture, the part of the page's address after `#`, and a text that the complete page has.
VIEWS = {
    "dashboard": (f"/boards/{BOARD}?owner={owner_name(PLAYERS // 3)}", "Around by xp"),
    "dashboard_overview": ("/boards", "changes a minute"),
    "dashboard_contest": ("/boards/time-attack", "Who would get a prize now"),
    "dashboard_moderation": ("/moderation", "posts of the last"),
}
NAMES = (
    "Ada Lovelace", "Grace Hopper", "Edsger", "Barbara", "Linus", "Margaret", "Alan", "Katherine", "Donald", "Radia",
    "Hedy", "Ken", "Dennis", "Sophie", "Shafi", "Frances", "Jean", "Mary", "Evelyn", "Joan",
)  # fmt: skip
RACERS = 120
TIERS = [
    {"name": "diamond", "to_rank": 10}, {"name": "gold", "to_percent": 1}, {"name": "silver", "to_percent": 10},
    {"name": "bronze", "to_percent": 50},
]  # fmt: skip


def add_others(client: Client) -> None:
    """Add what a game has besides its season: tiers, names, a contest, a family, a league, and a cheater."""
    rng = random.Random(SEED)
    columns = [
        {**each, "tiers": TIERS} if each["name"] == "xp" else each
        for each in cast(list[dict[str, Any]], SPEC["columns"])
    ]
    client.create_board(BOARD, {"columns": columns})
    for entry, name in zip(client.top(BOARD, len(NAMES), "xp"), NAMES, strict=True):
        client.put_profile(entry.owner, {"name": name})
    contest = {
        "columns": [
            {"name": "points", "merge": "max", "tiers": TIERS[1:], "post_max": 5_000, "on_breach": "hold"},
            {"name": "time_s", "merge": "with", "of": "points", "best": "low", "scale": 2, "sorted": False},
            {"name": "replay", "type": "text", "merge": "with", "of": "points", "sorted": False},
        ],
        "ties": ["time_s", "earliest"],
        "closes_at": (datetime.now(UTC) + timedelta(hours=5)).isoformat(),
        "entry": {"posts_max": 50, "owners_max": 1_000},
        "rewards": [
            {"name": "champion", "column": "points", "to_rank": 1, "data": {"gems": 500}},
            {"name": "top_ten", "column": "points", "to_rank": 10, "data": {"gems": 100}},
        ],
    }
    client.create_board("time-attack", contest)
    runs = [{"points": rng.randrange(100, 1_000, 10), "time_s": f"{rng.uniform(40, 70):.2f}"} for _ in range(RACERS)]
    runs.append({"points": 9_999, "time_s": "3.00"})
    posts = [
        {
            "owner": owner_name(number),
            "post_id": f"run-{number}",
            "stats": {**run, "replay": f"https://game.example/{number}"},
        }
        for number, run in enumerate(runs)
    ]
    client.post("time-attack", posts)
    client.create_family("arena", {"columns": [{"name": "xp", "merge": "sum"}], "periods": ["month", "week", "day"]})
    client.post_to_family(
        "arena", [{"owner": owner_name(number), "stats": {"xp": number * 7}} for number in range(RACERS)]
    )
    divisions = [
        {"name": "bronze", "promote": 3},
        {"name": "silver", "promote": 2, "relegate": 2},
        {"name": "gold", "relegate": 2},
    ]
    league = {"columns": [{"name": "xp", "merge": "sum"}], "column": "xp", "period": "week", "cohort": 10}
    client.create_league("climb", {**league, "divisions": divisions})
    client.post_to_league("climb", [{"owner": owner_name(number), "stats": {"xp": number}} for number in range(RACERS)])
    client.hide_owner(owner_name(20), reason="Speed hack, seen by three players")


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
            with Client(url) as client:
                add_others(client)
            asyncio.run(take_screenshots(url, browser.address))


if __name__ == "__main__":
    main()
