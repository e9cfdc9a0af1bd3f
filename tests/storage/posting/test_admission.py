"""Test the estimates of waiting times, and the limit of groups in flight. Both come from measurements of commits."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.posting.admission import OVERLONG_RATIO, DrainRate, WriteLimit


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


POSTS = 100
Speed = Callable[[int], float]  # maps the number of groups in flight to groups per second


class Load:
    """A simulated store. The number of groups in flight always equals the limit."""

    def __init__(self, *, groups_max: int = 8) -> None:
        self.limit = WriteLimit(groups_max=groups_max)
        self.now_s = 0.0

    def commit_groups(self, count: int, speed: Speed) -> float:
        """Commit `count` groups. Return the mean limit."""
        total = 0
        for _ in range(count):
            groups = self.limit.limit
            total += groups
            self.now_s += 1 / speed(groups)
            self.limit.record_commit(POSTS, seconds=groups / speed(groups), now_s=self.now_s, waiting=True)
        return total / count


def gains_up_to(cores: int, *, groups_per_s: float = 50) -> Speed:
    """Model a store that works on at most `cores` groups at a time. Other groups wait."""
    return lambda groups: groups_per_s * min(groups, cores)


def suffers_past(cores: int) -> Speed:
    """Model a store that becomes slower with every group beyond `cores`."""
    return lambda groups: 50 * min(groups, cores) / (1 + 0.5 * max(0, groups - cores))


@pytest.mark.parametrize("cores", [1, 2, 4, 7])
@pytest.mark.parametrize("store", [gains_up_to, suffers_past])
def test_the_limit_settles_where_the_store_gains_no_more(store: Callable[[int], Speed], cores: int) -> None:
    load = Load()
    load.commit_groups(1_000, store(cores))
    assert cores - 0.8 <= load.commit_groups(1_000, store(cores)) <= cores + 0.8


def test_the_limit_follows_a_store_that_changes() -> None:
    load = Load()
    load.commit_groups(1_000, gains_up_to(6))
    load.commit_groups(500, suffers_past(2))
    assert load.commit_groups(500, suffers_past(2)) < 3
    load.commit_groups(500, gains_up_to(6))
    assert load.commit_groups(500, gains_up_to(6)) > 4.5


def test_a_store_that_is_half_as_fast_keeps_its_limit() -> None:
    load = Load()
    load.commit_groups(1_000, gains_up_to(4))
    assert 3 <= load.commit_groups(500, gains_up_to(4, groups_per_s=25)) <= 5


def test_trouble_halves_the_limit_once_a_round_and_it_climbs_again() -> None:
    load = Load()
    load.commit_groups(2_000, gains_up_to(8))
    before = load.limit.limit
    assert before >= 7
    for _ in range(before):  # all groups in flight fail
        load.limit.record_failure(now_s=load.now_s)
    assert load.limit.limit == before // 2
    for _ in range(30):
        load.limit.record_failure(now_s=load.now_s)
    assert load.limit.limit == 1
    load.commit_groups(600, gains_up_to(8))
    assert load.limit.limit >= 6


def test_the_limit_stays_while_no_posts_wait() -> None:
    limit = WriteLimit(groups_max=8)
    for number in range(1_000):
        limit.record_commit(POSTS, seconds=0.02, now_s=number / 50, waiting=False)
    assert limit.limit == 1


def test_a_raise_that_pays_is_kept_although_no_posts_wait_any_more() -> None:
    load = Load()
    for _ in range(1_000):
        load.now_s += 1 / gains_up_to(2)(load.limit.limit)
        load.limit.record_commit(POSTS, seconds=0.02, now_s=load.now_s, waiting=load.limit.limit < 2)
    assert load.limit.limit == 2


def test_the_limit_is_one_where_the_store_takes_one_group() -> None:
    load = Load(groups_max=1)
    load.limit.record_failure(now_s=0)
    assert load.commit_groups(500, gains_up_to(4)) == 1


def test_an_overlong_transaction_is_trouble_unless_it_has_many_posts() -> None:
    load = Load()
    load.commit_groups(2_000, gains_up_to(8))
    before = load.limit.limit
    load.limit.record_commit(20 * POSTS, seconds=20 * 0.02, now_s=load.now_s + 0.1, waiting=True)
    assert load.limit.limit >= before - 1, "it took as long as its posts take"
    load.limit.record_commit(POSTS, seconds=0.02 * 2 * OVERLONG_RATIO, now_s=load.now_s + 5, waiting=True)
    assert load.limit.limit <= (before + 1) // 2


Told = tuple[bool, int, float, bool]


@given(
    groups_max=st.integers(1, 9),
    told=st.lists(st.tuples(st.booleans(), st.integers(1, 5_000), st.floats(0, 3), st.booleans()), max_size=300),
)
def test_the_limit_stays_within_its_bounds_and_recovers_whatever_happens(groups_max: int, told: Sequence[Told]) -> None:
    load = Load(groups_max=groups_max)
    for fails, posts, seconds, waiting in told:
        load.now_s += seconds
        if fails:
            load.limit.record_failure(now_s=load.now_s)
        else:
            load.limit.record_commit(posts, seconds=seconds, now_s=load.now_s, waiting=waiting)
        assert 1 <= load.limit.limit <= groups_max
    load.commit_groups(1_000, gains_up_to(groups_max))
    assert load.commit_groups(300, gains_up_to(groups_max)) >= groups_max - 1
