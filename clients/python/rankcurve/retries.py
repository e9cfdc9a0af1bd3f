"""Repeats a request if a retry may help and does no harm.

    2xx, 304 ───────────────────────────────────────────────────────────> reply
    429 or 503 with Retry-After ──────────> pause as long as asked ──> again
    502, 504, or no answer; repeatable ───> pause, longer each time ──> again
    all but a refusal of the service, with `until_refused` ─> pause ──> again
    anything else, or the last attempt ─────────────────────────────────> ApiError, UnreachableError

A request that must not be repeated, such as resetting a board, is sent again only after a 429, because the service has
then rejected it without reading it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from .errors import PROBLEM_TYPES, ApiError, RankcurveError, UnreachableError, refusal_of
from .programs import Pause, Program, Reply, Send

PROXY_STATUSES = (502, 504)  # a proxy got no answer from the service
TOO_LARGE = 413
DOUBLINGS_MAX = 30
LASTING_ATTEMPTS = 3  # with `until_refused`, an outage begins with this many failures; fewer may be a closed connection
T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """The number of times that a request is sent at most, and the pauses in seconds between its attempts.

    With `before_first_answer`, the client also waits for a service that has never answered it before. With
    `until_refused`, it repeats a request until the service itself rejects it with a problem document; any other
    failure, such as a full disk or the answer of a proxy, may pass. `rng` draws the random part of each pause, so that
    clients that failed together do not all come back together.
    """

    attempts_max: int = 5
    pause_s: float = 0.2
    pause_s_max: float = 30.0
    before_first_answer: bool = True
    until_refused: bool = False
    # The system's generator, because forked processes would draw the same numbers from a seeded one.
    rng: random.Random = field(default_factory=random.SystemRandom, repr=False)

    def draw_pause_s(self, attempt: int) -> float:
        """Draw a random pause between half of a limit and the limit.

        The limit doubles with each attempt, up to `pause_s_max`.
        """
        limit_s = min(self.pause_s_max, self.pause_s * 2.0 ** min(attempt, DOUBLINGS_MAX))
        return limit_s * (0.5 + self.rng.random() / 2)

    def draw_asked_pause_s(self, retry_after: str, attempt: int) -> float:
        """Draw a pause of as many seconds as the header `Retry-After` asks for, plus at most half as many again.

        The pause is at most `pause_s_max`, and never shorter than it would be without the header, because a service may
        keep asking for 0 seconds. A header that holds a date instead of seconds is ignored.
        """
        least_s = self.draw_pause_s(attempt)
        if not retry_after.strip().isdecimal() or len(retry_after) > 9:
            return least_s
        return min(self.pause_s_max, max(least_s, float(retry_after) * (1 + self.rng.random() / 2)))


class Sender:
    """Sends the requests of one client, and keeps track of whether the service is reachable."""

    def __init__(
        self,
        url: str,
        retries: Retries,
        on_unreachable: Callable[[RankcurveError], object],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_unreachable` is called once for each outage, before the client waits for the service to come back.

        Once `stopped` returns true, no request is sent again.
        """
        self.url, self.retries, self.on_unreachable = url, retries, on_unreachable
        self.failure: RankcurveError | None = None  # of the last attempt
        self._stopped = stopped
        self._answered = self._away = False

    def send(self, request: Send) -> Program[Reply]:
        """Send a request until it is answered with 2xx or 304. Raises ApiError and UnreachableError."""
        return (yield from self.send_and_read(request, lambda reply: reply))

    def send_and_read(self, request: Send, read: Callable[[Reply], T], *, divisible: bool = False) -> Program[T]:
        """Send a request as `send` does, and return the result of `read`, which parses the answer.

        `read` may raise RankcurveError. `divisible` says that the caller can split the request, so that a 413 need not
        be retried.
        """
        for attempt in range(1, self.retries.attempts_max + 1):
            reply: Reply | None = None
            try:
                reply = yield request if attempt == 1 else msgspec.structs.replace(request, attempt=attempt)
                self._answered = True
                if not (200 <= reply.status < 300 or reply.status == 304):
                    raise refusal_of(reply.status, reply.content)
                answer = read(reply)
            except RankcurveError as error:
                failure = self.failure = error
            else:
                self._away, self.failure = False, None
                return answer
            too_large = divisible and isinstance(failure, ApiError) and failure.status == TOO_LARGE
            pause_s = None if too_large else self._pause_after(request, reply, failure, attempt)
            if pause_s is None or attempt == self.retries.attempts_max or self._stopped():
                raise failure
            away = not (isinstance(failure, ApiError) and failure.problem.type.startswith(PROBLEM_TYPES))
            if not away:
                self._away = False
            elif not self._away and attempt >= (LASTING_ATTEMPTS if self.retries.until_refused else 1):
                self._away = True
                self.on_unreachable(failure)
            yield Pause(pause_s)
        raise UnreachableError(f"no attempt was made to reach {self.url}")

    def _pause_after(self, request: Send, reply: Reply | None, failure: RankcurveError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None if another attempt is of no use or does harm."""
        retries = self.retries
        if reply is None:
            may_pass = isinstance(failure, UnreachableError) and (self._answered or retries.before_first_answer)
        else:
            retry_after = reply.headers.get("retry-after")
            if retry_after is not None and (reply.status == 429 or (reply.status == 503 and request.repeatable)):
                return retries.draw_asked_pause_s(retry_after, attempt)
            refused = isinstance(failure, ApiError) and failure.final
            may_pass = reply.status in PROXY_STATUSES or (retries.until_refused and not refused)
        return retries.draw_pause_s(attempt) if may_pass and request.repeatable else None
