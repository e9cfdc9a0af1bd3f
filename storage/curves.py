"""Curves, stored with a version and shared: a job stores one, every process notices it and keeps it decoded.

The rule: what is served is the newest whole curve of the board's present epoch; corrupt ones are counted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from predictor import Curve, CurveCorrupt, decode, encode
from querybuilder import Dialect, asc, col, excluded, insert, param, select

from .entries import live_epochs
from .errors import UnknownBoard
from .leaderboards import Catalog
from .migrate import CURVES, next_in
from .records import Board
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


def store_curve(dialect: Dialect, board: Board, column_index: int, curve: Curve) -> Program[int]:
    """Store a curve under a new version, unless the board was deleted or emptied since the fit; answers the version.

    Raises:
        UnknownBoard: the board is gone, or what the curve describes is.
    """
    epochs = yield from live_epochs(dialect, [board.key], held=True)
    if epochs.get(board.key) != board.epoch:
        raise UnknownBoard(f"leaderboard {board.id!r} was deleted or emptied meanwhile")
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
        )
        .on_conflict("board_key", "column_index")
        .do_update(
            epoch=excluded("epoch"), version=excluded("version"), as_of=excluded("as_of"), document=excluded("document")
        )
        .build(dialect, document=encode(curve))
    )
    return version


def curves_after(dialect: Dialect, version: int, limit: int) -> Program[list[tuple[int, int, int, int, bytes]]]:
    """Stored curves newer than a version, oldest first: board key, column index, epoch, version, document."""
    rows = yield (
        select(col("board_key"), col("column_index"), col("epoch"), col("version"), col("document"))
        .from_(CURVES)
        .where(col("version").gt(version))
        .order_by(asc(col("version")))
        .limit(limit)
        .build(dialect)
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


class CurveBook:
    """The curves that this process answers from."""

    def __init__(self, store: Store, catalog: Catalog, *, poll_rows_max: int, on_corrupt: Callable[[], None]) -> None:
        self._store, self._catalog = store, catalog
        self._poll_rows_max = poll_rows_max
        self._on_corrupt = on_corrupt
        self._served: dict[tuple[int, int], Served] = {}
        self._version = 0

    def find(self, board: Board, column_index: int) -> Curve | None:
        """The newest curve of the board's epoch, None before the first."""
        served = self.served(board, column_index)
        return None if served is None else served.curve

    def served(self, board: Board, column_index: int) -> Served | None:
        """`find`, with its version."""
        served = self._served.get((board.key, column_index))
        return served if served is not None and served.epoch == board.epoch else None

    def serve(self, served: Served) -> None:
        """Answer from this curve from now on, unless a newer one serves already."""
        slot = (served.board_key, served.column_index)
        current = self._served.get(slot)
        if current is None or current.version < served.version:
            self._served[slot] = served

    def forget(self, board_key: int) -> None:
        """Drop a deleted board's curves."""
        for slot in [slot for slot in self._served if slot[0] == board_key]:
            del self._served[slot]

    def all(self) -> list[Served]:
        """Every curve that serves, for metrics."""
        return list(self._served.values())

    def _newer(self) -> Program[list[tuple[int, int, int, int, bytes]]]:
        return curves_after(self._store.dialect, self._version, self._poll_rows_max)

    async def poll(self) -> int:
        """Take over what other processes stored since the last poll; answers how many were new."""
        taken = 0
        while True:
            rows = await self._store.read(self._newer)
            for board_key, column_index, epoch, version, document in rows:
                self._version = max(self._version, version)
                try:
                    curve = decode(document)
                except CurveCorrupt:
                    self._on_corrupt()
                    log.warning("curve_corrupt", board_key=board_key, column_index=column_index)
                    continue
                self.serve(Served(board_key, column_index, epoch, version, curve))
                taken += 1
            if len(rows) < self._poll_rows_max:
                return taken
