"""Test the circuit breaker for memcached. The breaker opens after several failures and closes after a success."""

from storage.curves.memcached import Breaker


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_open_breaker(clock: Clock) -> Breaker:
    breaker = Breaker(failures_max=3, pause_s=5, monotonic=clock)
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    return breaker


def test_the_breaker_opens_only_after_enough_failures_in_a_row() -> None:
    breaker = Breaker(failures_max=3, pause_s=5, monotonic=Clock())
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.allows()
    breaker.failed()
    breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()


def test_a_trial_that_fails_after_the_pause_opens_the_breaker_for_another_pause() -> None:
    clock = Clock()
    breaker = make_open_breaker(clock)
    clock.now_s += 4.9
    assert not breaker.allows()
    clock.now_s += 0.2
    assert breaker.allows()
    assert breaker.open
    breaker.failed()
    assert not breaker.allows()
    clock.now_s += 4.9
    assert not breaker.allows()
    clock.now_s += 0.2
    assert breaker.allows()


def test_a_trial_that_succeeds_closes_the_breaker() -> None:
    clock = Clock()
    breaker = make_open_breaker(clock)
    clock.now_s += 5
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.open
    breaker.failed()
    assert breaker.allows(), "the breaker counts from 0 again"
