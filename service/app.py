"""The aiohttp application from a table of routes and a context.

The rule: this is the only module that knows how aiohttp routes; paths that no route has answer problems as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import perf_counter

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from .logs import REQUEST_ID
from .operating import with_operating
from .problems import Problem, shown
from .routes import Route
from .shell import X_REQUEST_ID, Endpoint, RequestIds, ShellContext, problem_response

_UNROUTED_VIEW = "none"


def make_app(routes: Sequence[Route], context: ShellContext) -> web.Application:
    """The application: `routes` in the order they are tried, hottest first, then health, metrics and OpenAPI.

    Start and stop (store, jobs) are the caller's, through `on_startup` and `cleanup_ctx`.
    """
    ids = RequestIds()
    app = web.Application(
        client_max_size=context.settings.body_bytes_max,
        middlewares=[_unrouted(context, ids)],
        handler_args={"auto_decompress": False},  # the limit is then one of what is sent, and no body can be a bomb
    )
    resources: dict[str, web.Resource] = {}
    for route in with_operating(routes):
        resource = resources.get(route.path)
        if resource is None:
            resource = resources[route.path] = app.router.add_resource(_aiohttp_path(route.path))
        endpoint = Endpoint(route, context, ids)
        resource.add_route(route.method, endpoint.serve)
        if route.method == hdrs.METH_GET:
            resource.add_route(hdrs.METH_HEAD, endpoint.serve)
    return app


def _aiohttp_path(path: str) -> str:
    """aiohttp's own `{name}` matches no braces, and an owner may have them."""
    return re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", path)


def _unrouted(context: ShellContext, ids: RequestIds) -> Middleware:
    """Problems for requests that no route takes; all others go straight to their endpoint."""
    answered = context.metrics.request_timer(_UNROUTED_VIEW)

    @web.middleware
    async def unrouted(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = request.match_info.http_exception
        if refusal is None:
            return await handler(request)
        started_s = perf_counter()
        request_id = ids.of(request.headers.get(X_REQUEST_ID))
        REQUEST_ID.set(request_id)
        if isinstance(refusal, web.HTTPMethodNotAllowed):
            allow = ", ".join(sorted(refusal.allowed_methods))
            detail = f"the path takes {allow}, not {shown(request.method)}"
            problem = Problem("method_not_allowed", detail, headers={hdrs.ALLOW: allow})
        else:
            problem = Problem("not_found", f"nothing is at {shown(request.path)}")
        seconds = perf_counter() - started_s
        answered(problem.status, seconds)
        context.request_log.answered(
            view=_UNROUTED_VIEW,
            method=shown(request.method),
            path=request.path,
            status=problem.status,
            code=problem.code,
            seconds=seconds,
            key_id="-",
        )
        return problem_response(problem, request_id)

    return unrouted
