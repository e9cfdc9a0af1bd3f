"""Why queued posts were rejected when their turn came: what their senders, told long ago that they are accepted, ask.

The rule: kept by board and post id, as long as their retention says and no more of them than a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, Dialect, asc, col, delete, desc, insert, param, select

from . import errors
from .errors import PostError, PostRejected
from .ingest_schema import REJECTED_POSTS
from .posted import SaidError
from .store import Program


class RejectedPost(NamedTuple):
    """A post that one board did not take."""

    board_key: int
    post_hash: str
    error: errors.StorageError


class RejectedPosts:
    """The statements, for one dialect; see `rejected_posts`."""

    def __init__(self, dialect: Dialect) -> None:
        named = (col("board_key").eq(param("board_key")), col("post_hash").eq(param("post_hash")))
        self._find = select(col("error")).from_(REJECTED_POSTS).where(*named).compile(dialect)
        self._remember = (
            insert(REJECTED_POSTS)
            .rows(param("rows"), board_key=INTEGER, post_hash=TEXT, error=TEXT, rejected_at=INTEGER)
            .on_conflict("board_key", "post_hash")
            .overwrite()
            .compile(dialect)
        )
        times = select(col("rejected_at")).from_(REJECTED_POSTS)
        self._oldest = times.order_by(asc(col("rejected_at"))).limit(1).offset(param("rows_max")).compile(dialect)
        self._newest = times.order_by(desc(col("rejected_at"))).limit(1).offset(param("keep")).compile(dialect)
        self._prune = delete(REJECTED_POSTS).where(col("rejected_at").le(param("until_us"))).compile(dialect)

    def find(self, board_key: int, post_hash: str) -> Program[PostError | None]:
        """Why a board did not take a post; None where nothing is remembered."""
        rows = yield self._find.bind(board_key=board_key, post_hash=post_hash)
        return error_of(msgspec.json.decode(rows[0][0])) if rows else None

    def remember(self, rejected: Iterable[RejectedPost], now_us: int) -> Program[None]:
        """Keep them; of two for one board and post the later one."""
        last = {each[:2]: each for each in rejected}
        if last:
            rows = [
                (key, post_hash, msgspec.json.encode(said_error(error)).decode(), now_us)
                for (key, post_hash), (*_, error) in sorted(last.items())
            ]
            yield self._remember.bind(rows=rows)

    def prune(self, *, before_us: int, keep: int, rows_max: int) -> Program[int]:
        """Forget those older than `before_us` and all but the newest `keep`, about `rows_max` at a time; how many."""
        over = yield self._newest.bind(keep=keep)
        until_us = max(before_us, over[0][0]) if over else before_us
        bound = yield self._oldest.bind(rows_max=rows_max)
        rows = yield self._prune.bind(until_us=min(until_us, bound[0][0]) if bound else until_us)
        return int(rows[0][0])


def said_error(error: errors.StorageError) -> SaidError:
    """An error as it is stored."""
    return type(error).__name__, error.detail, error.pointer


def error_of(said: SaidError) -> PostError:
    """The error that was stored."""
    name, detail, pointer = said
    kind = getattr(errors, name, PostRejected)  # a version of the service that knows more kinds may have written it
    known = isinstance(kind, type) and issubclass(kind, PostError)
    return (kind if known else PostRejected)(detail, pointer=pointer)


@lru_cache
def rejected_posts(dialect: Dialect) -> RejectedPosts:
    """The statements, compiled once."""
    return RejectedPosts(dialect)
