"""Parses the bytes of a posting request into its posts.

A request is accepted or refused as a whole. This module does not know the columns of a board, so it returns values as
raw JSON scalars. Later the views check columns and values. A wrong one then rejects only its post.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from .problems import ProblemError
from .requests import FacetedPostBody, FacetedPostList, FanPostBody, FanPostList, PostBody, PostList
from .strict_json import count_key_colons, decode_or_refuse, pointer_token, refuse_duplicates
from .values import OWNER_CHARS_MAX, parse_owner, parse_post_id, to_micros

NDJSON_TYPE = "application/x-ndjson"

_ONE = msgspec.json.Decoder(PostBody)
_ONE_FAN = msgspec.json.Decoder(FanPostBody)
_LIST = msgspec.json.Decoder(PostList)
_LIST_FAN = msgspec.json.Decoder(FanPostList)
_ONE_FACETED = msgspec.json.Decoder(FacetedPostBody)
_LIST_FACETED = msgspec.json.Decoder(FacetedPostList)
_NOTHING: dict[str, Raw] = {}
_LIST_HEAD = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"posts"')
_LIST_KEYS = 1  # the JSON keys of a list besides the keys of its posts: only "posts"


class PostTarget(Enum):
    """The part of a request that names the boards of its posts. Each value holds decoders: for a post, for a list."""

    ONE_BOARD = (_ONE, _LIST)  # the path names the board
    BOARDS = (_ONE_FAN, _LIST_FAN)  # each post names its boards
    FAMILY = (_ONE_FACETED, _LIST_FACETED)  # the path names the family, and each post names its facets

    def __init__(self, one: msgspec.json.Decoder[PostBody], many: msgspec.json.Decoder[Any]) -> None:
        self.decode_one, self.decode_list = one.decode, many.decode


class ReceivedPost(msgspec.Struct, gc=False):
    """One post as it arrived. Its owner, post id and time have been checked, but not its columns and values."""

    owner: str  # normalised to NFC
    stats: dict[str, Raw]  # by column: the JSON scalar to merge
    overwrite: dict[str, Raw]  # by column: the JSON scalar in "set", which replaces the stored value
    post_id: str | None
    at_us: int | None  # the post's time in microseconds since 1970; None: the time of arrival counts
    boards: list[str] | None  # ids, not yet checked; None: the path of the request names the board
    facets: dict[str, str] | None = None  # facet values by name, not yet checked; None if the post is to no family


class PostLimits(msgspec.Struct, frozen=True):
    posts_max: int
    boards_max: int  # the most boards of one post
    parts_max: int  # the most posts of a request, where a post that names three boards counts as three


def parse_posts(
    body: bytes, content_type: str, limits: PostLimits, *, kind: PostTarget, may_set: bool
) -> tuple[list[ReceivedPost], bool]:
    """Return the posts of a request, and whether its body was a single post.

    If one post has a fault, the whole request is refused. The error for a list says which post has the fault.
    `content_type` is the media type without parameters. `may_set` says whether the caller may use "set".

    Raises:
        ProblemError: `bad_json`, `bad_request`, `unknown_field`, `duplicate_field`, `too_many_posts`,
            `too_many_boards` or `forbidden`.
    """
    if content_type == NDJSON_TYPE:
        posts = _parse_lines(body, limits, kind=kind, may_set=may_set)
        _check_parts(posts, limits)
        return posts, False
    single = not _holds_list(body)
    keys = 0
    if single:
        decoded: list[PostBody] = [decode_or_refuse(kind.decode_one, body)]
    else:
        decoded = [*decode_or_refuse(kind.decode_list, body).posts]
        keys = _LIST_KEYS
        _check_count(len(decoded), limits)
    posts, post_keys = _checked(decoded, limits, single=single, may_set=may_set)
    if keys + post_keys != count_key_colons(body):
        refuse_duplicates(body)
    _check_parts(posts, limits)
    return posts, single


def _holds_list(body: bytes) -> bool:
    return _LIST_HEAD.match(body) is not None


def _check_count(count: int, limits: PostLimits) -> None:
    if count > limits.posts_max:
        detail = f"{count} posts; a request carries at most {limits.posts_max}"
        raise ProblemError("too_many_posts", detail, pointer="/posts")
    if count == 0:
        raise ProblemError("bad_request", "the request carries no post", pointer="/posts")


def _check_parts(posts: list[ReceivedPost], limits: PostLimits) -> None:
    """Refuse a request whose posts name too many boards in all.

    The time to apply a post grows with the number of its boards. All posts of a request are applied in one transaction,
    and no other post is written while this transaction runs.
    """
    parts = sum(1 if post.boards is None else len(post.boards) for post in posts)
    if parts > limits.parts_max:
        detail = f"{parts} posts, counted once for each board; a request carries at most {limits.parts_max}"
        raise ProblemError("too_many_boards", detail, pointer="/posts")


def _parse_lines(body: bytes, limits: PostLimits, *, kind: PostTarget, may_set: bool) -> list[ReceivedPost]:
    decode = kind.decode_one
    if not body.isascii():
        decode_or_refuse(_is_utf8, body)
    decoded: list[PostBody] = []
    lines: list[tuple[int, bytes]] = []
    for line_number, line in enumerate(body.split(b"\n"), 1):
        line = line.strip(b" \t\r")
        if not line:
            continue
        if len(decoded) < limits.posts_max:  # later lines are only counted: the error message has the count
            decoded.append(decode_or_refuse(decode, line, prefix=f"/posts/{len(lines)}", where=f"line {line_number}: "))
        lines.append((line_number, line))
    _check_count(len(lines), limits)
    posts, keys = _checked(decoded, limits, single=False, may_set=may_set)
    if keys != count_key_colons(body):
        for index, (line_number, line) in enumerate(lines):
            refuse_duplicates(line, prefix=f"/posts/{index}", where=f"line {line_number}: ")
    return posts


def _is_utf8(body: bytes) -> bool:
    return bool(body)  # nobody reads the result: `decode_or_refuse` itself checks that the body is UTF-8


def _checked(
    decoded: list[PostBody], limits: PostLimits, *, single: bool, may_set: bool
) -> tuple[list[ReceivedPost], int]:
    """Return the checked posts, and the number of their JSON keys in the body."""
    posts: list[ReceivedPost] = []
    keys = 0
    for index, post in enumerate(decoded):
        try:
            made, post_keys = _checked_post(post, limits, may_set=may_set)
        except ProblemError as problem:
            raise _at_post(problem, None if single else index) from None
        posts.append(made)
        keys += post_keys
    return posts, keys


def _checked_post(post: PostBody, limits: PostLimits, *, may_set: bool) -> tuple[ReceivedPost, int]:
    owner, stats, overwrite, post_id, at, boards = post.owner, post.stats, post.set, post.post_id, post.at, None
    keys = 2
    # `parse_owner` makes this quick test, too. Nearly every owner passes it, so making it here saves the call.
    if not (owner.isascii() and owner.isprintable() and 0 < len(owner) <= OWNER_CHARS_MAX):
        owner = parse_owner(owner, pointer="/owner")
    if stats is UNSET:
        stats = _NOTHING
        keys = 1
    keys += len(stats)
    if overwrite is UNSET:
        overwrite = _NOTHING
    else:
        keys += 1 + len(overwrite)
        if overwrite and not may_set:
            raise ProblemError(
                "forbidden", '"set" overwrites instead of merging and needs the role ops', pointer="/set"
            )
        _check_apart(stats, overwrite)
    if not stats and not overwrite:
        raise ProblemError("bad_request", "a post names at least one column in its stats", pointer="/stats")
    if post_id is UNSET:
        post_id = None
    else:
        keys += 1
        post_id = None if post_id is None else parse_post_id(post_id)
    if at is UNSET:
        at_us = None
    else:
        keys += 1
        at_us = None if at is None else to_micros(at)
    facets = None
    if isinstance(post, FacetedPostBody):
        if post.facets is not UNSET:
            keys += 1 + len(post.facets)
        facets = post.facets or {}
    elif isinstance(post, FanPostBody):
        keys += 1
        boards = post.boards
        _check_boards(boards, limits)
    return ReceivedPost(owner, stats, overwrite, post_id, at_us, boards, facets), keys


def _check_apart(stats: dict[str, Raw], overwrite: dict[str, Raw]) -> None:
    both = stats.keys() & overwrite.keys()
    if both:
        column = min(both)
        raise ProblemError(
            "bad_request", 'a column is either in "stats" or in "set"', pointer=f"/set/{pointer_token(column)}"
        )


def _check_boards(boards: list[str], limits: PostLimits) -> None:
    if len(boards) > limits.boards_max:
        detail = f"{len(boards)} boards; a post goes to at most {limits.boards_max}"
        raise ProblemError("too_many_boards", detail, pointer="/boards")
    if len(set(boards)) != len(boards):
        raise ProblemError("bad_request", "a post names each board once", pointer="/boards")


def _at_post(problem: ProblemError, index: int | None) -> ProblemError:
    if index is None:
        return problem
    errors = [msgspec.structs.replace(error, pointer=f"/posts/{index}{error.pointer}") for error in problem.errors]
    return ProblemError(problem.code, f"post {index + 1}: {problem.detail}", errors=errors)
