"""Keeps a store's events in one list, to which a follower of each partition's log adds them, numbered without gaps.

Because there are no gaps, a reader that has seen a number knows that no earlier event will appear.
"""

from collections.abc import Sequence
from typing import NamedTuple

from querybuilder import all_of, asc, col, delete, insert, min_, param, select
from storage.log.bundles import ChangeKind
from storage.log.following import Follower
from storage.log.partition_journal import JournalRow
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.schema.tables import EVENTS, GRANTS
from storage.store import CONTROL, Program, in_partition

FOLLOWER = "events"
# The kinds of changes that become events, and the names of these events.
EVENT_TYPES = {
    ChangeKind.CREATED: "board.created",
    ChangeKind.CLOSED: "board.closed",
    ChangeKind.SETTLED: "league.closed",
    ChangeKind.GRANTED: "grants.made",
    ChangeKind.ARCHIVED: "board.archived",
}


class Event(NamedTuple):
    number: int  # 1, 2, 3 …, in the order in which transactions wrote them
    at_us: int
    type: str  # such as "board.closed"
    board_id: str
    grant: str | None = None  # the id of the grant that the event is about, see `rewards.grants`
    owner: str | None = None  # of this grant; None: there is no grant, or its owner was erased


def make_follower(partition: int) -> Follower:
    return Follower(FOLLOWER, partition, _add_events, from_oldest=True, events_only=True, recover=_skip)


def read_events(after: int, *, limit: int) -> Program[list[Event]]:
    """Read up to `limit` events with numbers greater than `after`, in order. Run this in the control partition.

    Events that were pruned are left out without notice; `find_oldest` tells how far back the list goes.
    """
    found = []
    for number, at_us, event_type, board_id, key, grant, owner in (yield _PAGE.bind(after=after, limit=limit)):
        found.append(Event(number, at_us, event_type, board_id, None if key is None else f"{key}-{grant}", owner))
    return found


def find_oldest() -> Program[int | None]:
    """Find the number of the oldest remaining event, or return None if there are no events."""
    [[oldest]] = yield _OLDEST.bind()
    return None if oldest is None else int(oldest)


def prune_events(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete up to `rows_max` events that are older than `before_us`, oldest first, and return how many."""
    oldest = yield from read_events(0, limit=rows_max)
    old = [event.number for event in oldest if event.at_us < before_us]
    if old:
        yield _DELETE.bind(last=old[-1])
    return len(old)


def _add_events(changes: Sequence[JournalRow]) -> Program[None]:
    found = [
        (row.logged_us, EVENT_TYPES[row.record.kind], row.record.board_id, None, None)
        for row in changes
        if row.record is not None and row.record.kind in EVENT_TYPES
    ]
    if found:
        yield from in_partition(CONTROL, append_events(found))


def append_events(found: Sequence[tuple[int, str, str | None, int | None, int | None]]) -> Program[None]:
    """Add events, given as (time, type, board, *grant key) tuples. Run this last, in the control partition."""
    last = yield from take_number(FOLLOWER, len(found))
    yield _ADD.bind(rows=[(number, *each) for number, each in enumerate(found, last - len(found) + 1)])


def _skip() -> Program[None]:
    """Continue at the end of a log that no longer has all changes, because week-old unseen events are of no use."""
    yield from ()


_number = col("number")
_event_number = col("number", "e")
_later = select(*(col(name, "e") for name in TABLES[EVENTS].kinds), col("owner", "g")).from_(EVENTS, "e")
_of_board = col("board_key", "g").eq(col("grant_board", "e"))
_of_grant = all_of(_of_board, col("number", "g").eq(col("grant_number", "e")))
_later = _later.left_join(GRANTS, _of_grant, alias="g").where(_event_number.gt(param("after")))
_PAGE = _later.order_by(asc(_event_number)).limit(param("limit")).prepared()
_OLDEST = select(min_(_number)).from_(EVENTS).prepared()
_DELETE = delete(EVENTS).where(_number.le(param("last"))).prepared()
_ADD = insert(EVENTS).rows(param("rows"), **TABLES[EVENTS].kinds).prepared()
