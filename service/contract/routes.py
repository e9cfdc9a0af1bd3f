"""The type of a route, from which both the application and the OpenAPI document are made, and the types of handlers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from storage.boards.acts import ActName

from .api_keys import Identity, Role
from .problems import JSON_TYPE


class Reply(msgspec.Struct, frozen=True):
    """An answer with a status other than 200, a media type other than JSON, or additional headers.

    `body` is the bytes to send, a struct to encode as JSON, or None for no body.
    """

    body: bytes | msgspec.Struct | None = None
    status: int = 200
    headers: dict[str, str] | None = None
    media_type: str = JSON_TYPE


class Tagged(msgspec.Struct, frozen=True):
    """An answer in JSON with an `ETag`. `body` is None if the caller already has the body; the status is then 304."""

    body: bytes | None
    etag: str


# The result of a handler: bytes of JSON, a struct to encode as JSON, a `Reply`, a `Tagged`, a response that was already
# sent, or None for an answer 204 without a body.
Answer = bytes | msgspec.Struct | Reply | Tagged | web.StreamResponse | None


class Call(msgspec.Struct):
    """A parsed request, as its handler receives it. Handlers also write some fields, which the endpoint reads."""

    request: web.BaseRequest
    request_id: str
    identity: Identity
    path: Mapping[str, str] = {}  # the parameters in the path, by name, after the checks and normalised to NFC
    query: Any = None  # an instance of the route's `query`, or None
    body: Any = None  # an instance of the route's `body`; bytes if the route has `raw_body`; or None
    media_type: str = ""  # the media type of the body, without parameters
    # The time of `perf_counter()` until which the metrics measure the request. None: until the handler returns. The
    # handler of a stream stores the time when the stream begins.
    answered_s: float | None = None
    other_boards: Sequence[str] = ()  # ids of boards that the handler reads although the request does not name them
    has_alias: bool = False  # the caller named a board by an alias of a period; the handler gets the board's real id
    is_batch: bool = False  # the request is so large that its duration says nothing about the speed of the service
    answer_headers: Mapping[str, str] | None = None  # headers that a handler must add if it sends its answer itself
    address: str | None = None  # of a caller without an API key; its open requests are counted
    span: Any = None  # the span of the request, if requests are traced
    # The act that the next transaction stores if it changes something, see `views.acts`. A handler may replace it.
    act: ActName | None = None
    detail: Mapping[str, Any] = {}  # what the handler adds to the detail of the act
    overwrites: bool = False  # whether a post of the request has `set`


class NamedBoards(NamedTuple):
    """Two functions that know where requests of a route name boards: one lists the ids, the other replaces them."""

    list_ids: Callable[[Call], Sequence[str]]
    replace_ids: Callable[[Call, Sequence[str]], None]


def _replace_path(call: Call, ids: Sequence[str]) -> None:
    call.path = {**call.path, "board": ids[0]}


def _replace_path_and_query(call: Call, ids: Sequence[str]) -> None:
    _replace_path(call, ids)
    call.query = msgspec.structs.replace(call.query, with_=tuple(ids[1:]))


def _replace_body(call: Call, ids: Sequence[str]) -> None:
    call.body = msgspec.structs.replace(call.body, boards=ids)


IN_PATH = NamedBoards(lambda call: (call.path["board"],), _replace_path)
IN_PATH_AND_QUERY = NamedBoards(lambda call: (call.path["board"], *call.query.with_), _replace_path_and_query)
IN_BODY = NamedBoards(lambda call: call.body.boards, _replace_body)
FOUND_BY_HANDLER = NamedBoards(lambda _: (), lambda _call, _ids: None)  # see `Call.other_boards`

SAFE_METHODS = ("GET", "HEAD")
Handler = Callable[[Any, Call], Awaitable[Answer]]
Types = type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None


@dataclass(frozen=True)
class Route:
    """An HTTP method of a path, with everything that the service needs to answer its requests.

    `docs/route_words.py` has the description of the route for the reference, under the name `view`.
    """

    method: str
    path: str  # with parameters in braces, such as `{board}`
    handler: Handler
    role: Role | None  # the lowest role that may send the request; None: anyone may
    view: str  # the route's name in logs and metrics
    tag: str = ""
    _: KW_ONLY
    query: type[msgspec.Struct] | None = None
    body: Types = None  # the type of the body; a tuple: the body has one of these types; None: there is no body
    raw_body: bool = False  # the handler parses the bytes itself
    optional_body: bool = False  # a request without a body is as one with {}
    ndjson: bool = False  # the route accepts a body in NDJSON, too
    needs_key: bool = False  # refuse callers without an API key, even if the setting `anonymous_role` lets them read
    has_own_metrics: bool = False  # the route has a name of its own in the metrics, because it is requested very often
    counted_as: str = ""  # the name in the metrics of another route, whose requests are nearly the same
    # True: the route serves another protocol, so its handler parses the end of the path, the query, and any body.
    foreign_protocol: bool = False
    # True: a front process of a SQLite store handles the request, although it writes. See `http.relay`.
    by_fronts: bool = False
    boards: NamedBoards | None = None  # where requests name boards, unless the only place is the path
    acts: tuple[ActName, ...] = ()  # what an operator does by the request; without choice of the handler: the first one

    @property
    def named_boards(self) -> NamedBoards | None:
        """Return the places where requests name boards that the handler looks up. None: they name no such boards."""
        in_path = "{board}" in self.path and self.method != "PUT"
        return self.boards or (IN_PATH if in_path else None)

    @property
    def metrics_name(self) -> str:
        """The route's name in metrics. Most routes share a name, because each name adds many time series."""
        return self.counted_as or (self.view if self.has_own_metrics else self.shared_metrics_name)

    @property
    def shared_metrics_name(self) -> str:
        """The metrics name that routes share. Every route measures batches (`is_batch`) under this name."""
        if not self.tag:
            return self.view
        return "operating" if self.role is Role.OPS else self.tag.lower()

    @property
    def is_for_owner(self) -> bool:
        """Tell whether only the process that writes to a SQLite store may handle the request."""
        writes = self.method not in SAFE_METHODS and self.role is not None and self.role > Role.READER
        return writes and not self.by_fronts and not self.foreign_protocol

    def answers_pages(self, *, to_players: bool) -> bool:
        """Return whether pages of the origins in `cors_origins` may see answers. `to_players`: also to players."""
        return self.role is Role.READER or (to_players and self.role is Role.PLAYER)

    @property
    def takes_body(self) -> bool:
        return self.body is not None or (self.foreign_protocol and self.method == "POST")


def match_entity_tag(if_none_match: str, etag: str) -> bool:
    """Return whether an `If-None-Match` header is `*` or contains the entity tag, weak or strong (RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag.removeprefix("W/") in tags or tags == ["*"]
