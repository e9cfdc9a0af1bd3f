"""What a row of the change log says of the post that made it, as one short text.

The rule: it is positional and ends where nothing more is said, for every post pays for every byte. Columns are their
places in the board's specification, which are never taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from .merging import Cell
from .records import Change, StatValue

_encode = msgspec.json.Encoder().encode


class Happened(StrEnum):
    """What a row of the log tells of; the letter is what is stored."""

    APPLIED = "p"
    UNCHANGED = "u"  # nothing was better
    UNSEEN = "d"  # applied to an entry that is hidden: its ranked cells stand with the others
    ERASED = "e"
    HIDDEN = "h"
    SHOWN = "s"
    RESET = "r"  # the board was emptied
    DELETED = "x"  # the board is gone; its id and specification follow


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """The text, taken apart."""

    happened: Happened
    stats: list[StatValue] = []  # column, value, column, value …
    post_id: str | None = None
    at_us: int | None = None  # of a post, None: arrival; of an entry hidden or shown, its version
    overwrite: list[StatValue] = []  # from "set", as `stats`
    cells: list[Cell] = []  # of the row afterwards: those of the columns that are not ranked, or all where it is hidden


_decode = msgspec.json.Decoder(Posted).decode
_decode_any = msgspec.json.Decoder(list[Any]).decode


def posted_text(
    happened: Happened, changes: Sequence[Change], post_id: str | None, at_us: int | None, cells: Sequence[Cell]
) -> str:
    """The text of a post."""
    stats: list[StatValue] = []
    overwrite: list[StatValue] = []
    for change in changes:
        (overwrite if change.overwrite else stats).extend((change.index, change.value))
    said = [happened.value, stats, post_id, at_us, overwrite, cells]
    while not said[-1]:
        said.pop()
    return _encode(said).decode()


def event_text(happened: Happened, cells: Sequence[Cell] = (), updated_at_us: int | None = None) -> str:
    """The text of what is no post; of an entry that stays, its cells and its version."""
    return posted_text(happened, (), None, updated_at_us, cells)


def deleted_text(board_id: str, spec: object) -> str:
    """The text that lets the rows of a board be read when it is gone."""
    return _encode([Happened.DELETED.value, board_id, spec]).decode()


def posted_of(text: str) -> Posted:
    """The text, taken apart; not for `DELETED`."""
    return _decode(text)


def happened_of(text: str) -> Happened:
    """What the text tells of."""
    return Happened(text[2])


def deleted_of(text: str) -> tuple[str, Any]:
    """Id and specification of a board that is gone, in JSON's types."""
    _, board_id, spec = _decode_any(text)
    return board_id, spec
