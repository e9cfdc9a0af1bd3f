"""Test the estimates of waiting times, which come from measurements of commits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.posting.waiting_posts import DrainRate


def measure_drain(
    *, posts_per_s: float, seconds: float, drain: DrainRate | None = None, from_s: float = 0.0
) -> DrainRate:
    """Measure a queue that is never empty. Ten groups leave the queue every second."""
    drain = drain or DrainRate()
    drain.record_left_behind(1, now_s=from_s)
    for number in range(1, round(seconds * 10) + 1):
        drain.record_commit(round(posts_per_s / 10), now_s=from_s + number / 10)
        drain.record_left_behind(1, now_s=from_s + number / 10)
    return drain


def test_no_wait_is_known_while_every_group_takes_all_waiting_posts() -> None:
    drain = DrainRate()
    for number in range(100):
        drain.record_left_behind(0, now_s=number)
        drain.record_commit(1, now_s=number + 0.5)
    assert drain.estimate_wait_s(10_000, now_s=100) == 0


def test_the_wait_is_the_posts_ahead_over_the_recent_rate() -> None:
    assert measure_drain(posts_per_s=1_000, seconds=5).estimate_wait_s(4_000, now_s=5) == pytest.approx(4, rel=0.05)


def test_the_wait_follows_a_store_that_slows_down_or_recovers_within_seconds() -> None:
    drain = measure_drain(posts_per_s=1_000, seconds=10)
    measure_drain(posts_per_s=500, seconds=6, drain=drain, from_s=10)
    assert drain.estimate_wait_s(1_000, now_s=16) == pytest.approx(2, rel=0.15)
    measure_drain(posts_per_s=1_000, seconds=6, drain=drain, from_s=16)
    assert drain.estimate_wait_s(1_000, now_s=22) == pytest.approx(1, rel=0.15)


def test_the_wait_grows_without_end_while_the_store_applies_nothing() -> None:
    drain = measure_drain(posts_per_s=1_000, seconds=5)
    waits_s = [drain.estimate_wait_s(100, now_s=5 + later_s) for later_s in (0, 1, 5, 20, 10_000)]
    assert waits_s == sorted(waits_s)
    assert waits_s[3] > 50
    assert math.isfinite(waits_s[4])
    never = DrainRate()
    never.record_left_behind(1, now_s=0)
    assert [never.estimate_wait_s(100, now_s=now_s) for now_s in (0, 3, 7)] == [0, 3, 7]


def test_an_empty_queue_ends_the_measurement() -> None:
    drain = measure_drain(posts_per_s=10, seconds=5)
    drain.record_left_behind(0, now_s=5)
    assert drain.estimate_wait_s(1_000, now_s=5) == 0
    measure_drain(posts_per_s=1_000, seconds=1, drain=drain, from_s=60)
    assert drain.estimate_wait_s(1_000, now_s=61) == pytest.approx(1, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5_000), st.floats(0, 50)), max_size=100))
def test_a_wait_is_a_number_never_negative_and_never_shorter_for_more_posts(told: list[tuple[int, int, float]]) -> None:
    drain, now_s = DrainRate(), 0.0
    for what, posts, seconds in told:
        now_s += seconds
        if what == 0:
            drain.record_commit(posts, now_s=now_s)
        else:
            drain.record_left_behind(posts * (what - 1), now_s=now_s)
        waits_s = [drain.estimate_wait_s(count, now_s=now_s) for count in (1, posts, posts + 1_000)]
        assert 0 <= waits_s[0] <= waits_s[1] <= waits_s[2] < math.inf
