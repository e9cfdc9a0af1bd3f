r"""Bundles: a bundle is a row of the log with all changes of one board in one transaction.

One row per change made posting slower. Three columns hold an item per change, in the order of the changes:

    cells   "01000250,    0007"   text: a piece per change, with the ranked cells before and after the change
    owners  "\nada\nbob\n"        text: the owner of each change, between newlines, so that SQL can find one owner
    posts   '[["p", …], …]'       JSON: a record per change, see `log_record`

In this example, the value of ada changed from 100 to 250. The blanks mean that bob had no value before the value 7.
Commas separate the pieces, so that SQL can split them. Both halves of a piece are equally long. A piece is empty if the
change leaves the cells as they are, or if the owner of the change was erased long ago.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .log_record import RecordFields, encode_records

PLACES = 1 << 20  # the most changes of one bundle, see `Bundle.changes`
NAMELESS = "\x1f"  # the first character of the text that replaces an erased owner; no owner contains it
_OWNER_END = "\n"
_PIECE_END = ","


class Bundle(NamedTuple):
    """A row of the log, without the column `posts`."""

    position: int
    board_key: int
    owners: str
    cells: str
    changes_count: int  # the number of changes in the row

    def changes(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield the number of each change, its owner, and the ranked cells before and after it.

        A later change has a larger number. `RankedCells` explains the cells.
        """
        number = self.position * PLACES
        for index, (owner, piece) in enumerate(zip(owners_of(self.owners), pieces_of(self.cells), strict=True)):
            half = len(piece) >> 1
            yield number + index, owner, piece[:half], piece[half:]


@dataclass(slots=True)
class BundleDraft:
    """The changes of one board that a transaction is about to log, or its events that belong to no leaf."""

    board_key: int | None
    changes: list[tuple[str, str, RecordFields]] = field(default_factory=list)  # owner, cells before and after, record

    def add_change(self, owner: str, previous: str, following: str, record: RecordFields) -> None:
        self.changes.append((owner, previous + following, record))

    def encode_row(self, at_us: int) -> tuple[int | None, int, int, str, str, str]:
        """Return the columns of the bundle's row: board, time, number of changes, owners, cells, posts."""
        owners, cells, posts = zip(*self.changes, strict=True)
        return self.board_key, at_us, len(owners), owners_text(owners), cells_text(cells), encode_records(posts)


def owners_text(owners: Sequence[str]) -> str:
    """Return the text for the column `owners`. It contains `owners_text([owner])` if and only if it has this owner."""
    return f"{_OWNER_END}{_OWNER_END.join(owners)}{_OWNER_END}"


def owners_of(text: str) -> list[str]:
    """Return the owners in the column `owners`. A text that begins with `NAMELESS` replaces an erased owner."""
    return text[1:-1].split(_OWNER_END)


def cells_text(pieces: Sequence[str]) -> str:
    return _PIECE_END.join(pieces)


def pieces_of(text: str) -> list[str]:
    """Return the piece of each change: the ranked cells before the change, followed by those after it."""
    return text.split(_PIECE_END)
