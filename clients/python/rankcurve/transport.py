"""Carries out the effects of programs, either by blocking the caller's thread or on an event loop.

Both transports send requests with httpx, over one connection pool per client. Nothing else in this package waits. httpx
is imported by the first client, so that importing `rankcurve` stays fast. `path_of` and `with_query` build the
addresses of requests.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from .errors import RankcurveError, UnreachableError, one_line
from .programs import Acquire, Effect, Items, Lock, Open, Pause, Program, ReadChunk, Reply, Send, Signal, Wait, Walk

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
SILENCE_S_MAX = 60.0  # the service sends a heartbeat on every stream more often than this
KEEPS_TOKEN = "keeps_token"  # the extension of a request that is not sent with another token
AskToken = Callable[[], str]
AskTokenAsync = Callable[[], Awaitable[str]]
T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process creates for itself, so that a forked process never uses its parent's.

    Answers get mixed up on a connection that two processes share, and a lock may be held by a thread that does not
    exist in the forked process.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._made, self._process = make, make(), os.getpid()

    def get(self) -> T:
        if self._process != os.getpid():
            self._made, self._process = self._make(), os.getpid()
        return self._made


class SyncTransport:
    """Sends the requests of a `Client`. It can be shared between threads, and also used by a forked process."""

    def __init__(self, url: str, key: str | AskToken | None, timeout_s: float, pause: Callable[[float], Any]) -> None:
        import httpx

        self.url = check_address(url)
        self._http = PerProcess(lambda: httpx.Client(**bear(key), timeout=timeouts(timeout_s)))
        self._pause = pause

    def close(self) -> None:
        self._http.get().close()

    def make_signal(self) -> Signal:
        return threading.Event()

    def make_lock(self) -> Lock:
        return threading.Lock()

    def do(self, effect: Effect, stream: Opened) -> Any:
        """Carry out one effect, and return its outcome. Raises UnreachableError."""
        import httpx

        try:
            if isinstance(effect, Send):
                http = self._http.get()
                response = http.send(make_request(http, self.url, effect))
                return Reply(response.status_code, response.headers, response.content)
            if isinstance(effect, Open):
                stream.close()
                http = self._http.get()
                response = http.send(make_request(http, self.url, effect.request, silence_s=SILENCE_S_MAX), stream=True)
                stream.take(response, response.iter_bytes())
                return Reply(response.status_code, response.headers, b"")
            if isinstance(effect, ReadChunk):
                return next(stream.chunks, b"")
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise unreachable(self.url, cause) from cause
        if isinstance(effect, Pause):
            return self._pause(effect.seconds)
        if isinstance(effect, Wait):
            return effect.signal.wait(effect.timeout_s)
        if isinstance(effect, Acquire):
            return effect.lock.acquire()
        raise TypeError(f"{effect!r} is no effect")


class AsyncTransport:
    """Sends the requests of an `AsyncClient`, on one event loop."""

    def __init__(
        self,
        url: str,
        key: str | AskToken | AskTokenAsync | None,
        timeout_s: float,
        pause: Callable[[float], Any],
    ) -> None:
        import httpx

        self.url = check_address(url)
        self._http = PerProcess(lambda: httpx.AsyncClient(**bear(key), timeout=timeouts(timeout_s)))
        self._pause = pause

    async def close(self) -> None:
        await self._http.get().aclose()

    def make_signal(self) -> Signal:
        return asyncio.Event()

    def make_lock(self) -> Lock:
        return asyncio.Lock()

    async def do(self, effect: Effect, stream: Opened) -> Any:
        """Carry out one effect, and return its outcome. Raises UnreachableError."""
        import httpx

        try:
            if isinstance(effect, Send):
                http = self._http.get()
                response = await http.send(make_request(http, self.url, effect))
                return Reply(response.status_code, response.headers, response.content)
            if isinstance(effect, Open):
                await stream.aclose()
                http = self._http.get()
                response = await http.send(
                    make_request(http, self.url, effect.request, silence_s=SILENCE_S_MAX), stream=True
                )
                stream.take(response, response.aiter_bytes())
                return Reply(response.status_code, response.headers, b"")
            if isinstance(effect, ReadChunk):
                return await anext(stream.chunks, b"")
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise unreachable(self.url, cause) from cause
        if isinstance(effect, Pause):
            return await self._pause(effect.seconds)
        if isinstance(effect, Wait):
            try:
                return await asyncio.wait_for(effect.signal.wait(), effect.timeout_s)
            except asyncio.TimeoutError:
                return False
        if isinstance(effect, Acquire):
            return await effect.lock.acquire()
        raise TypeError(f"{effect!r} is no effect")


class Opened:
    """The answer that a walk reads in chunks, if it has opened one. Only the process that opened it may read it."""

    def __init__(self) -> None:
        self._response: httpx.Response | None = None
        self._chunks: Any = None
        self._process = 0

    def take(self, response: httpx.Response, chunks: Any) -> None:
        self._response, self._chunks, self._process = response, chunks, os.getpid()

    @property
    def chunks(self) -> Any:
        if self._process != os.getpid():
            raise UnreachableError("another process reads the stream, because this one was forked off")
        return self._chunks

    def close(self) -> None:
        # The connection ends together with Python. Closing it while Python shuts down can crash Python 3.13.
        if self._response is not None and self._process == os.getpid() and not sys.is_finalizing():
            self._response.close()

    async def aclose(self) -> None:
        if self._response is not None and self._process == os.getpid():
            await self._response.aclose()


class SyncRunner:
    """Runs programs in the thread of the caller."""

    transport: SyncTransport

    def run(self, program: Program[T]) -> T:
        """Run a program to its end, and return its result."""
        do, stream = self.transport.do, Opened()
        resume: Callable[..., Effect] = program.send
        outcome: Any = None
        try:
            while True:
                effect = resume(outcome)
                try:
                    resume, outcome = program.send, do(effect, stream)
                except Exception as error:
                    resume, outcome = program.throw, error
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            program.close()

    def iterate(self, program: Walk[T]) -> Generator[T, None, None]:
        """Yield the items of a walk. The connection of a stream is closed at the end, or when the caller stops."""
        do, stream = self.transport.do, Opened()
        resume: Callable[..., Effect | Items[T]] = program.send
        outcome: Any = None
        try:
            while True:
                try:
                    effect = resume(outcome)
                except StopIteration:
                    return
                if isinstance(effect, Items):
                    yield from effect.items
                    resume, outcome = program.send, None
                    continue
                try:
                    resume, outcome = program.send, do(effect, stream)
                except Exception as error:
                    resume, outcome = program.throw, error
        finally:
            program.close()
            stream.close()


class AsyncRunner:
    """Runs programs on the event loop of the caller."""

    transport: AsyncTransport

    async def run(self, program: Program[T]) -> T:
        """Run a program to its end, and return its result."""
        do, stream = self.transport.do, Opened()
        resume: Callable[..., Effect] = program.send
        outcome: Any = None
        try:
            while True:
                effect = resume(outcome)
                try:
                    resume, outcome = program.send, await do(effect, stream)
                except Exception as error:
                    resume, outcome = program.throw, error
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            program.close()

    async def iterate(self, program: Walk[T]) -> AsyncGenerator[T, None]:
        """Yield the items of a walk. The connection of a stream is closed at the end, or when the caller stops."""
        do, stream = self.transport.do, Opened()
        resume: Callable[..., Effect | Items[T]] = program.send
        outcome: Any = None
        try:
            while True:
                try:
                    effect = resume(outcome)
                except StopIteration:
                    return
                if isinstance(effect, Items):
                    for item in effect.items:
                        yield item
                    resume, outcome = program.send, None
                    continue
                try:
                    resume, outcome = program.send, await do(effect, stream)
                except Exception as error:
                    resume, outcome = program.throw, error
        finally:
            program.close()
            await stream.aclose()


def check_address(url: str) -> str:
    """Return an address without the slash at its end. Raises RankcurveError if no path can be added to the address."""
    try:
        parts = urlsplit(url)
        whole = parts.port is None or parts.port > 0
    except ValueError:  # an unclosed bracket, or a port that is no number
        parts, whole = urlsplit(""), False
    if not whole or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise RankcurveError(f"{one_line(url)} is not an http:// or https:// address")
    return url.rstrip("/")


def quote_segment(text: str) -> str:
    """Percent-encode one path segment. `.` and `..` are encoded too, because URL libraries remove them."""
    return "%2E" * len(text) if text in (".", "..") else quote(text, safe="")


def path_of(*segments: str) -> str:
    """Join segments into a path, percent-encoding each."""
    return "".join(f"/{quote_segment(segment)}" for segment in segments)


def with_query(path: str, query: Mapping[str, object]) -> str:
    """Add a query to a path. Members that are None are left out, and the items of a list are joined by commas."""
    pairs = [f"{quote(name)}={quote(_text_of(value), safe='')}" for name, value in query.items() if value is not None]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_text_of, value))
    return str(value)


def without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def bear(key: str | AskToken | AskTokenAsync | None) -> dict[str, Any]:
    """Build the options for an HTTP client that sends this key, or the token that this function returns."""
    headers = {"Accept": "application/json"}
    if callable(key):
        from .tokens import TokenAuth

        return {"headers": headers, "auth": TokenAuth(key)}
    return {"headers": headers | ({"Authorization": f"Bearer {check_key(key)}"} if key else {})}


def check_key(key: object) -> str:
    """Return a key or token if it can be sent.

    Raises RankcurveError otherwise, with a message that does not show it.
    """
    if isinstance(key, str) and key.isascii() and key.isprintable() and " " not in key:
        return key
    raise RankcurveError("the API key has a line end, a space, or another character that no key has")


def timeouts(timeout_s: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))


def make_request(
    http: httpx.Client | httpx.AsyncClient, url: str, sent: Send, *, silence_s: float | None = None
) -> httpx.Request:
    """Build a request whose path keeps its percent-escapes. `silence_s` replaces the read timeout."""
    import httpx

    base = httpx.URL(url)
    address = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + sent.path.encode("ascii"))
    headers = {name.encode(): value.encode() for name, value in sent.headers.items()}  # a foreign tag may not be ASCII
    if sent.body is not None:
        headers[b"Content-Type"] = b"application/json"
    timeout = http.timeout if sent.timeout_s is None else timeouts(min(sent.timeout_s, http.timeout.read or math.inf))
    request = http.build_request(sent.method, address, content=sent.body, headers=headers, timeout=timeout)
    if silence_s is not None:
        request.extensions["timeout"]["read"] = silence_s
    if sent.numbered and sent.attempt > 1:
        request.extensions[KEEPS_TOKEN] = True
    return request


def unreachable(url: str, cause: Exception) -> UnreachableError:
    return UnreachableError(f"no answer from {without_password(url)}: {one_line(str(cause)) or type(cause).__name__}")
