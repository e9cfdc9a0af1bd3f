"""Limits the rates of callers by token buckets. Each API key has a bucket for reads and another one for posts.

A request that needs more tokens than a bucket can hold passes when the bucket is full. The bucket's number of tokens
then becomes negative. So a batch of any size passes eventually, but a caller can't exceed the rate with large batches.

If no API keys exist, all callers are on this machine and share the same buckets. If keys exist, `anonymous_callers`
has the buckets of the callers without a key.
"""

from collections.abc import Callable
from functools import partial

from config.settings import Settings
from service.contract.problems import ProblemError
from storage.meter import Meter


class RateLimit:
    """One bucket of tokens for each caller, refilled with `rate_per_s` tokens per second up to `burst`.

    A rate of 0 means no limit. A new caller has a full bucket. If there are more than `callers_max` buckets, the bucket
    that was unused for the longest time is dropped. `kind` is the name of the limit in errors and metrics.
    """

    def __init__(
        self,
        kind: str,
        rate_per_s: float,
        burst: int,
        *,
        callers_max: int,
        meter: Meter,
        monotonic: Callable[[], float],
    ) -> None:
        self.is_set = rate_per_s > 0
        self._kind, self._rate_per_s, self._burst, self._callers_max = kind, rate_per_s, float(burst), callers_max
        self._meter, self._monotonic = meter, monotonic
        # caller -> (tokens, when they were counted); the bucket that was unused for the longest time is first
        self._levels: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take_tokens(self, caller: str, tokens: int) -> float:
        """Take tokens from the caller's bucket and return 0. If it has too few, only return the seconds to wait."""
        if not self.is_set:
            return 0.0
        now_s = self._monotonic()
        level, at_s = self._levels.pop(caller, (self._burst, now_s))
        level = min(self._burst, level + (now_s - at_s) * self._rate_per_s)
        missing = min(tokens, self._burst) - level
        self._levels[caller] = (level if missing > 0 else level - tokens, now_s)
        if len(self._levels) > self._callers_max:
            del self._levels[next(iter(self._levels))]
        return max(0.0, missing / self._rate_per_s)

    def admit(self, caller: str, count: int = 1) -> None:
        """Take tokens, and count them in the metrics. Raises ProblemError `rate_limited` if there are too few."""
        if self.is_set:
            self.count_or_refuse(count, self.take_tokens(caller, count))

    def count_or_refuse(self, count: int, wait_s: float) -> None:
        """Count tokens as passed if `wait_s` is 0. Else count them as refused; raise ProblemError `rate_limited`."""
        self._meter.add("rankcurve_rate_limit", count, self._kind, "refused" if wait_s else "passed")
        if wait_s:
            raise ProblemError("rate_limited", f"the rate of {self._kind} is used up", retry_after_s=wait_s)


class KeyLimits:
    """The rate limits for reads and for posts. Each API key has its own buckets, under the id of the key."""

    def __init__(self, settings: Settings, meter: Meter, *, monotonic: Callable[[], float]) -> None:
        limit = partial(RateLimit, callers_max=settings.keys_max + 1, meter=meter, monotonic=monotonic)
        self.reads = limit("reads", settings.key_reads_per_s, settings.key_reads_burst)
        self.posts = limit("posts", settings.key_posts_per_s, settings.key_posts_burst)
