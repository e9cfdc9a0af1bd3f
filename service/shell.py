"""What happens around every handler: who calls, what they sent, what they get, what is counted and logged.

The rule: nothing but a problem document leaves here when something goes wrong, and nothing of the cause of an
`internal` one. A request costs a few microseconds here: what can be made once a route is made in `Endpoint.__init__`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import hdrs, web
from multidict import istr

from .bodies import Bodies, BodyLimits
from .foreign_pages import refuse_foreign_page
from .key_limits import KeyLimits
from .keys import ANYONE, Identity, KeyRing, Role, require
from .leases.wire import parse_client_id, parse_key, parse_pool_id
from .logs import REQUEST_ID, TRACEPARENT, RequestLog
from .metrics.process import Metrics
from .post_bodies import NDJSON_TYPE
from .problems import JSON_TYPE, PROBLEM_TYPE, Problem, problem_of, shown
from .queries import QueryBounds, query_parser
from .quick import QuickJson
from .responses import PlainResponse
from .routes import Answer, Call, Reply, Route
from .strict_json import decode
from .tracing import Span, Tracer
from .values import parse_board_id, parse_column, parse_family_id, parse_owner, parse_post_id

_encode = msgspec.json.Encoder().encode
X_REQUEST_ID = istr("X-Request-Id")
X_TRACEPARENT = istr("traceparent")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PARAMETER = re.compile(r"\{(\w+)\}")
# What stands in the log as the caller wrote it. Owners are people, lease keys and post ids may be, and what follows
# /jolokia is another protocol's request.
_LOGGED_PARAMETERS = ("board", "column", "family", "client_id", "pool_id", "id")
_CALLER_GONE = 499  # nginx' way to say it: never sent, only counted and logged
_CUT_OFF = 503  # the service stopped and waited no longer: never sent either
_SAFE_METHODS = ("GET", "HEAD")
_RETRIED_CODES = ("queue_full", "store_busy", "too_many_bodies", "timeout")
PATH_PARSERS: dict[str, Callable[[str], str]] = {
    "board": lru_cache(maxsize=1024)(parse_board_id),
    "column": lru_cache(maxsize=1024)(parse_column),
    "owner": parse_owner,
    "family": lru_cache(maxsize=1024)(parse_family_id),
    "operation": str,
    "file": str,
    "client_id": lru_cache(maxsize=1024)(parse_client_id),
    "pool_id": lru_cache(maxsize=1024)(parse_pool_id),
    "key": parse_key,
    "post_id": partial(parse_post_id, pointer="post_id"),
    "id": str,
}


class ShellSettings(QueryBounds, BodyLimits, Protocol):
    """The settings that the shell itself needs."""

    @property
    def dashboard(self) -> bool:
        """Whether the page for people is served."""

    @property
    def head_wait_s_max(self) -> float:
        """Past it a connection without a request, or with a part of one, is closed."""

    @property
    def keepalive_s_max(self) -> float:
        """Past it a connection that has asked and asks no more is closed."""

    @property
    def retry_after_s(self) -> int:
        """The least that 429 and 503 tell the caller to wait."""

    @property
    def retry_after_s_max(self) -> int:
        """The most, however long what waits will take."""


class ShellContext(Protocol):
    """What the application's context has at least; handlers get the whole of it."""

    @property
    def settings(self) -> ShellSettings:
        """The limits."""

    @property
    def metrics(self) -> Metrics:
        """Where requests are counted."""

    @property
    def keyring(self) -> KeyRing:
        """Who may call."""

    @property
    def key_limits(self) -> KeyLimits:
        """How much each caller may ask for."""

    @property
    def tracer(self) -> Tracer | None:
        """What makes spans of requests, where that is wanted."""

    @property
    def request_log(self) -> RequestLog:
        """Where requests are told of."""

    def stopping(self) -> None:
        """Ends answers that don't end by themselves."""

    async def ready(self) -> None:
        """Returns when the store answers; raises a storage error or Problem where it does not."""


