"""Serves one route: identifies the caller, parses the request, calls the handler, and writes and logs the answer.

    request ──> foreign pages ──> key and role ──> rate ──> body ──> path and query ──> handler ──> response
                  └───────────────┴──────────── any error ─────────────┴──────────────────┴──────> problem document

An answer to a read may get CORS headers (see `foreign_pages`), and it is compressed if it is long.

If a problem has the code `internal`, its cause appears only in the log, because it may quote other callers' data.
`Endpoint.serve` runs for every request, so `Endpoint.__init__` prepares everything that is the same for all requests of
a route, such as the list of checks that come before the body is read.
"""

import asyncio
import itertools
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache, partial
from math import ceil
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import HttpVersion11, hdrs, web
from multidict import istr

from config.settings import Settings
from jobs.request_origin import REQUEST_ID, TRACEPARENT
from service.contract.api_keys import ANONYMOUS, ANYONE, KeyRing, Role, make_forbidden, make_unauthorized
from service.contract.lease_messages import CLIENT_PATTERN, parse_lease_key
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import CODES, JSON_TYPE, PROBLEM_TYPE, ProblemError, clip_text, problem_of
from service.contract.queries import CACHED_CHARS_MAX, make_query_parsers
from service.contract.routes import SAFE_METHODS, Answer, Call, Reply, Route, Tagged
from service.contract.strict_json import decode_strictly
from service.contract.values import (
    COHORT_PATTERN,
    PATH_COLUMN_PATTERN,
    WEBHOOK_PATTERN,
    parse_board_id,
    parse_matching,
    parse_owner,
    parse_post_id,
)
from service.telemetry.logs import RequestLog
from service.telemetry.metrics.process import Metrics
from service.telemetry.tracing import Tracer
from storage.boards.family_ids import FAMILY_PATTERN
from storage.errors import NotOwnerError
from storage.meter import Meter

from .bodies import BodyReader
from .fast_json import (
    BODY_BYTES_MAX,
    BYTES_MIN,
    IN_ONE_PIECE,
    FastJsonResponse,
    PlainResponse,
    compress_answer,
)
from .foreign_pages import CrossOrigin, refuse_foreign_page
from .rate_limits import AnonymousCallers, KeyLimits
from .relay import Relay

_encode = msgspec.json.Encoder().encode
X_REQUEST_ID = istr("X-Request-Id")
X_TRACEPARENT = istr("traceparent")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PARAMETER = re.compile(r"\{(\w+)\}")
# The log shows only these path parameters. It hides owners, lease keys and post ids, because they may name people. It
# also hides the rest of a path after /jolokia, which is a request in another protocol. `path` is the whole path of a
# request that matches no route; `service.app` has already hidden the unknown words in it.
_LOGGED_PARAMETERS = ("board", "column", "family", "league", "cohort", "client_id", "pool_id", "id", "webhook", "path")
# These two statuses are never sent. They are only counted and logged.
_CLIENT_CLOSED_REQUEST = 499  # the caller closed the connection; nginx uses the same number
_CUT_OFF = 503  # the service stopped before the answer was ready
_STATUS_CLASSES = ("", "1xx", "2xx", "3xx", "4xx", "5xx")
_FORMS = {  # by parameter name: the pattern, and what the parameter is
    "column": (PATH_COLUMN_PATTERN, "a column name"),
    "family": (FAMILY_PATTERN, "the id of a family"),
    "league": (FAMILY_PATTERN, "the id of a league"),
    "cohort": (COHORT_PATTERN, "the name of a cohort"),
    "client_id": (CLIENT_PATTERN, "an id"),
    "pool_id": (CLIENT_PATTERN, "an id"),
    "webhook": (WEBHOOK_PATTERN, "the id of a webhook"),
}
PATH_PARSERS: dict[str, Callable[[str], str]] = {  # by parameter name; any other parameter may be any text
    "board": lru_cache(maxsize=1024)(parse_board_id),
    "owner": parse_owner,
    "key": parse_lease_key,
    "post_id": partial(parse_post_id, pointer="post_id"),
    **{
        name: lru_cache(maxsize=1024)(partial(parse_matching, pattern=pattern, what=what, pointer=name))
        for name, (pattern, what) in _FORMS.items()
    },
}


