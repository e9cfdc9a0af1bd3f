"""Decide how many posts a writer admits: how long a new post would wait, and how many groups may be in flight.

`DrainRate` measures how fast the queue of posts drains, and so how long a post that comes now would wait. It measures
only while the taken groups leave posts behind. Before that the store takes all posts, and nobody knows how many more it
could take. So no post is refused on a guess.

`WriteLimit` says how many groups of posts may be in flight. It follows the gradient of the posts committed per second:

    climb    a window with one group more (or fewer), compared with the window before:
             more is kept if it commits UP_RATIO times as much, fewer is kept if it commits hardly less
    rest     after moves that did not pay, some windows without one; a change of the store's speed ends it
    trouble  a transaction that failed, or took many times what is usual for its posts, halves the limit, at most once
             per round of groups; then it climbs again

The limit is from 1 to `groups_max` and moves only while posts wait for their turn: with fewer posts than the store
could take, its speed cannot be seen. Both classes are pure; the time comes in as an argument.

The limit was simulated against the best fixed limit. Some stores gained from groups in parallel and some suffered from
them; statements took twice as long, or cores were half as fast. This algorithm keeps 0.94 of the best limit's rate on
average and 0.69 at worst. Additive increase with halving at trouble keeps 0.82 and 0.30, because a store that suffers
without failing never stops it. A gradient of transaction times against a moving best keeps 0.92 and 0.42, because under
steady load the best becomes the usual.
"""

from __future__ import annotations

import math

HALF_LIFE_S = 2.0  # of a measurement: 4 s after a store halves its speed, the rate is right to within a quarter
COMMITS_MIN = 2  # with fewer commits the rate is chance
POSTS_MIN = 1e-9  # smallest count of posts in a division: counts fade towards 0


class DrainRate:
    """The recent rate of posts per second."""

    def __init__(self) -> None:
        self._posts, self._seconds, self._commits = 0.0, 0.0, 0
        self._began_s = 0.0
        self._counted_to_s: float | None = None  # None: no posts are left behind

    @property
    def known(self) -> bool:
        """Tell whether there is a measurement to estimate a wait from."""
        return self._counted_to_s is not None

    def record_left_behind(self, posts: int, *, now_s: float) -> None:
        """Record that a group was taken and that it left `posts` posts waiting."""
        if posts == 0:
            self._posts, self._seconds, self._commits = 0.0, 0.0, 0
            self._counted_to_s = None
        elif self._counted_to_s is None:
            self._began_s = self._counted_to_s = now_s

    def record_commit(self, posts: int, *, now_s: float) -> None:
        """Record that a transaction with `posts` posts was committed."""
        if self._counted_to_s is None:
            return
        kept, seconds = _decayed(now_s - self._counted_to_s)
        # Posts fade as fast as the time that they took. Otherwise slow groups would seem fast.
        share = seconds / (now_s - self._counted_to_s) if now_s > self._counted_to_s else 1.0
        self._posts = self._posts * kept + posts * share
        self._seconds = self._seconds * kept + seconds
        self._counted_to_s = now_s
        self._commits += 1

    def estimate_wait_s(self, posts: int, *, now_s: float) -> float:
        """Return the estimated seconds until `posts` posts are answered; 0 if nothing is known."""
        if self._counted_to_s is None:
            return 0.0
        if self._commits < COMMITS_MIN:  # only the time without an answer is certain
            return now_s - self._began_s
        kept, seconds = _decayed(now_s - self._counted_to_s)
        return posts * (self._seconds * kept + seconds) / max(self._posts * kept, POSTS_MIN)


def _decayed(seconds: float) -> tuple[float, float]:
    """Return the share of older measurements that is left after `seconds`, and the faded length of that time itself."""
    kept = 0.5 ** (seconds / HALF_LIFE_S)
    return kept, (1 - kept) * HALF_LIFE_S / math.log(2)


WINDOW_S_MIN = 0.15
WINDOW_ROUNDS = 4  # groups per group that may be in flight; with 2, every tenth move was noise
WINDOW_GROUPS_MIN = 4
UP_RATIO = 1.10
DOWN_RATIO = 0.97  # close to 1, and below it: noise then leads to fewer groups
SHIFT_RATIO = 0.15  # change between windows at one limit that shows a changed store, so that earlier results are void
REST_WINDOWS_MAX = 4
OVERLONG_RATIO = 8.0  # times the usual: transactions that block each other can keep a window open for seconds
OVERHEAD_POSTS = 50  # the fixed cost of a transaction, in posts
USUAL_S_MIN = 1e-5  # per post; no store is that fast, and a usual time of 0 could never grow by a ratio
USUAL_SHARE = 0.05  # weight of the newest transaction in the usual time


