"""Stores refresh requests, so that an operator can request a new curve in any process, and a job process makes it.

    requested ── a refresh that began later has ended ──> answered

The table has one row for each requested column, with the number of the latest request. A refresh reads this number
before it begins, and afterwards answers all requests up to it, so the new curve includes everything from before the
requests. If the job process dies first, the request stays open, and another job process carries it out.
"""

from typing import Literal, NamedTuple

from querybuilder import asc, col, delete, excluded, insert, param, select, update
from storage.leaves.catalog_rows import find_leaves
from storage.records import Leaf
from storage.schema.sequences import take_number
from storage.schema.tables import REFRESH_REQUESTS
from storage.store import Program

from .live_counts import Slot

RefreshFailure = Literal["failed", "no room"]  # "no room": the disk of the store was full


class RefreshAnswer(NamedTuple):
    version: int | None = None  # the version of the new curve; None: the refresh failed, or no request was answered
    failure: RefreshFailure | None = None
    took_us: int = 0


class RefreshRequest(NamedTuple):
    """The latest request for a column, with the answer to the latest request that has been answered."""

    number: int
    origin: str  # the HTTP request that asked for the refresh, see `jobs.request_origin`
    answered: int  # the number of the latest answered request; 0: none
    answer: RefreshAnswer


_COLUMNS = ("requested", "origin", "answered", "version", "failure", "took_us")
_SLOT = col("leaf_key").eq(param("key")), col("column_index").eq(param("index"))
_STORE = (
    insert(REFRESH_REQUESTS)
    .values(
        leaf_key=param("key"),
        column_index=param("index"),
        requested=param("number"),
        origin=param("origin"),
        answered=0,
        took_us=0,
    )
    .on_conflict("leaf_key", "column_index")
    .do_update(requested=excluded("requested"), origin=excluded("origin"))
    .prepared()
)
_OPEN = (
    select(col("leaf_key"), col("column_index"))
    .from_(REFRESH_REQUESTS)
    .where(col("requested").gt(col("answered")))
    .order_by(asc(col("requested")))
    .limit(param("limit"))
    .prepared()
)
_FIND = select(*map(col, _COLUMNS)).from_(REFRESH_REQUESTS).where(*_SLOT).prepared()
_ANSWER = (
    update(REFRESH_REQUESTS)
    .set(answered=param("number"), version=param("version"), failure=param("failure"), took_us=param("took_us"))
    .where(*_SLOT, col("answered").lt(param("number")))
    .prepared()
)
_DELETE = delete(REFRESH_REQUESTS).where(*_SLOT).prepared()


def store_refresh_request(slot: Slot, origin: str = "") -> Program[int]:
    """Request a refresh on behalf of the HTTP request `origin`. Return the refresh request's number."""
    number = yield from take_number("refresh_request")
    yield _STORE.bind(key=slot[0], index=slot[1], number=number, origin=origin)
    return number


def list_open_refresh_requests(limit: int) -> Program[list[Slot]]:
    """List up to `limit` columns with an unanswered request, ordered by the number of their latest request."""
    return [(row[0], row[1]) for row in (yield _OPEN.bind(limit=limit))]


def find_refresh_request(slot: Slot) -> Program[RefreshRequest | None]:
    """Find a column's latest request, or return None if there was none or the board was deleted."""
    rows = yield _FIND.bind(key=slot[0], index=slot[1])
    if not rows:
        return None
    number, origin, answered, *answer = rows[0]
    return RefreshRequest(number, origin, answered, RefreshAnswer(*answer))


def find_requested_leaf(slot: Slot) -> Program[tuple[RefreshRequest, Leaf] | None]:
    """Find a column's open request and its leaf, or return None if no request is open.

    Requests for leaves without rows are deleted.
    """
    request = yield from find_refresh_request(slot)
    if request is None or request.answered >= request.number:
        return None
    leaf = (yield from find_leaves([slot[0]])).get(slot[0])
    if leaf is None or leaf.archived_us is not None:
        yield _DELETE.bind(key=slot[0], index=slot[1])
        return None
    return request, leaf


def answer_refresh_request(slot: Slot, number: int, answer: RefreshAnswer) -> Program[None]:
    """Answer all of a column's requests up to this number, unless a later request is already answered."""
    yield _ANSWER.bind(key=slot[0], index=slot[1], number=number, **answer._asdict())
