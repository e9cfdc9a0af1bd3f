"""Boards and the curves of their ranked columns as managed objects, as the catalog of this process knows them.

With more than `managed_boards_max` boards the tree shows none, because reading all boards would slow down the service.
"""

from collections.abc import Awaitable, Callable, Iterator

from jobs.job_context import JobContext
from service.contract.responses.boards import CurveState, curve_state
from service.contract.values import format_us
from storage.records import Board

from .history import MetricsMoment
from .object_names import ObjectName
from .objects import BOOLEAN, DOMAIN, DOUBLE, LIST, LONG, TEXT, ManagedObject, Operation, Rows, declare

Refresh = Callable[[Board, int], Awaitable[float]]  # returns the duration of the refresh in seconds

_BOARD: Rows = (  # the functions read a `Board`
    ("Id", TEXT, "The board's id", lambda board: board.id),
    ("Columns", LIST, "Names of the columns", lambda board: [column.name for column in board.spec.columns]),
    ("Table", TEXT, "Table of the rows: own, or shared with other boards", lambda board: board.spec.table.value),
    ("Ties", TEXT, "How equal values rank: shared, earliest", lambda board: board.spec.ties.value),
    ("CreatedAt", TEXT, "Time of creation, ISO 8601 in UTC", lambda board: format_us(board.created_at_us)),
    ("Resets", LONG, "Times that the board was emptied [count]", lambda board: board.epoch),
    ("OfFamily", BOOLEAN, "True if the board belongs to a family", lambda board: board.family_key is not None),
    ("Samples", LONG, "Knots of a curve, as the specification says [count]",
     lambda board: board.spec.predictor.samples),
    ("ExactTop", LONG, "Ranks that are always counted [count]", lambda board: board.spec.predictor.exact_top),
    ("RefreshSeconds", LONG, "Interval between scheduled refreshes [seconds]",
     lambda board: board.spec.predictor.refresh_seconds),
)  # fmt: skip
_PREDICTOR: Rows = (  # the functions read a `CurveState`
    ("Method", TEXT, "How the curve was made: skip, scan", lambda curve: curve.method),
    ("Entries", LONG, "Entries that the curve ranks [entries]", lambda curve: curve.total),
    ("Knots", LONG, "Values with exact counts [count]", lambda curve: curve.knots),
    ("AsOf", TEXT, "Time that the curve describes, ISO 8601 in UTC", lambda curve: curve.as_of),
    ("Age", DOUBLE, "Time since AsOf [seconds]", lambda curve: curve.age_seconds),
    ("Certificate", DOUBLE, "Largest relative error when the curve was fitted [ratio]",
     lambda curve: curve.certificate),
    ("Live", BOOLEAN, "True if the curve counts posts after its fit", lambda curve: curve.live),
    ("Moves", LONG, "Changes between the knots since the fit [count]", lambda curve: curve.moves),
    ("Bound", DOUBLE, "Largest current error of a rank, relative to the rank [ratio]", lambda curve: curve.bound),
)  # fmt: skip


class BoardObjects:
    """The objects `type=Board,name=…` and `type=Predictor,board=…,column=…`."""

    def __init__(self, context: JobContext, refresh: Refresh) -> None:
        self._catalog, self._book, self._refresh = context.catalog, context.book, refresh
        self._now_us, self._boards_max = context.now_us, context.limits.managed_boards_max

    def _shown(self) -> list[Board]:
        boards = self._catalog.list_whole()
        return boards if len(boards) <= self._boards_max else []

    def list_names(self) -> Iterator[ObjectName]:
        for board in self._shown():
            yield _board_name(board)
            for index in board.sorted_indexes:
                yield _predictor_name(board, index)

    def find_object(self, name: ObjectName) -> ManagedObject | None:
        """Return the object with this name, or None. Only this object is built."""
        values = name.values
        if name.domain != DOMAIN or not self._shown():
            return None
        board = self._catalog.find_known(values.get("name" if values.get("type") == "Board" else "board", ""))
        if board is None:
            return None
        index = board.column_index.get(values.get("column", ""))
        found = self._predictor(board, index) if index in board.sorted_indexes else self._board(board)
        return found if found.name.canonical == name.canonical else None

    def _board(self, board: Board) -> ManagedObject:
        async def refresh() -> dict[str, float]:
            names = board.spec.columns
            return {names[index].name: await self._refresh(board, index) for index in board.sorted_indexes}

        text = "Refresh the curves of all ranked columns; returns the seconds that each took"
        operations = {"refresh": Operation(text, refresh)}
        return declare("A leaderboard", _BOARD, operations, subject=lambda _: board, type="Board", name=board.id)

    def _predictor(self, board: Board, index: int) -> ManagedObject:
        seen: tuple[MetricsMoment, CurveState | None] | None = None

        def find_state(now: MetricsMoment) -> CurveState | None:
            nonlocal seen
            if seen is None or seen[0] is not now:
                curve = self._book.find_curve(board, index)
                seen = now, None if curve is None else curve_state(board, curve, self._now_us())
            return seen[1]

        async def refresh() -> float:
            return await self._refresh(board, index)

        text = "Refresh the curve now; returns the seconds that it took"
        return declare(
            "The curve of a ranked column; null before the first fit", _PREDICTOR,
            {"refresh": Operation(text, refresh, returns=DOUBLE)}, subject=find_state,
            type="Predictor", board=board.id, column=board.spec.columns[index].name,
        )  # fmt: skip


def _board_name(board: Board) -> ObjectName:
    return ObjectName.of(DOMAIN, type="Board", name=board.id)


def _predictor_name(board: Board, index: int) -> ObjectName:
    return ObjectName.of(DOMAIN, type="Predictor", board=board.id, column=board.spec.columns[index].name)
