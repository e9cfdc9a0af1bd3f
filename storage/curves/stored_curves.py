"""Stores curves and serves them: a job stores a curve under a new version, and every process loads the curve.

    poll ─┬─> the table's list of newer versions ──> contents from memcached, else from the table ──> served
          └─> newer live counts and their mark, from the same snapshot ──> the same curves, kept live

Each partition of the store has its own tables, versions and marks, so a process polls each partition separately.
Corrupt curves and corrupt live counts are ignored, and each is reported to the meter.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import NamedTuple

import structlog

from predictor import (
    AnyCurve,
    AsOf,
    Curve,
    CurveCorruptError,
    KnotsInvalidError,
    LiveCounts,
    LiveCurve,
    RankCurve,
    SummedCurve,
    decode_curve,
    encode_curve,
)
from querybuilder import Lock, asc, col, max_, param, select
from storage.errors import UnknownBoardError
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import CHANGES, hold_epoch
from storage.meter import NO_METER, Meter
from storage.records import Board, Leaf
from storage.schema.placement import prepare_put
from storage.schema.sequences import take_number
from storage.schema.tables import CURVES, LIVE_MARK
from storage.store import Program, Store

from .live_counts import FoldState, StoredCounts, counts_after
from .shared_curves import ListedCurve, SharedCurves, Slot

log = structlog.get_logger(__name__)
STATES_MAX = 16  # how many pairs (time, count of changes) are kept for a curve, see `_states` and `_count_later`


@dataclass(frozen=True, slots=True)
class ServedCurve:
    """A decoded curve that ranks are read from."""

    board_key: int
    column_index: int
    epoch: int
    version: int  # greater than the version of every curve that was stored earlier in the partition
    curve: RankCurve
    # The curve counts the changes up to this mark. None: unknown, or the curve is live, with the mark of the last fold.
    mark: int | None = None
    changes: int | None = None  # the board's count of changes at the moment of the curve; None: unknown
    live_version: int = 0  # the version of the live counts; 0: the curve is as it was fitted
    fitted: "ServedCurve | None" = None  # the curve without live counts; None: `curve` is not live
    partition: int = field(kw_only=True)  # the board's partition, in which `version` and `mark` are valid

    @property
    def slot(self) -> Slot:
        return self.board_key, self.column_index

    @property
    def fit(self) -> Curve:
        return self.curve.fit if isinstance(self.curve, LiveCurve) else self.curve


@dataclass(slots=True)
class _Polled:
    """The versions up to which this process has read the curves and the live counts of one partition."""

    partition: int
    store: Store
    version: int = 0  # the version of the newest curve that was read
    live_version: int = 0  # the version of the newest live counts that were read
    mark: int = 0  # all live counts include the changes up to this mark
    as_of: AsOf = field(default_factory=lambda: AsOf(0))
    polling: asyncio.Lock = field(default_factory=asyncio.Lock)


class CurveBook:
    """The decoded curves from which this process reads ranks, kept up to date by `poll`."""

    def __init__(
        self, store: Store, shared: SharedCurves | None, *, poll_rows_max: int, meter: Meter = NO_METER
    ) -> None:
        self._store, self._shared = store, shared
        self._poll_rows_max = poll_rows_max
        self._meter = meter
        self._polled: dict[int, _Polled] = {}  # by partition
        self._served: dict[Slot, ServedCurve] = {}  # while folds update a live curve, its mark is None
        # The latest pairs of each curve, the newest last: a time of the curve, and the board's count of changes then.
        self._states: dict[Slot, tuple[tuple[int, int], ...]] = {}
        self._sums: dict[Slot, tuple[Board, SummedCurve]] = {}  # of boards with segments; emptied at each change
        self._expecting = 0
        # Keys of boards that were forgotten while a `remember_forgotten` context is open.
        self._forgotten_meanwhile: set[int] = set()

    def find_curve(self, board: Board, column_index: int) -> AnyCurve | None:
        """Return the column's newest curve of the board's current epoch, or None if this process has none.

        For a board with segments, return the sum of the segments' curves, or None if a segment has no curve.
        """
        if not board.is_spread:
            served = self._find_in_use(board.leaf, column_index)
            return None if served is None else served.curve
        known = self._sums.get((board.key, column_index))
        if known is not None and known[0] is board:
            return known[1]
        parts = [self.find_leaf_curve(leaf, column_index) for leaf in board.leaves]
        if None in parts:
            return None
        summed = SummedCurve(parts, self._count_later(board, column_index, parts))  # type: ignore[arg-type]
        self._sums[board.key, column_index] = board, summed
        return summed

    def _find_in_use(self, leaf: Leaf, column_index: int) -> ServedCurve | None:
        """Return the column's newest curve of the leaf's current epoch, or None. `_find_mark` returns its mark."""
        served = self._served.get((leaf.key, column_index))
        if served is None or served.epoch != leaf.epoch or served.partition != leaf.partition:
            return None
        return served

    def _count_later(self, board: Board, column_index: int, parts: Sequence[RankCurve]) -> int:
        """Find the time of the segments' oldest curve. Return how many later changes the other curves may count."""
        times_us = [part.as_of_us for part in parts]
        first_us = min(times_us)
        if max(times_us) == first_us:
            return 0
        later = 0
        for leaf in board.leaves:
            states = self._states[leaf.key, column_index]
            until = next((changes for as_of_us, changes in reversed(states) if as_of_us <= first_us), 0)
            changes = states[-1][1]
            later += changes - until if changes >= until else changes  # if the count fell, the board was emptied
        return later

    def find_leaf_curve(self, leaf: Leaf, column_index: int) -> RankCurve | None:
        """Return the column's newest curve of the leaf's current epoch, or None if this process has none."""
        served = self._find_in_use(leaf, column_index)
        return None if served is None else served.curve

    def find_served(self, leaf: Leaf, column_index: int) -> ServedCurve | None:
        """Return the curve of `find_leaf_curve` with its version and mark. The curve counts changes up to the mark."""
        served = self._find_in_use(leaf, column_index)
        return None if served is None else self._with_mark(served)

    def is_current(self, board: Board, column_index: int, curve: AnyCurve, totals: Mapping[int, int]) -> bool:
        """Return whether nothing changed between the curve's moment and the snapshot in which `totals` were read.

        If so, the curve counts the same entries. For a sum, return False: segments are read at different moments.
        """
        served = None if board.is_spread else self._find_in_use(board.leaf, column_index)
        return served is not None and served.curve is curve and served.changes == totals.get(CHANGES, 0)

    def find_count_start(
        self, board: Board, column_index: int, changes_max: int, asked_us: int, *, as_asked: bool = False
    ) -> CountStart | None:
        """Return the curve of `find_curve` with its mark, so that a count can start at a knot. None: one is unknown.

        `as_asked`: if the board has segments, count them as of `asked_us`.
        """
        starts = list[CountStart]()
        for leaf in board.leaves:
            served = self._find_in_use(leaf, column_index)
            mark = None if served is None else self._find_mark(served)
            if served is None or mark is None:
                return None
            as_asked = as_asked and board.is_spread
            starts.append(CountStart(served.curve, mark, changes_max, asked_us, as_asked=as_asked))
        if not board.is_spread:
            return starts[0]
        curve = SummedCurve([start.curve for start in starts])  # type: ignore[misc]
        return CountStart(curve, 0, changes_max, asked_us, tuple(starts))

    def _find_mark(self, served: ServedCurve) -> int | None:
        """Return the mark of a served curve. While folds still update the curve, this is the mark of the last fold."""
        return self._polled[served.partition].mark if served.mark is None and served.live_version else served.mark

    def _with_mark(self, served: ServedCurve) -> ServedCurve:
        return replace(served, mark=self._find_mark(served)) if served.live_version else served

    @contextmanager
    def remember_forgotten(self) -> Iterator[None]:
        """While this context is open, remember the boards that `forget_board` forgets, and do not serve their curves.

        Open this context before a curve is read or stored, and close it after the curve is served.
        """
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            if not self._expecting:
                self._forgotten_meanwhile.clear()

    def serve_curve(self, served: ServedCurve) -> None:
        """Serve this curve from now on, unless a newer one is served already."""
        slot = served.slot
        is_newer = self._is_newer(slot, served.partition, served.version)
        if is_newer and served.board_key not in self._forgotten_meanwhile:
            self._stop(slot)
            self._served[slot] = served
            self._note_state(served)
            self._sums.clear()

    def count_changes(self, board: Board, column_index: int) -> int:
        """Return the board's count of changes at the moment of its curve, or 0 if the curve or the count is unknown."""
        known = [self._states.get((leaf.key, column_index)) for leaf in board.leaves]
        return sum(states[-1][1] for states in known if states)

    def _note_state(self, served: ServedCurve) -> None:
        earlier, changes = self._states.get(served.slot, ()), served.changes or 0
        if not earlier or earlier[-1][1] != changes:
            self._states[served.slot] = *earlier[1 - STATES_MAX :], (served.curve.as_of_us, changes)

    def _is_newer(self, slot: Slot, partition: int, version: int) -> bool:
        """Return whether a curve that was just read is newer than the served one.

        Versions of two partitions can't be compared. But if the served curve is of another partition, the board has
        moved, so the curve that was just read is newer.
        """
        current = self._served.get(slot)
        return current is None or current.partition != partition or current.version < version

    async def share_curve(self, served: ServedCurve) -> None:
        if self._shared is not None:
            listed = ListedCurve(*served.slot, served.epoch, served.version, served.fit.as_of_us)
            await self._shared.store_curve(listed, served.fit)

    def forget_board(self, board_key: int) -> None:
        self._sums.clear()
        if self._expecting:
            self._forgotten_meanwhile.add(board_key)
        for slot in [slot for slot in self._served if slot[0] == board_key]:
            del self._served[slot]
            self._states.pop(slot, None)

    def list_served(self) -> list[ServedCurve]:
        return [self._with_mark(served) for served in self._served.values()]

    async def poll(self, partition: int | None = None) -> int:
        """Load curves and live counts stored since the last poll, in one partition or all. Return how many curves."""
        taken = 0
        for each in range(self._store.partitions) if partition is None else [partition]:
            if each not in self._polled:
                self._polled[each] = _Polled(each, self._store.at(each))
            polled = self._polled[each]
            async with polled.polling:
                taken += await self._poll(polled)
        return taken

    async def _poll(self, polled: _Polled) -> int:
        taken, rows_max = 0, self._poll_rows_max
        while True:
            with self.remember_forgotten():
                news = partial(_read_news, polled.version, polled.live_version, rows_max)
                found = await polled.store.read(news)
                taken += await self._take_curves(polled, found.curves)
            if len(found.curves) < rows_max:
                break
        if found.folded is not None:
            await self._take_counts(polled, found.folded, found.counts)
        return taken

    async def _take_curves(self, polled: _Polled, listed: Sequence[ListedCurve]) -> int:
        """Load and serve the listed curves that are newer than the served ones. Return how many were loaded."""
        wanted = [one for one in listed if self._is_newer(one.slot, polled.partition, one.version)]
        before = {one.slot: self._find_fitted(one.slot) for one in wanted}
        curves = await self._contents(wanted, polled.store) if wanted else {}
        for one, curve in curves.items():
            marks = one.mark, one.changes
            read = ServedCurve(*one.slot, one.epoch, one.version, curve, *marks, partition=polled.partition)
            current = self._find_fitted(one.slot)
            # If the board moved while this curve was read, a curve from the new partition is already served: keep it.
            if current is None or current is before[one.slot] or current.partition == polled.partition:
                self.serve_curve(read)
        if listed:
            polled.version = max(polled.version, listed[-1].version)
        return len(curves)

    async def _take_counts(self, polled: _Polled, now: FoldState, counts: Sequence[StoredCounts]) -> None:
        """Serve live curves with these counts. Give all live curves the time and the mark of the last fold."""
        if now.version < polled.live_version:  # the store was restored from a backup
            self._stop_all(polled.partition)
        fits: dict[Slot, Curve] = {}
        for one in counts:
            served = self._find_in(polled, one.slot)
            if served is not None:
                fits[one.slot] = served.fit
        built = await asyncio.to_thread(_build_all, counts, fits, polled.as_of) if counts else {}
        # Before a curve is replaced, stop it, so that it keeps its time and mark. Otherwise a reader on another thread
        # could see the curve with the time or the mark of the new state.
        for one in counts:
            if self._find_in(polled, one.slot) is not None:
                self._stop(one.slot)
        polled.as_of.us, polled.mark, polled.live_version = now.as_of_us, now.mark, now.version
        for one in counts:
            self._take_over(polled, one, fits.get(one.slot), built.get(one.slot))
        self._sums.clear()

    def _find_fitted(self, slot: Slot) -> ServedCurve | None:
        served = self._served.get(slot)
        return None if served is None else served.fitted or served

    def _find_in(self, polled: _Polled, slot: Slot) -> ServedCurve | None:
        found = self._find_fitted(slot)
        return found if found is not None and found.partition == polled.partition else None

    def _take_over(self, polled: _Polled, counts: StoredCounts, fit: Curve | None, live: LiveCurve | None) -> None:
        """Serve the curve `live`. If it is None, serve the curve without live counts.

        If `counts` belong to another curve, keep the served one. The caller has fixed its time and mark with `_stop`.
        """
        slot, fitted = counts.slot, self._find_in(polled, counts.slot)
        if fitted is None or fitted.curve is not fit:
            return  # meanwhile, this process serves another curve
        if (fitted.version, fitted.epoch) != (counts.curve_version, counts.epoch):
            return
        served = fitted
        if live is not None:
            news = {"live_version": counts.version, "changes": counts.changes}
            served = replace(fitted, curve=live, mark=None, fitted=fitted, **news)
        elif counts.document:
            self._meter.add("rankcurve_curves_corrupt")
            log.warning("live_counts_corrupt", board_key=slot[0], column_index=slot[1])
        self._served[slot] = served
        self._note_state(served)

    def _stop(self, slot: Slot) -> None:
        """Stop a live curve: it keeps its present time and mark, because later folds must not change them."""
        served = self._served.get(slot)
        if served is not None and served.mark is None and isinstance(served.curve, LiveCurve):
            served.curve.freeze_time()
            self._served[slot] = replace(served, mark=self._polled[served.partition].mark)

    def _stop_all(self, partition: int) -> None:
        for served in list(self._served.values()):
            if served.partition == partition and served.fitted is not None:
                self._stop(served.slot)
                self._served[served.slot] = served.fitted
                self._note_state(served.fitted)

    async def _contents(self, wanted: Sequence[ListedCurve], store: Store) -> Mapping[ListedCurve, Curve]:
        found = {} if self._shared is None else await self._shared.find_curves(wanted)
        missing = [one for one in wanted if one not in found]
        if not missing:
            return found
        versions = [one.version for one in missing]
        documents = await store.read(lambda: read_documents(versions))
        decoded = await asyncio.to_thread(_decode_all, missing, documents)  # decoding takes long
        for one, curve in decoded.items():
            if curve is None:
                self._meter.add("rankcurve_curves_corrupt")
                log.warning("curve_corrupt", board_key=one.board_key, column_index=one.column_index)
            else:
                found[one] = curve
        return found


