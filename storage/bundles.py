"""The changes of one board in one transaction as one row of the log: a row for each costs a post a tenth of its time.

    cells  "  100  250,  007    "     before and after, side by side, of each change; SQL takes the pieces apart
    owners "\\nada\\nbob\\n"            so that SQL finds one
    posts  what was posted, see `posted`

The rule: the three say something of each change, in the order in which they happened. Both halves of a piece are
equally long; a change that leaves the cells alone, or of an owner who was erased long ago, has an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .posted import Said, posts_text

PLACES = 1 << 20  # of one transaction; a request is one, and posts to at most a million boards
NAMELESS = "\x1f"  # begins what stands for an erased owner; no owner has a control character
_OWNER_END = "\n"
_PIECE_END = ","


class Change(NamedTuple):
    """What one post changed on one board, or an erasure."""

    position: int
    number: int  # of two changes of an owner the later one has the larger one
    board_key: int
    owner: str
    previous: str  # see `RankedCells`
    next: str


class Bundle(NamedTuple):
    """A row of the log without what was posted."""

    position: int
    seq: int
    board_key: int
    owners: str
    cells: str
    size: int  # how many changes

    def changes(self) -> Iterator[Change]:
        """In the order in which they happened."""
        number = self.seq * PLACES
        for index, (owner, piece) in enumerate(zip(owners_of(self.owners), pieces_of(self.cells), strict=True)):
            half = len(piece) >> 1
            yield Change(self.position, number + index, self.board_key, owner, piece[:half], piece[half:])


@dataclass(slots=True)
class Draft:
    """The changes of one board, on their way into the log."""

    board_key: int
    changes: list[tuple[str, str, Said]] = field(default_factory=list)  # owner, cells, what is said

    def add(self, owner: str, previous: str, following: str, said: Said) -> None:
        """One more change."""
        self.changes.append((owner, previous + following, said))

    def row(self, at_us: int) -> tuple[int, int, int, str, str, str]:
        """Board, time, number of changes, owners, cells, posts."""
        owners, cells, posts = zip(*self.changes, strict=True)
        return self.board_key, at_us, len(owners), owners_text(owners), cells_text(cells), posts_text(posts)


def owners_text(owners: Sequence[str]) -> str:
    """Owners as they are stored."""
    return f"{_OWNER_END}{_OWNER_END.join(owners)}{_OWNER_END}"


def owners_of(text: str) -> list[str]:
    """Owners, or what stands for those that were erased."""
    return text[1:-1].split(_OWNER_END)


def owner_mark(owner: str) -> str:
    """What a bundle's owners have in them where they have this one."""
    return f"{_OWNER_END}{owner}{_OWNER_END}"


def cells_text(pieces: Sequence[str]) -> str:
    """Cells as they are stored."""
    return _PIECE_END.join(pieces)


def pieces_of(text: str) -> list[str]:
    """Of each change the cells before and after."""
    return text.split(_PIECE_END)
