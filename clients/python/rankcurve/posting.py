"""Sends batches of posts, with one result for each post."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .answers import ENCODER, PostResult, decode
from .errors import ApiError, UnexpectedAnswerError
from .programs import Program, Reply, Send
from .retries import Sender

# With these statuses the service refuses a whole request. Halving the request finds the posts at fault.
WHOLE_REQUEST_STATUSES = frozenset({400, 413, 422})
Post = Mapping[str, Any]


class _Results(msgspec.Struct, frozen=True):
    results: list[PostResult]


class _Accepted(msgspec.Struct, frozen=True):
    accepted: int


def make_post_id() -> str:
    """Return 128 random bits as text."""
    return os.urandom(16).hex()


def encode_posts(posts: Iterable[Post]) -> list[bytes]:
    """Return the posts as JSON. A post without a `post_id` gets one, so that a retry never counts twice."""
    return [
        ENCODER.encode(post if post.get("post_id") is not None else {**post, "post_id": make_post_id()})
        for post in posts
    ]


def send_posts(sender: Sender, path: str, posts: Sequence[bytes], *, queued: bool = False) -> Program[list[PostResult]]:
    """Send encoded posts in one request, and return their results in order.

    Raises:
        ApiError: the service refused the request, for example because one post is wrong; then none was applied.
        UnreachableError: no answer came, so the posts may have been applied or not.
    """
    body = b'{"posts":[' + b",".join(posts) + b"]}"
    reply: Reply = yield from sender.send(Send("POST", path + "?mode=queued" if queued else path, body))
    if queued:
        accepted = decode(reply.content, _Accepted).accepted
        results = [PostResult(status="accepted")] * accepted
    else:
        results = decode(reply.content, _Results).results
    if len(results) != len(posts):
        raise UnexpectedAnswerError(f"{len(posts)} posts were answered with {len(results)} results")
    return results


def send_each(sender: Sender, path: str, posts: Sequence[bytes], *, queued: bool = False) -> Program[list[PostResult]]:
    """Send posts as `send_posts` does. If the service refuses the request, halve it, so that only wrong posts fail."""
    if not posts:
        return []
    try:
        return (yield from send_posts(sender, path, posts, queued=queued))
    except ApiError as refusal:
        if refusal.status not in WHOLE_REQUEST_STATUSES:
            raise
        if len(posts) == 1:
            return [PostResult(status="rejected", error=refusal.problem)]
    middle = len(posts) // 2
    first = yield from send_each(sender, path, posts[:middle], queued=queued)
    return first + (yield from send_each(sender, path, posts[middle:], queued=queued))