class _News(NamedTuple):
    """The curves and live counts of one snapshot that are newer than those of the last poll."""

    curves: list[ListedCurve]  # oldest first
    folded: FoldState | None  # None before the first fold
    counts: list[StoredCounts]


def _read_news(version: int, live_version: int, limit: int) -> Program[_News]:
    """Read up to `limit` curves newer than `version`. If no more curves are left, also read the newer live counts."""
    [[newest, *state]] = yield _NEWEST.bind()
    listed = (yield from curves_after(version, limit)) if newest is not None and newest > version else []
    folded = None if state[0] is None else FoldState(*state)
    counts = (yield from counts_after(live_version, folded)) if folded is not None and len(listed) < limit else []
    return _News(listed, folded, counts)


def _decode_all(missing: Sequence[ListedCurve], documents: Mapping[int, bytes]) -> dict[ListedCurve, Curve | None]:
    """Decode curves. A corrupt curve becomes None. Leave out curves without a document: newer ones replaced them."""
    decoded: dict[ListedCurve, Curve | None] = {}
    for one in missing:
        if one.version in documents:
            try:
                decoded[one] = decode_curve(documents[one.version])
            except CurveCorruptError:
                decoded[one] = None
    return decoded


def _build_all(counts: Sequence[StoredCounts], fits: Mapping[Slot, Curve], as_of: AsOf) -> dict[Slot, LiveCurve]:
    """Build live curves from `counts` and their `fits`. Leave out counts that are empty, corrupt or of another fit."""
    built: dict[Slot, LiveCurve] = {}
    for one in counts:
        fit = fits.get(one.slot)
        if one.document and fit is not None:
            with suppress(CurveCorruptError, KnotsInvalidError):
                built[one.slot] = LiveCurve(fit, LiveCounts.decode(one.document, fit), as_of=as_of, version=one.version)
    return built


