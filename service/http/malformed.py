"""Answers bytes that are not a valid request, and closes connections that send no request in time.

aiohttp rejects such bytes before any route is chosen, with a page of its own that our metrics never see. This module
turns the rejection into a problem document with a request id, and counts it. Neither the answer nor the log repeats the
bytes, because an unreadable header may contain a key.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError, LineTooLong

# A `Refuse` function answers a request that aiohttp could not read or failed to answer. Its argument is the error
# from reading the request, or None if aiohttp failed to answer. The connection is closed after the answer.
Refuse = Callable[[HttpProcessingError | None], web.Response]


class ProblemServer(web.Server):
    """aiohttp's server, except that `refuse` answers unreadable requests. `stop` is called when the shutdown begins."""

    def __init__(
        self,
        serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        refuse: Refuse,
        stop: Callable[[], None],
        *,
        head_wait_s_max: float,
        **options: Any,
    ) -> None:
        super().__init__(serve)
        self.refuse, self.stop, self.head_wait_s_max = refuse, stop, head_wait_s_max
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return _ProblemHandler(self, loop=asyncio.get_running_loop(), **self._options)

    def pre_shutdown(self) -> None:
        super().pre_shutdown()
        self.stop()


class _ProblemHandler(web.RequestHandler):
    __slots__ = ("_first_wait", "_head_wait_s_max", "_refuse", "_was_paused")

    def __init__(self, manager: ProblemServer, *, loop: asyncio.AbstractEventLoop, **options: object):
        super().__init__(manager, loop=loop, **options)  # type: ignore[arg-type]
        self._refuse, self._head_wait_s_max = manager.refuse, manager.head_wait_s_max
        self._was_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection if its first request is late. For later requests, `keepalive_s_max` limits the wait."""
        super().connection_made(transport)
        self._first_wait = self._loop.call_later(self._head_wait_s_max, self._close_unused)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first_wait.cancel()  # otherwise the timer would keep this object in memory
        super().connection_lost(exc)

    def _close_unused(self) -> None:
        if not self._request_count:
            self.force_close()

    def pause_reading(self) -> None:
        self._was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Parse the bytes that arrived during a pause, and read on. Do nothing if reading was never paused.

        aiohttp pauses reading when a body fills the buffer, which is rare. But it calls this method for every body, and
        the call would make a single post 10 % slower. Until reading is paused for the first time on a connection, no
        bytes are left to parse. From then on, the parser may hold back bytes, so all calls are passed on to aiohttp.
        """
        if self._was_paused:
            super().resume_reading(resume_parser)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a request that could not be read, or for which aiohttp failed outside our handlers."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        unreadable = exc if isinstance(exc, HttpProcessingError) else None
        response = self._refuse(unreadable)
        if unreadable is None:  # aiohttp failed: log it after `_refuse`, which has made the request id for the log
            self.log_exception("an answer failed", exc_info=exc)
        response.force_close()
        return response


def describe_fault(error: HttpProcessingError) -> str:
    """Say why a request could not be read, with only the first line of the error: the others quote the request."""
    if isinstance(error, LineTooLong):
        return "a line of it is too long"
    if isinstance(error, InvalidURLError):
        return "its target is not a path"
    return error.message.strip().partition("\n")[0].rstrip(":").lower()
