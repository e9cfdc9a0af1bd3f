"""Sends a request again where that helps and does no harm.

    2xx, 304 ───────────────────────────────────────────────────────────> reply
    429 or 503 with Retry-After ──────────> pause as long as asked ──> again
    502, 504, or no answer; repeatable ───> pause, longer each time ──> again
    any 5xx, with `server_errors` ────────> pause, longer each time ──> again
    anything else, or the last attempt ─────────────────────────────────> ApiError, UnreachableError

A request that may not be repeated, such as resetting a board, is sent again only after a 429: the service then has
refused it unread.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import ApiError, RankcurveError, UnreachableError, refusal_of
from .programs import Pause, Program, Reply, Send

PROXY_STATUSES = (502, 504)  # a proxy got no answer from the service
DOUBLINGS_MAX = 30


@dataclass(frozen=True)
class Retries:
    """How often a request is sent at most, and the pauses in seconds between two attempts.

    With `before_first_answer`, the client also waits for a service that has not answered it before. With
    `server_errors`, it also repeats a request after any status from 500 on, such as that of a full disk. `rng` draws
    the random part of each pause, so that clients which failed together do not come back together.
    """

    attempts_max: int = 5
    pause_s: float = 0.2
    pause_s_max: float = 30.0
    before_first_answer: bool = True
    server_errors: bool = False
    rng: random.Random = field(default_factory=random.Random, repr=False)

    def draw_pause_s(self, attempt: int) -> float:
        """Return a random pause between half of a limit and the limit, which doubles with each attempt."""
        limit_s = min(self.pause_s_max, self.pause_s * 2.0 ** min(attempt, DOUBLINGS_MAX))
        return limit_s * (0.5 + self.rng.random() / 2)

    def draw_asked_pause_s(self, retry_after: str, attempt: int) -> float:
        """Return the seconds of the header `Retry-After`, plus at most half as many again. It may also be a date."""
        if not retry_after.strip().isdecimal() or len(retry_after) > 9:
            return self.draw_pause_s(attempt)
        return min(self.pause_s_max, float(retry_after) * (1 + self.rng.random() / 2))


class Sender:
    """Sends the requests of one client, and remembers whether the service answers at present."""

    def __init__(
        self,
        url: str,
        retries: Retries,
        on_unreachable: Callable[[RankcurveError], object],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_unreachable` is called once for each outage, before the client waits for the service to come back."""
        self.url, self.retries = url, retries
        self._on_unreachable, self._stopped = on_unreachable, stopped
        self._answered = self._away = False

    def with_retries(self, retries: Retries, stopped: Callable[[], bool]) -> Sender:
        """Return a sender with other retries, which does not retry once `stopped` returns true."""
        return Sender(self.url, retries, self._on_unreachable, stopped)

    def send(self, request: Send) -> Program[Reply]:
        """Return the answer to a request: 2xx or 304. Raises ApiError and UnreachableError."""
        for attempt in range(1, self.retries.attempts_max + 1):
            failure: RankcurveError
            pause_s: float | None
            try:
                reply: Reply = yield request
            except UnreachableError as error:
                again = request.repeatable and (self._answered or self.retries.before_first_answer)
                failure, pause_s = error, self.retries.draw_pause_s(attempt) if again else None
            else:
                self._answered, self._away = True, False
                if 200 <= reply.status < 300 or reply.status == 304:
                    return reply
                failure = refusal_of(reply.status, reply.content)
                pause_s = self._pause_after(request, reply, attempt)
            if pause_s is None or attempt == self.retries.attempts_max or self._stopped():
                raise failure
            if not isinstance(failure, ApiError) and not self._away:
                self._away = True
                self._on_unreachable(failure)
            yield Pause(pause_s)
        raise UnreachableError(f"no attempt was made to reach {self.url}")

    def _pause_after(self, request: Send, reply: Reply, attempt: int) -> float | None:
        """Return how long to wait before the request is sent again, or None if that is of no use, or does harm."""
        retry_after = reply.headers.get("retry-after")
        if retry_after is not None and (reply.status == 429 or (reply.status == 503 and request.repeatable)):
            return self.retries.draw_asked_pause_s(retry_after, attempt)
        may_pass = reply.status in PROXY_STATUSES or (self.retries.server_errors and reply.status >= 500)
        if may_pass and request.repeatable:
            return self.retries.draw_pause_s(attempt)
        return None
