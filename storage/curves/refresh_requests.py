"""Refreshes that an operator requests from any process, and that any job process of the store carries out.

    requested ──a job process takes it (conditional write)──> taken ──its refresh ends──> answered

The table has one row for each requested column, with the number of its latest request. Later requests have higher
numbers. A refresh answers a request only if the refresh began after the request. So the refresh also answers the
column's requests with lower numbers, and no request with a higher number.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from querybuilder import asc, col, excluded, insert, param, select, update
from storage.records import Board
from storage.schema.sequences import take_number
from storage.schema.tables import REFRESH_REQUESTS
from storage.store import Program

Outcome = Literal["refreshed", "unknown_board", "failed"]


@dataclass(frozen=True, slots=True)
class StoredRefreshRequest:
    board_key: int
    column_index: int
    epoch: int
    board_id: str
    number: int  # higher than the numbers of all earlier requests in the store
    origin: str | None  # the id of the HTTP request that asked for the refresh


@dataclass(frozen=True, slots=True)
class RefreshAnswer:
    outcome: Outcome
    version: int = 0  # the version of the curve that the refresh stored
    took_us: int = 0


@dataclass(frozen=True, slots=True)
class RefreshRequestState:
    taken: int  # the number of the latest request that a job process has taken
    answered: int  # the number of the latest request that is answered
    answer: RefreshAnswer


_ANSWER_COLUMNS = ("outcome", "version", "took_us")
_NUMBER = param("number")
_SLOT = col("board_key").eq(param("key")), col("column_index").eq(param("index"))
_REQUEST_COLUMNS = ("board_key", "column_index", "epoch", "board_id", "demanded", "origin")
_REQUESTS = select(*map(col, _REQUEST_COLUMNS))
_UNANSWERED: dict[str, Any] = {"taken": 0, "answered": 0, "outcome": "", "version": 0, "took_us": 0}
_STORE = (
    insert(REFRESH_REQUESTS)
    .values(**{name: param(name) for name in _REQUEST_COLUMNS}, **_UNANSWERED)
    .on_conflict("board_key", "column_index")
    .do_update(epoch=excluded("epoch"), demanded=excluded("demanded"), origin=excluded("origin"))
    .prepared()
)
_OPEN = (
    _REQUESTS.from_(REFRESH_REQUESTS)
    .where(col("demanded").gt(col("taken")))
    .order_by(asc(col("demanded")))
    .limit(param("limit"))
    .prepared()
)
_UNTAKEN = *_SLOT, col("demanded").eq(_NUMBER), col("taken").lt(_NUMBER)
_TAKE = update(REFRESH_REQUESTS).set(taken=_NUMBER).where(*_UNTAKEN).prepared()
_RETURN = update(REFRESH_REQUESTS).set(taken=0).where(*_SLOT, col("taken").eq(_NUMBER)).prepared()
_ANSWER = (
    update(REFRESH_REQUESTS)
    .set(answered=_NUMBER, **{name: param(name) for name in _ANSWER_COLUMNS})
    .where(*_SLOT, col("answered").lt(_NUMBER))
    .prepared()
)
_STATE_COLUMNS = select(*map(col, ("taken", "answered", *_ANSWER_COLUMNS)))
_STATE = _STATE_COLUMNS.from_(REFRESH_REQUESTS).where(*_SLOT).prepared()


def store_refresh_request(board: Board, column_index: int, origin: str = "") -> Program[int]:
    """Request a refresh on behalf of the HTTP request `origin`. Return the number of the refresh request."""
    number = yield from take_number("refresh_demand")
    slot = {"board_key": board.key, "column_index": column_index, "epoch": board.epoch, "board_id": board.id}
    yield _STORE.bind(**slot, demanded=number, origin=origin)
    return number


def list_open_refresh_requests(limit: int) -> Program[list[StoredRefreshRequest]]:
    """Return up to `limit` requests that no job process has taken, oldest first."""
    rows = yield _OPEN.bind(limit=limit)
    return [StoredRefreshRequest(*row) for row in rows]


def take_refresh_request(request: StoredRefreshRequest) -> Program[bool]:
    """Take a request. Return False if another process was faster, or if the refresh was requested again meanwhile."""
    [[rows]] = yield _TAKE.bind(key=request.board_key, index=request.column_index, number=request.number)
    return bool(rows)


def return_refresh_request(request: StoredRefreshRequest) -> Program[None]:
    yield _RETURN.bind(key=request.board_key, index=request.column_index, number=request.number)


def answer_refresh_request(request: StoredRefreshRequest, answer: RefreshAnswer) -> Program[None]:
    """Store the answer to a request, unless a later request is already answered."""
    yield _ANSWER.bind(key=request.board_key, index=request.column_index, number=request.number, **asdict(answer))


def find_refresh_request_state(board_key: int, column_index: int) -> Program[RefreshRequestState | None]:
    """Return the state of a column's requests; None if there are none or the board was deleted."""
    rows = yield _STATE.bind(key=board_key, index=column_index)
    if not rows:
        return None
    taken, answered, *answer = rows[0]
    return RefreshRequestState(taken, answered, RefreshAnswer(*answer))
