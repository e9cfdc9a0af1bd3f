r"""Encodes and decodes the rows of the log. Each row is a bundle: all changes to one board in one transaction.

Bundles exist because a row per change made posting slower. Three columns hold an item per change, in the same order:

    cells   "01000250,    0007"   text: a piece per change, with the ranked cells before and after the change
    owners  "\nada\nbob\n"        text: the owner of each change, between newlines, so that SQL can find one owner
    posts   '[["p", …], …]'       JSON: a record per change, which says what was posted or happened

In this example, ada's value changed from 100 to 250. The blanks mean that bob had no earlier value. Commas
separate the pieces, and both halves of a piece are equally long. A piece is empty if the change leaves the cells as
they are, or if the owner of the change was erased long ago.

A record is a JSON array that ends after the last field with a value, because each byte makes every post more expensive.
A column is stored as its index in the board's spec. This index never changes, because new columns are only added at the
end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from storage.records import ColumnChange

from .cells import Cell

PLACES = 1 << 20  # the most changes of one bundle, see `Bundle.changes`
NAMELESS = "\x1f"  # the first character of the text that replaces an erased owner; no owner contains it
_OWNER_END = "\n"
_PIECE_END = ","

RecordedError = tuple[str, str, str | None]  # the kind of error, its message, and a JSON pointer into the post
RecordFields = tuple[Any, ...]  # the first fields of `ChangeRecord`, up to the last that has a value


class ChangeKind(StrEnum):
    APPLIED = "p"
    UNCHANGED = "u"  # a post that changed no value
    REJECTED = "n"  # a queued post that was rejected when it was applied
    UNSEEN = "d"  # a post that was applied to a hidden entry; the record holds all cells, the ranked ones too
    FIRST = "f"  # like APPLIED, and the post made the entry
    FIRST_UNSEEN = "g"  # like UNSEEN, and the post made the entry
    VOIDED = "v"  # an earlier post was taken back; the record holds its id, and all cells without it
    RENAMED = "k"  # another owner's entry became this owner's, who had none; the record names the other, with all cells
    JOINED = "j"  # the entry was made again from its posts and those of another owner, whom the record names
    COMBINED = "b"  # the stored values of another owner's entry were merged into the entry, by the rules of the columns
    LEFT = "t"  # the entry went to another owner, whom the record names
    ERASED = "e"
    HIDDEN = "h"
    SHOWN = "s"
    RESET = "r"  # the board was emptied
    MOVED = "m"  # the board was moved to another partition
    DELETED = "x"  # the board was deleted; the record holds its id and spec
    # The events below change no entry. A transaction logs all of its events in one bundle, which belongs to no leaf.
    # The record holds the board's id and key. Readers of entries skip these bundles, and so does the journal.
    CREATED = "c"
    CLOSED = "l"  # the board is shut
    FROZEN = "z"  # its final curves are stored
    SETTLED = "y"  # all owners of its cohorts have moved, and have got their rewards
    GRANTED = "w"  # all owners have got their rewards
    ARCHIVED = "a"  # an archive has replaced its rows
    SERVED = "q"  # a new curve of the column `column_index` began to serve


NO_CHANGE = (ChangeKind.UNCHANGED, ChangeKind.REJECTED)
FIRST_POSTS = (ChangeKind.FIRST, ChangeKind.FIRST_UNSEEN)
MERGES = (ChangeKind.RENAMED, ChangeKind.JOINED, ChangeKind.COMBINED)
BEGINNINGS = (*FIRST_POSTS, ChangeKind.RENAMED)  # changes that made an entry
POSTS = (ChangeKind.APPLIED, ChangeKind.UNCHANGED, ChangeKind.UNSEEN, *FIRST_POSTS)


class ChangeRecord(msgspec.Struct, frozen=True, array_like=True):
    kind: ChangeKind
    changes: list[ColumnChange] = []
    post_id: str | None = None
    at_us: int | None = None  # the time that the post names; None: the post names no time
    cells: list[Cell] = []  # the row's unranked cells after the change; all its cells if the row is hidden
    version: int | None = None  # the version of the row after the change; None: the version is the bundle's time
    board_id: str | None = None  # the id of the board, of an event that concerns a whole board
    spec: Any = None  # the spec of a deleted board, decoded from JSON to dicts, lists, strings and numbers
    error: RecordedError | None = None  # why the post was rejected
    leaf_key: int | None = None  # the key of the board, if the bundle belongs to no leaf
    column_index: int | None = None
    owner: str | None = None  # of a merge: the other owner; of a voided post: who posted it, if not the entry's owner


_UNSAID: RecordFields = (None, (), None, None, (), *[None] * 6)  # the fields before `owner`, if they have no value
_encode = msgspec.json.Encoder().encode
decode_records = msgspec.json.Decoder(list[ChangeRecord | None]).decode
split_records = msgspec.json.Decoder(list[msgspec.Raw]).decode  # parts of the text; `decode_record` decodes one
decode_record = msgspec.json.Decoder(ChangeRecord | None).decode


def record_of_post(
    happened: ChangeKind,
    changes: Sequence[ColumnChange],
    post_id: str | None,
    at_us: int | None,
    cells: Sequence[Cell],
    version: int | None,
) -> RecordFields:
    """Encode a post, or its voiding, as a record. If no entry remains, pass neither cells nor a version."""
    if at_us is None and version is None and not cells:
        return (happened, changes) if post_id is None else (happened, changes, post_id)
    return happened, changes, post_id, at_us, cells, version


def record_of_event(happened: ChangeKind, cells: Sequence[Cell] = (), version: int | None = None) -> RecordFields:
    """Encode a change other than a post as a record. If an entry remains afterwards, pass its cells and version."""
    return (happened,) if version is None else (happened, (), None, None, cells, version)


def naming_owner(record: RecordFields, owner: str) -> RecordFields:
    """Add to a record the other owner whom the change concerns, see `ChangeRecord.owner`."""
    return (*record, *_UNSAID[len(record) :], owner)


def record_of_deletion(board_id: str, spec: object) -> RecordFields:
    """Encode a board's deletion as a record, with the spec that readers need to decode the board's earlier changes."""
    return ChangeKind.DELETED, (), None, None, (), None, board_id, spec


def record_of_board_event(
    happened: ChangeKind, board_id: str, leaf_key: int, column_index: int | None = None
) -> RecordFields:
    found = happened, (), None, None, (), None, board_id, None, None, leaf_key
    return found if column_index is None else (*found, column_index)


def record_of_rejection(
    changes: Sequence[ColumnChange], post_id: str | None, at_us: int | None, error: RecordedError
) -> RecordFields:
    return ChangeKind.REJECTED, changes, post_id, at_us, (), None, None, None, error


def encode_records(records: Sequence[RecordFields | ChangeRecord | None]) -> str:
    """Encode the records of a bundle for the column `posts`. None replaces the record of an erased owner."""
    return _encode(records).decode()


class Bundle(NamedTuple):
    """A row of the log without its column `posts`."""

    position: int
    leaf_key: int
    owners: str
    cells: str
    changes_count: int  # the number of changes in the row

    def changes(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield each change with its number, its owner, and the ranked cells before and after it.

        Numbers increase from change to change. `RankedCells` explains the cells.
        """
        number = self.position * PLACES
        for index, (owner, piece) in enumerate(zip(owners_of(self.owners), pieces_of(self.cells), strict=True)):
            half = len(piece) >> 1
            yield number + index, owner, piece[:half], piece[half:]


