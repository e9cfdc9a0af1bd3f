"""Builds the server of a process from a list of routes and a context.

It is aiohttp's server without aiohttp's application, whose choice of a route and hooks would cost a tenth of the time
of a small request. A request that matches no route gets a problem document.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from service.contract.keys import Role
from service.contract.problems import ProblemError, clip_text, internal_problem
from service.contract.routes import Route
from service.http.bodies import BodyReader
from service.http.cross_origin import Preflight
from service.http.endpoint import Endpoint, EndpointContext, RequestIds, make_problem_response
from service.http.malformed import ProblemServer, describe_fault
from service.http.route_table import RouteTable

from .health_routes import add_health_routes

_UNROUTED_VIEW = "none"
# The longest line of a request. It can hold a query with a thousand escaped values. aiohttp's default, 8 KiB, can't.
LINE_BYTES_MAX = 64 * 1024
LINGERING_S = 1.0  # the service reads a refused body for at most this long before it closes the connection
# aiohttp reads a body before the handler asks for it. When twice this number of bytes wait for the handler, aiohttp
# stops reading from the connection until the handler has read some of them.
READ_AHEAD_BYTES = 64 * 1024
# Answers a request, given the values of the parameters in its path.
Serve = Callable[[web.BaseRequest, Sequence[str]], Awaitable[web.StreamResponse]]


def make_server(routes: Sequence[Route], context: EndpointContext) -> ProblemServer:
    """Build the server of `routes` and the health routes. The caller starts and stops the store and the jobs."""
    ids = RequestIds()
    bodies = BodyReader(context.settings)
    # In a process that only runs jobs, `routes` is empty. Its dashboard could not request any data.
    table = RouteTable[Serve]()
    listed = add_health_routes(routes, dashboard=bool(routes) and context.settings.dashboard)
    for route in listed:
        endpoint = Endpoint(route, context, ids, bodies)
        table.add_route(_methods(route), route.path, endpoint.serve, open_ended=route.foreign_protocol)
    if context.cross_origin is not None:
        for path, methods in _read_methods(listed).items():
            table.add_route((hdrs.METH_OPTIONS,), path, Preflight(context.cross_origin, methods).serve)
    unrouted = _Unrouted(table, listed, context, ids)

    def serve(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        found = table.find_route(request.method, request.rel_url.path_safe)
        answering = unrouted.serve(request) if found is None else found.handler(request, found.parameters)
        return _answer_expecting(request, answering) if hdrs.EXPECT in request.headers else answering

    def stop_bodies() -> None:
        bodies.refuse_arriving()
        context.end_endless_answers()

    return ProblemServer(
        serve,
        unrouted.refuse,
        stop_bodies,
        head_wait_s_max=context.settings.head_wait_s_max,
        access_log=None,
        auto_decompress=False,  # the body limit then counts bytes as sent; a decompression bomb does no harm
        max_line_size=LINE_BYTES_MAX,
        lingering_time=LINGERING_S,
        read_bufsize=READ_AHEAD_BYTES,
        keepalive_timeout=context.settings.keepalive_s_max,
    )


async def _answer_expecting(request: web.BaseRequest, answering: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """Answer `Expect: 100-continue`, so that the caller sends its body. Ignore any other expectation."""
    if request.version == HttpVersion11 and request.headers[hdrs.EXPECT].lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # reset the count of sent bytes: the response itself has not started yet
    return await answering


def _methods(route: Route) -> tuple[str, ...]:
    return (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)


def _read_methods(routes: Sequence[Route]) -> dict[str, list[str]]:
    """Return, by path, the methods of the routes that read."""
    found: dict[str, list[str]] = {}
    for route in routes:
        if route.role is Role.READER:
            found.setdefault(route.path, []).extend(_methods(route))
    return found


class _Unrouted:
    def __init__(
        self, table: RouteTable[Serve], routes: Sequence[Route], context: EndpointContext, ids: RequestIds
    ) -> None:
        self._answered = context.metrics.make_request_timer(_UNROUTED_VIEW)
        self._log = context.request_log
        self._ids = ids
        self._table = table
        self._words = {"", *(word for route in routes for word in route.path.split("/") if "{" not in word)}

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer `not_found`, or `method_not_allowed` if the path has routes for other methods."""
        started_s = perf_counter()
        request_id = self._ids.begin_request(request.headers)
        allowed = self._table.find_methods(request.rel_url.path_safe)
        if allowed:
            detail = f"the path takes {', '.join(allowed)}, not {clip_text(request.method)}"
            problem = ProblemError("method_not_allowed", detail, headers={hdrs.ALLOW: ", ".join(allowed)})
        else:
            problem = ProblemError("not_found", f"nothing is at {clip_text(request.path)}")
        method = request.method if request.method in hdrs.METH_ALL else "-"
        return self._answer(
            problem, request_id, method, self._logged_path(request.rel_url.raw_path), perf_counter() - started_s
        )

    def _logged_path(self, path: str) -> str:
        """Return the path for the log. A word that is in no route becomes `…`, because it may be an owner or a key."""
        return "/".join(word if word in self._words else "…" for word in path.split("/"))

    def refuse(self, error: HttpProcessingError | None) -> web.Response:
        """Return the problem document for a request that no handler has answered.

        `error` says why the request could not be read. It is None if an error occurred outside of every handler.
        """
        request_id = self._ids.begin_request({})
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
