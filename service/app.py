"""The aiohttp application from a table of routes and a context.

The rule: this is the only module that knows how aiohttp routes; paths that no route has answer problems as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import perf_counter

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from .bodies import Bodies
from .connections import HEAD_WAIT_S_MAX, REFUSE, HeadTimeout, fault
from .logs import REQUEST_ID, TRACEPARENT
from .operating import with_operating
from .problems import Problem, internal, shown
from .routes import Route
from .shell import X_REQUEST_ID, X_TRACEPARENT, Endpoint, RequestIds, ShellContext, problem_response

_UNROUTED_VIEW = "none"
_ANYTHING = "(?s:.*)"  # line ends too: what no route took would be answered, and not told, by aiohttp
LINE_BYTES_MAX = 64 * 1024  # a thousand values of a query, escaped; aiohttp's own 8 KiB holds half of them
LINGERING_S = 1.0  # longest reading of a refused body before its connection is closed
READ_AHEAD_BYTES = 64 * 1024  # of a body, beside what its reader has taken; aiohttp pauses at twice as much


def make_app(routes: Sequence[Route], context: ShellContext) -> web.Application:
    """The application: `routes` in the order they are tried, hottest first, then health, metrics and OpenAPI.

    Start and stop (store, jobs) are the caller's, through `on_startup` and `cleanup_ctx`.
    """
    ids = RequestIds()
    bodies = Bodies(context.settings)
    app = web.Application(
        handler_args={
            "auto_decompress": False,  # the limit is then one of what is sent, and no body can be a bomb
            "max_line_size": LINE_BYTES_MAX,
            "lingering_time": LINGERING_S,
            "read_bufsize": READ_AHEAD_BYTES,
            "keepalive_timeout": context.settings.keepalive_s_max,
        },
    )
    # The port of the jobs has no routes of its own, and so nothing for a page to show.
    table = with_operating(routes, dashboard=bool(routes) and context.settings.dashboard)
    resources: dict[str, web.Resource] = {}
    for route in table:
        resource = resources.get(route.path)
        if resource is None:
            resource = resources[route.path] = app.router.add_resource(_aiohttp_path(route))
        endpoint = Endpoint(route, context, ids, bodies)
        for method in _methods(route):
            resource.add_route(method, endpoint.serve, expect_handler=_expected)
    # A last resource that takes everything, not a middleware: that would cost every request.
    unrouted = _Unrouted(table, context, ids)
    app.router.add_route("*", f"/{{anything:{_ANYTHING}}}", unrouted.serve, expect_handler=_expected)
    app[REFUSE], app[HEAD_WAIT_S_MAX] = unrouted.refuse, context.settings.head_wait_s_max

    async def stop_bodies(_: web.Application) -> None:
        bodies.stop()
        context.stopping()

    app.on_shutdown.append(stop_bodies)
    return app


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """Let a caller that asks send its body; what else a caller may expect is not known, and not needed to answer."""
    if request.version == HttpVersion11 and request.headers[hdrs.EXPECT].lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # as before it: an answer is still to come
    return None


def _methods(route: Route) -> tuple[str, ...]:
    return (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)


def _aiohttp_path(route: Route) -> str:
    """aiohttp's own `{name}` matches no braces, and an owner may have them."""
    return re.sub(r"\{(\w+)\}", rf"{{\1:{_parameter(route)}}}", route.path)


def _parameter(route: Route) -> str:
    """What a parameter of the path takes."""
    return _ANYTHING if route.foreign else "[^/]+"


class _Unrouted:
    """Problems for requests that no route takes."""

    def __init__(self, routes: Sequence[Route], context: ShellContext, ids: RequestIds) -> None:
        self._answered = context.metrics.request_timer(_UNROUTED_VIEW)
        self._log = context.request_log
        self._ids = ids
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", _parameter(route), route.path)), _methods(route)) for route in routes
        ]
        self._words = {"", *(word for route in routes for word in route.path.split("/") if "{" not in word)}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The problem: the path is unknown, or takes other methods."""
        started_s = perf_counter()
        request_id = self._ids.of(request.headers.get(X_REQUEST_ID))
        REQUEST_ID.set(request_id)
        TRACEPARENT.set(request.headers.get(X_TRACEPARENT, ""))
        path = request.rel_url.raw_path
        allowed = sorted({method for pattern, methods in self._paths if pattern.fullmatch(path) for method in methods})
        if allowed:
            detail = f"the path takes {', '.join(allowed)}, not {shown(request.method)}"
            problem = Problem("method_not_allowed", detail, headers={hdrs.ALLOW: ", ".join(allowed)})
        else:
            problem = Problem("not_found", f"nothing is at {shown(request.path)}")
        method = request.method if request.method in hdrs.METH_ALL else "-"
        return self._answer(problem, request_id, method, self._told_path(path), perf_counter() - started_s)

    def _told_path(self, path: str) -> str:
        """The words of it that some route has; what else a caller made up may be an owner or a key."""
        return "/".join(word if word in self._words else "…" for word in path.split("/"))

    def refuse(self, error: HttpProcessingError | None) -> web.Response:
        """The problem of bytes that are no request (`error`), or of an answer that failed outside of every handler."""
        request_id = self._ids.of(None)
        REQUEST_ID.set(request_id)
        if isinstance(error, HeadTimeout):
            problem = Problem("head_timeout", error.message)
        else:
            problem = Problem("bad_request", f"the request can't be read: {fault(error)}") if error else internal()
        return self._answer(problem, request_id, "-", "-", 0.0)

    def _answer(self, problem: Problem, request_id: str, method: str, path: str, seconds: float) -> web.Response:
        self._answered(problem.status, seconds)
        self._log.answered(
            view=_UNROUTED_VIEW,
            method=method,
            path=path,
            status=problem.status,
            code=problem.code,
            seconds=seconds,
            key_id="-",
        )
        return problem_response(problem, request_id)
