"""Test the estimated number of workers. Too few workers leave the store idle; too many slow each other down."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.queue.size_workers import REST_WINDOWS, Window, WorkerCount, workers_for

MOST = 8
WINDOW_S = 5.0


class Store:
    """A simulated store. One worker applies `speed` posts per second, and all workers together at most `capacity`."""

    def __init__(self, capacity: float, speed: float) -> None:
        self.capacity, self.speed = capacity, speed

    def play_window(self, workers: int, *, arriving: float = float("inf")) -> Window:
        """Return the measurements of one window of time with these workers and `arriving` posts per second."""
        able = min(self.capacity, workers * self.speed)
        done = min(able, arriving)
        busy_s = workers * WINDOW_S * done / able
        return Window(WINDOW_S, round(done * WINDOW_S), busy_s, workers, waiting=arriving > able)


def record_windows(
    store: Store, *, size: int, windows: int = 40, there: int = MOST, arriving: float = float("inf")
) -> list[int]:
    """Record one window with a single worker, and then `windows` more. Return the estimated size after each window.

    At most `there` workers work, even if the size is larger.
    """
    count = WorkerCount(most=MOST)
    count.record_window(store.play_window(1, arriving=store.speed / 2), size=size)
    sizes = [size]
    for _ in range(windows):
        sizes.append(count.record_window(store.play_window(min(sizes[-1], there), arriving=arriving), size=sizes[-1]))
    return sizes


@pytest.mark.parametrize(
    ("capacity", "speed", "workers"),
    [(2_100, 700, 3), (2_100, 710, 3), (2_120, 700, 3), (2_300, 700, 4), (10, 700, 1), (70_000, 700, MOST), (1, 0, 1)],
)
def test_the_number_is_capacity_over_speed_rounded_up_in_bounds(capacity: float, speed: float, workers: int) -> None:
    assert workers_for(capacity, speed, most=MOST) == workers


@pytest.mark.parametrize("size", [1, 3, MOST])
def test_a_store_that_takes_three_workers_gets_three(size: int) -> None:
    sizes = record_windows(Store(2_100, 700), size=size)
    assert sizes[-1] in (3, 4), "one more worker is tried now and then"
    assert sum(each == 3 for each in sizes[-20:]) >= 12


def test_workers_that_wait_for_posts_are_left_as_they_are() -> None:
    assert set(record_windows(Store(2_100, 700), size=2, arriving=900)) == {2}


@pytest.mark.parametrize(
    ("window", "size"),
    [(replace(Store(2_100, 700).play_window(8), waiting=False), 8), (Store(300, 300).play_window(1), 4)],
    ids=["workers keep up, however busy", "one worker works alone"],
)
def test_the_number_stays_while_nothing_can_be_learned(window: Window, size: int) -> None:
    count = WorkerCount(most=MOST)
    count.record_window(Store(2_100, 700).play_window(1, arriving=10), size=size)
    assert {count.record_window(window, size=size) for _ in range(5)} == {size}


def test_a_faster_store_gets_more_workers_and_a_slower_one_fewer() -> None:
    count, size = WorkerCount(most=MOST), 1
    for store, wanted in ((Store(2_100, 700), 3), (Store(4_200, 700), 6), (Store(1_400, 700), 2)):
        sizes = []
        for _ in range(120):
            size = count.record_window(store.play_window(size), size=size)
            sizes.append(size)
        assert sum(abs(each - wanted) <= 1 for each in sizes[-30:]) == 30, (wanted, sizes)


def test_after_a_worker_that_did_not_pay_no_other_is_tried_for_a_while() -> None:
    sizes = record_windows(Store(2_100, 700), size=3, windows=200)
    tries = [index for index in range(1, len(sizes)) if sizes[index] > sizes[index - 1]]
    assert len(tries) <= 200 / REST_WINDOWS
    assert all(later - earlier > REST_WINDOWS for earlier, later in pairwise(tries))


def test_the_number_stays_if_there_are_fewer_processes_than_permits() -> None:
    assert set(record_windows(Store(10_000, 700), size=4, there=2)) == {4}


@given(
    capacity=st.floats(1, 1e6),
    speed=st.floats(1, 1e6),
    size=st.integers(1, MOST),
    arriving=st.lists(st.floats(0, 1e6), max_size=30),
)
def test_the_number_stays_within_its_bounds(capacity: float, speed: float, size: int, arriving: list[float]) -> None:
    store, count = Store(capacity, speed), WorkerCount(most=MOST)
    for rate in arriving:
        after = count.record_window(store.play_window(size, arriving=rate), size=size)
        assert 1 <= after <= MOST
        assert after <= size + 1
        size = after
