"""Passes requests that write from a front process on to the owner of a SQLite store, and returns the owner's answers.

The owner checks, counts and logs such a request. If the front process did the same, the request would count twice, so
it only answers by itself if the owner can't be reached.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHandlerType,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    UnixConnector,
    hdrs,
    web,
)
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from storage.errors import OutcomeUnknownError, StoreAwayError
from storage.posting.remote_writer import RemoteWriter

from .fast_json import PlainResponse

_UNKNOWN = "the process that writes to the store ended or hung before it answered, and may have done the work"
CONNECTIONS_MAX = 1_000  # to the owner; further requests wait for a free connection
ANSWER_S_MAX = 3_600.0  # longer than the owner takes for any request, such as one that waits for a refresh
# aiohttp would add these fields to a request that lacks them. Without a media type, for example, a body is JSON.
_NOT_ADDED = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)
_LOOPBACK = "localhost"  # the Host for an HTTP/1.0 request that has none; this process has checked its Origin already
# Fields that describe one connection (RFC 9110, 7.6.1), and those that every sender writes anew.
_NOT_PASSED_ON = (
    *(hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.TE, hdrs.TRAILER, hdrs.TRANSFER_ENCODING, hdrs.UPGRADE),
    *(hdrs.CONTENT_LENGTH, hdrs.DATE, hdrs.EXPECT, hdrs.SERVER),
)


class Relay:
    def __init__(self, path: Path, owner: RemoteWriter, renew: Callable[[], Awaitable[object]]) -> None:
        """Pass requests on to the socket at `path`.

        `owner` tells whether the owner hangs. `renew` makes this process read API keys and curves from the store again,
        which it otherwise does only from time to time.
        """
        self._renew, self._hangs = renew, owner.hangs
        owner.when_hung = self.end_waiting
        self._waiting: set[asyncio.Timeout] = set()
        self._session = ClientSession(
            connector=UnixConnector(str(path), limit=CONNECTIONS_MAX),
            timeout=ClientTimeout(ANSWER_S_MAX),
            skip_auto_headers=_NOT_ADDED,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            middlewares=(_send_once,),
        )

    async def pass_on(self, request: web.BaseRequest, body: bytes | None, request_id: str) -> web.StreamResponse:
        """Pass a request on to the owner, and return the owner's answer.

        Raises:
            StoreAwayError: there is no owner, or it hangs.
            OutcomeUnknownError: the owner ended, or began to hang, before it answered.
        """
        if self._hangs():
            raise StoreAwayError("the process that writes to the store hangs")
        headers = _passed_on(request.headers)
        headers["X-Request-Id"] = request_id
        headers.setdefault(hdrs.HOST, _LOOPBACK)
        url = URL(f"http://owner{request.rel_url}", encoded=True)  # `rel_url` never has a host, but `raw_path` may
        try:
            async with asyncio.timeout(None) as limit:
                self._waiting.add(limit)
                try:
                    async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                        content = await answer.read()
                finally:
                    self._waiting.discard(limit)
        except (ClientError, TimeoutError) as error:
            raise OutcomeUnknownError(_UNKNOWN) from error
        if request.path.startswith("/v1/keys") or request.path.endswith("/refresh"):
            await self._renew()
        return PlainResponse(body=content or None, status=answer.status, headers=_passed_on(answer.headers))

    def end_waiting(self) -> None:
        """Fail all requests that are waiting for the owner, because it hangs."""
        while self._waiting:
            self._waiting.pop().reschedule(0)

    async def close(self) -> None:
        await self._session.close()


async def _send_once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Send a request only once. If the connection fails, raise one of the errors of `pass_on`.

    On its own errors, aiohttp would send methods such as DELETE again, although the owner may have done the work.
    """
    try:
        return await send(request)
    except ClientConnectorError as error:
        raise StoreAwayError("the process that writes to the store can't be reached") from error
    except ClientError as error:
        raise OutcomeUnknownError(_UNKNOWN) from error


def _passed_on(headers: MultiMapping[str]) -> "CIMultiDict[str]":
    passed = CIMultiDict(headers)
    for name in _NOT_PASSED_ON:
        passed.popall(name, None)
    return passed