@dataclass(slots=True)
class BundleDraft:
    """Collects the changes to one board that a transaction is about to log, or its events that belong to no leaf."""

    leaf_key: int | None
    changes: list[tuple[str, str, RecordFields]] = field(default_factory=list)  # owner, cells before and after, record

    def add_change(self, owner: str, previous: str, following: str, record: RecordFields) -> None:
        self.changes.append((owner, previous + following, record))

    def encode_row(self, at_us: int) -> tuple[int | None, int, int, str, str, str]:
        """Encode the bundle's row: board, time, number of changes, owners, cells, posts."""
        owners, cells, posts = zip(*self.changes, strict=True)
        return self.leaf_key, at_us, len(owners), owners_text(owners), cells_text(cells), encode_records(posts)


def owners_text(owners: Sequence[str]) -> str:
    """Encode the column `owners`. It contains `owners_text([owner])` if and only if this owner is one of them."""
    return f"{_OWNER_END}{_OWNER_END.join(owners)}{_OWNER_END}"


def owners_of(text: str) -> list[str]:
    """Decode the column `owners`. In place of an erased owner, it has a text that begins with `NAMELESS`."""
    return text[1:-1].split(_OWNER_END)


def cells_text(pieces: Sequence[str]) -> str:
    return _PIECE_END.join(pieces)


def pieces_of(text: str) -> list[str]:
    """Split the column `cells` into a piece for each change: the ranked cells before it, then those after it."""
    return text.split(_PIECE_END)
