"""Finds the columns that need a new curve, the neediest first; every job process does so by itself, from the store.

    board's turn ──> read of its partition ──┬── nothing changed since its curves were fitted: idle until next turn
    (each interval,  (bounded, for all       ├── its curve is younger than the interval: next turn when it is old enough
     with jitter)     boards in turn)        ├── its curve is live and near enough to its fit: the curve stays
                                             └── otherwise due: waits for a worker, the neediest first
    change log ──> boards with many changes ──> a column has passed `exact_top`, or outgrown its curve: due at once

A turn is a time at which this process checks a board. A curve is live if the changes since its fit are counted for it.
Clients rely on a live curve's error bound, on the width of its brackets, and on how many rows the service counts to
find an exact rank. These figures, rather than the curve's age, therefore decide whether it has drifted too far from its
fit. They are taken only over ranks beyond `exact_top`, because better ranks are always counted.

A board that is being filled cannot wait for its turn, because without a curve each of its ranks is counted from the
top. Each read of a partition therefore also finds which boards have changed, and a board with enough changes to outgrow
its curves is checked early.

Nothing is remembered that can be read from the store, so even a process that has just started knows which boards are
idle. The same reads find boards that other processes created, changed or deleted.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import islice

import structlog

from jobs.job_context import JobContext
from predictor import LiveCurve
from storage.boards.boards import list_boards_after
from storage.curves.stored_curves import ListedCurve, describe_rules, find_listed_curves
from storage.errors import StorageError
from storage.leaves.catalog_rows import find_leaves
from storage.leaves.totals import CHANGES, find_totals
from storage.log.change_log import change_log
from storage.records import INT64_MAX, Board, Leaf
from storage.store import Program

from .fitting import ColumnState, Fitting

log = structlog.get_logger(__name__)
PASSED_MIN = 200  # one tick (call of `find_due`) checks at least this many leaves, if the catalog has them
# A board that needs no curve is read again after this many refresh intervals. Until then, its ranks are counted.
COUNTED_INTERVALS = 5
GROWTH_MAX = 2  # the largest bracket, gap and error bound may become this many times as large as at the fit
GAP_ROWS_MIN = 1_000  # if the largest gap between knots had fewer rows at the fit, assume this many, so it may grow
PASS_TICKS = 16  # ticks for one pass over a large catalog; checking all boards at each tick would waste CPU time


@dataclass(frozen=True, slots=True)
class DueColumn:
    leaf: Leaf
    column_index: int
    need: float  # columns with a greater need are refreshed first
    seen_version: int  # version of the curve that is to be replaced; 0: the column had none


@dataclass(slots=True)
class _Turn:
    leaf: Leaf
    due_s: float  # the monotonic time at which the board is read next
    room: int  # until the leaf has had more changes than this, no column outgrows its curve
    # By column index: the version of the curve, and the monotonic time at which this process first saw that version.
    # The `as_of` of the curve is not enough, because the clock of the process that stored the curve may differ.
    known: dict[int, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _StoredState:
    leaves: dict[int, Leaf]
    totals: dict[int, dict[int, int]]
    listed: dict[tuple[int, int], ListedCurve]


class Schedule:
    """Keeps the due columns of all boards. Call `find_due` often, and `take_next` for each column to be refreshed."""

    def __init__(self, context: JobContext, fitting: Fitting) -> None:
        self._store, self._catalog, self._limits = context.store, context.catalog, context.limits
        self._book, self._fitting = context.book, fitting
        self._now_us, self._monotonic, self._rng = context.now_us, context.monotonic, context.rng
        self._turns: dict[int, _Turn] = {}
        self._position = 0  # index in the catalog's list of leaves at which the next tick begins
        self._due: dict[tuple[int, int], DueColumn] = {}  # due columns by leaf key and column index
        self._youngest = max((leaf.key for leaf in self._catalog.list_leaves()), default=0)
        self._looked_s = self._monotonic()
        self._marks: dict[int, int] = {}  # by partition: changes before this log position are known

    @property
    def waiting(self) -> int:
        return len(self._due)

    async def find_due(self) -> bool:
        """Check some boards, and keep their due columns for `take_next`. Return whether any columns were due.

        If a partition does not answer, the next pass over the catalog reads the boards that this pass could not read.
        """
        turns = self._pass_boards()
        now_s = self._monotonic()
        by_partition: dict[int, dict[int, _Turn]] = {}
        if now_s - self._looked_s >= self._limits.curve_poll_s:
            self._looked_s = now_s
            by_partition = {partition: {} for partition in range(self._store.partitions)}
        for turn in turns:
            by_partition.setdefault(turn.leaf.partition, {})[turn.leaf.key] = turn
        found: list[DueColumn] = []
        for partition, asked in by_partition.items():
            try:
                found += await self._find_due_in(partition, asked, now_s)
            except StorageError as error:
                log.error("refresh_schedule_failed", partition=partition, detail=error.detail)
        self._enqueue(found)
        return bool(found)

    async def _find_due_in(self, partition: int, asked: dict[int, _Turn], now_s: float) -> list[DueColumn]:
        """Find the due columns among the leaves in `asked` and those that may have outgrown their curves.

        Boards created since the last read are added to the catalog.

        Raises:
            StoreBusyError: the partition did not answer.
        """
        store, mark = self._store.at(partition), self._marks.get(partition)
        after, limit = self._youngest, self._limits.refresh_tick_boards_max
        younger, (changed, self._marks[partition]) = await store.read(lambda: _read_news(after, limit, mark))
        for board in younger:
            self._youngest = board.key
            for leaf in (self._catalog.find_known(board.id) or self._catalog.keep_board(board)).leaves:
                if leaf.key not in self._turns:
                    self._plan(leaf, None, now_s)
        for key, changes in changed.items():
            turn = self._turns.get(key)
            if turn is not None:
                turn.room -= changes
                if turn.room < 0:
                    asked[key] = turn
        if not asked:
            return []
        stored = await store.read(lambda: _read_state(list(asked)))
        outdated = {turn.leaf.id for key, turn in asked.items() if stored.leaves.get(key) != turn.leaf}
        if outdated:
            await self._catalog.reread_boards(outdated)
        return [due for key, turn in asked.items() for due in self._see(turn, stored.leaves.get(key), stored)]

    def take_next(self, busy: Container[tuple[int, int]]) -> DueColumn | None:
        free = (slot for slot in self._due if slot not in busy)
        slot = max(free, key=lambda one: self._due[one].need, default=None)
        return None if slot is None else self._due.pop(slot)

    def reschedule(self, due: DueColumn, *, in_s: float) -> None:
        """Check the column's board again within `in_s` seconds, for example when a lease becomes free."""
        turn = self._turns.get(due.leaf.key)
        if turn is not None:
            turn.due_s = min(turn.due_s, self._monotonic() + in_s)

    def _pass_boards(self) -> list[_Turn]:
        leaves = self._catalog.list_leaves()
        start = self._position if self._position < len(leaves) else 0
        passed = min(self._limits.refresh_tick_boards_max, max(PASSED_MIN, len(leaves) // PASS_TICKS))
        self._position = end = min(start + passed, len(leaves))
        now_s, turns = self._monotonic(), []
        for leaf in islice(leaves, start, end):
            turn = self._turns.get(leaf.key)
            if turn is None or turn.leaf is not leaf:
                turn = self._plan(leaf, turn, now_s)
            if turn.due_s <= now_s:
                turns.append(turn)
        if len(self._turns) > len(leaves):
            known = {leaf.key for leaf in leaves}
            self._turns = {key: turn for key, turn in self._turns.items() if key in known}
        return turns

    def _plan(self, leaf: Leaf, turn: _Turn | None, now_s: float) -> _Turn:
        """Decide when to check a leaf next: a first turn if it is new or was emptied, otherwise `turn`, updated."""
        refresh_s = leaf.spec.predictor.refresh_seconds
        if turn is None or turn.leaf.epoch != leaf.epoch:
            # The first turn is at a random time, so that boards that were loaded together don't become due together.
            turn = self._turns[leaf.key] = _Turn(
                leaf, now_s + refresh_s * self._rng.random(), leaf.spec.predictor.exact_top
            )
        else:
            turn.leaf = leaf
            turn.due_s = min(turn.due_s, now_s + refresh_s)
        return turn

    def _see(self, turn: _Turn, leaf: Leaf | None, stored: _StoredState) -> list[DueColumn]:
        if leaf is None or leaf != turn.leaf:
            if leaf is None or leaf.archived_us is not None or leaf.epoch != turn.leaf.epoch:
                return []
            turn.leaf = leaf
        leaf = turn.leaf
        now_s, totals = self._monotonic(), stored.totals[leaf.key]
        # Jitter only shortens the interval, so a change waits at most `refresh_seconds` for the turn of its board.
        jitter = self._limits.refresh_jitter_ratio * self._rng.random()
        pause_s = leaf.spec.predictor.refresh_seconds * (1 - jitter)
        looked_at = [index for index in leaf.sorted_indexes if not _is_counted(leaf, index, stored)]
        turn.due_s = now_s + (pause_s if looked_at else COUNTED_INTERVALS * pause_s)
        rooms = (self._growth_limit(leaf, index) - totals.get(index, 0) for index in leaf.sorted_indexes)
        turn.room = max(0, min(rooms, default=INT64_MAX))
        found = [self._see_column(turn, index, stored, now_s, pause_s) for index in looked_at]
        return [due for due in found if due is not None]

    def _see_column(
        self, turn: _Turn, index: int, stored: _StoredState, now_s: float, pause_s: float
    ) -> DueColumn | None:
        """Return a column if it is due. If its curve is merely too young, check again when it is old enough."""
        leaf, totals = turn.leaf, stored.totals[turn.leaf.key]
        listed, entries, changes = stored.listed.get((leaf.key, index)), totals.get(index, 0), totals.get(CHANGES, 0)
        if listed is None or listed.epoch != leaf.epoch:
            if not entries:  # an empty column without a curve needs none
                return None
            return DueColumn(leaf, index, 1 + self._limits.refresh_patience_intervals, 0)
        served, refresh_s = self._book.find_served(leaf, index), leaf.spec.predictor.refresh_seconds
        state = ColumnState(entries, changes, listed)
        certified = self._fitting.should_certify(leaf, None if served is None else served.curve, state)
        is_needed = certified or listed.rules != describe_rules(leaf)
        if not is_needed and listed.changes == changes:
            return None
        age_s = self._age_s(turn, index, listed, now_s)
        is_served = served is not None and served.version == listed.version
        outgrown = is_served and entries > self._growth_limit(leaf, index)
        if not is_needed and not outgrown and self._has_drifted(leaf, index, listed.version) is False:
            return None  # its curve is live and near enough to its fit
        if outgrown or age_s >= refresh_s * (1 - self._limits.refresh_jitter_ratio):
            return DueColumn(leaf, index, self._need(listed, totals, age_s / refresh_s, index), listed.version)
        turn.due_s = min(turn.due_s, now_s + pause_s - age_s)
        return None

    def _growth_limit(self, leaf: Leaf, index: int) -> int:
        served = self._book.find_served(leaf, index)
        return leaf.spec.predictor.exact_top if served is None else GROWTH_MAX * max(served.fit.total, GAP_ROWS_MIN)

    def _has_drifted(self, leaf: Leaf, column_index: int, version: int) -> bool | None:
        """Return whether the curve in use has drifted too far from its fit, or None if its age must decide.

        The age decides if this curve is not live, is not the stored `version`, or has counts older than its interval.
        """
        served = self._book.find_served(leaf, column_index)
        if served is None or served.version != version or not isinstance(served.curve, LiveCurve):
            return None
        if self._now_us() - served.curve.as_of_us > leaf.spec.predictor.refresh_seconds * 1e6:
            return None
        if served.curve.moved > max(served.fit.total, GAP_ROWS_MIN):
            return True  # after so many changes, the checks below might find no rank beyond `exact_top` to look at
        from_rank = leaf.spec.predictor.exact_top + 1
        fit, now = served.fit.estimate_drift(from_rank), served.curve.estimate_drift(from_rank)
        target = self._limits.drift_ratio
        if served.fit.errors is not None and now.bound > max(target, fit.bound * GROWTH_MAX):
            return True
        if now.bracket > GROWTH_MAX * max(fit.bracket, target):
            return True
        return now.gap_rows > GROWTH_MAX * max(fit.gap_rows, GAP_ROWS_MIN)

    def _age_s(self, turn: _Turn, index: int, listed: ListedCurve, now_s: float) -> float:
        version, since_s = turn.known.get(index, (0, now_s))
        if version != listed.version:
            turn.known[index] = (listed.version, now_s)
            since_s = now_s
        # If the wall clock was set back, it gives too low an age, which would delay refreshes. So take the greater age.
        return max((self._now_us() - listed.as_of_us) / 1e6, now_s - since_s)

    def _need(self, listed: ListedCurve, totals: dict[int, int], age_intervals: float, index: int) -> float:
        """Compute how urgent a new curve is: the share of entries changed since the fit, plus a term for the wait.

        The second term is how many intervals the curve is overdue, divided by `refresh_patience_intervals`.
        """
        changed = totals.get(CHANGES, 0) - (listed.changes or 0)
        share = min(1.0, changed / max(1, totals.get(index, 0)))
        return share + max(0.0, age_intervals - 1) / self._limits.refresh_patience_intervals

    def _enqueue(self, found: list[DueColumn]) -> None:
        self._due.update({(due.leaf.key, due.column_index): due for due in found})
        if len(self._due) > self._limits.refresh_queue_max:
            by_need = sorted(self._due.values(), key=lambda due: due.need, reverse=True)
            for due in by_need[self._limits.refresh_queue_max :]:
                del self._due[due.leaf.key, due.column_index]
                self.reschedule(due, in_s=0)


def _is_counted(leaf: Leaf, index: int, stored: _StoredState) -> bool:
    """Return whether a column of a family's board has no curve, and so few entries that all ranks are counted."""
    if leaf.family_key is None or (leaf.key, index) in stored.listed:
        return False
    return stored.totals[leaf.key].get(index, 0) <= leaf.spec.predictor.exact_top


def _read_news(after: int, limit: int, mark: int | None) -> Program[tuple[list[Board], tuple[dict[int, int], int]]]:
    younger = yield from list_boards_after(after, limit)
    return younger, (yield from change_log.count_changes_after(mark))


def _read_state(leaf_keys: list[int]) -> Program[_StoredState]:
    leaves = yield from find_leaves(leaf_keys)
    totals = yield from find_totals(leaf_keys)
    return _StoredState(leaves, totals, (yield from find_listed_curves(leaf_keys)))
