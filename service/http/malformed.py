"""Answers connections that send no valid request: bytes that can't be read, or headers that do not end in time.

aiohttp refuses such bytes before it selects a route. This module makes the refusal a problem document with a request
id, and counts it. Neither the answer nor the log repeats what was sent, because an unreadable header may contain a key.
A connection that sends nothing is closed without an answer, because browsers open some connections in advance.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

# A `Refuse` function answers a request that aiohttp could not read or failed to answer. Its argument is the error
# from reading the request, or None if aiohttp failed to answer. The connection is closed after the answer.
Refuse = Callable[[HttpProcessingError | None], web.Response]


class HeadTimeoutError(HttpProcessingError):
    """The headers of a request began to arrive, but were not complete in time."""

    code = 408

    def __init__(self, wait_s: float) -> None:
        super().__init__(message=f"the headers of the request took more than {wait_s:g} s")


class ProblemServer(web.Server):
    """Serves requests, and answers what can't be read with `refuse`. `stop` ends what would not end by itself."""

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
    __slots__ = ("_head_begun", "_head_timer", "_head_wait_s_max", "_refuse", "_was_paused")

    def __init__(self, manager: ProblemServer, *, loop: asyncio.AbstractEventLoop, **options: object):
        super().__init__(manager, loop=loop, **options)  # type: ignore[arg-type]
        self._refuse, self._head_wait_s_max = manager.refuse, manager.head_wait_s_max
        self._head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._was_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(self._head_wait_s_max, self._head_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes. If the headers of a request have begun but are not complete, start a timer."""
        requests = self._request_count
        super().data_received(data)
        if self._request_count != requests:
            if self._head_timer is not None:
                self._stop_head_timer()
            return
        waiter = self._waiter
        # If there is no waiter, a request is being answered, and the bytes belong to its body. Some old clients send
        # empty lines, which do not begin a request.
        if waiter is not None and not waiter.done() and not self._head_begun and data.strip():
            self._head_begun = True
            if self._head_timer is None:
                self._head_timer = self._loop.call_later(self._head_wait_s_max, self._head_late)

    def pause_reading(self) -> None:
        self._was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Parse what a pause left unparsed, and read on.

        aiohttp calls this whenever a body is read, and parses again, which takes a tenth of the time of a single post.
        On most connections, no body ever fills its buffer, so nothing was paused. After the first pause, the parser may
        hold bytes back at any time, so nothing is left out from then on.
        """
        if self._was_paused:
            super().resume_reading(resume_parser)

    def _stop_head_timer(self) -> None:
        self._head_begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        waiter = self._waiter
        if not self._head_begun or waiter is None or waiter.done():
            self.force_close()
            return
        error = HeadTimeoutError(self._head_wait_s_max)
        self._request_count += 1
        self._messages.append((_ErrInfo(status=error.code, exc=error, message=error.message), EMPTY_PAYLOAD))
        waiter.set_result(None)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a request that could not be read, or for which aiohttp failed outside of our handlers."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        unreadable = exc if isinstance(exc, HttpProcessingError) else None
        response = self._refuse(unreadable)
        if unreadable is None:  # the log line has the request id that `_refuse` just made
            self.log_exception("an answer failed", exc_info=exc)
        response.force_close()
        return response


def describe_fault(error: HttpProcessingError) -> str:
    """Return why a request could not be read. Use only the parser's first line: the other lines quote the request."""
    if isinstance(error, LineTooLong):
        return "a line of it is too long"
    if isinstance(error, InvalidURLError):
        return "its target is not a path"
    return error.message.strip().partition("\n")[0].rstrip(":").lower()