class WriteLimit:
    """The limit of groups in flight, and the window that it is learned from."""

    def __init__(self, *, groups_max: int) -> None:
        self._groups_max = groups_max
        self._limit = 1
        self._base: float | None = None  # posts per second in the window before the move
        self._move = 0  # the change of the limit that the current window tries
        self._next_move = 1
        self._misses = 0
        self._rest_windows = 0
        self._saturated = True
        self._usual_s: float | None = None  # per post
        self._begin_window(in_flight=0)

    @property
    def limit(self) -> int:
        """Return how many groups may be in flight now."""
        return self._limit

    def record_commit(self, posts: int, *, seconds: float, now_s: float, waiting: bool) -> None:
        """Record that a group was committed after `seconds`. `waiting`: posts wait for their turn."""
        if self._overlong(posts, seconds):
            self.record_failure(now_s=now_s)
            return
        if self._groups_max == 1 or not self._is_of_window(now_s):
            return
        self._posts += posts
        self._groups += 1
        self._saturated &= waiting
        window_s = now_s - self._began_s
        if self._groups < max(WINDOW_GROUPS_MIN, WINDOW_ROUNDS * self._limit) or window_s < WINDOW_S_MIN:
            return
        before = self._limit
        self._learn(self._posts / window_s)
        self._begin_window(in_flight=before)

    def record_failure(self, *, now_s: float) -> None:
        """Record that a group failed: halve the limit, at most once per round of groups."""
        if not self._is_of_window(now_s):
            return  # it was in flight before the last halving
        before = self._limit
        self._limit = max(1, before // 2)
        self._base, self._move, self._next_move, self._misses, self._rest_windows = None, 0, 1, 0, 0
        self._begin_window(in_flight=before - 1)

    def _overlong(self, posts: int, seconds: float) -> bool:
        took_s = seconds / (posts + OVERHEAD_POSTS)
        usual_s = max(USUAL_S_MIN, took_s if self._usual_s is None else self._usual_s)
        longest_s = usual_s * OVERLONG_RATIO
        # If a store stays slower, its times become usual. After some rounds of trouble the limit climbs again.
        self._usual_s = usual_s + (min(took_s, longest_s) - usual_s) * USUAL_SHARE
        return took_s > longest_s

    def _begin_window(self, *, in_flight: int) -> None:
        self._skipped = in_flight  # groups from before the window, which begins when the last of them ends
        self._began_s, self._groups, self._posts = 0.0, 0, 0
        self._saturated = True

    def _is_of_window(self, now_s: float) -> bool:
        if self._skipped == 0:
            return True
        self._skipped -= 1
        self._began_s = now_s
        return False

    def _learn(self, posts_per_s: float) -> None:
        # A move is judged even if it leaves no posts waiting: callers that are answered sooner post again sooner.
        if not self._saturated and not self._move:
            self._base = None
            return
        if self._move and not self._paid(posts_per_s):
            self._step(-self._move)
            self._next_move, self._move = -self._move, 0
            self._misses += 1
            self._rest_windows = min(REST_WINDOWS_MAX, 2 ** (self._misses - 1))
            return
        if self._move:
            self._next_move, self._move, self._misses, self._rest_windows = self._move, 0, 0, 0
        elif self._base is not None and abs(posts_per_s / self._base - 1) > SHIFT_RATIO:
            self._misses = self._rest_windows = 0
        self._base = posts_per_s
        if self._rest_windows:
            self._rest_windows -= 1
            return
        self._try()

    def _paid(self, posts_per_s: float) -> bool:
        assert self._base is not None, "a move follows a window"
        return posts_per_s > self._base * (UP_RATIO if self._move > 0 else DOWN_RATIO)

    def _try(self) -> None:
        move = self._next_move if 1 <= self._limit + self._next_move <= self._groups_max else -self._next_move
        self._move = move
        self._step(move)

    def _step(self, move: int) -> None:
        self._limit = min(self._groups_max, max(1, self._limit + move))
