"""Parses the bytes of a posting request into its posts.

Columns and values are checked later, by handlers that know the board, so this module leaves values as raw JSON scalars.
The difference is visible to callers: if one post is malformed, the whole request is refused here, while a wrong value
later rejects only its post.
"""

import re
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET

from config.settings import RequestSettings

from .league_messages import LeaguePostBody, LeaguePostList
from .problems import ProblemError, check_count, name_post
from .requests import FacetedPostBody, FacetedPostList, FanPostBody, FanPostList, PostBody, PostList
from .strict_json import count_key_colons, decode_or_refuse, pointer_token, refuse_duplicates
from .values import OWNER_CHARS_MAX, parse_owner, parse_post_id, to_micros

NDJSON_TYPE = "application/x-ndjson"
_LIST_HEAD = re.compile(rb'[ \t\r\n]*(?:\[|\{[ \t\r\n]*"posts")')


class PostTarget(Enum):
    """The target of a request's posts. A member has two types: of a body with one post, and of a body with many."""

    ONE_BOARD = (PostBody, PostList)  # the path names the board
    BOARDS = (FanPostBody, FanPostList)  # each post names its boards
    FAMILY = (FacetedPostBody, FacetedPostList)  # the path names the family, and each post names its facets
    LEAGUE = (LeaguePostBody, LeaguePostList)  # the path names the league, and a post may name a division

    def __init__(self, one: type[PostBody], many: type[Any]) -> None:
        self.decode_one = msgspec.json.Decoder(one).decode
        self.decode_lines = msgspec.json.Decoder(one).decode_lines
        self.decode_list = msgspec.json.Decoder(list[one]).decode  # type: ignore[valid-type]
        self.decode_object = msgspec.json.Decoder(many).decode


def parse_posts(
    body: bytes,
    content_type: str,
    settings: RequestSettings,
    *,
    kind: PostTarget,
    may_set: bool,
    by_token: bool = False,
    overwriting: list[PostBody] | None = None,
) -> tuple[list[Any], bool]:
    """Parse the posts of a request, each as the first type of `kind`. Also return whether its body was a single post.

    Owner, post id and time of each post have been checked, and the owner is in NFC. Columns, values, ids of boards and
    facets have not been checked.

    Many posts are a JSON list, an object with the field "posts", or NDJSON. A fault in one post refuses the whole
    request, and the pointer of the error names the post in the same way in all three forms, for example `/posts/3`.
    `content_type` is the media type without parameters. `may_set` says whether the caller may use "set", and `by_token`
    whether it has a player token. Posts with "set" are added to `overwriting`.

    Raises:
        ProblemError: `bad_json`, `bad_request`, `unknown_field`, `duplicate_field`, `too_many_posts`,
            `too_many_boards` or `forbidden`.
    """
    single, prefix, keys = False, "/posts", 0
    posts: list[Any]
    if content_type == NDJSON_TYPE:
        lines = [line for line in body.split(b"\n") if line.strip(b" \t\r")]
        posts = decode_or_refuse(kind.decode_lines, body, prefix=prefix)
        if len(posts) != len(lines):
            raise ProblemError("bad_json", f"{len(posts)} posts in {len(lines)} lines; each line has one post")
        body = b"[%b]" % b",".join(lines)
    elif head := _LIST_HEAD.match(body):
        if head[0].endswith(b"["):
            posts = decode_or_refuse(kind.decode_list, body, prefix=prefix)
        else:
            posts = decode_or_refuse(kind.decode_object, body).posts
            prefix, keys = "", 1  # the object has the key "posts" besides the keys of its posts
    else:
        posts = [decode_or_refuse(kind.decode_one, body)]
        single, prefix = True, ""
    if len(posts) > (most := settings.posts_per_request_max):
        raise ProblemError("too_many_posts", f"{len(posts)} posts are more than {most}", pointer="/posts")
    if not posts:
        raise ProblemError("bad_request", "the request carries no post", pointer="/posts")
    for index, post in enumerate(posts):
        try:
            keys += _check_post(post, settings, may_set=may_set, by_token=by_token, overwriting=overwriting)
        except ProblemError as problem:
            raise name_post(problem, None if single else index) from None
    if keys != count_key_colons(body):
        refuse_duplicates(body, prefix=prefix)
    if kind is PostTarget.BOARDS:
        check_parts(sum([len(post.boards) for post in posts]), settings)
    return posts, single


def check_parts(parts: int, settings: RequestSettings) -> None:
    """Raise ProblemError `too_many_boards` if a request has too many posts, counted once for each of their boards.

    A transaction takes longer the more boards its posts reach, and no other post is written while it runs.
    """
    what = "posts, counted once for each board that they may reach,"
    check_count(parts, settings.parts_per_request_max, "too_many_boards", "/posts", what)


def _check_post(
    post: PostBody,
    settings: RequestSettings,
    *,
    may_set: bool,
    by_token: bool,
    overwriting: list[PostBody] | None,
) -> int:
    """Check a post and normalise its owner. Return the number of its JSON keys.

    Duplicate keys count once, and keys with an empty object do not count. Both only make `parse_posts` look for
    duplicates.
    """
    owner, stats, overwrite = post.owner, post.stats, post.set
    # `parse_owner` begins with the same quick test. Nearly every owner passes the test, so the call is saved.
    if not all((owner.isascii(), owner.isprintable(), 0 < len(owner) <= OWNER_CHARS_MAX)):
        post.owner = parse_owner(owner, pointer="/owner")
    keys = 2 + len(stats) if stats else 1
    if overwrite:
        _check_overwrite(post, may_set=may_set)
        keys += 1 + len(overwrite) + (post.reason is not None)
        if overwriting is not None:
            overwriting.append(post)
    elif not stats:
        raise ProblemError("bad_request", "a post names at least one column in its stats", pointer="/stats")
    keys += (post.post_id is not UNSET) + (post.at is not UNSET) + (post.hold is not UNSET)
    if post.n is not UNSET:
        keys += 1
        if not by_token:
            raise ProblemError("forbidden", '"n" numbers the posts of a player token', pointer="/n")
    if isinstance(post.post_id, str):
        parse_post_id(post.post_id)
    if post.at:
        to_micros(post.at)  # refuse a time before 1970
    if isinstance(post, FacetedPostBody) and post.facets:
        keys += 1 + len(post.facets)
    elif isinstance(post, FanPostBody):
        keys += 1
        check_count(len(post.boards), settings.boards_per_post_max, "too_many_boards", "/boards", "boards of a post")
        if len(set(post.boards)) != len(post.boards):
            raise ProblemError("bad_request", "a post names each board once", pointer="/boards")
    return keys


def _check_overwrite(post: PostBody, *, may_set: bool) -> None:
    if not may_set:
        raise ProblemError("forbidden", '"set" overwrites instead of merging and needs the role ops', pointer="/set")
    if both := post.stats.keys() & post.set.keys():
        pointer = f"/set/{pointer_token(min(both))}"
        raise ProblemError("bad_request", 'a column is either in "stats" or in "set"', pointer=pointer)
