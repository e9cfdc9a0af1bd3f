"""The stream of a cohort. All who have a seat follow the same small table, because each of their posts changes it.

Most posts to a league are about other cohorts. So a topic looks at the store only if the log has news about an owner in
its cohort. Until the cohort is full, any news about the board will do, because somebody may have taken a seat.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from aiohttp import web

from service.context import Context
from service.contract.league_messages import CohortEvent
from service.contract.routes import Call, Reply
from service.contract.values import format_us
from service.streams.subscriptions import Event, FeedSnapshot, Topic
from service.views.posts.stream import follow_topic
from storage.boards.journal import Numbers
from storage.errors import StorageError
from storage.leagues.cohorts import Placed, Seat, read_cohort, split_cohort
from storage.leaves.entries import Entries
from storage.log.partition_journal import JournalRow
from storage.store import Program

from .cohorts import LeaguePeriod, find_period, list_entries, parse_cohort, read_placed, unknown_cohort


@dataclass(frozen=True, slots=True)
class _Shown:
    last: Event  # the last event, which shows the whole cohort to a new client
    owners: frozenset[str]  # all who have a seat, including hidden ones
    is_full: bool  # no seat is free
    is_empty: bool = False


class _NoSeatError(StorageError):
    """Nobody has a seat in the cohort."""


class CohortTopic(Topic):
    def __init__(self, at: LeaguePeriod, cohort: int, entries: Entries) -> None:
        super().__init__(at.board)
        self._at, self._cohort, self._entries = at, cohort, entries

    def read_state(self, snapshot: FeedSnapshot) -> Program[_Shown]:
        """Read the cohort in the snapshot.

        Raises:
            _NoSeatError: nobody has a seat in it.
        """
        at, seats, placed = self._at, list[Seat](), list[Placed]()
        if not at.board.is_unreached:
            found = yield from read_cohort(at.board.leaf, self._cohort)
            seats, placed = yield from read_placed(at, self._entries, found)
        if not seats:
            raise _NoSeatError
        event = CohortEvent(
            league=at.family.id,
            period=at.period.id,
            board=at.board.id,
            ends_at=format_us(at.ends_us),
            division=at.league.divisions[split_cohort(self._cohort)[0]].name,
            cohort=at.name_cohort(self._cohort),
            seats=len(placed),
            entries=list_entries(at, self._entries, placed),
        )
        return _Shown(
            last=Event(snapshot.until, "cohort", msgspec.json.encode(event)),
            owners=frozenset(each.owner for each in seats),
            is_full=len(seats) >= at.league.cohort_size,
        )

    def apply_new_rows(self, before: _Shown, snapshot: FeedSnapshot) -> Program[_Shown]:
        if not _concern(before, snapshot.find_rows(self.board)):
            return before
        now = yield from self.read_state(snapshot)
        return replace(now, last=before.last) if now.last.data == before.last.data else now

    def find_missed_event(self, now: _Shown, rows: Sequence[JournalRow], until: Numbers) -> Event | None:
        return now.last._replace(numbers=until) if _concern(now, rows) else None


def _concern(shown: _Shown, rows: Sequence[JournalRow]) -> bool:
    """Return whether changes to the board may have changed a cohort. A row without an owner may be about any owner."""
    return any(not shown.is_full or row.owner is None or row.owner in shown.owners for row in rows)


async def get_cohort_stream(context: Context, call: Call) -> Reply | web.StreamResponse:
    at = await find_period(context, call)
    cohort = parse_cohort(at, call.path["cohort"])
    make = partial(CohortTopic, at, cohort, context.boards.open_rows(at.board.leaf))
    try:
        return await follow_topic(context, call, at.board, ("cohort", cohort), make)
    except _NoSeatError:
        raise unknown_cohort(at, cohort) from None
