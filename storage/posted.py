"""What the change log says of each post: what it was, next to the cells that it left.

The rule: it is positional and ends where nothing more is said, for every post pays for every byte. Columns are their
places in the board's specification, which are never taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from .merging import Cell
from .records import Change

SaidError = tuple[str, str, str | None]  # what kind of error, its sentence, and the place in the post
Said = tuple[Any, ...]  # the fields of `Posted` from the first on, as far as they say something


class Happened(StrEnum):
    """What a change tells of; the letter is what is stored."""

    APPLIED = "p"
    UNCHANGED = "u"  # nothing was better
    REJECTED = "n"  # a queued post, when its turn came
    UNSEEN = "d"  # applied to an entry that is hidden: its ranked cells stand with the others
    ERASED = "e"
    HIDDEN = "h"
    SHOWN = "s"
    RESET = "r"  # the board was emptied
    DELETED = "x"  # the board is gone; its id and specification are said


NO_CHANGE = (Happened.UNCHANGED, Happened.REJECTED)


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """What is said of one change."""

    happened: Happened
    changes: list[Change] = []
    post_id: str | None = None
    at_us: int | None = None  # of a post, None: arrival
    cells: list[Cell] = []  # of the row afterwards: those of the columns that are not ranked, or all where it is hidden
    version: int | None = None  # of the row afterwards, None: the time of its bundle
    board_id: str | None = None
    spec: Any = None  # in JSON's types
    error: SaidError | None = None  # why it was rejected


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Posted | None]).decode


def said_of_post(
    happened: Happened,
    changes: Sequence[Change],
    post_id: str | None,
    at_us: int | None,
    cells: Sequence[Cell],
    version: int | None,
) -> Said:
    """Of a post; no more than needed."""
    if at_us is None and version is None and not cells:
        return (happened, changes) if post_id is None else (happened, changes, post_id)
    return happened, changes, post_id, at_us, cells, version


def said_of_event(happened: Happened, cells: Sequence[Cell] = (), version: int | None = None) -> Said:
    """Of what is no post; of an entry that stays, its cells and its version."""
    return (happened,) if version is None else (happened, (), None, None, cells, version)


def said_of_deleted(board_id: str, spec: object) -> Said:
    """What lets the log of a board be read when it is gone."""
    return Happened.DELETED, (), None, None, (), None, board_id, spec


def said_of_rejected(changes: Sequence[Change], post_id: str | None, at_us: int | None, error: SaidError) -> Said:
    """Of a post that was accepted and then not applied."""
    return Happened.REJECTED, changes, post_id, at_us, (), None, None, None, error


def posts_text(said: Sequence[Said | Posted | None]) -> str:
    """What is said of the changes of a bundle; None of those whose owner was erased."""
    return _encode(said).decode()


def posts_of(text: str) -> list[Posted | None]:
    """The text, taken apart."""
    return _decode(text)
