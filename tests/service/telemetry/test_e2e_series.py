"""Test that a node has a limited number of Prometheus series, whatever callers send and however many boards exist."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import asyncpg
from aiohttp import ClientSession

from service.api import ROUTES
from service.contract.responses.positions import PositionMethod
from service.contract.routes import Route
from service.health_routes import add_health_routes
from service.http.endpoint import count_answer
from service.processes.supervisor import WorkKind
from service.telemetry.metrics.node_metrics import NodeMember
from service.telemetry.metrics.process import Metrics, curve_metrics, memcached_metrics
from service.telemetry.metrics.store_figures import PARTITION_GAUGES, StoreFigures
from storage.meter import Meter
from storage.schema.placement import TABLES
from storage.schema.tables import BOARDS, GATES
from storage.store import StoreSize
from tests.memcached import OpenMemcached
from tests.service.every_route import BODIES, KEY, NAMES, QUERIES
from tests.service.real_service import Caller, Service, Spawn, bearer

SERIES_MAX = 500
LIST = Path(__file__).parents[3] / "docs" / "metrics.md"
SERVICE = Path(__file__).parents[3] / "service"
TABLE = add_health_routes(ROUTES)
UNROUTED = "none"
COUNTED = sorted({route.metrics_name for route in TABLE} | {UNROUTED})
CLASSES = ("2xx", "4xx", "5xx")
JOBS = (
    "refresh", "prune", "audit", "fold", "close", "demands", "drain", "size workers", "liberate", "balance", "watch",
    "deliver", "events", "tops",
)  # fmt: skip
XP = {"name": "xp", "merge": "sum"}
METHODS = ("PUT", "POST", "GET", "DELETE")
FIRST = (
    "reset_board", "reset_family", "add_resources", "post", "refresh_curve", "void_post", "void_family_post",
    "erase_entry", "remove_profile", "give_back_lease", "remove_resources", "delete_pool",
)  # fmt: skip


def list_samples(text: str) -> list[str]:
    return [line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")]


def count_samples(found: Sequence[str]) -> Counter[str]:
    return Counter(re.sub(r"_(bucket|sum|count|total)$", "", sample.partition("{")[0]) for sample in found)


def make_full_metrics(member: NodeMember | None = None) -> Metrics:
    """Return the metrics of a process with a series for every label value that the code can use."""
    metrics = Metrics(member)
    meter = metrics.meter
    store: Any = SimpleNamespace(dialect=SimpleNamespace(name="sqlite"))
    figures = StoreFigures(store, meter, version="1", wait_s_max=1)
    figures.size, figures.partitions[0] = StoreSize(1, 1), dict.fromkeys(PARTITION_GAUGES, 1)
    for view in (figures.collect, partial(curve_metrics, [], 0.0), partial(memcached_metrics, 0)):
        metrics.watch(view)
    for work in get_args(WorkKind):
        meter.add("rankcurve_process_ends", 1, work)
    for route in COUNTED:
        for kind in CLASSES:
            count_answer(metrics.meter, route, int(kind[0]) * 100, 0.1)
    for route, methods in read_rank_labels().items():
        for method in methods:
            meter.add("rankcurve_reads", 1, route, method)
    for job in JOBS:
        report_job(meter, job)
    meter.observe("rankcurve_store_connection_wait_seconds", 0.1, "common")
    for kind in ("read", "write", "heavy"):
        for figure in ("lent", "awaited", "limit"):
            meter.set(f"rankcurve_store_connections_{figure}", 1, "common", kind)
    for name in ("ingest_posts", "ingest_age_seconds", "closing_lag_seconds", "webhook_failing_seconds"):
        meter.set(f"rankcurve_{name}", 1)
    meter.set("rankcurve_grants_lag_seconds", 1)
    return metrics


def report_job(meter: Meter, job: str) -> None:
    """Report a job as the job itself does."""
    for name in ("rankcurve_job_rounds", "rankcurve_job_busy_seconds", "rankcurve_job_failures"):
        meter.add(name, 0, job)
    for name in ("rankcurve_job_last_round_timestamp_seconds", "rankcurve_job_paused"):
        meter.set(name, 1, job)


def test_all_series_that_the_code_can_name_stay_within_the_bound() -> None:
    found = list_samples(make_full_metrics().text().decode())
    assert len(found) <= SERIES_MAX, count_samples(found)


def test_the_metrics_page_lists_every_metric_with_its_labels() -> None:
    guide = LIST.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `((?:rankcurve|process)_\w+)` \| (\w+) \| (.*?) ?\| (.+?) \|$", guide, re.MULTILINE)
    told = [
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            ", ".join(name for name in family.samples[0].labels if name != "le"),
            family.documentation,
        )
        for family in make_full_metrics().collect()
    ]
    assert sorted(listed) == sorted(told)


def read_rank_labels() -> dict[str, tuple[str, ...]]:
    """Find in the source code which labels the views of each route give to the ranks that they count.

    If a call passes the variable `method`, assume that the route uses every method.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path in SERVICE.rglob("*.py"):
        for call in re.findall(r'\.add\(\s*"rankcurve_reads", (.*)', path.read_text(encoding="utf-8")):
            names = re.findall(r'"(\w+)"', call)
            for route in set(names) & set(COUNTED):
                methods = get_args(PositionMethod) if "method" in call else ()
                found[route] = (*found.get(route, ()), *(set(names) - set(COUNTED)), *methods)
    assert "positions" in found
    return {route: tuple(sorted(set(methods))) for route, methods in found.items()}


