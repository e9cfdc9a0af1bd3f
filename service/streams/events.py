"""Events of streams, and the protocol between the feed and a topic.

A topic's state is one immutable value. If a read fails, the topic goes back to its earlier state.
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

    number: int  # a number of the journal; a client that has seen this event has seen every change up to it
    name: str
    data: bytes  # JSON on one line

    def encode_event(self) -> bytes:
        """Return the event in the format of server-sent events."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.name.encode(), self.data)


class State(Protocol):
    """The state of a topic as its clients know it."""

    @property
    def last(self) -> Event | None:
        """The state as an event; None until `read_state` has run."""


class Topic(Protocol):
    """Something that clients follow. The feed calls these methods."""

    board: Board
    index: int  # the index of the ranked column
    state: State

    @property
    def owner(self) -> str | None:
        """The owner who is followed; None for the top of a ranking."""

    def find_count_start(self) -> CountStart | None:
        """Return the start of counts. The feed calls this before a poll begins; see `Locator.find_count_start`."""
        ...

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        """Read the state as of the snapshot, which has seen all rows up to `snapshot.until`."""
        ...

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        """Apply the snapshot's new rows of the board to the state; return the event that they cause, if any."""
        ...

    def find_missed_event(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """Return the event, numbered `until`, for a client that has missed only these rows.

        Return None if the rows changed nothing.
        """
        ...
