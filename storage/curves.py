"""Curves, stored with a version and shared: a job stores one, every process notices it and keeps it decoded.

    poll ──> the table's list of newer versions ──> contents from memcached, else from the table ──> served
    poll_live ──> newer live counts and the mark that all are as of ──> the same curves, kept live

The rule: what is served is the newest whole curve of the board's present epoch, live where its counts are known;
corrupt ones are counted and ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import structlog

from predictor import AsOf, Curve, CurveCorrupt, KnotsInvalid, LiveCounts, LiveCurve, RankCurve, decode, encode
from querybuilder import Dialect, asc, col, insert, param, select

from .change_log import Mark
from .curve_marks import rules_of
from .entries import live_epochs
from .envelope import Listed
from .errors import UnknownBoard
from .live_counts import StoredCounts, counts_after, mark_of, mark_text
from .migrate import CURVES, next_in
from .records import Board
from .shared_curves import SharedCurves
from .store import Program, Row, Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A decoded curve that answers ranks."""

    board_key: int
    column_index: int
    epoch: int
    version: int  # grows with every stored curve of the store
    curve: RankCurve
    mark: Mark | None = None  # which changes the curve counts; None: not known
    live_version: int = 0  # grows with every change of a live curve; 0: it is as it was fitted

    @property
    def fit(self) -> Curve:
        """The curve as it was fitted."""
        return self.curve.fit if isinstance(self.curve, LiveCurve) else self.curve


@dataclass(frozen=True, slots=True)
class _Live:
    curve: LiveCurve
    version: int
    mark: Mark | None  # None: as of the book's own, together with all the others


def store_curve(
    dialect: Dialect,
    board: Board,
    column_index: int,
    curve: Curve,
    *,
    changes: int | None = None,
    mark: Mark | None = None,
    owned: Program[None] | None = None,
) -> Program[int]:
    """Store a curve under a new version, unless the board was deleted or emptied since the fit; answers the version.

    `changes` and `mark`: the board's count of changes, and what of the change log is in, in the snapshot of the fit.
    `owned` runs in the same transaction and raises where somebody else has taken over: then nothing is stored.

    Raises:
        UnknownBoard: the board is gone, or what the curve describes is.
        LeaseLost: as `owned` does.
    """
    epochs = yield from live_epochs(dialect, [board.key], held=True)
    if epochs.get(board.key) != board.epoch:
        raise UnknownBoard(f"leaderboard {board.id!r} was deleted or emptied meanwhile")
    if owned is not None:
        yield from owned
    version = yield from next_in(dialect, "curve_version")
    yield (
        insert(CURVES)
        .values(
            board_key=board.key,
            column_index=column_index,
            epoch=board.epoch,
            version=version,
            as_of=curve.as_of_us,
            document=param("document"),
            changes=param("changes"),
            rules=rules_of(board),
            mark_position=param("mark_position"),
            mark_seen=param("mark_seen"),
        )
        .on_conflict("board_key", "column_index")
        .overwrite()
        .build(
            dialect,
            document=encode(curve),
            changes=changes,
            mark_position=None if mark is None else mark.position,
            mark_seen=None if mark is None else mark_text(mark),
        )
    )
    return version


def curves_after(dialect: Dialect, version: int, limit: int) -> Program[list[Listed]]:
    """Stored curves newer than a version, oldest first, without their contents."""
    names = ("board_key", "column_index", "epoch", "version", "as_of", "mark_position", "mark_seen")
    rows = yield (
        select(*map(col, names))
        .from_(CURVES)
        .where(col("version").gt(version))
        .order_by(asc(col("version")))
        .limit(limit)
        .build(dialect)
    )
    return [_listed(row) for row in rows]


def _listed(row: Row) -> Listed:
    board_key, column_index, epoch, version, as_of_us, position, seen = row
    return Listed(board_key, column_index, epoch, version, as_of_us, mark_of(position, seen))


def documents_of(dialect: Dialect, versions: Sequence[int]) -> Program[dict[int, bytes]]:
    """Contents of stored curves by version; those that were replaced meanwhile are left out."""
    rows = yield (
        select(col("version"), col("document"))
        .from_(CURVES)
        .where(col("version").in_(param("versions")))
        .build(dialect, versions=list(versions))
    )
    return {row[0]: row[1] for row in rows}


