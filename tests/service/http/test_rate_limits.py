"""Test that each API key gets its rate and its burst, whatever other keys do and however large its batches are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.api_keys import Identity, Role
from service.contract.problems import ProblemError
from service.http.rate_limits import KeyLimits, RateLimit
from storage.meter import NO_METER
from tests.meter import RecordingMeter
from tests.service.real_service import Service
from tests.service.toy import key_limits

ADA, BOB = Identity("ada", Role.READER), Identity("bob", Role.WRITER)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_buckets(clock: Clock, *, rate_per_s: float = 2, burst: int = 10, callers_max: int = 3) -> RateLimit:
    """Return token buckets. By default, a bucket holds ten tokens and gains two tokens per second."""
    return RateLimit("reads", rate_per_s, burst, callers_max=callers_max, meter=NO_METER, monotonic=clock)


def test_a_bucket_gives_its_burst_then_its_rate() -> None:
    clock = Clock()
    tokens = make_buckets(clock)
    assert [tokens.take_tokens("a", 1) for _ in range(10)] == [0] * 10
    assert tokens.take_tokens("a", 1) == 0.5
    assert tokens.take_tokens("b", 1) == 0, "another caller has a bucket of its own"
    clock.now_s += 0.5
    assert tokens.take_tokens("a", 1) == 0
    assert tokens.take_tokens("a", 2) == 1.0
    clock.now_s += 3600
    assert [tokens.take_tokens("a", 1) for _ in range(11)] == [0] * 10 + [0.5]


def test_the_bucket_of_the_longest_unused_caller_is_forgotten_first() -> None:
    clock = Clock()
    tokens = make_buckets(clock, callers_max=2)
    tokens.take_tokens("a", 10)
    tokens.take_tokens("b", 10)
    assert tokens.take_tokens("a", 1) > 0
    tokens.take_tokens("c", 10)
    assert len(tokens) == 2
    assert tokens.take_tokens("a", 1) > 0, "b is forgotten: a was used after b"


@given(
    demands=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 40)), min_size=1, max_size=60),
    rate_per_s=st.floats(0.1, 100),
    burst=st.integers(1, 20),
)
def test_no_caller_passes_more_than_its_burst_its_rate_and_one_batch(
    demands: list[tuple[float, int]], rate_per_s: float, burst: int
) -> None:
    clock = Clock()
    tokens = make_buckets(clock, rate_per_s=rate_per_s, burst=burst)
    began_s, passed = clock.now_s, 0
    for pause_s, count in demands:
        clock.now_s += pause_s
        wait_s = tokens.take_tokens("a", count)
        if wait_s == 0:
            passed += count
        allowed = burst + rate_per_s * (clock.now_s - began_s) + max(0, max(n for _, n in demands) - burst)
        assert passed <= allowed * (1 + 1e-9) + 1e-6
        if wait_s > 0:
            clock.now_s += wait_s * (1 + 1e-9) + 1e-6
            assert tokens.take_tokens("a", count) == 0, "a caller that waits as long as told is admitted"
            passed += count


def refuse_posts(limits: KeyLimits, identity: Identity, posts: int) -> ProblemError:
    """Send posts that exceed the limit of a key. Return the problem that refuses the posts."""
    with pytest.raises(ProblemError) as caught:
        limits.posts.admit(identity.key_id, posts)
    return caught.value


def test_reads_and_posts_have_separate_limits_and_are_counted_by_outcome() -> None:
    meter = RecordingMeter()
    limits = key_limits(meter, reads_per_s=1, posts_per_s=1)
    limits.posts.admit(BOB.key_id, 3)
    limits.reads.admit(BOB.key_id)
    limits.reads.admit(ADA.key_id)
    problem = refuse_posts(limits, BOB, 2)
    assert (problem.status, problem.code, problem.retry_after_s) == (429, "rate_limited", 2)
    assert meter.by_label("rankcurve_rate_limit") == {"posts passed": 3, "posts refused": 2, "reads passed": 2}


def test_the_time_to_retry_is_the_wait_for_the_tokens() -> None:
    limits = key_limits(posts_per_s=1)
    limits.posts.admit(BOB.key_id, 13)
    assert refuse_posts(limits, BOB, 1).retry_after_s == 11
    limits.posts.admit(ADA.key_id, 3)
    assert refuse_posts(limits, ADA, 1).retry_after_s == 1
    limits = key_limits(posts_per_s=0.01)
    limits.posts.admit(BOB.key_id, 3)
    assert refuse_posts(limits, BOB, 3).retry_after_s == 300


def test_a_rate_of_zero_is_no_limit() -> None:
    meter = RecordingMeter()
    limits = key_limits(meter)
    assert not limits.reads.is_set
    assert not limits.posts.is_set
    for _ in range(100):
        limits.reads.admit(ADA.key_id)
        limits.posts.admit(ADA.key_id, 1_000)
    assert meter.by_label("rankcurve_rate_limit") == {}


async def test_a_caller_past_its_rate_is_answered_429_and_operators_are_not_limited(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    await service.restart(key_reads_per_s=0.001, key_reads_burst=2, key_posts_per_s=0.001, key_posts_burst=3)
    posts = [{"owner": f"p{i}", "stats": {"xp": 1}} for i in range(3)]
    await service.post("b", *posts)
    for path in ("/v1/leaderboards/b/posts", "/v1/posts"):
        body = posts[0] if path != "/v1/posts" else {**posts[0], "boards": ["b"]}
        assert await service.refused("POST", path, body) == (429, "rate_limited")
    await service.get("/v1/leaderboards/b/entries/p0")
    await service.must("POST", "/v1/leaderboards/b/entries/lookup", {"owners": ["p0"]})
    answer = await service.call("GET", "/v1/leaderboards/b/entries/p0")
    assert (answer.status, answer.body["code"], answer.headers["Retry-After"]) == (429, "rate_limited", "60")
    for path in ("/metrics", "/healthz", "/readyz"):
        assert (await service.call("GET", path)).status == 200
    await service.must("POST", "/v1/leaderboards/b/reset")
