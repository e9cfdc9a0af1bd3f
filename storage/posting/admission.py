"""The limits of a writer's work: how long a new post may have to wait, and how many groups of posts may be in flight.

`DrainRate` measures how fast the queue of posts drains, and so how long a post that comes now would wait. It measures
only while posts stay in the queue after a group was taken. As long as every group empties the queue, nobody knows how
many more posts the store could take. Then no post is refused.

`WriteLimit` says how many groups of posts may be in flight, between 1 and `groups_max`. It follows the gradient of the
posts committed per second:

    climb    Change the limit by one group for a window, and compare the rate of this window with the rate of the window
             before. Keep a raised limit if the new rate is above UP_RATIO times the earlier rate. Keep a lowered limit
             if the new rate is above DOWN_RATIO times the earlier rate.
    rest     After a change that was not kept, leave the limit as it is for some windows. If the speed of the store
             changes, climb again.
    halve    If a transaction fails, or takes OVERLONG_RATIO times the usual time for its posts, halve the limit, at
             most once per round of groups. Then climb again.

`WriteLimit` tries to change the limit only while posts wait in the queue. Without waiting posts, nobody can see how
fast the store could be.

In simulations, this algorithm came closer to the best fixed limit than two others did (docs/decisions.md).
"""

import math

# The weight of a measurement halves in this time. 4 s after a store becomes half as fast, the measured rate is wrong by
# at most a quarter.
HALF_LIFE_S = 2.0
COMMITS_MIN = 2  # with fewer commits the rate would be random
POSTS_MIN = 1e-9  # lower bound of the weighted number of posts, which is a divisor


class DrainRate:
    """The recent rate of committed posts per second."""

    def __init__(self) -> None:
        self._posts, self._seconds, self._commits = 0.0, 0.0, 0
        self._began_s = 0.0
        self._counted_to_s: float | None = None  # None: no measurement, because the last group left no posts behind

    def record_left_behind(self, posts: int, *, now_s: float) -> None:
        """Record that a group was taken and left `posts` posts in the queue."""
        if posts == 0:
            self._posts, self._seconds, self._commits = 0.0, 0.0, 0
            self._counted_to_s = None
        elif self._counted_to_s is None:
            self._began_s = self._counted_to_s = now_s

    def record_commit(self, posts: int, *, now_s: float) -> None:
        if self._counted_to_s is None:
            return
        kept, seconds = _decayed(now_s - self._counted_to_s)
        # Give the posts the same weight as the time that they took. Otherwise slow groups would seem fast.
        share = seconds / (now_s - self._counted_to_s) if now_s > self._counted_to_s else 1.0
        self._posts = self._posts * kept + posts * share
        self._seconds = self._seconds * kept + seconds
        self._counted_to_s = now_s
        self._commits += 1

    def estimate_wait_s(self, posts: int, *, now_s: float) -> float:
        """Return the estimated seconds until `posts` posts are answered, or 0 if there is no measurement."""
        if self._counted_to_s is None:
            return 0.0
        if self._commits < COMMITS_MIN:  # too few commits for a rate, so use the time since the start
            return now_s - self._began_s
        kept, seconds = _decayed(now_s - self._counted_to_s)
        return posts * (self._seconds * kept + seconds) / max(self._posts * kept, POSTS_MIN)


def _decayed(seconds: float) -> tuple[float, float]:
    """Return the weight that older measurements keep after `seconds`, and the weighted length of that time."""
    kept = 0.5 ** (seconds / HALF_LIFE_S)
    return kept, (1 - kept) * HALF_LIFE_S / math.log(2)


