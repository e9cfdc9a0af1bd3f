"""How fast the queue of posts drains, and so how long a post that comes now would wait.

The rule: it is measured only while posts are left behind by the groups that were taken. Before that the store takes all
there is, and how much more it could take is not known: nobody is refused on a guess.
"""

from __future__ import annotations

import math

HALF_LIFE_S = 2.0  # of what was measured: a store that halves its speed is known to within a quarter after 4 s
COMMITS_MIN = 2  # before them the figure is chance
POSTS_MIN = 1e-9  # what is left of any number of posts after long without one


class DrainRate:
    """Posts a second, of late."""

    def __init__(self) -> None:
        self._posts, self._seconds, self._commits = 0.0, 0.0, 0
        self._began_s = 0.0
        self._counted_to_s: float | None = None  # None: nobody is left behind

    @property
    def known(self) -> bool:
        """Whether a wait can be told."""
        return self._counted_to_s is not None

    def left_behind(self, posts: int, *, now_s: float) -> None:
        """A group was taken, and so many posts were not."""
        if posts == 0:
            self._posts, self._seconds, self._commits = 0.0, 0.0, 0
            self._counted_to_s = None
        elif self._counted_to_s is None:
            self._began_s = self._counted_to_s = now_s

    def committed(self, posts: int, *, now_s: float) -> None:
        """So many posts were answered."""
        if self._counted_to_s is None:
            return
        kept, seconds = _decayed(now_s - self._counted_to_s)
        # Posts fade as the time does that they took, or slow groups would seem fast.
        share = seconds / (now_s - self._counted_to_s) if now_s > self._counted_to_s else 1.0
        self._posts = self._posts * kept + posts * share
        self._seconds = self._seconds * kept + seconds
        self._counted_to_s = now_s
        self._commits += 1

    def wait_s(self, posts: int, *, now_s: float) -> float:
        """Seconds until so many posts are answered, at least: 0 where nothing is known."""
        if self._counted_to_s is None:
            return 0.0
        if self._commits < COMMITS_MIN:  # what is sure is the time that has passed without an answer
            return now_s - self._began_s
        kept, seconds = _decayed(now_s - self._counted_to_s)
        return posts * (self._seconds * kept + seconds) / max(self._posts * kept, POSTS_MIN)


def _decayed(seconds: float) -> tuple[float, float]:
    """What so much time leaves of what was before it, and what itself counts for at its end."""
    kept = 0.5 ** (seconds / HALF_LIFE_S)
    return kept, (1 - kept) * HALF_LIFE_S / math.log(2)