@dataclass(frozen=True, kw_only=True)
class EndpointContext:
    """The parts of `service.context.Context` that endpoints use. Handlers get the whole context from them."""

    settings: Settings
    metrics: Metrics
    keyring: KeyRing
    key_limits: KeyLimits
    anonymous: AnonymousCallers
    request_log: RequestLog
    cross_origin: CrossOrigin | None = None  # None if no pages from other sites may read
    tracer: Tracer | None = None  # None if requests are not traced
    relay: Relay | None = None  # only in a front process of a SQLite store: passes requests on to the owner

    def end_endless_answers(self) -> None:
        """End answers that would never end by themselves, such as streams. The server calls this when it stops."""

    async def ready(self) -> list[int]:
        """List the partitions that do not answer. Raise StorageError or ProblemError if the process is not ready."""
        return []


class RequestIds:
    """Chooses each request's id: the caller's if it is well-formed, else a new one that no other process creates."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def begin_request(self, headers: Mapping[str, str]) -> str:
        """Choose a request's id. Log lines about the request get this id and the request's header `traceparent`."""
        given = headers.get(X_REQUEST_ID)
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"
        REQUEST_ID.set(request_id)
        TRACEPARENT.set(headers.get(X_TRACEPARENT, ""))
        return request_id


class Endpoint:
    """Answers all requests of one route, from the raw request to the written and logged answer."""

    def __init__(self, route: Route, context: EndpointContext, ids: RequestIds, bodies: BodyReader) -> None:
        self.route = route
        self._bodies = bodies
        self._has_body = route.takes_body
        self._context = context
        passes_on = context.relay is not None and route.is_for_owner
        self._handler = _refuse_as_front if passes_on else route.handler
        self._ids = ids
        self._keyring = context.keyring
        self._tracer = context.tracer
        self._is_read = route.role is Role.READER
        self._answers_pages = route.answers_pages(to_players=context.keyring.tokens is not None)
        self._cross_origin = context.cross_origin
        self._rate = context.key_limits.reads if self._is_read and context.key_limits.reads.is_set else None
        self._logged = context.request_log.should_log
        self._meter, self._name, self._batch_name = context.metrics.meter, route.metrics_name, route.shared_metrics_name
        self._path = tuple((name, PATH_PARSERS.get(name, str)) for name in _PARAMETER.findall(route.path))
        self._query = None if route.query is None else make_query_parsers(route.query, context.settings)
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if isinstance(route.body, type) and not route.raw_body and not passes_on:
            self._decoder = msgspec.json.Decoder(route.body)
        self._empty = b"{}" if route.optional_body else b""
        self._takes = (JSON_TYPE, NDJSON_TYPE) if route.ndjson else (JSON_TYPE,)
        self._steps = self._list_steps()

    def _list_steps(self) -> list[Callable[[Call], None]]:
        steps: list[Callable[[Call], None]] = []
        if self._cross_origin is not None:
            steps.append(self._find_answer_headers)
        if self._tracer is not None:
            steps.append(self._start_span)
        steps.append(self._check_page if self.route.role is None else self._check_caller)
        return steps

    async def serve(self, request: web.BaseRequest, parameters: Sequence[str]) -> web.StreamResponse:
        """Answer a request. `parameters` has the values of the path's parameters, in the order of the path."""
        started_s, code = perf_counter(), ""
        call = Call(request, self._ids.begin_request(request.headers), ANYONE)
        try:
            await self._read(call, parameters)
            response = _make_response(await self._handler(self._context, call), call)
            if self._is_read and len(getattr(response, "body", None) or b"") >= BYTES_MIN:
                await compress_answer(response, request)
        except asyncio.CancelledError:
            self._end(call, parameters, _CUT_OFF, "cut_off", started_s)
            raise
        except Exception as error:
            response, code = await self._fail(call, error)
            if not code:
                return response  # the owner has counted and logged the request
        finally:
            if self._has_body:
                self._bodies.release_body(request)
            if call.address is not None:
                self._context.anonymous.end_request(call.address)
        if call.answer_headers is not None and isinstance(response, IN_ONE_PIECE):
            response.add_headers(call.answer_headers)
        self._end(call, parameters, response.status, code, started_s)
        return response

    def _find_answer_headers(self, call: Call) -> None:
        assert self._cross_origin is not None
        origin = call.request.headers.get(hdrs.ORIGIN) if self._answers_pages else None
        call.answer_headers = self._cross_origin.find_headers(origin)

    def _start_span(self, call: Call) -> None:
        assert self._tracer is not None
        call.span = self._tracer.start_request_span(call.request.method, self.route.path, call.request_id)

    def _check_page(self, call: Call) -> None:
        if self._keyring.open:
            headers, changes = call.request.headers, self.route.method not in SAFE_METHODS
            refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=changes)

    def _check_caller(self, call: Call) -> None:
        assert self.route.role is not None
        if self._keyring.open:
            self._check_page(call)
        call.identity = identity = self._keyring.identify_caller(call.request.headers.get(hdrs.AUTHORIZATION))
        if identity.role < self.route.role:
            raise make_forbidden(identity, self.route.role)
        if identity is ANONYMOUS:
            if self.route.needs_key:
                raise make_unauthorized("this needs an API key")
            call.address = self._context.anonymous.begin_request(call.request)
        elif identity.player is not None:
            self._context.key_limits.players.admit(identity.key_id)
        elif self._rate is not None:
            self._rate.admit(identity.key_id)

    async def _fail(self, call: Call, error: Exception) -> tuple[web.StreamResponse, str]:
        """Build the answer to a request that failed, and its code, which is empty if the owner has answered."""
        if isinstance(error, NotOwnerError):
            assert self._context.relay is not None
            try:
                return await self._context.relay.pass_on(call.request, call.body, call.request_id), ""
            except Exception as failed:
                error = failed
        elif call.request.transport is None:
            return PlainResponse(status=_CLIENT_CLOSED_REQUEST), "caller_gone"
        problem = problem_of(error)
        if problem.code == "internal":
            self._context.request_log.log_failure(view=self.route.view, error=error)
        if CODES[problem.code].retried:
            settings = self._context.settings
            wait_s = min(settings.retry_after_s_max, getattr(error, "retry_after_s", None) or 0)
            problem.headers.setdefault(hdrs.RETRY_AFTER, str(max(settings.retry_after_s, ceil(wait_s))))
        return make_problem_response(problem, call.request_id), problem.code

    def _end(self, call: Call, parameters: Sequence[str], status: int, code: str, started_s: float) -> None:
        seconds = (call.answered_s or perf_counter()) - started_s
        name = self._batch_name if call.is_batch else self._name
        self._meter.observe("rankcurve_request_seconds", seconds, name)  # as `count_answer`, without the call
        self._meter.add("rankcurve_requests", 1, name, _STATUS_CLASSES[status // 100])
        if call.span is not None:
            call.span.end(status, call.identity.key_id)
        if self._logged(status, seconds):
            self._context.request_log.log_request(
                view=self.route.view,
                method=call.request.method if call.request.method in hdrs.METH_ALL else "-",
                path=self._logged_path(parameters),
                status=status,
                code=code,
                seconds=seconds,
                key_id=call.identity.key_id,
            )

    def _logged_path(self, parameters: Sequence[str]) -> str:
        """Format the path for the log. If a parameter may name a person, show the parameter's name, not its value."""
        found = dict(zip(_PARAMETER.findall(self.route.path), parameters, strict=True))
        return _PARAMETER.sub(
            lambda part: clip_text(found[part[1]]) if part[1] in _LOGGED_PARAMETERS else part[0], self.route.path
        )

    async def _read_body(self, call: Call) -> None:
        if not self.route.foreign_protocol and (call.request.can_read_body or not self._empty):
            call.media_type = self._media_type(call.request)
        body = await self._bodies.read_body(call.request)
        call.body = body if self._decoder is None else decode_strictly(body or self._empty, self._decoder)
        if self.route.role is not None:
            self._keyring.check_valid(call.identity)  # the key may have been revoked while the body arrived

    async def _read(self, call: Call, parameters: Sequence[str]) -> None:
        for step in self._steps:
            step(call)
        if self._has_body:
            await self._read_body(call)
        raw = call.request.raw_path
        if "%" in raw:
            _check_path(raw.partition("?")[0])
        call.path = path = {}
        for (name, parse), value in zip(self._path, parameters, strict=True):
            path[name] = parse(value)
        query_text = call.request.rel_url.raw_query_string if "?" in raw else ""
        if self._query is not None:
            call.query = self._query[len(query_text) > CACHED_CHARS_MAX](query_text)
        elif query_text and not self.route.foreign_protocol:
            raise ProblemError("unknown_field", "this path has no query parameters")

    def _media_type(self, request: web.BaseRequest) -> str:
        media_type = parse_media_type(request.headers.get(hdrs.CONTENT_TYPE, JSON_TYPE))
        if media_type not in self._takes:
            detail = f"the body is {clip_text(media_type)!r}; send {' or '.join(self._takes)} in UTF-8"
            raise ProblemError("unsupported_media_type", detail, headers={"Accept": ", ".join(self._takes)})
        encoding = request.headers.get(hdrs.CONTENT_ENCODING)
        if encoding is not None and encoding.lower() != "identity":
            detail = f"the body is encoded as {clip_text(encoding)!r}; send it without Content-Encoding"
            raise ProblemError("unsupported_media_type", detail, headers={hdrs.ACCEPT_ENCODING: "identity"})
        return media_type


def count_answer(meter: Meter, route: str, status: int, seconds: float) -> None:
    meter.observe("rankcurve_request_seconds", seconds, route)
    meter.add("rankcurve_requests", 1, route, _STATUS_CLASSES[status // 100])


def make_problem_response(problem: ProblemError, request_id: str) -> web.Response:
    headers = {hdrs.CONTENT_TYPE: PROBLEM_TYPE, X_REQUEST_ID: request_id, **problem.headers}
    response = PlainResponse(body=problem.to_json(), status=problem.status, headers=headers)
    if problem.code == "body_timeout":
        response.force_close()  # otherwise the rest of the body would be read as the next request
    return response


async def _refuse_as_front(_context: object, _call: Call) -> Answer:
    raise NotOwnerError


def _make_response(answer: Answer, call: Call) -> web.StreamResponse:
    if isinstance(answer, Reply | web.StreamResponse | None):
        return _make_plain_response(answer, call)
    if isinstance(answer, Tagged):
        body, etag = answer.body, answer.etag
    else:
        body, etag = answer if isinstance(answer, bytes) else _encode(answer), ""
    request = call.request
    is_usual = request.keep_alive and request.version == HttpVersion11 and request.method != hdrs.METH_HEAD
    if is_usual and len(body or b"") <= BODY_BYTES_MAX:
        return FastJsonResponse(body, call.request_id, etag)
    return _make_plain_response(Reply(body, 304 if body is None else 200, {"ETag": etag} if etag else None), call)


def _make_plain_response(answer: Reply | web.StreamResponse | None, call: Call) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    if answer is None:
        return PlainResponse(status=204, headers={X_REQUEST_ID: call.request_id})
    headers = {X_REQUEST_ID: call.request_id, **(answer.headers or {})}
    if answer.body is not None:
        headers[hdrs.CONTENT_TYPE] = answer.media_type
    sent = _encode(answer.body) if isinstance(answer.body, msgspec.Struct) else answer.body
    return PlainResponse(body=sent, status=answer.status, headers=headers)


@lru_cache(maxsize=64)
def parse_media_type(header: str) -> str:
    """Parse the media type, in lower case and without parameters.

    If the header names a charset other than UTF-8, return the header unchanged, so that every route refuses it.
    """
    message = Message()
    message[hdrs.CONTENT_TYPE] = header
    charset = message.get_content_charset("utf-8")
    return message.get_content_type() if charset in ("utf-8", "utf8", "us-ascii") else header


def _check_path(raw_path: str) -> None:
    """Refuse a path whose percent escapes are not UTF-8, or contain NUL, which PostgreSQL can't store.

    aiohttp would leave `%FF` as it is. The request would then reach the owner who is named `%FF`, whose correct path
    has `%25FF`.
    """
    try:
        text = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeError as error:
        raise ProblemError("bad_request", "the path is not UTF-8 after its percent escapes are decoded") from error
    if "\0" in text:
        raise ProblemError("bad_request", "the path has a NUL character")
