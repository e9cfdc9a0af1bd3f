"""The record of one change in the log: what was posted, or which other event it was.

The ranked cells before and after the change are stored separately, see `bundles`. A record is a JSON array that ends
after the last field that has a value, because each byte makes every post more expensive. A column is stored as its
index in the board's spec. This index never changes, because new columns are only added at the end.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from storage.records import ColumnChange

from .cells import Cell

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
    ERASED = "e"
    HIDDEN = "h"
    SHOWN = "s"
    RESET = "r"  # the board was emptied
    MOVED = "m"  # the board was moved to another partition
    DELETED = "x"  # the board was deleted; the record holds its id and spec
    # The events below change no entry. A transaction logs all of its own in one bundle, which belongs to no leaf. The
    # record holds the id and key of the board. Readers of entries leave these bundles out, and so does the journal.
    CREATED = "c"
    CLOSED = "l"  # the board takes no more posts
    FROZEN = "z"  # its final curves are stored
    ARCHIVED = "a"  # an archive has replaced its rows
    SERVED = "q"  # a new curve of the column `column_index` began to serve


NO_CHANGE = (ChangeKind.UNCHANGED, ChangeKind.REJECTED)
FIRST_POSTS = (ChangeKind.FIRST, ChangeKind.FIRST_UNSEEN)
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
    board_key: int | None = None  # the key of the board, if the bundle belongs to no leaf
    column_index: int | None = None


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
    """Return the record of a post, or of one taken back. If no entry remains, pass neither cells nor a version."""
    if at_us is None and version is None and not cells:
        return (happened, changes) if post_id is None else (happened, changes, post_id)
    return happened, changes, post_id, at_us, cells, version


def record_of_event(happened: ChangeKind, cells: Sequence[Cell] = (), version: int | None = None) -> RecordFields:
    """Return the record of a change other than a post. If an entry remains afterwards, pass its cells and version."""
    return (happened,) if version is None else (happened, (), None, None, cells, version)


def record_of_deletion(board_id: str, spec: object) -> RecordFields:
    """Return the record of a board's deletion. With its spec, readers can still decode the board's earlier changes."""
    return ChangeKind.DELETED, (), None, None, (), None, board_id, spec


def record_of_board_event(
    happened: ChangeKind, board_id: str, board_key: int, column_index: int | None = None
) -> RecordFields:
    """Return the record of an event of a whole board."""
    found = happened, (), None, None, (), None, board_id, None, None, board_key
    return found if column_index is None else (*found, column_index)


def record_of_rejection(
    changes: Sequence[ColumnChange], post_id: str | None, at_us: int | None, error: RecordedError
) -> RecordFields:
    return ChangeKind.REJECTED, changes, post_id, at_us, (), None, None, None, error


def encode_records(records: Sequence[RecordFields | ChangeRecord | None]) -> str:
    """Encode the records of a bundle for the column `posts`. None stands for the record of an erased owner."""
    return _encode(records).decode()