def store_curve(
    leaf: Leaf,
    column_index: int,
    curve: Curve,
    *,
    changes: int | None = None,
    mark: int | None = None,
    owned: Callable[[], Program[None]] | None = None,
) -> Program[int]:
    """Store a curve, unless the leaf was deleted, emptied or moved since the fit. Return the curve's new version.

    Run this program in the leaf's partition. The snapshot of the fit had `changes` as the leaf's count of changes, and
    saw the log up to `mark`. `owned` runs in the same transaction. If `owned` raises an error, nothing is stored.

    Raises:
        UnknownBoardError: the leaf was deleted, emptied or moved to another partition since the fit.
        LeaseLostError: `owned` found that another process has taken over the refresh.
    """
    if (yield from hold_epoch(leaf.key, lock=Lock.SHARE)) != leaf.epoch:
        raise UnknownBoardError(f"leaderboard {leaf.id!r} was deleted, emptied or moved meanwhile")
    if owned is not None:
        yield from owned()
    version = yield from take_number("curve_version")
    listed = ListedCurve(
        leaf.key, column_index, leaf.epoch, version, curve.as_of_us, mark, changes, describe_rules(leaf)
    )
    yield _STORE.bind(**dict(zip(_LISTED, astuple(listed), strict=True)), document=encode_curve(curve))
    return version


