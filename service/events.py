"""What streams are made of: events, and what the feed asks of a topic.

The rule: a topic's state is one value that is replaced, never changed, so that a read that failed can be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from storage.journal import JournalRow
from storage.records import Board
from storage.store import Program


class Event(NamedTuple):
    """One event of a stream."""

    number: int  # of the journal: a client that has seen it has seen everything up to it
    name: str
    data: bytes  # JSON on one line

    def text(self) -> bytes:
        """The event as it travels."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.name.encode(), self.data)


class State(Protocol):
    """What a topic knows."""

    @property
    def last(self) -> Event | None:
        """It as an event; None before `begin`."""


class Topic(Protocol):
    """What the feed needs of one."""

    board: Board
    state: State

    def begin(self, until: int) -> Program[None]:
        """Read the state, as of a number that this snapshot has seen all of."""
        ...

    def follow(self, rows: Sequence[JournalRow], until: int) -> Program[Event | None]:
        """The event that published rows of the board up to a number make, if any; they are in this snapshot."""
        ...

    def missed(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """The event for a client who has seen everything before these rows, and has yet to see them."""
        ...
