"""Provide a small context and a few routes, so that tests of the HTTP layer need no store."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from config.settings import Settings
from service.app import make_server
from service.contract.api_keys import KeyRing, Role
from service.contract.post_bodies import PostTarget, parse_posts
from service.contract.problems import ProblemError
from service.contract.queries import PageQuery, PositionsQuery
from service.contract.requests import Lookup, PostBody, PostList
from service.contract.responses.boards import EntryAnswer, LookupAnswer, Page
from service.contract.responses.positions import OwnerPositions
from service.contract.routes import Call, Handler, Reply, Route
from service.http.endpoint import EndpointContext
from service.http.rate_limits import AnonymousCallers, KeyLimits
from service.telemetry.logs import RequestLog
from service.telemetry.metrics.process import Metrics
from storage.errors import OverloadedError, QueueFullError, StoreBusyError, UnknownBoardError
from storage.meter import NO_METER, Meter


def toy_settings() -> Settings:
    """Return settings with small limits, which tests can easily exceed."""
    fixed = {"body_wait_s_max": 60, "retry_after_s_max": 20, "lease_resources_per_request_max": 5}
    return Settings(
        body_bytes_max=4096,
        body_idle_s_max=0.2,
        arriving_bytes_max=5000,
        head_wait_s_max=0.5,
        keepalive_s_max=60,
        retry_after_s=7,
        query_values_max=5,
        audit_owners_max=5,
        lookup_owners_max=5,
        posts_per_request_max=5,
        boards_per_post_max=5,
        lease_s_max=60,
    ).model_copy(update=fixed)


def key_limits(
    meter: Meter = NO_METER, *, reads_per_s: float = 0, posts_per_s: float = 0, now_s: float = 0
) -> KeyLimits:
    """Return limits with a burst of three reads and three posts, at a fixed time.

    A rate of 0 means no limit.
    """
    bounds = Settings(
        key_reads_per_s=reads_per_s,
        key_reads_burst=3,
        key_posts_per_s=posts_per_s,
        key_posts_burst=3,
        keys_max=2,
        retry_after_s=2,
    ).model_copy(update={"retry_after_s_max": 30})
    return KeyLimits(bounds, meter, monotonic=lambda: now_s)


@dataclass(frozen=True, kw_only=True)
class ToyContext(EndpointContext):
    """The parts of a context that the HTTP layer uses. If `store_errors` is not empty, the store is not ready."""

    settings: Settings = field(default_factory=toy_settings)
    metrics: Metrics = field(default_factory=Metrics)
    keyring: KeyRing = field(default_factory=KeyRing)
    request_log: RequestLog = field(default_factory=lambda: RequestLog(sample_ratio=0, slow_s=60))
    key_limits: KeyLimits = field(default_factory=key_limits)
    anonymous: AnonymousCallers = field(
        default_factory=lambda: AnonymousCallers(Settings(), NO_METER, monotonic=lambda: 0)
    )
    store_errors: list[Exception] = field(default_factory=list)

    async def ready(self) -> list[int]:
        for error in self.store_errors:
            raise error
        return []


async def positions(context: ToyContext, call: Call) -> OwnerPositions:
    return OwnerPositions(call.path["owner"], [])


async def entry(context: ToyContext, call: Call) -> EntryAnswer:
    """Answer with an empty entry. If the owner's name is the name of a failure, raise the error of that failure."""
    failures: dict[str, Exception] = {
        "busy": StoreBusyError(), "full": QueueFullError(), "draining": QueueFullError(retry_after_s=11.2),
        "stalled": OverloadedError(retry_after_s=float("inf")),
        "nowhere": UnknownBoardError("no such leaderboard 'b'"), "bug": ZeroDivisionError("a secret of the inside"),
        "problem": ProblemError("no_curve", "none yet"),
    }  # fmt: skip
    if call.path["owner"] in failures:
        raise failures[call.path["owner"]]
    return EntryAnswer(call.path["owner"], "2026-11-20T10:00:00.000000Z", {})


async def erase(context: ToyContext, call: Call) -> Reply:
    return Reply(status=204)


async def posts(context: ToyContext, call: Call) -> bytes:
    """Answer how many posts the body contains, and whether it is a single post."""
    may_set = call.identity.role >= Role.OPS
    settings = context.settings
    parsed, single = parse_posts(call.body, call.media_type, settings, kind=PostTarget.ONE_BOARD, may_set=may_set)
    return b'{"posts":%d,"single":%s}' % (len(parsed), b"true" if single else b"false")


async def lookup(context: ToyContext, call: Call) -> Any:
    return LookupAnswer([], list(call.body.owners))


async def page(context: ToyContext, call: Call) -> Reply:
    body = Page(call.path["column"], call.query.limit or 100, [], None, None)
    return Reply(body, headers={"ETag": '"1"'})


def route(method: str, path: str, handler: Handler, role: Role, view: str, tag: str, **more: Any) -> Route:
    path = f"/v1/leaderboards/{{board}}/{path}"
    return Route(method, path, handler, role, view, tag, **more)


POSTS = {"body": (PostBody, PostList), "raw_body": True, "ndjson": True}
ROUTES = [
    route(
        "GET", "entries/{owner}/positions", positions, Role.READER, "owner_positions", "Reading", query=PositionsQuery
    ),
    route("GET", "entries/{owner}", entry, Role.READER, "entry", "Reading"),
    route("DELETE", "entries/{owner}", erase, Role.OPS, "erase_entry", "Operating"),
    route("POST", "posts", posts, Role.WRITER, "posts", "Posting", **POSTS),
    route("POST", "entries/lookup", lookup, Role.READER, "lookup", "Reading", body=Lookup),
    route("GET", "rankings/{column}", page, Role.READER, "page", "Reading", query=PageQuery),
]


@asynccontextmanager
async def serving_toy(
    context: ToyContext, routes: Sequence[Route] = ROUTES, *, shutdown_s: float = 60
) -> AsyncIterator[int]:
    """Serve routes on a free port, which is yielded, by the runner of `serve`. aiohttp's own would cancel handlers."""
    runner = web.ServerRunner(make_server(routes, context), shutdown_timeout=shutdown_s)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()
