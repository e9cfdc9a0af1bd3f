"""Builds a process's server from a list of routes and a context.

It is aiohttp's server with our `RouteTable` in place of aiohttp's application, whose route lookup and hooks would make
a small request 10 % slower. A request that matches no route gets a problem document.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from service.contract.problems import ProblemError, clip_text, internal_problem
from service.contract.routes import Call, Route
from service.http.bodies import BodyReader
from service.http.endpoint import Endpoint, EndpointContext, RequestIds, count_answer, make_problem_response
from service.http.foreign_pages import Preflight
from service.http.malformed import ProblemServer, Refuse, describe_fault
from service.http.route_table import RouteTable

from .health_routes import add_health_routes

_UNROUTED_VIEW = "none"
# The longest request line. A query with a thousand escaped values fits, which would exceed aiohttp's default of 8 KiB.
LINE_BYTES_MAX = 64 * 1024
LINGERING_S = 1.0  # the service keeps reading a refused body for at most this long before it closes the connection
# aiohttp reads a body before the handler asks for it. When twice this number of bytes wait for the handler, aiohttp
# stops reading from the connection until the handler has read some of them.
READ_AHEAD_BYTES = 64 * 1024
# A function that answers a request. Its second argument has the values of the path's parameters.
Serve = Callable[[web.BaseRequest, Sequence[str]], Awaitable[web.StreamResponse]]


def make_server(routes: Sequence[Route], context: EndpointContext) -> ProblemServer:
    """Build a server for `routes` and the health routes. The caller starts and stops the store and the jobs."""
    ids = RequestIds()
    bodies = BodyReader(context.settings)
    table = RouteTable[Serve]()
    # A process that only runs jobs has no `routes`. It serves no dashboard either, which would have no data to show.
    listed = add_health_routes(routes, dashboard=bool(routes) and context.settings.dashboard)
    for route in listed:
        endpoint = Endpoint(route, context, ids, bodies)
        table.add_route(_methods(route), route.path, endpoint.serve, open_ended=route.foreign_protocol)
    if context.cross_origin is not None:
        for path, methods in _page_methods(listed, to_players=context.keyring.tokens is not None).items():
            table.add_route((hdrs.METH_OPTIONS,), path, Preflight(context.cross_origin, methods).serve)
    serve_unrouted = _make_unrouted_handler(table, listed, context, ids, bodies)

    def serve(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        found = table.find_route(request.method, request.rel_url.path_safe)
        answering = serve_unrouted(request) if found is None else found.handler(request, found.parameters)
        return _answer_expecting(request, answering) if hdrs.EXPECT in request.headers else answering

    def stop_bodies() -> None:
        bodies.refuse_arriving()
        context.end_endless_answers()

    return ProblemServer(
        serve,
        _make_refuse(context, ids),
        stop_bodies,
        head_wait_s_max=context.settings.head_wait_s_max,
        access_log=None,
        auto_decompress=False,  # the body limit then counts bytes as sent, so a decompression bomb does no harm
        max_line_size=LINE_BYTES_MAX,
        lingering_time=LINGERING_S,
        read_bufsize=READ_AHEAD_BYTES,
        keepalive_timeout=context.settings.keepalive_s_max,
    )


async def _answer_expecting(request: web.BaseRequest, answering: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """Answer `Expect: 100-continue`, so that the caller sends its body, and ignore any other expectation."""
    if request.version == HttpVersion11 and request.headers[hdrs.EXPECT].lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # reset the count of sent bytes: the response itself has not started yet
    return await answering


def _methods(route: Route) -> tuple[str, ...]:
    return (hdrs.METH_GET, hdrs.METH_HEAD) if route.method == hdrs.METH_GET else (route.method,)


def _page_methods(routes: Sequence[Route], *, to_players: bool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for route in routes:
        if route.answers_pages(to_players=to_players):
            found.setdefault(route.path, []).extend(_methods(route))
    return found


def _make_unrouted_handler(
    table: RouteTable[Serve], routes: Sequence[Route], context: EndpointContext, ids: RequestIds, bodies: BodyReader
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    known = {"", *(word for route in routes for word in route.path.split("/") if "{" not in word)}

    async def refuse_path(_context: EndpointContext, call: Call) -> None:
        request = call.request
        if allowed := table.find_methods(request.rel_url.path_safe):
            detail = f"the path takes {', '.join(allowed)}, not {clip_text(request.method)}"
            raise ProblemError("method_not_allowed", detail, headers={hdrs.ALLOW: ", ".join(allowed)})
        raise ProblemError("not_found", f"nothing is at {clip_text(request.path)}")

    # `foreign_protocol`: ignore the query. Otherwise an unknown path with a query would get 400 and not 404.
    route = Route("GET", "{path}", refuse_path, None, _UNROUTED_VIEW, foreign_protocol=True)
    endpoint = Endpoint(route, context, ids, bodies)

    def serve(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        # The log shows `…` for a word of the path that is in no route, because the word may be an owner or a key.
        words = [word if word in known else "…" for word in request.rel_url.raw_path.split("/")]
        return endpoint.serve(request, ["/".join(words)])

    return serve


def _make_refuse(context: EndpointContext, ids: RequestIds) -> Refuse:
    def refuse(error: HttpProcessingError | None) -> web.Response:
        problem = internal_problem()
        if error is not None:
            problem = ProblemError("bad_request", f"the request can't be read: {describe_fault(error)}")
        request_id = ids.begin_request({})
        count_answer(context.metrics.meter, _UNROUTED_VIEW, problem.status, 0.0)
        context.request_log.log_request(
            view=_UNROUTED_VIEW, method="-", path="-", status=problem.status, code=problem.code, seconds=0.0, key_id="-"
        )
        return make_problem_response(problem, request_id)

    return refuse