class RequestIds:
    """Ids of requests: the caller's where it is a sane one, else one that no other process makes."""

    def __init__(self, prefix: str | None = None) -> None:
        self._prefix = prefix or secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def of(self, given: str | None) -> str:
        """The id for a request that came with `given` in X-Request-Id."""
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        return f"{self._prefix}-{next(self._numbers):x}"


class Endpoint:
    """One route, served: `serve` is what aiohttp calls."""

    def __init__(self, route: Route, context: ShellContext, ids: RequestIds, bodies: Bodies) -> None:
        self.route = route
        self._bodies = bodies
        self._has_body = route.takes_body
        self._context = context
        self._handler = route.handler
        self._ids = ids
        self._keyring = context.keyring
        self._identify, self._check_valid = context.keyring.identify, context.keyring.check_valid
        self._tracer = context.tracer
        self._admit_read = None
        if route.role is Role.READER and context.key_limits.limits_reads:
            self._admit_read = context.key_limits.admit_read
        self._logged = context.request_log.wanted
        self._answered = context.metrics.request_timer(route.counted_as)
        self._path = tuple((name, PATH_PARSERS[name]) for name in _PARAMETER.findall(route.path))
        self._changes = route.method not in _SAFE_METHODS
        self._query = None if route.query is None else query_parser(route.query, context.settings)
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if isinstance(route.body, type) and not route.raw_body:
            self._decoder = msgspec.json.Decoder(route.body)
        self._takes = _media_types(route)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The response to a request: the handler's answer or a problem."""
        started_s = perf_counter()
        headers = request.headers
        request_id = self._ids.of(headers.get(X_REQUEST_ID))
        REQUEST_ID.set(request_id)
        TRACEPARENT.set(headers.get(X_TRACEPARENT, ""))
        identity = ANYONE
        code = ""
        span = None if self._tracer is None else self._tracer.request(request.method, self.route.path, request_id)
        try:
            if self._keyring.open:
                refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=self._changes)
            if self.route.role is not None:
                identity = self._identify(headers.get(hdrs.AUTHORIZATION))
                require(identity, self.route.role)
                if self._admit_read is not None:
                    self._admit_read(identity)
            body, media_type = None, ""
            if self._has_body:
                body, media_type = await self._body(request)
                if self.route.role is not None:
                    self._check_valid(identity)  # a body may take minutes to arrive
            call = self._call(request, body, media_type, identity, request_id)
            response = _response(await self._handler(self._context, call), request_id)
            ended_s = call.answered_s or perf_counter()
        except asyncio.CancelledError:
            self._end(request, span, _CUT_OFF, "cut_off", perf_counter() - started_s, identity)
            raise
        except Exception as error:
            if request.transport is None:
                response, code = PlainResponse(status=_CALLER_GONE), "caller_gone"
            else:
                response, code = self._failed(error, request_id)
            ended_s = perf_counter()
        finally:
            if self._has_body:
                self._bodies.let_go(request)
        self._end(request, span, response.status, code, ended_s - started_s, identity)
        return response

    def _end(
        self, request: web.Request, span: Span | None, status: int, code: str, seconds: float, identity: Identity
    ) -> None:
        """Count the request, and tell of it where it is one to tell of."""
        self._answered(status, seconds)
        if span is not None:
            span.end(status, identity.key_id)
        if self._logged(status, seconds):
            self._context.request_log.answered(
                view=self.route.view,
                method=request.method,
                path=self._told_path(request),
                status=status,
                code=code,
                seconds=seconds,
                key_id=identity.key_id,
            )

    def _told_path(self, request: web.Request) -> str:
        """The path with the route's names for what may name a person."""
        found = request.match_info
        return _PARAMETER.sub(
            lambda part: shown(found[part[1]]) if part[1] in _LOGGED_PARAMETERS else part[0], self.route.path
        )

    async def _body(self, request: web.Request) -> tuple[Any, str]:
        if self.route.body_optional and not request.can_read_body:
            return msgspec.json.decode(b"{}", type=self.route.body), JSON_TYPE
        media_type = "" if self.route.foreign else self._media_type(request)
        body = await self._bodies.read(request)
        return (body if self._decoder is None else decode(body, self._decoder)), media_type

    def _call(self, request: web.Request, body: Any, media_type: str, identity: Identity, request_id: str) -> Call:
        raw = request.raw_path
        if "%" in raw:
            _check_utf8(raw.partition("?")[0])
        found = request.match_info
        path = {name: parse(found[name]) for name, parse in self._path}
        query_text = request.rel_url.raw_query_string if "?" in raw else ""
        query = None
        if self._query is not None:
            query = self._query(query_text)
        elif query_text and not self.route.foreign:
            raise Problem("unknown_field", "this path takes no query parameters")
        return Call(path, query, body, media_type, identity, request, request_id)

    def _media_type(self, request: web.Request) -> str:
        media_type = bare_media_type(request.headers.get(hdrs.CONTENT_TYPE, JSON_TYPE))
        if media_type not in self._takes:
            detail = f"the body is {shown(media_type)!r}; the path takes {' or '.join(self._takes)} in UTF-8"
            raise Problem("unsupported_media_type", detail, headers={"Accept": ", ".join(self._takes)})
        encoding = request.headers.get(hdrs.CONTENT_ENCODING)
        if encoding is not None and encoding.lower() != "identity":
            detail = f"the body is encoded as {shown(encoding)!r}; the service takes it as it is"
            raise Problem("unsupported_media_type", detail, headers={hdrs.ACCEPT_ENCODING: "identity"})
        return media_type

    def _failed(self, error: Exception, request_id: str) -> tuple[web.Response, str]:
        problem = problem_of(error)
        if problem.code == "internal":
            self._context.request_log.failed(view=self.route.view, error=error)
        if problem.code in _RETRIED_CODES:
            settings = self._context.settings
            wait_s = min(settings.retry_after_s_max, getattr(error, "retry_after_s", None) or 0)
            problem.headers.setdefault(hdrs.RETRY_AFTER, str(max(settings.retry_after_s, ceil(wait_s))))
        return problem_response(problem, request_id), problem.code


