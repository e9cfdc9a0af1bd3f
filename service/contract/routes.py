"""The record of a route. The application and the OpenAPI document are built from these records."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
from aiohttp import web

from .keys import Identity, Role
from .problems import JSON_TYPE


class Reply(msgspec.Struct, frozen=True):
    """An answer whose status is not 200, whose media type is not JSON, or that has additional headers.

    `body` is the bytes to send, a struct to encode as JSON, or None for no body.
    """

    body: bytes | msgspec.Struct | None = None
    status: int = 200
    headers: dict[str, str] | None = None
    media_type: str = JSON_TYPE


class Tagged(msgspec.Struct, frozen=True):
    """An answer in JSON with an `ETag`: the bytes of the body, or None if the caller has the body already (304)."""

    body: bytes | None
    etag: str


# The result of a handler: bytes of JSON, a struct to encode as JSON, a `Reply`, a `Tagged`, a response that was already
# sent, or None for an answer 204 without a body.
Answer = bytes | msgspec.Struct | Reply | Tagged | web.StreamResponse | None


class Call(msgspec.Struct):
    """A request. The handler receives it with everything parsed."""

    request: web.BaseRequest
    request_id: str
    identity: Identity
    path: Mapping[str, str] = {}  # the parameters in the path, by name; they are checked, and in NFC
    query: Any = None  # an instance of the route's `query`, or None
    body: Any = None  # an instance of the route's `body`; bytes if the route has `raw_body`; or None
    media_type: str = ""  # the media type of the body, without parameters
    # The time (of `perf_counter()`) at which the request counts as answered; None: when the handler returns. A
    # handler of a stream sets it when the stream begins.
    answered_s: float | None = None
    other_boards: Sequence[str] = ()  # the boards that a handler reads besides those that the request names
    has_alias: bool = False  # the request names a leaderboard by an alias, which is replaced in `path`, `query`, `body`
    is_batch: bool = False  # the caller sent so much that the time of the request says nothing about the service
    answer_headers: Mapping[str, str] | None = None  # a handler that sends its answer itself adds these headers to it


Handler = Callable[[Any, Call], Awaitable[Answer]]
Types = type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None


@dataclass(frozen=True)
class Route:
    """An HTTP method of a path, with everything that the service needs to serve it.

    What the reference says about it is in `docs/route_words.py`, under its `view`.
    """

    method: str
    path: str  # with parameters in braces, such as `{board}`
    handler: Handler
    role: Role | None  # the lowest role that may send the request; None: anyone may
    view: str  # the name in logs and metrics
    tag: str = ""
    _: KW_ONLY
    query: type[msgspec.Struct] | None = None
    body: Types = None  # a tuple: one of these types
    raw_body: bool = False  # the handler parses the bytes itself
    ndjson: bool = False  # the route accepts a body in NDJSON, too
    needs_key: bool = False  # callers without an API key are refused, even if they may read
    has_own_metrics: bool = False  # the route has its own name in the metrics, because it is requested very often
    # The route serves another protocol. Its handler parses the end of the path, the query, and a body of any type.
    foreign_protocol: bool = False

    @property
    def metrics_name(self) -> str:
        """Return the route's name in metrics. Most routes share a name, because each name adds many time series."""
        return self.view if self.has_own_metrics else self.shared_metrics_name

    @property
    def shared_metrics_name(self) -> str:
        """Return the name that also counts batches, so that a name of a route's own is about its short requests."""
        if not self.tag:
            return self.view
        return "operating" if self.role is Role.OPS else self.tag.lower()

    @property
    def takes_body(self) -> bool:
        return self.body is not None or (self.foreign_protocol and self.method == "POST")


def match_entity_tag(if_none_match: str, etag: str) -> bool:
    """Return whether an `If-None-Match` header is `*` or contains the entity tag, weak or strong (RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag.removeprefix("W/") in tags or tags == ["*"]
