"""Test which part of the ranks a process has room to count, on clocks that only the test advances."""

import threading

import pytest

from service.ranks.read_load import CUT, READS_FULL, STEP, WINDOW_S, ReadLoad, make_thread_clock

READS = 1000


class Process:
    """A process whose load the test sets, second by second."""

    def __init__(self) -> None:
        self.now_s, self.thread_s, self.reads_s = 100.0, 7.0, 3.0
        self.told: list[float] = []
        self.load = ReadLoad(
            monotonic=lambda: self.now_s,
            thread_clock=lambda: self.thread_s,
            reads_clock=lambda: self.reads_s,
            on_share=self.told.append,
        )

    def work(self, load: float, seconds: float = WINDOW_S, reads: float = 0.0) -> None:
        """Keep this load for so long, with so many reads under way at a store. The process looks in each window."""
        for _ in range(round(seconds / WINDOW_S)):
            self.now_s += WINDOW_S
            self.thread_s += load * WINDOW_S
            self.reads_s += reads * WINDOW_S
            self.load.look()

    def share(self) -> float:
        """Return for which part of many reads there is room."""
        return sum(self.load.admit_count() for _ in range(READS)) / READS


@pytest.fixture
def process() -> Process:
    return Process()


def test_there_is_room_for_all_at_first_and_up_to_a_high_load(process: Process) -> None:
    assert process.share() == 1
    process.work(0.95, seconds=60)
    assert process.share() == 1
    assert process.told == [1]


def test_a_saturated_process_soon_counts_nothing(process: Process) -> None:
    process.work(0.99)
    assert process.share() == pytest.approx(CUT, abs=1 / READS)
    process.work(0.99, seconds=600)
    assert process.share() == 0
    assert process.told == [1, CUT, CUT**2, CUT**3, 0]


def test_many_reads_under_way_at_a_store_saturate_the_process(process: Process) -> None:
    process.work(0.5, reads=READS_FULL - 1, seconds=60)
    assert process.share() == 1
    process.work(0.5, reads=READS_FULL)
    assert process.share() < 1


def test_the_share_stays_between_the_bounds_and_grows_below_them(process: Process) -> None:
    process.work(0.99, seconds=10)
    process.work(0.92, seconds=60)
    assert process.share() == 0
    process.work(0.8)
    assert process.share() == pytest.approx(STEP, abs=1 / READS)
    process.work(0.92, seconds=60)
    assert process.share() == pytest.approx(STEP, abs=1 / READS)
    process.work(0.8, seconds=60)
    assert process.share() == 1


def test_the_clock_of_a_thread_tells_the_same_thread_whoever_asks() -> None:
    read_thread_s = make_thread_clock()
    begun_s, found = read_thread_s(), list[float]()
    while read_thread_s() == begun_s:
        sum(range(10_000))
    other = threading.Thread(target=lambda: found.append(read_thread_s()))
    other.start()
    other.join()
    assert found[0] > begun_s
