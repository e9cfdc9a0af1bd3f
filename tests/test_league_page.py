"""Open the example page of a league in a browser, and let a period end while it is open."""

import contextlib
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rankcurve import Client

from tests.browser import open_page
from tests.clients.typescript_builds import build_typescript
from tests.servers import HOST, free_port
from tests.service.real_service import ROOT, Process, environment

LASTS_S = 20  # the test needs a second or two of it, on an idle machine
DIVISIONS = [{"name": "bronze", "promote": 1}, {"name": "silver", "relegate": 1}]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, port: int) -> Iterator[None]:
    server = ThreadingHTTPServer((HOST, port), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()


async def test_a_player_sees_the_cohort_and_the_next_one(tmp_path: Path, chromium_address: str) -> None:
    site, port = tmp_path / "site", free_port()
    shutil.copytree(build_typescript(tmp_path), site / "rankcurve")
    shutil.copy(ROOT / "examples/league_page.html", site)
    variables = environment() | {"RANKCURVE_CORS_ORIGINS": f"http://{HOST}:{port}"}
    with Process(tmp_path, variables=variables) as service, serving(site, port):
        address = f"http://{HOST}:{service.port}"
        game = Client(address)
        async with open_page(chromium_address) as page:
            ends_at = datetime.now(UTC) + timedelta(seconds=LASTS_S)
            bounds = ["2020-01-01T00:00:00", f"{ends_at:%Y-%m-%dT%H:%M:%S.%f}", "2100-01-01T00:00:00"]
            period = {"name": "round", "bounds": bounds}
            game.create_league("climb", "xp:sum", column="xp", period=period, cohort=3, divisions=DIVISIONS)
            game.post_to_league("climb", [{"owner": "ada", "stats": {"xp": 2}}, {"owner": "bob", "stats": {"xp": 5}}])
            await page.goto(f"http://{HOST}:{port}/league_page.html?service={address}&league=climb&owner=ada")
            await page.wait_for_text("4 more, and you would rise.", within="#goal")
            assert await page.texts("li span") == ["1", "bob", "5", "2", "ada", "2"]
            await page.wait_for(r"/^00:00:\d\d$/.test(document.querySelector('#left').textContent)")
            game.post_to_league("climb", [{"owner": "ada", "stats": {"xp": 4}}])
            await page.wait_for_text("You would rise now.", within="#goal")
            assert await page.texts("li.me span") == ["1", "ada", "6"]
            await page.wait_for_text("You rise!", within="#news")
            await page.wait_for_text("Play once to take a seat.", within="#goal")
            await page.wait_for_text("Silver", within="h1")
            assert page.errors == []
