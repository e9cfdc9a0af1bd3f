"""Authenticates requests with player tokens, which it gets by calling a function of the caller's.

    no token yet ──> the function ──> token ──> request ──401 token_expired, token_voided──> the function ──> once more

Only a client whose key is a function imports this module. A post with a number (`n`) belongs to its token: under
another token, it would be another post. A post that may already have been applied, because its answer was lost, is
therefore never sent with another token.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import httpx

from .errors import refusal_of
from .transport import KEEPS_TOKEN, AskToken, AskTokenAsync, check_key

_RENEWED = ("token_expired", "token_voided")


class TokenAuth(httpx.Auth):
    """The token that all callers of one client share.

    If it is rejected for several at once, only one asks for another.
    """

    def __init__(self, ask: AskToken | AskTokenAsync) -> None:
        self._ask: Callable[[], Any] = ask
        self._token: str | None = None
        self._thread_lock, self._task_lock = threading.Lock(), asyncio.Lock()

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        token = self._renew(None)
        response = yield _bear(request, token)
        if response.status_code == 401 and KEEPS_TOKEN not in request.extensions:
            response.read()
            if refusal_of(401, response.content).code in _RENEWED:
                yield _bear(request, self._renew(token))

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        token = await self._renew_async(None)
        response = yield _bear(request, token)
        if response.status_code == 401 and KEEPS_TOKEN not in request.extensions:
            await response.aread()
            if refusal_of(401, response.content).code in _RENEWED:
                yield _bear(request, await self._renew_async(token))

    def _renew(self, refused: str | None) -> str:
        with self._thread_lock:
            if self._token == refused:
                self._token = check_key(self._ask())
            assert self._token is not None
            return self._token

    async def _renew_async(self, refused: str | None) -> str:
        async with self._task_lock:
            if self._token == refused:
                asked = self._ask()
                self._token = check_key(await asked if inspect.isawaitable(asked) else asked)
            assert self._token is not None
            return self._token


def _bear(request: httpx.Request, token: str) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token}"
    return request
