"""Connections whose bytes are no request: what aiohttp refuses before any route is asked.

The rule: such a refusal is a problem document like every other, has an id and is counted, and neither the answer nor
the log repeats what was sent, for a header that can't be read may hold a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError, LineTooLong

# Answers what aiohttp could not read, or failed to answer (None), on a connection that then closes.
Refuse = Callable[[HttpProcessingError | None], web.Response]
REFUSE: web.AppKey[Refuse] = web.AppKey("refuse")


class ProblemRunner(web.AppRunner):
    """Runs an application that has `REFUSE`.

    aiohttp has no other place to say how its own refusals read: `_make_server` is what its runners differ in.
    """

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _ProblemServer(made, self.app[REFUSE])


class _ProblemServer(web.Server):
    def __init__(self, made: web.Server, refuse: Refuse) -> None:
        super().__init__(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,
        )
        self.refuse = refuse

    def __call__(self) -> web.RequestHandler:
        return _ProblemHandler(self, self.refuse, loop=asyncio.get_running_loop(), **self._kwargs)


class _ProblemHandler(web.RequestHandler):
    __slots__ = ("_refuse",)

    def __init__(self, manager: web.Server, refuse: Refuse, *, loop: asyncio.AbstractEventLoop, **options: object):
        super().__init__(manager, loop=loop, **options)  # type: ignore[arg-type]  # the application's handler_args
        self._refuse = refuse

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what could not be read, or to what failed outside of every handler."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        unreadable = exc if isinstance(exc, HttpProcessingError) else None
        response = self._refuse(unreadable)
        if unreadable is None:  # told under the id that was just made for it
            self.log_exception("an answer failed", exc_info=exc)
        response.force_close()
        return response


def fault(error: HttpProcessingError) -> str:
    """What about a request could not be read, without a byte of it: the parser quotes below its first line."""
    if isinstance(error, LineTooLong):
        return "a line of it is too long"
    if isinstance(error, InvalidURLError):
        return "what it asks for is no path"
    return error.message.strip().partition("\n")[0].rstrip(":").lower()
