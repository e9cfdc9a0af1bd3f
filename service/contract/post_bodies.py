"""Parses the bytes of a posting request into its posts.

If the form of one post is wrong, the whole request is refused. This module does not know the columns of a board, so it
returns values as raw JSON scalars. Handlers check columns and values later. A wrong value then rejects only its post.
"""

import re
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from config.settings import RequestSettings

from .problems import ProblemError, name_post
from .requests import FacetedPostBody, FacetedPostList, FanPostBody, FanPostList, PostBody, PostList
from .strict_json import count_key_colons, decode_or_refuse, pointer_token, refuse_duplicates
from .values import OWNER_CHARS_MAX, parse_owner, parse_post_id, to_micros

NDJSON_TYPE = "application/x-ndjson"

# An NDJSON line or a whole list, and two texts that an error puts before its JSON pointer and before its detail.
_Line = tuple[bytes, str, str]
_NOTHING: dict[str, Raw] = {}
_LIST_HEAD = re.compile(rb'[ \t\r\n]*(?:\[|\{[ \t\r\n]*"posts")')


class PostTarget(Enum):
    """The target of a request's posts. A member has two types: of a body with one post, and of a body with many."""

    ONE_BOARD = (PostBody, PostList)  # the path names the board
    BOARDS = (FanPostBody, FanPostList)  # each post names its boards
    FAMILY = (FacetedPostBody, FacetedPostList)  # the path names the family, and each post names its facets

    def __init__(self, one: type[PostBody], many: type[Any]) -> None:
        self.decode_one = msgspec.json.Decoder(one).decode
        self.decode_list = msgspec.json.Decoder(list[one]).decode  # type: ignore[valid-type]
        self.decode_object = msgspec.json.Decoder(many).decode


class ReceivedPost(msgspec.Struct, gc=False):
    """One post as it arrived. Its owner, post id and time have been checked, but not its columns and values."""

    owner: str  # normalised to NFC
    stats: dict[str, Raw]  # by column: the JSON scalar to merge
    overwrite: dict[str, Raw]  # by column: the JSON scalar in "set", which replaces the stored value
    post_id: str | None
    at_us: int | None  # the post's time in microseconds since 1970; None: the time when the post arrives
    boards: list[str] | None  # ids, not yet checked; None: the path of the request names the board
    facets: dict[str, str] | None = None  # facet values by name, not yet checked; None: the post goes to no family


def parse_posts(
    body: bytes, content_type: str, settings: RequestSettings, *, kind: PostTarget, may_set: bool
) -> tuple[list[ReceivedPost], bool]:
    """Return the posts of a request, and whether its body was a single post.

    Many posts are a JSON list, an object with the field "posts", or NDJSON. If one post has a fault, the whole request
    is refused. In all three forms, the pointer of the error names the post in the same way, for example `/posts/3`.
    `content_type` is the media type without parameters. `may_set` says whether the caller may use "set".

    Raises:
        ProblemError: `bad_json`, `bad_request`, `unknown_field`, `duplicate_field`, `too_many_posts`,
            `too_many_boards` or `forbidden`.
    """
    lines: list[_Line] = []
    single, list_keys = False, 0
    decoded: list[PostBody]
    if content_type == NDJSON_TYPE:
        lines, count = _split_lines(body, settings.posts_per_request_max)
        decoded = [decode_or_refuse(kind.decode_one, text, prefix=prefix, where=where) for text, prefix, where in lines]
        _check_count(count, settings)
    elif head := _LIST_HEAD.match(body):
        if head[0].endswith(b"["):
            lines = [(body, "/posts", "")]
            decoded = decode_or_refuse(kind.decode_list, body, prefix="/posts")
        else:
            decoded = decode_or_refuse(kind.decode_object, body).posts
            list_keys = 1  # the object has the key "posts" besides the keys of its posts
        _check_count(len(decoded), settings)
    else:
        decoded = [decode_or_refuse(kind.decode_one, body)]
        single = True
    posts, keys = _checked(decoded, settings, single=single, may_set=may_set)
    if list_keys + keys != count_key_colons(body):
        for text, prefix, where in lines or [(body, "", "")]:
            refuse_duplicates(text, prefix=prefix, where=where)
    if kind is PostTarget.BOARDS:
        _check_parts(posts, settings)
    return posts, single


def _split_lines(body: bytes, lines_max: int) -> tuple[list[_Line], int]:
    """Return the first `lines_max` lines that are not blank, and the number of all lines that are not blank."""
    if not body.isascii():
        decode_or_refuse(bool, body)  # refuse a body that is not UTF-8; the result is not used
    lines: list[_Line] = []
    count = 0
    for number, line in enumerate(body.split(b"\n"), 1):
        text = line.strip(b" \t\r")
        if not text:
            continue
        if count < lines_max:
            lines.append((text, f"/posts/{count}", f"line {number}: "))
        count += 1
    return lines, count


def _check_count(count: int, settings: RequestSettings) -> None:
    if count > settings.posts_per_request_max:
        detail = f"{count} posts; a request carries at most {settings.posts_per_request_max}"
        raise ProblemError("too_many_posts", detail, pointer="/posts")
    if count == 0:
        raise ProblemError("bad_request", "the request carries no post", pointer="/posts")


def _check_parts(posts: list[ReceivedPost], settings: RequestSettings) -> None:
    """Raise ProblemError `too_many_boards` if the posts of a request name too many boards in all.

    The time to apply a post grows with the number of its boards. All posts of a request are applied in one transaction,
    and no other post is written while this transaction runs.
    """
    parts = sum([len(post.boards or ()) for post in posts])
    if parts > settings.parts_per_request_max:
        detail = f"{parts} posts, counted once for each board; a request carries at most"
        raise ProblemError("too_many_boards", f"{detail} {settings.parts_per_request_max}", pointer="/posts")


def _checked(
    decoded: list[PostBody], settings: RequestSettings, *, single: bool, may_set: bool
) -> tuple[list[ReceivedPost], int]:
    """Return the checked posts, and the number of their JSON keys. A key that an object has twice is counted once."""
    posts: list[ReceivedPost] = []
    keys = 0
    for index, post in enumerate(decoded):
        try:
            made, post_keys = _checked_post(post, settings, may_set=may_set)
        except ProblemError as problem:
            raise name_post(problem, None if single else index) from None
        posts.append(made)
        keys += post_keys
    return posts, keys


def _checked_post(post: PostBody, settings: RequestSettings, *, may_set: bool) -> tuple[ReceivedPost, int]:
    owner, stats, overwrite, post_id, at, boards = post.owner, post.stats, post.set, post.post_id, post.at, None
    keys = 2
    # `parse_owner` begins with the same quick test. Nearly every owner passes the test, so the call is saved.
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
        if both := stats.keys() & overwrite.keys():
            pointer = f"/set/{pointer_token(min(both))}"
            raise ProblemError("bad_request", 'a column is either in "stats" or in "set"', pointer=pointer)
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
        _check_boards(boards, settings)
    return ReceivedPost(owner, stats, overwrite, post_id, at_us, boards, facets), keys


def _check_boards(boards: list[str], settings: RequestSettings) -> None:
    if len(boards) > settings.boards_per_post_max:
        detail = f"{len(boards)} boards; a post goes to at most {settings.boards_per_post_max}"
        raise ProblemError("too_many_boards", detail, pointer="/boards")
    if len(set(boards)) != len(boards):
        raise ProblemError("bad_request", "a post names each board once", pointer="/boards")
