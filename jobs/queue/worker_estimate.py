"""Estimates how many workers to run: the capacity of the store divided by the speed of one worker.

    a capacity of 2,100 posts a second ÷ a speed of 700 posts a second = 3 workers

The speed of a worker is the number of posts that it applies in a second of work. The capacity can be measured only
while all workers are busy and posts wait:

- If all workers together are as fast as the sum of their speeds, the capacity is not reached. One more worker is tried.
- If the workers together are slower than that sum, their total speed is the capacity. Fewer workers would reach the
  same capacity and slow each other down less.

The number changes when `WINDOWS_AGREED` windows in a row suggest the same new number. Each time an added worker did not
help, the next attempt waits longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUSY_RATIO = 0.8  # workers that are busy for at least this part of the time are not short of posts
ADDS_UP_RATIO = 0.85  # workers that reach this part of the sum of their speeds do not slow each other down
GAIN_RATIO = 0.5  # an added worker has to make the total faster by at least this part of the speed of one worker
CEILING_SLACK = 0.1  # if the estimate exceeds a whole number by at most this, the excess is ignored as noise
WINDOWS_AGREED = 2
REST_WINDOWS_MAX = 16
SPEED_UP_SHARE = 0.3  # the weight of a window in the average speed, if the workers were faster in it
SPEED_DOWN_SHARE = 0.01  # the same, if the workers were slower; it is small because workers may slow each other down


def workers_for(capacity: float, speed: float, *, most: int) -> int:
    """Return how many workers reach the capacity of the store, from 1 to `most`. The unit is posts per second."""
    if speed <= 0:
        return 1
    return max(1, min(most, math.ceil(capacity / speed - CEILING_SLACK)))


@dataclass(frozen=True, slots=True)
class Window:
    seconds: float
    posts: int
    busy_s: float  # the sum of the busy times of all workers
    workers: int
    waiting: bool  # whether posts waited all the time, so that the speed of the workers was the limit


class WorkerCount:
    def __init__(self, *, most: int) -> None:
        self._most = most
        self.speed = 0.0  # posts a second of one worker
        self.capacity = 0.0  # most posts a second that the store can apply, by the last estimate; 0: not estimated
        self._wanted, self._agreed = 0, 0
        self._rest_windows, self._misses = 0, 0
        self._before_try: float | None = None  # posts a second before the worker on trial was added; None: no trial

    def record_window(self, window: Window, *, size: int) -> int:
        """Return how many workers to allow from now on. `size` workers were allowed in this window."""
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
        if window.workers < size and (adds_up or window.workers == 1):  # more workers are already allowed
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
