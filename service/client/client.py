"""The HTTP client of the wire contract, for the commands and the demo.

    async with ServiceClient("http://127.0.0.1:8080", key) as client:
        board = await client.get_board("game")

The errors:

    ClientError
    ├── UnreachableError       no answer at all
    ├── NotTheContractError    an answer that does not follow the contract
    └── RefusedError           a problem document: status, code, detail, pointers
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from service.client.client_answers import Board, ListEnd, Page, PostResult, PostResults, Problem, RefreshDone, one_line

CONNECT_TIMEOUT_S = 10.0
PAGE_ENTRIES_MAX = 1000
# Answers with these statuses are retried only if they have a Retry-After header. A 503 `no_job_process` has no such
# header, because waiting would not help.
RETRIED_STATUSES = frozenset({429, 503})
PROXY_STATUSES = frozenset({502, 504})

ENCODER = msgspec.json.Encoder(decimal_format="number")

T = TypeVar("T")
Record = dict[str, Any]


class ClientError(Exception):
    """The request failed."""


class UnreachableError(ClientError):
    """No answer came from the service."""


class NotTheContractError(ClientError):
    """The answer does not follow the contract of this service."""


class RefusedError(ClientError):
    """The service refused the request."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.one_line_text())
        self.status = status
        self.code = problem.code
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of attempts for a request, and the waits between them.

    With `reconnects`, the client also repeats a request after a lost connection, a 502 or a 504. Set it only if it is
    safe to repeat the request. `awaits` needs `reconnects`: the client keeps trying even if the service has never
    answered.
    """

    attempts_max: int = 3
    wait_base_s: float = 0.2
    wait_s_max: float = 30.0
    reconnects: bool = False
    awaits: bool = False
    timeout_s: float = 120.0


def quote_segment(text: str) -> str:
    """Return one path segment, percent-encoded. `.` and `..` are encoded too, because URL libraries remove them."""
    return "%2E" * len(text) if text in (".", "..") else quote(text, safe="")


def is_web_address(url: str) -> bool:
    """Return whether `url` is the address of a web server to which a path can be added."""
    try:
        parts = urlsplit(url)
        whole = parts.port is None or parts.port > 0
    except ValueError:  # an unclosed bracket, or a port that is no number
        return False
    return whole and parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)


class ServiceClient:
    """A client of the service at `url`. Use it as an async context manager. Every method may raise ClientError."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patience: Patience | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_away: Callable[[ClientError], None] = lambda _: None,
    ) -> None:
        """`on_away` is called once for each outage, before the client waits for the service to come back."""
        if not is_web_address(url):
            raise ClientError(f"{one_line(url)} is not an http:// or https:// address")
        self.url = url.rstrip("/")
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._patience = patience or Patience()
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._on_away = on_away
        self._answered = False
        self._away = False
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ServiceClient:
        timeout = aiohttp.ClientTimeout(total=self._patience.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the HTTP session, for responses that are read as a stream."""
        assert self._session is not None, "use ServiceClient as an async context manager"
        return self._session

    async def request_answer(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
    ) -> T:
        """Send a request as `send_request` does, and decode the response as `answer`. May raise NotTheContractError."""
        return decode_answer(await self.send_request(method, path, query=query, body=body), answer)

    async def send_request(
        self, method: str, path: str, *, query: Mapping[str, object] | None = None, body: object = None
    ) -> bytes:
        """Send a request, repeat it as `Patience` allows, and return the body of the 2xx response.

        `path` must be percent-encoded. Members of `query` that are None are not sent. Raises RefusedError if the
        service answers with a problem, and UnreachableError if no answer comes.
        """
        for attempt in range(1, self._patience.attempts_max + 1):
            outcome, wait_s = await self._attempt(method, path, query, body, attempt=attempt)
            if isinstance(outcome, bytes):
                return outcome
            if wait_s is None or attempt == self._patience.attempts_max:
                raise outcome
            if isinstance(outcome, UnreachableError) and not self._away:
                self._away = True
                self._on_away(outcome)
            await self._sleep(wait_s)
        raise UnreachableError(f"no attempt was made to reach {self.url}")

    async def _attempt(
        self, method: str, path: str, query: Mapping[str, object] | None, body: object, *, attempt: int
    ) -> tuple[bytes | ClientError, float | None]:
        """Send a request once. Return (body, None) for a 2xx response, else (error, seconds until the next attempt).

        The seconds are None if another attempt would not help.
        """
        address = self.url + path_with_query(path, query)
        payload = None if body is None else ENCODER.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        reconnect_s = self._backoff_s(attempt) if self._patience.reconnects else None
        try:
            # Following a redirect could send the API key to another host. The contract has no redirects.
            async with self.session.request(
                method, URL(address, encoded=True), data=payload, headers=headers, allow_redirects=False
            ) as response:
                content = await response.read()
                status, retry_after = response.status, response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as cause:
            reported = cause.os_error.strerror if isinstance(cause, aiohttp.ClientConnectorError) else str(cause)
            reason = one_line(reported or "") or type(cause).__name__
            failure = UnreachableError(f"no answer from {self.url}: {reason}")
            failure.__cause__ = cause
            return failure, reconnect_s if self._answered or self._patience.awaits else None
        self._answered, self._away = True, False
        if 200 <= status < 300:
            return content, None
        refusal = refusal_of(status, content)
        if status in RETRIED_STATUSES and retry_after is not None:
            return refusal, self._asked_wait_s(retry_after, attempt)
        return refusal, reconnect_s if status in PROXY_STATUSES else None

    def _backoff_s(self, attempt: int) -> float:
        """Return a random wait in seconds between half of a limit and the limit, which doubles with each attempt.

        After an outage, random waits keep many clients from sending their requests at the same time.
        """
        ceiling_s = min(self._patience.wait_s_max, self._patience.wait_base_s * 2.0 ** min(attempt, 30))
        return ceiling_s * (0.5 + self._rng.random() / 2)

    def _asked_wait_s(self, retry_after: str, attempt: int) -> float:
        """Return the seconds in the header `Retry-After`, plus a random extra of up to half as many seconds.

        For a date instead of a number, return the wait of `_backoff_s`.
        """
        if not retry_after.strip().isdecimal() or len(retry_after) > 9:
            return self._backoff_s(attempt)
        return min(self._patience.wait_s_max, float(retry_after) * (1 + self._rng.random() / 2))

    async def get_board(self, board: str) -> Board:
        """Return the board's spec. Raises RefusedError `unknown_board`."""
        return await self.request_answer("GET", board_path(board), Board)

    async def list_records(
        self,
        path: str,
        member: str,
        records: type[list[T]],
        *,
        limit: int | None = None,
        page_max: int = PAGE_ENTRIES_MAX,
        query: Mapping[str, object] | None = None,
    ) -> list[T]:
        """Return at most `limit` records of a list that comes in pages. `member` is the list's name in a page."""
        found = records()
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = None if limit is None else min(limit - len(found), page_max)
            asked = {**(query or {}), "limit": size, "cursor": cursor}
            content = await self.send_request("GET", path, query=asked)
            found += decode_answer(decode_answer(content, dict[str, msgspec.Raw]).get(member, b""), records)
            following = decode_answer(content, ListEnd).next
            if not following or following == cursor:
                break
            cursor = following
        return found[:limit]

    async def apply_posts(self, board: str, posts: Sequence[object]) -> list[PostResult]:
        """Post a batch. Return one result for each post, in order. If each has a `post_id`, repeating is harmless."""
        answer = await self.request_answer("POST", f"{board_path(board)}/posts", PostResults, body={"posts": posts})
        if len(answer.results) != len(posts):
            raise NotTheContractError(f"{len(posts)} posts were answered with {len(answer.results)} results")
        return answer.results

    async def queue_posts(self, board: str, posts: Sequence[object]) -> list[PostResult]:
        """Queue a batch. Return a result `accepted` for each post. If one post is wrong, the service refuses all."""
        path = f"{board_path(board)}/posts"
        answer = await self.request_answer("POST", path, Record, query={"mode": "queued"}, body={"posts": posts})
        if answer.get("accepted") != len(posts):
            raise NotTheContractError(f"of {len(posts)} posts {answer.get('accepted')} were accepted")
        return [PostResult("accepted")] * len(posts)

    async def walk_pages(self, board: str, column: str, *, limit: int = PAGE_ENTRIES_MAX) -> AsyncIterator[Page]:
        """Yield every page of a ranking.

        Raises NotTheContractError if a page names itself as the next page, or if a page other than the last is empty.
        """
        cursor: str | None = None
        while True:
            query = {"limit": limit, "cursor": cursor}
            page = await self.request_answer("GET", ranking_path(board, column), Page, query=query)
            yield page
            if page.next is None:
                return
            if page.next == cursor or not page.entries:
                raise NotTheContractError("the cursor of the ranking does not move on")
            cursor = page.next

    async def refresh_curve(self, board: str, column: str) -> RefreshDone:
        """Make a job process fit a new curve, and wait until readers get it. Raises RefusedError `no_job_process`."""
        return await self.request_answer("POST", f"{ranking_path(board, column)}/refresh", RefreshDone)


def path_with_query(path: str, query: Mapping[str, object] | None) -> str:
    """Return a path with its query. Members of the query that are None are left out."""
    pairs = [
        f"{quote(name)}={quote(str(value), safe='')}" for name, value in (query or {}).items() if value is not None
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def board_path(board: str) -> str:
    return f"/v1/leaderboards/{quote_segment(board)}"


def ranking_path(board: str, column: str) -> str:
    return f"{board_path(board)}/rankings/{quote_segment(column)}"


def decode_answer(content: bytes, answer: type[T]) -> T:
    """Decode `content` as `answer`, with exact decimals. Raises NotTheContractError."""
    try:
        return msgspec.json.Decoder(answer, float_hook=Decimal).decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise NotTheContractError(f"the answer does not come from rankcurve: {one_line(str(cause))}") from cause


def refusal_of(status: int, content: bytes) -> RefusedError:
    """Return the error for a response other than 2xx. Without a problem document, its code names the HTTP status."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        problem = Problem()
    if not problem.code:
        problem = Problem(code=f"http_{status}", detail=problem.detail or problem.title or "no problem document")
    return RefusedError(status, problem)
