"""How much one API key may ask for: a token bucket a key for reads, another for posts.

The rule: a demand larger than a full bucket passes when the bucket is full and leaves it in debt. So a batch of any
size passes sometime, and no way to cut posts into batches passes more of them than the rate allows.

Without keys all callers share one bucket: they are on this machine, where an address tells nobody apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from .keys import Identity
from .problems import Busy


@dataclass(frozen=True, slots=True)
class KeyLimitBounds:
    """The bounds of one process; each is a setting of the same name."""

    key_reads_per_s: float  # 0: no limit
    key_reads_burst: int
    key_posts_per_s: float
    key_posts_burst: int
    keys_max: int
    retry_after_s: int
    retry_after_s_max: int


class KeyLimitObserver(Protocol):
    """What is told to the operators."""

    def rate_checked(self, kind: str, count: int, *, passed: bool) -> None:
        """So many "reads" or "posts" were within their key's rate, or beyond it."""


class TokenBuckets:
    """A bucket a caller, refilled at `rate_per_s` up to `burst`; a caller not seen before has a full one."""

    def __init__(self, *, rate_per_s: float, burst: int, callers_max: int, monotonic: Callable[[], float]) -> None:
        self._rate_per_s, self._burst, self._callers_max = rate_per_s, float(burst), callers_max
        self._monotonic = monotonic
        self._levels: dict[str, tuple[float, float]] = {}  # caller -> tokens, when; the longest unused first

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, caller: str, tokens: int) -> float:
        """Take the tokens and answer 0, or take none and answer the seconds until they may be taken."""
        now_s = self._monotonic()
        level, at_s = self._levels.pop(caller, (self._burst, now_s))
        level = min(self._burst, level + (now_s - at_s) * self._rate_per_s)
        missing = min(tokens, self._burst) - level
        self._levels[caller] = (level if missing > 0 else level - tokens, now_s)
        if len(self._levels) > self._callers_max:
            del self._levels[next(iter(self._levels))]
        return max(0.0, missing / self._rate_per_s)


class KeyLimits:
    """What each key may read and post; Problem `rate_limited` past it."""

    def __init__(self, bounds: KeyLimitBounds, observer: KeyLimitObserver, *, monotonic: Callable[[], float]) -> None:
        self._bounds, self._observer = bounds, observer

        def buckets(rate_per_s: float, burst: int) -> TokenBuckets | None:
            if rate_per_s == 0:
                return None
            return TokenBuckets(
                rate_per_s=rate_per_s, burst=burst, callers_max=bounds.keys_max + 1, monotonic=monotonic
            )

        self._reads = buckets(bounds.key_reads_per_s, bounds.key_reads_burst)
        self._posts = buckets(bounds.key_posts_per_s, bounds.key_posts_burst)

    @property
    def limits_reads(self) -> bool:
        """Whether reads have a limit: where they have none, nobody needs to ask."""
        return self._reads is not None

    def admit_read(self, identity: Identity) -> None:
        """Count one read. Raises Problem `rate_limited` past the key's rate."""
        self._admit("reads", self._reads, identity, 1)

    def admit_posts(self, identity: Identity, count: int) -> None:
        """Count the posts of one request. Raises Problem `rate_limited` past the key's rate."""
        self._admit("posts", self._posts, identity, count)

    def _admit(self, kind: str, buckets: TokenBuckets | None, identity: Identity, count: int) -> None:
        if buckets is None:
            return
        wait_s = buckets.take(identity.key_id, count)
        self._observer.rate_checked(kind, count, passed=wait_s == 0)
        if wait_s > 0:
            retry_after_s = max(self._bounds.retry_after_s, min(self._bounds.retry_after_s_max, ceil(wait_s)))
            raise Busy("rate_limited", f"the API key is past its rate of {kind}", retry_after_s=retry_after_s)
