"""Events of streams, and the protocol between the feed and a topic.

A topic's state is one value that is replaced and never changed, so that a read that failed can be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.entries.exact_ranks import CountStart
from storage.log.journal import JournalRow
from storage.records import Board
from storage.store import Program

if TYPE_CHECKING:
    from .snapshot import FeedSnapshot


class Event(NamedTuple):
    """One event of a stream."""

    number: int  # a number of the journal: whoever has seen this event has seen everything up to that number
    name: str
    data: bytes  # JSON on one line

    def encode_event(self) -> bytes:
        """Return the event in the format of server-sent events."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.name.encode(), self.data)


class State(Protocol):
    """What a topic has told its clients."""

    @property
    def last(self) -> Event | None:
        """The state as an event; None before `read_state`."""


class Topic(Protocol):
    """Something that clients follow, as the feed uses it."""

    board: Board
    index: int  # of the ranked column
    state: State

    @property
    def owner(self) -> str | None:
        """The owner who is followed; None for the top of a ranking."""

    def find_count_start(self) -> CountStart | None:
        """Return what counts start from. The feed calls it before a look begins; see `Locator.find_count_start`."""
        ...

    def read_state(self, glance: FeedSnapshot) -> Program[None]:
        """Read the state as of the glance's snapshot, which has seen all rows up to `glance.until`."""
        ...

    def apply_new_rows(self, glance: FeedSnapshot) -> Program[Event | None]:
        """Apply the glance's new rows of the board to the state; return the event that they cause, if any."""
        ...

    def find_missed_event(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """Return the event for a client that has seen everything before these rows, None where they changed nothing."""
        ...
