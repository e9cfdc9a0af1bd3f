"""Measures how many posts per second leave the queue. With this rate, the writer estimates the wait of a new post.

The rate is measured only while posts stay in the queue after a group was taken. If every group empties the queue,
nobody knows how many more posts the store could take. Then the estimated wait is 0, and no post is refused for it.
"""

import math

# The weight of a measurement halves in this time. 4 s after a store becomes half as fast, the rate is at most 25 % off.
HALF_LIFE_S = 2.0
COMMITS_MIN = 2  # with fewer commits the rate would be random
POSTS_MIN = 1e-9  # lower bound of the weighted number of posts, so that nothing is divided by 0


class DrainRate:
    """The recent rate of committed posts per second."""

    def __init__(self) -> None:
        # Posts, seconds and commits from `_began_s` to `_counted_to_s`. Earlier posts and seconds count less than later
        # ones. If `_counted_to_s` is None, nothing is measured, because the last group left no post in the queue.
        self._posts, self._seconds, self._commits = 0.0, 0.0, 0
        self._began_s = 0.0
        self._counted_to_s: float | None = None

    def record_left_behind(self, posts: int, *, now_s: float) -> None:
        """Record that a group was taken and left `posts` posts in the queue. If none are left, measuring ends."""
        if posts == 0:
            self._posts, self._seconds, self._commits = 0.0, 0.0, 0
            self._counted_to_s = None
        elif self._counted_to_s is None:
            self._began_s = self._counted_to_s = now_s

    def record_commit(self, posts: int, *, now_s: float) -> None:
        if self._counted_to_s is None:
            return
        kept, seconds = _decayed(now_s - self._counted_to_s)
        # The earlier seconds of a slow group count less. Its posts must count less too, or the rate would be too high.
        share = seconds / (now_s - self._counted_to_s) if now_s > self._counted_to_s else 1.0
        self._posts = self._posts * kept + posts * share
        self._seconds = self._seconds * kept + seconds
        self._counted_to_s = now_s
        self._commits += 1

    def estimate_wait_s(self, posts: int, *, now_s: float) -> float:
        """Return the estimated seconds until `posts` posts are answered, or 0 if there is no measurement."""
        if self._counted_to_s is None:
            return 0.0
        if self._commits < COMMITS_MIN:  # too few commits: use the time since the start of the measurement
            return now_s - self._began_s
        kept, seconds = _decayed(now_s - self._counted_to_s)
        return posts * (self._seconds * kept + seconds) / max(self._posts * kept, POSTS_MIN)


def _decayed(seconds: float) -> tuple[float, float]:
    """Return how much of a second still counts `seconds` later, and how much of the last `seconds` counts in all."""
    kept = 0.5 ** (seconds / HALF_LIFE_S)
    return kept, (1 - kept) * HALF_LIFE_S / math.log(2)
