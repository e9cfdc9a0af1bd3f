"""Limits how much one API key may ask for: each key has a token bucket for reads and another for posts.

A request that needs more tokens than a bucket can hold passes when the bucket is full. The bucket then has fewer than 0
tokens. So a batch of any size passes eventually, and no size of batches lets a caller exceed the rate.

Without API keys, all callers are on this machine and share the same buckets.
"""

from collections.abc import Callable

from config.settings import Settings
from service.contract.keys import Identity
from service.contract.problems import ProblemError
from storage.meter import Meter


class TokenBuckets:
    """One bucket of tokens for each caller, refilled with `rate_per_s` tokens per second up to `burst`.

    A rate of 0 is no limit. A new caller has a full bucket. If there are more than `callers_max` buckets, the one that
    was unused for the longest time is dropped.
    """

    def __init__(self, *, rate_per_s: float, burst: int, callers_max: int, monotonic: Callable[[], float]) -> None:
        self._rate_per_s, self._burst, self._callers_max = rate_per_s, float(burst), callers_max
        self._monotonic = monotonic
        # caller -> (tokens, when they were counted); the bucket that was unused for the longest time is first
        self._levels: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take_tokens(self, caller: str, tokens: int) -> float:
        """Take the tokens and return 0. If there are too few, take none and return the seconds to wait."""
        if not self._rate_per_s:
            return 0.0
        now_s = self._monotonic()
        level, at_s = self._levels.pop(caller, (self._burst, now_s))
        level = min(self._burst, level + (now_s - at_s) * self._rate_per_s)
        missing = min(tokens, self._burst) - level
        self._levels[caller] = (level if missing > 0 else level - tokens, now_s)
        if len(self._levels) > self._callers_max:
            del self._levels[next(iter(self._levels))]
        return max(0.0, missing / self._rate_per_s)


class KeyLimits:
    """Counts the reads and posts of each key, and refuses those beyond its rate with ProblemError `rate_limited`."""

    def __init__(self, settings: Settings, meter: Meter, *, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        rates = {
            "reads": (settings.key_reads_per_s, settings.key_reads_burst),
            "posts": (settings.key_posts_per_s, settings.key_posts_burst),
        }
        self._buckets = {
            kind: TokenBuckets(
                rate_per_s=rate_per_s, burst=burst, callers_max=settings.keys_max + 1, monotonic=monotonic
            )
            for kind, (rate_per_s, burst) in rates.items()
            if rate_per_s > 0
        }
        # If a flag is false, that kind has no limit. An endpoint then need not call `admit_read` or `admit_posts`.
        self.limits_reads, self.limits_posts = "reads" in self._buckets, "posts" in self._buckets

    def admit_read(self, identity: Identity) -> None:
        self._admit("reads", identity, 1)

    def admit_posts(self, identity: Identity, count: int) -> None:
        self._admit("posts", identity, count)

    def _admit(self, kind: str, identity: Identity, count: int) -> None:
        if kind not in self._buckets:
            return
        wait_s = self._buckets[kind].take_tokens(identity.key_id, count)
        self._meter.add("rankcurve_rate_limit", count, kind, "refused" if wait_s else "passed")
        if wait_s > 0:
            detail = f"the API key has used up its rate of {kind}"
            raise ProblemError("rate_limited", detail, retry_after_s=wait_s)
