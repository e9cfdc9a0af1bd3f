"""Lets web pages of other sites read, if the setting `cors_origins` names their origins (the CORS protocol).

    browser ──OPTIONS, Access-Control-Request-Method──> Preflight ──> may the page send this request?
            ──GET, Origin──────────────────────────────> Endpoint ──> the answer, which the page may see

Only routes for the role reader let pages see an answer. Without their headers, a browser hides the answer.
"""

from collections.abc import Mapping, Sequence

from aiohttp import hdrs, web

from .fast_json import PlainResponse

ANY_ORIGIN = "*"
PREFLIGHT_S = 86_400  # how long a browser may remember the answer to a preflight request
_REQUEST_HEADERS = "Authorization, Content-Type, If-None-Match, Last-Event-ID, X-Request-Id"
_ANSWER_HEADERS = "ETag, Retry-After, X-Request-Id"


class CrossOrigin:
    """Knows the origins whose pages may read, and makes the headers of CORS for them.

    If origins are listed, every answer has `Vary: Origin`. So no cache gives an answer for one origin to another one.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origins)
        self.unshown: dict[str, str] = {} if ANY_ORIGIN in origins else {hdrs.VARY: hdrs.ORIGIN}

    def find_headers(self, origin: str | None) -> Mapping[str, str]:
        """Return the headers that let pages of this origin see an answer, or `unshown` if they may not see it."""
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
        """Prepare the answers for a path. `methods`: the methods of the path's routes for the role reader."""
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