# In the order of the fields of `ListedCurve`:
_LISTED = ("board_key", "column_index", "epoch", "version", "as_of", "mark", "changes", "rules")
_STORE = prepare_put(CURVES)
_CURVES = select(*map(col, _LISTED)).from_(CURVES)
_CURVES_AFTER = (
    _CURVES.where(col("version").gt(param("version")))
    .order_by(asc(col("version")))
    .limit(param("limit"))
    .packed()
    .prepared()
)
_FOLDED = (select(col(name)).from_(LIVE_MARK).scalar() for name in ("position", "as_of", "version"))
_NEWEST = select(max_(col("version")), *_FOLDED).from_(CURVES).prepared()
_CURVES_OF_BOARDS = _CURVES.where(col("board_key").in_(param("keys"))).packed().prepared()


def curves_after(version: int, limit: int) -> Program[list[ListedCurve]]:
    """Return up to `limit` stored curves newer than a version, oldest first, without their contents."""
    return [ListedCurve(*row) for row in (yield _CURVES_AFTER.bind(version=version, limit=limit))]


def find_listed_curves(board_keys: Sequence[int]) -> Program[dict[Slot, ListedCurve]]:
    rows = yield _CURVES_OF_BOARDS.bind(keys=board_keys)
    return {(row[0], row[1]): ListedCurve(*row) for row in rows}


def read_documents(versions: Sequence[int]) -> Program[dict[int, bytes]]:
    """Return the encoded curves with these versions, by version. Leave out curves that newer ones have replaced."""
    rows = yield (
        select(col("version"), col("document"))
        .from_(CURVES)
        .where(col("version").in_(param("versions")))
        .bind(versions=list(versions))
    )
    return {row[0]: row[1] for row in rows}


def describe_rules(leaf: Leaf) -> str:
    """Return, as text, the settings by which a leaf's curves are made. If this text changes, a new curve is needed."""
    return f"{leaf.spec.predictor.method.value}/{leaf.spec.predictor.samples}"
