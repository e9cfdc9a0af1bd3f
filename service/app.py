"""Builds the aiohttp application from a table of routes and a context.

Only this module depends on how aiohttp chooses a route. A request that matches no route gets a problem document.
"""

import re
from collections.abc import Sequence
from time import perf_counter

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from service.contract.problems import ProblemError, clip_text, internal_problem
from service.contract.routes import Route
from service.http.bodies import BodyReader
from service.http.endpoint import Endpoint, EndpointContext, RequestIds, make_problem_response
from service.http.malformed import HEAD_WAIT_S_MAX, REFUSE, HeadTimeoutError, describe_fault

from .health_routes import add_health_routes

_UNROUTED_VIEW = "none"
# This pattern also matches line ends. With `.*`, no route would match a path that contains a line end. aiohttp itself
# would then answer the request, and the service would write no log line for it.
_ANYTHING = "(?s:.*)"
# The longest line of a request. It can hold a query with a thousand escaped values. aiohttp's default, 8 KiB, can't.
LINE_BYTES_MAX = 64 * 1024
LINGERING_S = 1.0  # the service reads a refused body for at most this long before it closes the connection
# aiohttp reads a body before the handler asks for it. When twice this number of bytes wait for the handler, aiohttp
# stops reading from the connection until the handler has read some of them.
READ_AHEAD_BYTES = 64 * 1024


def make_app(routes: Sequence[Route], context: EndpointContext) -> web.Application:
    """Build the application of `routes` and the health routes. The caller starts and stops the store and the jobs."""
    ids = RequestIds()
    bodies = BodyReader(context.settings)
    app = web.Application(
        handler_args={
            "auto_decompress": False,  # the body limit then counts bytes as sent; a decompression bomb does no harm
            "max_line_size": LINE_BYTES_MAX,
            "lingering_time": LINGERING_S,
            "read_bufsize": READ_AHEAD_BYTES,
            "keepalive_timeout": context.settings.keepalive_s_max,
        },
    )
    # In a process that only runs jobs, `routes` is empty. Its dashboard could not request any data.
    table = add_health_routes(routes, dashboard=bool(routes) and context.settings.dashboard)
    resources: dict[str, web.Resource] = {}
    for route in table:
        resource = resources.get(route.path)
        if resource is None:
            resource = resources[route.path] = app.router.add_resource(_aiohttp_path(route))
        endpoint = Endpoint(route, context, ids, bodies)
        for method in _methods(route):
            resource.add_route(method, endpoint.serve, expect_handler=_expected)
    # The last resource matches every request that no route matched. A middleware would cost time on every request.
    unrouted = _Unrouted(table, context, ids)
    app.router.add_route("*", f"/{{anything:{_ANYTHING}}}", unrouted.serve, expect_handler=_expected)
    app[REFUSE], app[HEAD_WAIT_S_MAX] = unrouted.refuse, context.settings.head_wait_s_max

    async def stop_bodies(_: web.Application) -> None:
        bodies.refuse_arriving()
        context.end_endless_answers()

    app.on_shutdown.append(stop_bodies)
    return app


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """Answer `Expect: 100-continue`, so that the caller sends its body. Ignore any other expectation."""
    if request.version == HttpVersion11 and request.headers[hdrs.EXPECT].lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # reset the count of sent bytes: the response itself has not started yet
    return None


def _methods(route: Route) -> tuple[str, ...]:
    return (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)


def _aiohttp_path(route: Route) -> str:
    """Return the path for aiohttp. aiohttp's default pattern matches no braces, but an owner may contain them."""
    return re.sub(r"\{(\w+)\}", rf"{{\1:{_parameter(route)}}}", route.path)


def _parameter(route: Route) -> str:
    return _ANYTHING if route.foreign_protocol else "[^/]+"


class _Unrouted:
    def __init__(self, routes: Sequence[Route], context: EndpointContext, ids: RequestIds) -> None:
        self._answered = context.metrics.make_request_timer(_UNROUTED_VIEW)
        self._log = context.request_log
        self._ids = ids
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", _parameter(route), route.path)), _methods(route)) for route in routes
        ]
        self._words = {"", *(word for route in routes for word in route.path.split("/") if "{" not in word)}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer `not_found`, or `method_not_allowed` if the path has routes for other methods."""
        started_s = perf_counter()
        request_id = self._ids.begin_request(request.headers)
        path = request.rel_url.raw_path
        allowed = sorted({method for pattern, methods in self._paths if pattern.fullmatch(path) for method in methods})
        if allowed:
            detail = f"the path takes {', '.join(allowed)}, not {clip_text(request.method)}"
            problem = ProblemError("method_not_allowed", detail, headers={hdrs.ALLOW: ", ".join(allowed)})
        else:
            problem = ProblemError("not_found", f"nothing is at {clip_text(request.path)}")
        method = request.method if request.method in hdrs.METH_ALL else "-"
        return self._answer(problem, request_id, method, self._logged_path(path), perf_counter() - started_s)

    def _logged_path(self, path: str) -> str:
        """Return the path for the log. A word that is in no route becomes `…`, because it may be an owner or a key."""
        return "/".join(word if word in self._words else "…" for word in path.split("/"))

    def refuse(self, error: HttpProcessingError | None) -> web.Response:
        """Return the problem document for a request that no handler has answered.

        `error` says why the request could not be read. It is None if an error occurred outside of every handler.
        """
        request_id = self._ids.begin_request({})
        if isinstance(error, HeadTimeoutError):
            problem = ProblemError("head_timeout", error.message)
        else:
            problem = (
                ProblemError("bad_request", f"the request can't be read: {describe_fault(error)}")
                if error
                else internal_problem()
            )
        return self._answer(problem, request_id, "-", "-", 0.0)

    def _answer(self, problem: ProblemError, request_id: str, method: str, path: str, seconds: float) -> web.Response:
        self._answered(problem.status, seconds)
        self._log.log_request(
            view=_UNROUTED_VIEW,
            method=method,
            path=path,
            status=problem.status,
            code=problem.code,
            seconds=seconds,
            key_id="-",
        )
        return make_problem_response(problem, request_id)
