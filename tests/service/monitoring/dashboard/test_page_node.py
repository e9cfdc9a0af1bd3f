"""Test that the page of a node shows the same numbers as /metrics and the views of the service."""

from tests.browser import Page
from tests.service.monitoring.dashboard.shown_node import OWNERS, new_board, post, view_url
from tests.service.openapi_checks import ROUTE_TABLE
from tests.service.real_service import Caller, Figures, Process, Spawn

READS_MAX = 1_000  # how often a test may read the page; its numbers change only every few seconds
REQUESTS = "rankcurve_requests_total"
# The open page requests these routes itself, so their counts grow during the comparison.
ASKED_BY_THE_VIEW = {"dashboard", "dashboard_file", "jolokia_post", "queue", "pools", "pool", "metrics"}
COUNTED_AS = {route.view: route.metrics_name for route in ROUTE_TABLE}
READY = "document.querySelector('#node-leases table') && document.querySelectorAll('.tiles svg').length === 4"


async def metrics(node: Process) -> Figures:
    async with Caller(node.url) as caller:
        return await caller.figures()


def rows_of(texts: list[str]) -> dict[str, list[str]]:
    """Split each row into cells at its tabs. Return the other cells of each row by the row's first cell."""
    return {row.split("\t")[0].split("\n")[0]: row.split("\t")[1:] for row in texts}


def requests_to(route: str, counted: Figures) -> float:
    """Return how many requests to a route the metrics count, with all statuses together."""
    return sum(value for (name, *labels), value in counted.items() if name == REQUESTS and route in labels)


async def test_the_page_shows_the_numbers_of_the_metrics(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/node"))
    await page.wait_for(READY)
    others = []
    for _ in range(READS_MAX):  # the page may still show older numbers, so compare several times
        counted = await metrics(node)
        routes = rows_of(await page.texts("#node-routes tbody tr"))
        others = [
            (route, cells[4], cells[5], f"{requests_to(route, counted):,.0f}")
            for route, cells in routes.items()
            if route not in {COUNTED_AS[view] for view in ASKED_BY_THE_VIEW}
        ]
        if all(shown == requests for _, shown, _, requests in others):
            break
    assert [row for row in others if row[1] != row[3] or row[2] != "0"] == []
    assert COUNTED_AS["create_board"] in routes
    facts = await page.text("#node-store .facts")
    applied = counted["rankcurve_posts_total", "applied"]
    assert applied > OWNERS
    assert f"Posts applied\n{applied:,.0f} · " in facts
    jobs = rows_of(await page.texts("#node-jobs tbody tr"))
    assert {"refresh", "fold", "prune", "drain"} <= jobs.keys()
    assert all(cells[3] == "0" for cells in jobs.values()), "no failures"
    pools = rows_of(await page.texts("#node-leases tbody tr"))
    assert pools["game / servers"][:3] == ["eu", "0 of 12", "12"]
    # The first requests of a busy machine take longer.
    slow = "The slowest 1 % of requests take more than half a second. What to do"
    assert await page.texts(".verdict-line li") in ([], [slow])
    assert "at rest" in await page.text("#node-queue .facts")
    assert "Waiting\n0\n" in await page.text("#node-queue .facts")
    assert (await page.texts("#node-pools tbody th"))[0].startswith("common")


async def test_the_pictures_begin_with_what_was_before_the_page_was_opened(page: Page, node: Process) -> None:
    await page.goto(view_url(node, "/node"))
    await page.wait_for(READY)
    async with Caller(node.url) as caller:
        recent = (await caller.get("/jolokia/read/rankcurve:type=Recent"))["value"]
    points = await page.evaluate("document.querySelector('.tiles polyline').getAttribute('points').split(' ').length")
    assert points >= len(recent["Posts"]) - 2


async def test_an_alert_turns_the_verdict_amber_and_says_what_to_do(page: Page, spawn: Spawn) -> None:
    node = spawn().ready()
    await page.goto(view_url(node, "/node"))
    await page.wait_for("document.querySelector('.verdict-line.green')")
    async with Caller(node.url) as caller:
        await caller.get("/jolokia/exec/rankcurve:type=Job,name=audit/pause")
    await page.wait_for_text("A background job is paused.", within=".verdict")
    assert await page.text(".verdict-line.amber b") == "Something needs a look."
    await page.click(".verdict a")
    await page.wait_for("document.getElementById('alert-RankcurveJobPaused') && location.pathname === '/docs'")


async def test_the_page_updates_its_numbers_while_it_is_open(page: Page, node: Process) -> None:
    await new_board(node.url, "zz-counted")
    await page.goto(view_url(node, "/node"))
    await page.wait_for(READY)
    shown = "Number(document.querySelector('#node-store dd').textContent.split(' ')[0].replaceAll(',', ''))"
    before = await page.evaluate(shown)
    await post(node.url, "zz-counted", **{f"o{number}": number for number in range(40)})
    # The numbers of the first look may lack posts of the test before, which another process of the node took.
    await page.wait_for(f"{shown} >= {before + 40}")
    await page.wait_for("/· [0-9.]+\\/s/.test(document.querySelector('#node-store dd').textContent)")  # the rate
    await page.wait_for("document.querySelector('.tiles b').textContent !== '0'")


async def test_the_page_says_what_each_job_does_and_how_webhooks_fare(page: Page, node: Process) -> None:
    async with Caller(node.url) as caller:
        hook = {"url": "https://game.example/events", "events": ["board.closed"]}
        await caller.must("PUT", "/v1/webhooks/zz-shop", hook)
        await page.goto(view_url(node, "/node"))
        await page.wait_for_text("zz-shop", within="#node-webhooks")
        assert "active" in await page.text("#node-webhooks tbody tr")
        jobs = await page.texts("#node-jobs tbody th")
        assert all(len(job.split("\n")) == 2 for job in jobs), "a name and what it does"
        assert "0 of –" not in await page.text()
        await page.click("button[data-key='test:zz-shop']")
        await page.wait_for_text("A test goes to zz-shop", within="#node-webhooks")
        await caller.must("DELETE", "/v1/webhooks/zz-shop")
