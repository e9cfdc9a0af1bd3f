"""What streams are made of: events, and what the feed asks of a topic.

The rule: a topic's state is one value that is replaced, never changed, so that a read that failed can be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.gap_counts import Footing
from storage.journal import JournalRow
from storage.records import Board
from storage.store import Program

if TYPE_CHECKING:
    from .glances import Glance


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
    index: int  # of the ranked column
    state: State

    @property
    def owner(self) -> str | None:
        """Who is followed; None: the top."""

    def footing(self) -> Footing | None:
        """What counts start from; asked before a look begins, see `Locator.footing`."""
        ...

    def begin(self, glance: Glance) -> Program[None]:
        """Read the state, as of a number that this snapshot has seen all of."""
        ...

    def follow(self, glance: Glance) -> Program[Event | None]:
        """The event that the glance's rows of the board make, if any."""
        ...

    def missed(self, rows: Sequence[JournalRow], until: int) -> Event | None:
        """The event for a client who has seen everything before these rows, and has yet to see them."""
        ...