class CurveBook:
    """The curves that this process answers from."""

    def __init__(
        self, store: Store, shared: SharedCurves | None, *, poll_rows_max: int, on_corrupt: Callable[[], None]
    ) -> None:
        self._store, self._shared = store, shared
        self._poll_rows_max = poll_rows_max
        self._on_corrupt = on_corrupt
        self._served: dict[tuple[int, int], Served] = {}
        self._version = 0
        self._live: dict[tuple[int, int], _Live] = {}  # of `_served`'s versions
        self._as_of, self._mark, self._live_version = AsOf(0), Mark(0), 0
        self._unmatched: dict[tuple[int, int], StoredCounts] = {}  # of curves that this process does not serve yet
        self._polling_live, self._polling = asyncio.Lock(), asyncio.Lock()  # taken in this order
        self._expecting = 0
        self._forgotten_meanwhile: set[int] = set()  # board keys; curves under way to `serve` may be theirs

    def find(self, board: Board, column_index: int) -> RankCurve | None:
        """The newest curve of the board's epoch, None before the first."""
        slot = board.key, column_index
        served = self._served.get(slot)
        if served is None or served.epoch != board.epoch:
            return None
        live = self._live.get(slot)
        return served.curve if live is None else live.curve

    def served(self, board: Board, column_index: int) -> Served | None:
        """`find`, with its version and what it counts."""
        served = self._served.get((board.key, column_index))
        return self._as_it_is(served) if served is not None and served.epoch == board.epoch else None

    def _as_it_is(self, served: Served) -> Served:
        live = self._live.get((served.board_key, served.column_index))
        if live is None:
            return served
        return replace(served, curve=live.curve, mark=live.mark or self._mark, live_version=live.version)

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Around reading or storing a curve and then serving it: a board forgotten meanwhile stays forgotten."""
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            if not self._expecting:
                self._forgotten_meanwhile.clear()

    def serve(self, served: Served) -> None:
        """Answer from this curve from now on, unless a newer one serves already."""
        slot = (served.board_key, served.column_index)
        if served.version > self._serving_version(slot) and served.board_key not in self._forgotten_meanwhile:
            self._served[slot] = served
            if live := self._live.pop(slot, None):
                live.curve.stop()

    def _serving_version(self, slot: tuple[int, int]) -> int:
        current = self._served.get(slot)
        return 0 if current is None else current.version

    async def share(self, served: Served) -> None:
        """Let other processes have a curve that this one has stored, without asking the table for it."""
        if self._shared is not None:
            listed = Listed(served.board_key, served.column_index, served.epoch, served.version, served.fit.as_of_us)
            await self._shared.put(listed, served.fit)

    def forget(self, board_key: int) -> None:
        """Drop a deleted board's curves."""
        if self._expecting:
            self._forgotten_meanwhile.add(board_key)
        for slot in [slot for slot in self._served if slot[0] == board_key]:
            del self._served[slot]
            self._live.pop(slot, None)

    @property
    def count(self) -> int:
        """How many curves serve."""
        return len(self._served)

    def all(self) -> list[Served]:
        """Every curve that serves, for metrics."""
        return [self._as_it_is(served) for served in self._served.values()]

    def _newer(self) -> Program[list[Listed]]:
        return curves_after(self._store.dialect, self._version, self._poll_rows_max)

    async def poll(self) -> int:
        """Take over what other processes stored since the last poll; answers how many were new."""
        async with self._polling:
            return await self._poll()

    async def reread(self) -> int:
        """Forget every curve and take all over anew; answers how many. Until then ranks are counted."""
        async with self._polling_live, self._polling:
            for kept in (self._served, self._live, self._unmatched):
                kept.clear()
            self._version = self._live_version = 0
            await self._poll()
        await self.poll_live()
        return len(self._served)

    async def _poll(self) -> int:
        taken = 0
        while True:
            with self.expecting():
                listed = await self._store.read(self._newer)
                wanted = [
                    one for one in listed if one.version > self._serving_version((one.board_key, one.column_index))
                ]
                curves = await self._contents(wanted) if wanted else {}
                for one, curve in curves.items():
                    self.serve(Served(one.board_key, one.column_index, one.epoch, one.version, curve, one.mark))
            if listed:
                self._version = max(self._version, listed[-1].version)
            taken += len(curves)
            if len(listed) < self._poll_rows_max:
                return taken

    async def poll_live(self) -> int:
        """Take over the live counts folded since the last poll; answers how many curves they changed."""
        async with self._polling_live:
            now, counts = await self._store.read(lambda: counts_after(self._store.dialect, self._live_version))
            if now is None:
                return 0
            if now.version < self._live_version:  # the store was set back to a backup
                self._stop_all()
            waiting = self._unmatched | {(one.board_key, one.column_index): one for one in counts}
            if any(one.curve_version > self._version for one in waiting.values()):
                await self.poll()
            fits = {slot: self._served[slot].fit for slot in waiting if slot in self._served}
            built = await asyncio.to_thread(_build_all, list(waiting.values()), fits, self._as_of) if waiting else {}
            self._unmatched = {}
            for slot, one in waiting.items():
                self._take_over(slot, one, fits.get(slot), built.get(slot))
            self._as_of.us, self._mark, self._live_version = now.as_of_us, now.mark, now.version
            return len(counts)

    def _take_over(
        self, slot: tuple[int, int], counts: StoredCounts, fit: Curve | None, live: LiveCurve | None
    ) -> None:
        """Serve a live curve, or its fit where it goes without; one that others have left behind stands still."""
        served = self._served.get(slot)
        self._stop(slot)
        if served is None or served.version < counts.curve_version or served.curve is not fit:
            if served is not None or counts.curve_version > self._version:
                self._unmatched[slot] = counts  # until its curve serves here
        elif (served.version, served.epoch) == (counts.curve_version, counts.epoch):
            self._live.pop(slot, None)
            if live is not None:
                self._live[slot] = _Live(live, counts.version, None)
            elif counts.document:
                self._on_corrupt()
                log.warning("live_counts_corrupt", board_key=slot[0], column_index=slot[1])

    def _stop(self, slot: tuple[int, int]) -> None:
        """Have a live curve stand still, at the mark that it was last as of."""
        live = self._live.get(slot)
        if live is not None and live.mark is None:
            live.curve.stop()
            self._live[slot] = replace(live, mark=self._mark)

    def _stop_all(self) -> None:
        for slot in list(self._live):
            self._stop(slot)
        self._live.clear()

    async def _contents(self, wanted: Sequence[Listed]) -> Mapping[Listed, Curve]:
        """From memcached, and from the table what it does not have."""
        found = {} if self._shared is None else await self._shared.find(wanted)
        missing = [one for one in wanted if one not in found]
        if not missing:
            return found
        versions = [one.version for one in missing]
        documents = await self._store.read(lambda: documents_of(self._store.dialect, versions))
        decoded = await asyncio.to_thread(_decode_all, missing, documents)  # 1,000 knots: a millisecond
        for one, curve in decoded.items():
            if curve is None:
                self._on_corrupt()
                log.warning("curve_corrupt", board_key=one.board_key, column_index=one.column_index)
            else:
                found[one] = curve
        return found


def _decode_all(missing: Sequence[Listed], documents: Mapping[int, bytes]) -> dict[Listed, Curve | None]:
    """Curves, None for a corrupt one; what was replaced meanwhile is left out: it is listed anew."""
    decoded: dict[Listed, Curve | None] = {}
    for one in missing:
        if one.version in documents:
            try:
                decoded[one] = decode(documents[one.version])
            except CurveCorrupt:
                decoded[one] = None
    return decoded


def _build_all(
    counts: Sequence[StoredCounts], fits: Mapping[tuple[int, int], Curve], as_of: AsOf
) -> dict[tuple[int, int], LiveCurve]:
    """The live curves of those whose fit is at hand, without what is empty, corrupt or another fit's."""
    built: dict[tuple[int, int], LiveCurve] = {}
    for one in counts:
        slot = one.board_key, one.column_index
        fit = fits.get(slot)
        if one.document and fit is not None:
            with suppress(CurveCorrupt, KnotsInvalid):
                built[slot] = LiveCurve(fit, LiveCounts.decode(one.document, fit), as_of=as_of)
    return built
