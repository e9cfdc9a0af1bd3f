"""Events of streams, and the protocol between the feed and a topic."""

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
    number: int  # a sequence number of the journal; the event includes every change up to this number
    name: str
    data: bytes  # JSON on one line

    def encode_event(self) -> bytes:
        """Return the event in the format of server-sent events."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.name.encode(), self.data)


class State(Protocol):
    """The state of the rows or of the owner that a topic follows."""

    @property
    def last(self) -> Event | None:
        """The last event, which shows the whole state to a new client. None until `read_state` has run."""


class Topic(Protocol):
    """Something that clients follow. The feed calls these methods."""

    board: Board
    index: int  # the index of the ranked column
    state: State

    @property
    def owner(self) -> str | None:
        """The owner who is followed; None for the top of a ranking."""

    def find_count_start(self) -> CountStart | None:
        """Return the start of a count (see `Locator.find_count_start`). The feed calls this before a poll begins."""
        ...

    def read_state(self, snapshot: FeedSnapshot) -> Program[None]:
        """Read the state in the snapshot. It includes all rows of the journal up to the number `snapshot.until`."""
        ...

    def apply_new_rows(self, snapshot: FeedSnapshot) -> Program[Event | None]:
        """Apply the new rows about the board to the state. Return the event that these rows cause, if any."""
        ...

    def find_missed_event(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """Return the event for a client that missed only these rows, or None if the topic shows no change.

        `until` is the number of the event.
        """
        ...