WINDOW_S_MIN = 0.15
# A window has at least this many rounds. A round is as many groups as may be in flight. With 2 rounds, noise caused
# every tenth change of the limit.
WINDOW_ROUNDS = 4
WINDOW_GROUPS_MIN = 4
UP_RATIO = 1.10
DOWN_RATIO = 0.97  # slightly below 1, so that noise leads to fewer groups
# If the rate changes by more than this ratio while the limit stays, the speed of the store has changed. Earlier results
# are then void.
SHIFT_RATIO = 0.15
REST_WINDOWS_MAX = 4
# A transaction that takes this many times the usual time halves the limit, as a failed one does. Without this bound,
# transactions that block each other could keep a window open for seconds.
OVERLONG_RATIO = 8.0
OVERHEAD_POSTS = 50  # the fixed cost of a transaction equals the cost of this many posts
# Lower bound of the usual time, in seconds per post. No store is that fast. A usual time of 0 would always stay 0,
# because a ratio limits its growth.
USUAL_S_MIN = 1e-5
USUAL_SHARE = 0.05  # weight of the newest transaction in the usual time


class WriteLimit:
    """Finds the limit of groups in flight by measuring one window of groups after the other."""

    def __init__(self, *, groups_max: int) -> None:
        self._groups_max = groups_max
        self.limit = 1
        self._base: float | None = None  # posts per second in the window before the current one
        self._move = 0  # the change of the limit that the current window tries
        self._next_move = 1
        self._misses = 0  # changes of the limit in a row that were not kept
        self._rest_windows = 0
        self._saturated = True
        self._usual_s: float | None = None  # the usual time of a transaction, in seconds per post
        self._begin_window(in_flight=0)

    def record_commit(self, posts: int, *, seconds: float, now_s: float, waiting: bool) -> None:
        """Record that a group was committed after `seconds`. `waiting`: whether posts are in the queue."""
        if self._groups_max == 1:
            return
        if self._overlong(posts, seconds):
            self.record_failure(now_s=now_s)
            return
        if not self._is_of_window(now_s):
            return
        self._posts += posts
        self._groups += 1
        self._saturated &= waiting
        window_s = now_s - self._began_s
        if self._groups < max(WINDOW_GROUPS_MIN, WINDOW_ROUNDS * self.limit) or window_s < WINDOW_S_MIN:
            return
        before = self.limit
        self._learn(self._posts / window_s)
        self._begin_window(in_flight=before)

    def record_failure(self, *, now_s: float) -> None:
        """Record that a group failed: halve the limit, at most once per round of groups."""
        if not self._is_of_window(now_s):
            return  # the group began before this window
        before = self.limit
        self.limit = max(1, before // 2)
        self._base, self._move, self._next_move, self._misses, self._rest_windows = None, 0, 1, 0, 0
        self._begin_window(in_flight=before - 1)

    def _overlong(self, posts: int, seconds: float) -> bool:
        took_s = seconds / (posts + OVERHEAD_POSTS)
        usual_s = max(USUAL_S_MIN, took_s if self._usual_s is None else self._usual_s)
        longest_s = usual_s * OVERLONG_RATIO
        # If a store stays slower, the usual time grows until the store's transactions no longer count as overlong. Then
        # the limit rises again.
        self._usual_s = usual_s + (min(took_s, longest_s) - usual_s) * USUAL_SHARE
        return took_s > longest_s

    def _begin_window(self, *, in_flight: int) -> None:
        # Groups that are in flight now were begun under the earlier limit and are not measured. The new window begins
        # when the last of them ends.
        self._skipped = in_flight
        self._began_s, self._groups, self._posts = 0.0, 0, 0
        self._saturated = True

    def _is_of_window(self, now_s: float) -> bool:
        if self._skipped == 0:
            return True
        self._skipped -= 1
        self._began_s = now_s
        return False

    def _learn(self, posts_per_s: float) -> None:
        # A change of the limit is judged even if the queue became empty during the window. The rate still shows its
        # effect: callers who get their outcomes sooner post again sooner.
        if not self._saturated and not self._move:
            self._base = None
            return
        needed = UP_RATIO if self._move > 0 else DOWN_RATIO
        if self._move and self._base is not None and posts_per_s <= self._base * needed:
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
        self._move = self._next_move if 1 <= self.limit + self._next_move <= self._groups_max else -self._next_move
        self._step(self._move)

    def _step(self, move: int) -> None:
        self.limit = min(self._groups_max, max(1, self.limit + move))
