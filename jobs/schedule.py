"""Which columns are to be refreshed, the neediest first, from what the store says: every job process sees alike.

    board's turn ──> one look at the store ──┬── no row changed since its curves, same rules: idle, costs that look
    (each interval,  (bounded, for all        ├── a curve that is younger than the interval: its turn comes with its age
     with jitter)     boards whose turn it is)├── a live curve that is near enough to its fit: stays
                                              └── due: waits with its need for a worker

The rule: nothing here is remembered that the store could tell, so a process that starts knows what is idle, and what
another one wrote or refreshed counts at once. Boards that others made, changed or deleted are noticed by these looks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import islice

from querybuilder import Dialect
from storage.catalog import Catalog
from storage.curve_marks import CurveMark, curve_marks, rules_of
from storage.leaderboards import CHANGES, boards_after, boards_by_key, count_entries
from storage.records import Board
from storage.store import Program, Store

# Whether the curve of a board's column, of this version, has drifted too far from its fit; None: the clock decides.
Drifted = Callable[[Board, int, int], bool | None]
# Whether the curve of a board's column, of this mark, is to be replaced by a certified one, with the board's totals.
Certifies = Callable[[Board, int, CurveMark, Mapping[int, int]], bool]


PASSED_MIN = 200  # boards passed in a tick, where there are so many
COUNTED_INTERVALS = 5  # between two looks at a board that needs no curve: until it is seen to have grown it is counted
PASS_TICKS = 16  # a pass over a large catalog: all of 10,000 boards at each tick would take 1 % of a core for nothing


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """The schedule's bounds; each is a setting of the same name."""

    curve_poll_s: float  # how often boards that others made are looked for
    refresh_jitter_ratio: float
    refresh_tick_boards_max: int  # passed in one tick, and looked at in the store; the next goes on from there
    refresh_queue_max: int  # due columns that wait for a worker; the least needy are found due again later
    refresh_patience_intervals: float  # a column that waited for so many intervals goes before those that changed most


@dataclass(frozen=True, slots=True)
class Due:
    """A column whose curve is old."""

    board: Board
    column_index: int
    need: float
    seen_version: int  # of the curve that was found old; 0: there was none


