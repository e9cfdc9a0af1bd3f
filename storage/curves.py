"""Curves, stored with a version and shared: a job stores one, every process notices it and keeps it decoded.

    poll ──> the table's list of newer versions ──> contents from memcached, else from the table ──> served

The rule: what is served is the newest whole curve of the board's present epoch; corrupt ones are counted and ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from predictor import Curve, CurveCorrupt, decode, encode
from querybuilder import Dialect, asc, col, excluded, insert, param, select

from .curve_marks import rules_of
from .entries import live_epochs
from .envelope import Listed
from .errors import UnknownBoard
from .migrate import CURVES, next_in
from .records import Board
from .shared_curves import SharedCurves
from .store import Program, Store

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A decoded curve that answers ranks."""

    board_key: int
    column_index: int
    epoch: int
    version: int  # grows with every stored curve of the store
    curve: Curve


def store_curve(
    dialect: Dialect,
    board: Board,
    column_index: int,
    curve: Curve,
    *,
    changes: int | None = None,
    owned: Program[None] | None = None,
) -> Program[int]:
    """Store a curve under a new version, unless the board was deleted or emptied since the fit; answers the version.

    `changes`: the board's count of changes in the snapshot of the fit. `owned` runs in the same transaction and raises
    where somebody else has taken over: then nothing is stored.

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
        )
        .on_conflict("board_key", "column_index")
        .do_update(
            epoch=excluded("epoch"),
            version=excluded("version"),
            as_of=excluded("as_of"),
            document=excluded("document"),
            changes=excluded("changes"),
            rules=excluded("rules"),
        )
        .build(dialect, document=encode(curve), changes=changes)
    )
    return version


def curves_after(dialect: Dialect, version: int, limit: int) -> Program[list[Listed]]:
    """Stored curves newer than a version, oldest first, without their contents."""
    rows = yield (
        select(*(col(name) for name in ("board_key", "column_index", "epoch", "version", "as_of")))
        .from_(CURVES)
        .where(col("version").gt(version))
        .order_by(asc(col("version")))
        .limit(limit)
        .build(dialect)
    )
    return [Listed(*row) for row in rows]


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
        self._expecting = 0
        self._forgotten_meanwhile: set[int] = set()  # board keys; curves under way to `serve` may be theirs

    def find(self, board: Board, column_index: int) -> Curve | None:
        """The newest curve of the board's epoch, None before the first."""
        served = self.served(board, column_index)
        return None if served is None else served.curve

    def served(self, board: Board, column_index: int) -> Served | None:
        """`find`, with its version."""
        served = self._served.get((board.key, column_index))
        return served if served is not None and served.epoch == board.epoch else None

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

    def _serving_version(self, slot: tuple[int, int]) -> int:
        current = self._served.get(slot)
        return 0 if current is None else current.version

    async def share(self, served: Served) -> None:
        """Let other processes have a curve that this one has stored, without asking the table for it."""
        if self._shared is not None:
            listed = Listed(served.board_key, served.column_index, served.epoch, served.version, served.curve.as_of_us)
            await self._shared.put(listed, served.curve)

    def forget(self, board_key: int) -> None:
        """Drop a deleted board's curves."""
        if self._expecting:
            self._forgotten_meanwhile.add(board_key)
        for slot in [slot for slot in self._served if slot[0] == board_key]:
            del self._served[slot]

    def all(self) -> list[Served]:
        """Every curve that serves, for metrics."""
        return list(self._served.values())

    def _newer(self) -> Program[list[Listed]]:
        return curves_after(self._store.dialect, self._version, self._poll_rows_max)

    async def poll(self) -> int:
        """Take over what other processes stored since the last poll; answers how many were new."""
        taken = 0
        while True:
            with self.expecting():
                listed = await self._store.read(self._newer)
                wanted = [
                    one for one in listed if one.version > self._serving_version((one.board_key, one.column_index))
                ]
                curves = await self._contents(wanted) if wanted else {}
                for one, curve in curves.items():
                    self.serve(Served(one.board_key, one.column_index, one.epoch, one.version, curve))
            if listed:
                self._version = max(self._version, listed[-1].version)
            taken += len(curves)
            if len(listed) < self._poll_rows_max:
                return taken

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
