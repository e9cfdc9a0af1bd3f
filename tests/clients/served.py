"""Serve one web application on a free port, for the tests of clients."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from service.contract.problems import CODES, PROBLEM_TYPE, TYPE_PREFIX


def problem_answer(code: str, *, pointer: str | None = None, **headers: str) -> web.Response:
    """Return a problem document as the service sends it."""
    status, title, *_ = CODES[code]
    document: dict[str, Any] = {"type": TYPE_PREFIX + code, "title": title, "status": status, "code": code}
    document["errors"] = [] if pointer is None else [{"pointer": pointer, "detail": "no"}]
    return web.json_response(document, status=status, content_type=PROBLEM_TYPE, headers=headers)


@asynccontextmanager
async def serving_handler(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Let one handler answer every request."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    async with serving_app(app) as url:
        yield url


@asynccontextmanager
async def serving_app(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()
