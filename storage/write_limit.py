"""How many groups of posts may be in flight: it follows the gradient of what is committed a second.

    climb    a window with one group more (or fewer), held against the window before:
             more is kept where it commits UP_RATIO more, fewer is kept where it commits hardly less
    rest     after moves that did not pay, some windows without one; a change of the store's speed ends it
    trouble  a transaction that failed, or took many times what is usual for its posts, halves the limit, once a round
             of groups; then it climbs again

The rule: pure figures in, a limit from 1 to its bound out; time comes in as an argument. It moves only while posts wait
for their turn: with fewer posts than the store could take, its speed can't be seen.

Simulated against the best fixed limit, over stores that gain from company and stores that suffer from it, with
statements that take twice as long and cores that are half as fast: this keeps 0.94 on average and 0.69 at worst;
additive increase with halving at trouble 0.82 and 0.30 (a store that suffers without failing never stops it), a
gradient of transaction times against a moving best 0.92 and 0.42 (under steady load the best becomes the usual).
"""

from __future__ import annotations

WINDOW_S_MIN = 0.15
WINDOW_ROUNDS = 4  # so many groups for each that may be in flight: with two, every tenth move was noise
WINDOW_GROUPS_MIN = 4
UP_RATIO = 1.10
DOWN_RATIO = 0.97  # noise then leads to fewer
SHIFT_RATIO = 0.15  # between windows at the same limit: the store has changed, what was learnt is void
REST_WINDOWS_MAX = 4
OVERLONG_RATIO = 8.0  # of what is usual: transactions that stand in each other's way end no window for seconds
OVERHEAD_POSTS = 50  # what a transaction costs before its first post, in posts
USUAL_S_MIN = 1e-5  # a post: nothing is that fast, and from nothing no ratio would lead away
USUAL_SHARE = 0.05  # of the newest transaction in what is usual


class WriteLimit:
    """The limit, and what it is learnt from."""

    def __init__(self, *, groups_max: int) -> None:
        self._groups_max = groups_max
        self._limit = 1
        self._base: float | None = None  # posts a second of the window before the move
        self._move = 0  # what the running window tries
        self._next_move = 1
        self._misses = 0
        self._rest_windows = 0
        self._saturated = True
        self._usual_s: float | None = None  # a post
        self._begin_window(in_flight=0)

    @property
    def limit(self) -> int:
        """Groups that may be in flight now."""
        return self._limit

    def committed(self, posts: int, *, seconds: float, now_s: float, waiting: bool) -> None:
        """A group was committed after so many seconds; `waiting`: posts wait for their turn."""
        if self._overlong(posts, seconds):
            self.failed(now_s=now_s)
            return
        if self._groups_max == 1 or not self._counts(now_s):
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

    def failed(self, *, now_s: float) -> None:
        """A group failed."""
        if not self._counts(now_s):
            return  # in flight since before the last halving
        before = self._limit
        self._limit = max(1, before // 2)
        self._base, self._move, self._next_move, self._misses, self._rest_windows = None, 0, 1, 0, 0
        self._begin_window(in_flight=before - 1)

    def _overlong(self, posts: int, seconds: float) -> bool:
        took_s = seconds / (posts + OVERHEAD_POSTS)
        usual_s = max(USUAL_S_MIN, took_s if self._usual_s is None else self._usual_s)
        longest_s = usual_s * OVERLONG_RATIO
        # A store that stays slower becomes the usual one: after trouble for some rounds it is climbed on again.
        self._usual_s = usual_s + (min(took_s, longest_s) - usual_s) * USUAL_SHARE
        return took_s > longest_s

    def _begin_window(self, *, in_flight: int) -> None:
        self._skipped = in_flight  # since before the window: its clock starts when they are gone
        self._began_s, self._groups, self._posts = 0.0, 0, 0
        self._saturated = True

    def _counts(self, now_s: float) -> bool:
        if self._skipped == 0:
            return True
        self._skipped -= 1
        self._began_s = now_s
        return False

    def _learn(self, posts_per_s: float) -> None:
        # A move that leaves nobody waiting is judged all the same: those who are answered sooner post again sooner.
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
