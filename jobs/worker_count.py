"""How many workers the store is worth: its capacity over the speed of one worker, from what both did of late.

    capacity 2,100 a second, speed 700: 3 workers

The rule: pure figures in, a number from 1 to its bound out. A worker's speed is what it does while it is busy; the
capacity shows only where all workers are busy and posts wait. As long as they add up, one more is worth a try: what the
store takes at most is not known yet. Where they don't, what they do together is the capacity, and fewer workers do the
same with less in each other's way.

A number changes when two windows in a row say so, and each try that did not pay makes the next one wait longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUSY_RATIO = 0.8  # of the time: whoever works as much is not waiting for posts
ADDS_UP_RATIO = 0.85  # of what so many workers would do if none was in another's way
GAIN_RATIO = 0.5  # of a worker's speed: what one more has to bring
CEILING_SLACK = 0.1  # of a worker: noise is no reason for one more
WINDOWS_AGREED = 2
REST_WINDOWS_MAX = 16
SPEED_UP_SHARE = 0.3  # of a faster window in the speed
SPEED_DOWN_SHARE = 0.01  # of a slower one: a worker that others slow down is no slower by itself


def workers_for(capacity: float, speed: float, *, most: int) -> int:
    """So many workers of that speed, each in posts a second, are worth a store of that capacity."""
    if speed <= 0:
        return 1
    return max(1, min(most, math.ceil(capacity / speed - CEILING_SLACK)))


@dataclass(frozen=True, slots=True)
class Window:
    """What all workers did in some seconds."""

    seconds: float
    posts: int
    busy_s: float  # of all of them, added up
    workers: int  # how many there were
    waiting: bool  # posts waited all the time: it is not the callers who say how much was done


class WorkerCount:
    """The number, and what it is learnt from."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self.speed = 0.0  # posts a second of one worker
        self.capacity = 0.0  # … of all that the store takes; 0: it was never reached
        self._wanted, self._agreed = 0, 0
        self._rest_windows, self._misses = 0, 0
        self._before_try: float | None = None  # posts a second before one more worker, whose try is under way

    def measured(self, window: Window, *, size: int) -> int:
        """How many there should be after this window, in which `size` were allowed."""
        if window.posts and window.busy_s > 0:
            self._learn_speed(window.posts / window.busy_s)
        busy = window.busy_s >= BUSY_RATIO * window.workers * window.seconds
        if not self.speed or not busy or not window.waiting:
            self._wanted, self._agreed = 0, 0
            return size
        wanted = self._judge(window, size)
        self._agreed = self._agreed + 1 if wanted == self._wanted else 1
        self._wanted = wanted
        if wanted == size or self._agreed < WINDOWS_AGREED:
            return size
        self._wanted, self._agreed = 0, 0
        if wanted > size:
            self._before_try = window.posts / window.seconds
        elif self._before_try is not None:
            self._before_try = None
            self._misses += 1
            self._rest_windows = min(REST_WINDOWS_MAX, 2**self._misses)
        return wanted

    def _learn_speed(self, speed: float) -> None:
        share = SPEED_UP_SHARE if speed > self.speed else SPEED_DOWN_SHARE
        self.speed = speed if not self.speed else self.speed + (speed - self.speed) * share

    def _judge(self, window: Window, size: int) -> int:
        done = window.posts / window.seconds
        adds_up = done >= ADDS_UP_RATIO * window.workers * self.speed
        if window.workers < size and (adds_up or window.workers == 1):  # there are no more workers than that
            return size
        self.capacity = done
        if not adds_up or (self._before_try is not None and done < self._before_try + GAIN_RATIO * self.speed):
            return min(size, workers_for(done, self.speed, most=self._most))
        if self._before_try is not None:
            self._before_try, self._misses = None, 0
        if self._rest_windows:
            self._rest_windows -= 1
            return size
        return min(self._most, size + 1)
