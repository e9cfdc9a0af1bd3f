"""Keeps foreign web pages away from a service without API keys, and lets the pages that `cors_origins` names read.

Without keys, every caller on this machine has the role ops. Any web page in a browser on this machine could therefore
empty a leaderboard, if two headers did not give the page away:

* `Host` holds the name of the page's site, if an attacker made that name resolve to this machine (DNS rebinding).
* `Origin` holds the site and the port of the page. A foreign page has another site or another port than the service.

With the setting `cors_origins`, web pages from other sites may read, by the CORS protocol:

    browser ──OPTIONS, Access-Control-Request-Method──> Preflight ──> may the page send this request?
            ──GET, Origin──────────────────────────────> Endpoint ──> the answer, which the page may see

Only routes for the role reader let pages see an answer, and if player tokens are configured, so do those for players. A
browser hides an answer that lacks these headers from the page.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from service.contract.api_keys import is_loopback
from service.contract.problems import ProblemError, clip_text

from .fast_json import PlainResponse

_HOSTS_REMEMBERED = 64
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+?)\.?(:[0-9]{0,5})?")


def refuse_foreign_page(host: str | None, origin: str | None, *, changes: bool) -> None:
    """Refuse a request that may come from a web page other than the service's own.

    `changes` says whether the request may change anything. A page from another port of this machine may send requests
    that only read, because the browser hides the answers from that page.

    Raises:
        ProblemError: `host_not_allowed`, `forbidden`.
    """
    # Only HTTP/1.0 requests lack a Host, and no browser uses HTTP/1.0.
    if host is not None and not _is_loopback_host(host):
        detail = f"without API keys the service answers to loopback names only, not to {clip_text(host)!r}"
        raise ProblemError("host_not_allowed", detail)
    if origin is None:
        return
    if not is_loopback(_name_of(origin)):
        raise ProblemError("forbidden", "pages of other sites may send requests only once there are API keys")
    if changes and origin.partition("://")[2].lower() != (host or "").lower():
        raise ProblemError("forbidden", "without API keys the service takes changes from its own page only")


@lru_cache(maxsize=_HOSTS_REMEMBERED)
def _is_loopback_host(host: str) -> bool:
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1])


def _name_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


ANY_ORIGIN = "*"
PREFLIGHT_S = 86_400  # how long a browser may remember the answer to a preflight request
_REQUEST_HEADERS = "Authorization, Content-Type, If-None-Match, Last-Event-ID, X-Request-Id"
_ANSWER_HEADERS = "ETag, Retry-After, X-Request-Id"


class CrossOrigin:
    """Knows the origins whose pages may read, and makes the CORS headers for them.

    If origins are listed, every answer has `Vary: Origin`, so that a cache never gives an answer for one origin to
    another.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)
        self.unshown: dict[str, str] = {} if ANY_ORIGIN in origins else {hdrs.VARY: hdrs.ORIGIN}

    def find_headers(self, origin: str | None) -> Mapping[str, str]:
        """Find the headers that let pages of this origin see an answer, or `unshown` if they may not see it."""
        is_any = ANY_ORIGIN in self._origins
        if origin is None or not (is_any or origin.lower() in self._origins):
            return self.unshown
        return {
            hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: ANY_ORIGIN if is_any else origin,
            hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: _ANSWER_HEADERS,
            **self.unshown,
        }


class Preflight:
    """Answers preflight requests for one path. With such a request, a browser asks what a page may send."""

    def __init__(self, cross_origin: CrossOrigin, methods: Sequence[str]) -> None:
        self._cross_origin = cross_origin
        self._methods = ", ".join(methods)

    async def serve(self, request: web.BaseRequest, _: Sequence[str]) -> web.StreamResponse:
        """Answer a preflight with 204. If the origin is not allowed, leave out the headers that permit the request."""
        shown = self._cross_origin.find_headers(request.headers.get(hdrs.ORIGIN))
        headers: dict[str, str] = {hdrs.ALLOW: self._methods, **shown}
        if shown is not self._cross_origin.unshown:
            headers |= {
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: self._methods,
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _REQUEST_HEADERS,
                hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_S),
            }
        return PlainResponse(status=204, headers=headers)