@dataclass(slots=True)
class _Turn:
    board: Board
    due_s: float  # on the monotonic clock
    # Column index -> the version of its curve, and since when it is known here: clocks that differ don't age a curve.
    known: dict[int, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Look:
    """The store at one moment."""

    boards: dict[int, Board]
    younger: list[Board]
    totals: dict[int, dict[int, int]]
    marks: dict[tuple[int, int], CurveMark]


class Schedule:
    """Call `tick` often; take what is due."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        limits: ScheduleLimits,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        rng: random.Random,
        drifted: Drifted = lambda _board, _index, _version: None,
        certifies: Certifies = lambda _board, _index, _mark, _totals: False,
    ) -> None:
        self._store, self._catalog, self._limits = store, catalog, limits
        self._drifted, self._certifies = drifted, certifies
        self._now_us, self._monotonic, self._rng = now_us, monotonic, rng
        self._turns: dict[int, _Turn] = {}
        self._position = 0  # in the catalog, of the next tick's first board
        self._due: dict[tuple[int, int], Due] = {}  # by board key and column index
        self._youngest = max((board.key for board in catalog.boards()), default=0)
        self._looked_s = monotonic()

    @property
    def waiting(self) -> int:
        """Due columns that wait for a worker."""
        return len(self._due)

    async def tick(self) -> bool:
        """Find what is due; whether anything is. Boards whose turn has not come cost a look-up each.

        Raises:
            StoreBusy: the store did not answer; their turn comes again at the next tick.
        """
        turns = self._pass_boards()
        now_s = self._monotonic()
        if not turns and now_s - self._looked_s < self._limits.curve_poll_s:
            return False
        asked = {turn.board.key: turn for turn in turns}
        after, limit = self._youngest, self._limits.refresh_tick_boards_max
        look = await self._store.read(lambda: _look(self._store.dialect, list(asked), after, limit))
        self._looked_s = now_s
        for board in look.younger:
            self._youngest = board.key
            if self._catalog.known(board.id) is None:
                self._plan(self._catalog.put(board), None, now_s)
        found: list[Due] = []
        for key, turn in asked.items():
            found += self._see(turn, look.boards.get(key), look)
        self._enqueue(found)
        return bool(found)

    def take(self, busy: Container[tuple[int, int]]) -> Due | None:
        """The neediest column that is not busy; it waits no longer."""
        free = (slot for slot in self._due if slot not in busy)
        slot = max(free, key=lambda one: self._due[one].need, default=None)
        return None if slot is None else self._due.pop(slot)

    def look_again(self, due: Due, *, in_s: float) -> None:
        """Someone else refreshes the column: see at the latest so much later what came of it."""
        turn = self._turns.get(due.board.key)
        if turn is not None:
            turn.due_s = min(turn.due_s, self._monotonic() + in_s)

    def _pass_boards(self) -> list[_Turn]:
        """Go over the next boards of the catalog; answers those whose turn it is."""
        boards = self._catalog.boards()
        start = self._position if self._position < len(boards) else 0
        passed = min(self._limits.refresh_tick_boards_max, max(PASSED_MIN, len(boards) // PASS_TICKS))
        self._position = end = min(start + passed, len(boards))
        now_s, turns = self._monotonic(), []
        for board in islice(boards, start, end):
            turn = self._turns.get(board.key)
            if turn is None or turn.board is not board:
                turn = self._plan(board, turn, now_s)
            if turn.due_s <= now_s:
                turns.append(turn)
        if len(self._turns) > len(boards):
            known = {board.key for board in boards}
            self._turns = {key: turn for key, turn in self._turns.items() if key in known}
        return turns

    def _plan(self, board: Board, turn: _Turn | None, now_s: float) -> _Turn:
        """Begin a board's turns, or go on with what the catalog says now."""
        refresh_s = board.spec.predictor.refresh_seconds
        if turn is None or turn.board.epoch != board.epoch:
            # A random phase: boards that were loaded together don't come due together.
            turn = self._turns[board.key] = _Turn(board, now_s + refresh_s * self._rng.random())
        else:
            turn.board = board
            turn.due_s = min(turn.due_s, now_s + refresh_s)
        return turn

    def _see(self, turn: _Turn, board: Board | None, look: _Look) -> list[Due]:
        """What is due of a board, which gets its next turn."""
        if board is None or board != turn.board:
            self._follow(turn.board, board)
            if board is None or board.archived_us is not None or board.epoch != turn.board.epoch:
                return []
            turn.board = board
        board = turn.board
        now_s, refresh_s = self._monotonic(), board.spec.predictor.refresh_seconds
        # Jitter only shortens, so that refresh_seconds is the longest that a change waits for its turn.
        shortened_s = refresh_s * (1 - self._limits.refresh_jitter_ratio * self._rng.random())
        turn.due_s = now_s + shortened_s
        due = []
        totals = look.totals[board.key]
        counted = [index for index in board.sorted_indexes if _is_counted(board, index, look)]
        if len(counted) == len(board.sorted_indexes):
            turn.due_s = now_s + COUNTED_INTERVALS * shortened_s
        for index in board.sorted_indexes:
            mark = look.marks.get((board.key, index))
            if index in counted:
                continue
            if mark is None or mark.epoch != board.epoch:
                if totals.get(index, 0):  # an empty column that has no curve needs none
                    due.append(Due(board, index, 1 + self._limits.refresh_patience_intervals, 0))
                continue
            certified = self._certifies(board, index, mark, totals)
            if certified or mark.changes != totals.get(CHANGES, 0) or mark.rules != rules_of(board):
                age_s = self._age_s(turn, index, mark, now_s)
                same_rules = mark.rules == rules_of(board)
                if same_rules and not certified and self._drifted(board, index, mark.version) is False:
                    continue  # live, and near enough to its fit
                if age_s >= refresh_s * (1 - self._limits.refresh_jitter_ratio):
                    due.append(Due(board, index, self._need(mark, totals, age_s / refresh_s, index), mark.version))
                else:
                    turn.due_s = min(turn.due_s, now_s + shortened_s - age_s)
        return due

    def _follow(self, known: Board, found: Board | None) -> None:
        """Take over what another process made of a board, unless this one knows better by now."""
        if self._catalog.known(known.id) is known:
            if found is None:
                self._catalog.drop(known.id)
            else:
                self._catalog.put(found)

    def _age_s(self, turn: _Turn, index: int, mark: CurveMark, now_s: float) -> float:
        version, since_s = turn.known.get(index, (0, now_s))
        if version != mark.version:
            turn.known[index] = (mark.version, now_s)
            since_s = now_s
        # A clock that was set back would else keep curves from being refreshed until it has caught up.
        return max((self._now_us() - mark.as_of_us) / 1e6, now_s - since_s)

    def _need(self, mark: CurveMark, totals: dict[int, int], age_intervals: float, index: int) -> float:
        """The changed share of a column, at most 1, and what the column has waited for past its interval."""
        changed = totals.get(CHANGES, 0) - (mark.changes or 0)
        share = min(1.0, changed / max(1, totals.get(index, 0)))
        return share + max(0.0, age_intervals - 1) / self._limits.refresh_patience_intervals

    def _enqueue(self, found: list[Due]) -> None:
        """Wait with the others, the neediest that there is room for; what finds none has its turn again at once."""
        self._due.update({(due.board.key, due.column_index): due for due in found})
        if len(self._due) > self._limits.refresh_queue_max:
            by_need = sorted(self._due.values(), key=lambda due: due.need, reverse=True)
            for due in by_need[self._limits.refresh_queue_max :]:
                del self._due[due.board.key, due.column_index]
                self.look_again(due, in_s=0)


def _is_counted(board: Board, index: int, look: _Look) -> bool:
    """Whether ranks are counted anyway, so that a curve would serve nobody: families have such boards by thousands."""
    if board.family_key is None or (board.key, index) in look.marks:
        return False
    return look.totals[board.key].get(index, 0) <= board.spec.predictor.exact_top


def _look(dialect: Dialect, board_keys: list[int], after: int, limit: int) -> Program[_Look]:
    younger = yield from boards_after(dialect, after, limit)
    if not board_keys:
        return _Look({}, younger, {}, {})
    boards = yield from boards_by_key(dialect, board_keys)
    totals = yield from count_entries(dialect, board_keys)
    marks = yield from curve_marks(dialect, board_keys)
    return _Look(boards, younger, totals, marks)
