"""What a route is: one record that the application serves from and the OpenAPI document is written from.

The rule: method, path, role, types and statuses of a request stand in its Route and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from .keys import Identity, Role
from .problems import JSON_TYPE


class Reply(msgspec.Struct, frozen=True):
    """An answer that is more than a 200 with JSON. `body` is JSON bytes, a struct to encode, or None for no body."""

    body: bytes | msgspec.Struct | None = None
    status: int = 200
    headers: dict[str, str] | None = None
    media_type: str = JSON_TYPE


# Bytes are JSON already; a struct is encoded; a response is one that was sent.
Answer = bytes | msgspec.Struct | Reply | web.StreamResponse


class Call:
    """One parsed request, as a handler gets it."""

    __slots__ = ("answered_s", "body", "identity", "media_type", "path", "query", "request", "request_id")

    def __init__(
        self,
        path: Mapping[str, str],
        query: Any,
        body: Any,
        media_type: str,
        identity: Identity,
        request: web.Request,
        request_id: str,
    ) -> None:
        self.path = path  # checked and in NFC: "board", "owner", "column"
        self.query = query  # an instance of the route's `query`, or None
        self.body = body  # an instance of the route's `body`, the bytes where `raw_body`, or None
        self.media_type = media_type  # of the body, without parameters
        self.identity = identity
        self.request = request
        self.request_id = request_id
        self.answered_s: float | None = None  # of perf_counter; of an answer that goes on: when it began


Handler = Callable[[Any, Call], Awaitable[Answer]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path.

    `path` holds parameters in braces: `{board}`, `{owner}`, `{column}` reach the handler checked.
    """

    method: str
    path: str
    handler: Handler
    role: Role | None  # None: open to anyone
    view: str  # the name in logs, and the operationId
    summary: str
    description: str = ""
    tag: str = ""
    query: type[msgspec.Struct] | None = None
    request_headers: tuple[str, ...] = ()  # that the handler reads, all optional
    body: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None = None  # several: one of them
    body_optional: bool = False  # without one, it is an empty object
    raw_body: bool = False  # the handler parses the bytes itself
    ndjson: bool = False  # taken too, beside JSON
    response: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None = None  # None: no JSON body
    statuses: tuple[int, ...] = (200,)  # successes
    problems: tuple[str, ...] = ()  # codes beside those that every route of its kind has
    media_type: str = JSON_TYPE  # of the answer
    response_headers: tuple[str, ...] = ()  # beside X-Request-Id
    counted_alone: bool = False  # in metrics: asked for all the time
    foreign: bool = False  # another protocol's: its handler reads the rest of the path, the query and any media type

    @property
    def counted_as(self) -> str:
        """The route in metrics: itself, or what its requests are counted with, for each name costs twelve series."""
        if self.counted_alone or not self.tag:
            return self.view
        return "operating" if self.role is Role.OPS else self.tag.lower()

    @property
    def takes_body(self) -> bool:
        """Whether a request has a body that is read."""
        return self.body is not None or (self.foreign and self.method == "POST")