async def make_boards(folder: Path, url: str, boards: int) -> tuple[str, str]:
    """Add `boards` boards to a store: a board `b`, and copies of the rows of another board in a shared table.

    Return the text of an operator's key, and the id of another key, which a request will revoke.
    """
    async with Service(folder, store=url).running() as service:
        await service.board("b", XP)
        await service.board("b0", XP, table="shared")
        operator = await service.create_first_key()
        other = await service.must("POST", "/v1/keys", KEY)
        schema = service.context.store.dialect.schema_of(BOARDS)
    connection = await asyncpg.connect(url)
    catalog, gates = (name if schema is None else f"{schema}.{name}" for name in (BOARDS, GATES))
    copied = ("table_key", "partition", "spec", "created_at", "epoch", "stage", "segment", "kind")
    copy = tuple(await connection.fetchrow(f"SELECT {', '.join(copied)} FROM {catalog} WHERE id = 'b0'"))
    await connection.copy_records_to_table(
        BOARDS,
        schema_name=schema,
        columns=("board_key", "rows_key", "id", *copied),
        records=((10**6 + number, 10**6 + number, f"b{number}", *copy) for number in range(1, boards - 1)),
    )
    _, *names, edition = TABLES[GATES].kinds
    edition = f"(SELECT {edition} FROM {gates} WHERE leaf_key = (SELECT board_key FROM {catalog} WHERE id = 'b0'))"
    copies = f"SELECT board_key, {', '.join(names)}, {edition} FROM {catalog} WHERE board_key >= {10**6}"
    await connection.execute(f"INSERT INTO {gates} {copies}")
    await connection.close()
    return operator, other["id"]


async def send_request(session: ClientSession, base: str, route: Route, key_id: str, *, sane: bool) -> int:
    """Send a request to a route, and return the status.

    If `sane` is set, the request is valid and names existing things.
    """
    names = {**NAMES, "id": key_id}
    path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]] if sane else "no", route.path)
    body = BODIES.get(route.view) if sane else {"no": "such"} if route.takes_body else None
    query = QUERIES.get(route.view, "") if sane else "?no=such"
    async with session.request(route.method, f"{base}{path}{query}", json=body) as answer:
        if not route.view.startswith("stream"):
            await answer.read()
        return answer.status


async def use_everything(base: str, headers: dict[str, str], key_id: str) -> dict[str, set[int]]:
    """Send a valid and an invalid request to every route. Return the statuses by view."""
    statuses: dict[str, set[int]] = {}

    def turn(route: Route) -> tuple[int, int]:
        """Return a sort key: routes that create things come first, and routes that delete things come last."""
        method = "DELETE" if route.view in ("hide_owner", "merge_owner") else route.method
        return METHODS.index(method), FIRST.index(route.view) if route.view in FIRST else len(FIRST)

    async with ClientSession(headers=headers) as session:
        for sane in (True, False):
            for route in sorted(TABLE, key=turn):
                statuses.setdefault(route.view, set()).add(await send_request(session, base, route, key_id, sane=sane))
        async with session.get(f"{base}/nothing") as answer:
            statuses[UNROUTED] = {answer.status}
    return statuses


async def use_the_queue(base: str, key: str) -> None:
    """Queue posts for so many owners that every shard gets a post. Wait until the posts are applied."""
    async with Caller(base, key) as caller:
        await caller.board("queued", {"name": "xp", "merge": "sum"})
        posts = [{"owner": f"p{number}", "stats": {"xp": 1}} for number in range(200)]
        await caller.must("POST", "/v1/leaderboards/queued/posts?mode=queued", {"posts": posts})
        await caller.wait_applied()


async def test_every_route_on_a_thousand_boards_stays_within_the_bound(
    tmp_path: Path, store_url: str, cache: OpenMemcached, spawn: Spawn
) -> None:
    key, key_id = await make_boards(tmp_path, store_url, 1_000)
    headers = bearer(key)
    settings = f"memcached_servers={cache.address}", f"player_token_keys={'s' * 32}"
    node = spawn(
        "--store", store_url, "--workers", "2", *(word for each in settings for word in ("--set", each))
    ).ready()
    statuses = await use_everything(node.url, headers, key_id)
    failed = {view: found for view, found in statuses.items() if not any(status < 300 for status in found)}
    # No leaderboard has closed, so there is no grant; and none has rules of entry.
    assert failed.keys() == {UNROUTED, "claim_grant", "join", "judge_post"}, failed
    await use_the_queue(node.url, key)
    async with ClientSession(headers=headers) as session, session.get(f"{node.url}/metrics") as answer:
        found = list_samples(await answer.text())
    requests = [sample for sample in found if sample.startswith("rankcurve_requests_total")]
    assert {sample for sample in requests if "2xx" in sample} >= {
        f'rankcurve_requests_total{{route="{route}",status="2xx"}}' for route in set(COUNTED) - {UNROUTED}
    }
    # The limit must hold even if every route returns every class of status.
    most = len(found) - len(requests) + len(CLASSES) * len(COUNTED)
    assert most <= SERIES_MAX, count_samples(found)
    assert not [sample for sample in found if "b999" in sample or "ada" in sample]
