"""Sends batches of posts, and returns one result for each post.

A post without an id is given one before it is sent, because otherwise a retry would count it twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgspec

from .answers import ENCODER, Column, PostResult, check_name, decode
from .errors import ApiError, PostsRejectedError, UnexpectedAnswerError
from .programs import Program, Reply, Send
from .retries import TOO_LARGE, Sender
from .transport import with_query

# With these statuses the service rejects a whole request. Halving the request finds the posts at fault.
WHOLE_REQUEST_STATUSES = frozenset({400, 413, 422})
FORBIDDEN = 403
ROUNDED_MAX = 1e18  # no column takes a larger value, however it is rounded
Post = Mapping[str, Any]


class _Results(msgspec.Struct, frozen=True):
    results: list[PostResult]


class _Accepted(msgspec.Struct, frozen=True):
    accepted: int


class _Columns(msgspec.Struct, frozen=True):
    columns: list[Column]


class _Owned(msgspec.Struct, frozen=True):
    owner: str


_owned = msgspec.json.Decoder(_Owned).decode


def make_post_id() -> str:
    return os.urandom(16).hex()


def encode_posts(posts: Iterable[Post]) -> list[bytes]:
    """Encode posts as JSON. A post with neither `post_id` nor `n` gets an id, so that a retry never counts twice."""
    return [
        ENCODER.encode(post if post.get("post_id") is not None or "n" in post else {**post, "post_id": make_post_id()})
        for post in posts
    ]


def find_scales(sender: Sender, path: str) -> Program[dict[str, int]]:
    """Look up the number of decimals of each column of a board or family, to which posts are sent at `path`."""
    reply: Reply = yield from sender.send(Send("GET", path.removesuffix("/posts")))
    return {column.name: column.scale for column in decode(reply.content, _Columns).columns}


def round_post(post: Post, scales: Mapping[str, int]) -> Post:
    """Round the floats of a post to the decimals of their columns, halves away from zero."""

    def rounded(column: str, value: object) -> object:
        if column not in scales or not isinstance(value, float) or not abs(value) < ROUNDED_MAX:
            return value
        return Decimal(repr(value)).quantize(Decimal(1).scaleb(-scales[column]), ROUND_HALF_UP)

    return {
        name: {column: rounded(column, value) for column, value in values.items()}
        if name in ("stats", "set") and isinstance(values, Mapping)
        else values
        for name, values in post.items()
    }


def post_all(
    sender: Sender,
    path: str,
    posts: Sequence[Post] | Post,
    *,
    queued: bool = False,
    split: bool = False,
    round_floats: bool = False,
    raise_rejected: bool = True,
    positions: Sequence[str] = (),
    moved: bool = False,
) -> Program[list[PostResult]]:
    """Send posts, and return their results in order. The options are those of `Operations.post`."""
    if isinstance(posts, Mapping):
        posts = [posts]
    if round_floats:
        scales = yield from find_scales(sender, path)
        posts = [round_post(post, scales) for post in posts]
    path = with_query(path, {"positions": positions or None, "moved": moved or None})
    send = send_each if split else send_posts
    results = yield from send(sender, path, encode_posts(posts), queued=queued)
    if raise_rejected and any(result.status == "rejected" for result in results):
        raise PostsRejectedError(results)
    return results


def send_posts(sender: Sender, path: str, posts: Sequence[bytes], *, queued: bool = False) -> Program[list[PostResult]]:
    """Send encoded posts in one request, and return their results in order.

    Raises:
        ApiError: the service rejected the request, for example because one post is malformed; then none was applied.
        UnreachableError: no answer came, so the posts may or may not have been applied.
        UnexpectedAnswerError: the results do not match the posts.
    """

    def read(reply: Reply) -> list[PostResult]:
        if queued:
            results = [PostResult(status="accepted")] * decode(reply.content, _Accepted).accepted
        else:
            results = decode(reply.content, _Results).results
        if len(results) != len(posts):
            raise UnexpectedAnswerError(f"{len(posts)} posts were answered with {len(results)} results")
        for post, result in [] if queued else zip(posts, results, strict=True):
            check_name(result.owner, _owned(post).owner)
        return results

    body = b'{"posts":[' + b",".join(posts) + b"]}"
    queueing = ("&" if "?" in path else "?") + "mode=queued"
    sent = Send("POST", path + queueing if queued else path, body, numbered=True)
    return (yield from sender.send_and_read(sent, read, divisible=len(posts) > 1))


def send_each(sender: Sender, path: str, posts: Sequence[bytes], *, queued: bool = False) -> Program[list[PostResult]]:
    """Send posts as `send_posts` does.

    Halve a request that the service rejects, so that only the posts at fault fail.
    """
    if not posts:
        return []
    try:
        return (yield from send_posts(sender, path, posts, queued=queued))
    except ApiError as refusal:
        if len(posts) == 1 and _is_of_posts(refusal):
            return [PostResult(status="rejected", error=refusal.problem)]
        if len(posts) == 1 or not (_is_of_posts(refusal) or refusal.status == TOO_LARGE):
            raise
    middle = len(posts) // 2
    first = yield from send_each(sender, path, posts[:middle], queued=queued)
    return first + (yield from send_each(sender, path, posts[middle:], queued=queued))


def _is_of_posts(refusal: ApiError) -> bool:
    """Return whether the service rejected the posts, not the caller, whose key may be allowed some posts only."""
    if refusal.status == FORBIDDEN:
        return refusal.final and any(error.pointer.startswith("/posts/") for error in refusal.problem.errors)
    return refusal.final and refusal.status in WHOLE_REQUEST_STATUSES