def problem_response(problem: Problem, request_id: str) -> web.Response:
    """The response of a problem."""
    headers = {hdrs.CONTENT_TYPE: PROBLEM_TYPE, X_REQUEST_ID: request_id, **problem.headers}
    response = PlainResponse(body=problem.body(), status=problem.status, headers=headers)
    if problem.code == "body_timeout":
        response.force_close()  # what is left of the body would be read as the next request
    return response


def _response(answer: Answer, request_id: str) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    if not isinstance(answer, Reply):
        return QuickJson(answer if isinstance(answer, bytes) else _encode(answer), request_id)
    headers = {X_REQUEST_ID: request_id, **(answer.headers or {})}
    body = answer.body
    if body is not None:
        headers[hdrs.CONTENT_TYPE] = answer.media_type
        if not isinstance(body, bytes):
            body = _encode(body)
    return PlainResponse(body=body, status=answer.status, headers=headers)


@lru_cache(maxsize=64)
def bare_media_type(header: str) -> str:
    """The media type in lower case without parameters; with a charset that is not UTF-8, the header as it is."""
    media_type, _, parameters = header.partition(";")
    for parameter in parameters.lower().split(";"):
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            return header
    return media_type.strip().lower()


def _media_types(route: Route) -> tuple[str, ...]:
    return (JSON_TYPE, NDJSON_TYPE) if route.ndjson else (JSON_TYPE,)


def _check_utf8(raw_path: str) -> None:
    """aiohttp leaves `%FF` in a path as these three characters, which are an owner of their own (`%25FF`)."""
    try:
        unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeError as error:
        raise Problem("bad_request", "the path is not UTF-8 once its percent escapes are read") from error
