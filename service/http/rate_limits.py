"""Limits how often each API key, each player and each address without a key may call, by token buckets.

Each API key has a bucket for reads and another one for posts. Each player has one bucket for all requests.

A request that needs more tokens than a bucket can hold passes when the bucket is full, and leaves a negative number of
tokens behind. So a batch of any size passes eventually, but large batches can't be used to exceed the rate.

Without API keys, all callers are on this machine and share the same buckets. With keys, `AnonymousCallers` limits what
callers without a key may read, if the setting `anonymous_role` lets them read at all. Each address, also behind
proxies, has a rate limit and a maximum number of open requests, and all addresses together have another rate limit. An
IPv6 network of 64 bits counts as one address, because one caller usually has all of its addresses.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial

from aiohttp import hdrs, web

from config.settings import Settings
from service.contract.problems import ProblemError
from storage.meter import Meter

PLAYERS_MAX = 10_000  # at most this many players have buckets


class RateLimit:
    """A bucket of tokens for each caller, refilled with `rate_per_s` tokens per second up to `burst`.

    A rate of 0 means no limit. A new caller has a full bucket. If there are more than `callers_max` buckets, the one
    that has been unused the longest is dropped. `kind` is the limit's name in errors and metrics.
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
        # caller -> (tokens, when they were counted); the bucket that has been unused the longest comes first
        self._levels: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take_tokens(self, caller: str, tokens: int) -> float:
        """Take tokens from the caller's bucket and return 0, or take none and return the seconds to wait for enough."""
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
        """Count tokens as passed if `wait_s` is 0, or else as refused, and then raise ProblemError `rate_limited`."""
        self._meter.add("rankcurve_rate_limit", count, self._kind, "refused" if wait_s else "passed")
        if wait_s:
            raise ProblemError("rate_limited", f"the rate of {self._kind} is used up", retry_after_s=wait_s)


class KeyLimits:
    """The rate limits for reads and posts of each API key, under the key's id, and for the requests of each player."""

    def __init__(self, settings: Settings, meter: Meter, *, monotonic: Callable[[], float]) -> None:
        limit = partial(RateLimit, callers_max=settings.keys_max + 1, meter=meter, monotonic=monotonic)
        self.reads = limit("reads", settings.key_reads_per_s, settings.key_reads_burst)
        self.posts = limit("posts", settings.key_posts_per_s, settings.key_posts_burst)
        rate, burst = settings.player_requests_per_s, settings.player_requests_burst
        self.players = RateLimit("requests", rate, burst, callers_max=PLAYERS_MAX, meter=meter, monotonic=monotonic)


ADDRESSES_MAX = 10_000  # at most this many addresses have buckets, see `RateLimit`
IPV6_NETWORK_BITS = 64
_ALL = "all"  # the name of the bucket that all addresses share
_WITH_PORT = re.compile(r"([0-9.]+|\[.*\]):[0-9]*")  # an address with its port, as some proxies write it


class AnonymousCallers:
    """Counts the requests of callers without an API key, and refuses those over the limits."""

    def __init__(self, settings: Settings, meter: Meter, *, monotonic: Callable[[], float]) -> None:
        self._settings, self._meter = settings, meter
        self._open: Counter[str] = Counter()  # open requests by address
        limit = partial(RateLimit, "anonymous reads", meter=meter, monotonic=monotonic)
        self._by_address = limit(
            settings.anonymous_reads_per_s, settings.anonymous_reads_burst, callers_max=ADDRESSES_MAX
        )
        self._total = limit(settings.anonymous_total_reads_per_s, settings.anonymous_total_reads_burst, callers_max=1)

    def begin_request(self, request: web.BaseRequest) -> str:
        """Count a request, and return the caller's address, which `end_request` takes.

        Raises ProblemError `rate_limited` if the address has too many open requests, or if a rate limit is reached.
        """
        address = find_address(request, proxies=self._settings.trusted_proxies)
        if self._open[address] >= self._settings.anonymous_requests_max:
            self._meter.add("rankcurve_rate_limit", 1, "anonymous reads", "refused")
            detail = f"{self._open[address]} requests without an API key are open from this address"
            raise ProblemError("rate_limited", detail)
        wait_s = self._by_address.take_tokens(address, 1) or self._total.take_tokens(_ALL, 1)
        self._total.count_or_refuse(1, wait_s)
        self._open[address] += 1
        return address

    def end_request(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def find_address(request: web.BaseRequest, *, proxies: int) -> str:
    """Find the caller's address. `proxies` is the number of proxies that a request passes on its way to the service.

    Each of these proxies appends the address from which it got the request to `X-Forwarded-For`. All earlier addresses
    come from the caller, who may have invented them.
    """
    if proxies:
        lines = request.headers.getall(hdrs.X_FORWARDED_FOR, ())
        addresses = [part.strip() for line in lines for part in line.split(",")]
        if len(addresses) >= proxies:
            return _shorten(addresses[-proxies])
    return _shorten(request.remote or "")


@lru_cache(maxsize=ADDRESSES_MAX)
def _shorten(address: str) -> str:
    with_port = _WITH_PORT.fullmatch(bare := address.strip('"'))
    try:
        found = ipaddress.ip_address((with_port[1] if with_port else bare).strip("[]"))
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS, IPV6_NETWORK_BITS)))
