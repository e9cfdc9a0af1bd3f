"""Stores post ids and outcomes in the transaction that applies the posts, so that retries are recognized.

A caller that sends a post again gets the stored outcome. An id belongs to the post's owner, and to a board or a family.
It is stored as a key that joins a keyed hash of the id and a keyed hash of the owner:

    the epoch and a dot (left out in the first epoch), 16 hex digits of the id, 16 hex digits of the owner

This keeps rows short, stores no caller's data in plain text, and puts the rows of one id next to each other. An id is
valid in one epoch of its board. Emptying a board starts a new epoch, which invalidates the board's earlier ids without
a write to their rows. They are deleted at the same age as all others.

Each outcome is stored with the post's fingerprint, a hash of what was posted. It distinguishes a retry from a different
post with the same id.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Condition,
    Term,
    all_of,
    asc,
    col,
    delete,
    insert,
    null,
    param,
    rows,
    select,
    union_all,
    update,
)
from storage.errors import UnknownBoardError
from storage.records import BoardSpec, ColumnChange, Leaf, PartOutcome, PostStatus, StatValue, format_decimal
from storage.schema.placement import TABLES
from storage.schema.tables import GATES, POST_IDS
from storage.store import Program

_HASH_BYTES = 8  # the length of each of the two hashes in a key
_FINGERPRINT_BYTES = 16
_ABOVE_HEX = "g"  # sorts after every hexadecimal digit


class PostIds:
    def __init__(self, salt: str) -> None:
        key = bytes.fromhex(salt)
        # Copying a keyed hash is faster than creating one.
        self._of_id = hashlib.blake2b(digest_size=_HASH_BYTES, key=key, person=b"post id")
        self._of_owner = hashlib.blake2b(digest_size=_HASH_BYTES, key=key, person=b"owner")

    def hash_post_id(self, post_id: str, owner: str) -> str:
        of_owner = self._of_owner.copy()
        of_owner.update(owner.encode())
        return self.hash_id(post_id) + of_owner.hexdigest()

    def hash_id(self, post_id: str) -> str:
        of_id = self._of_id.copy()
        of_id.update(post_id.encode())
        return of_id.hexdigest()


def hash_post(
    owner: str,
    spec: BoardSpec,
    changes: Sequence[ColumnChange],
    at_us: int | None,
    facets: dict[str, str] | None = None,
) -> str:
    """Hash the owner, values, `at` and facets of a post, to distinguish a retry from another post with the same id.

    Equal numbers give the same hash, whether they are written as 6, 6.0 or 60e-1, and whatever the column's scale is.
    """
    values: list[tuple[str, StatValue | None, bool]] = []
    for change in changes:
        column, value = spec.columns[change.index], change.value
        if isinstance(value, int):
            value = format_decimal(value, column.scale).rstrip("0").rstrip(".") if column.scale else str(value)
        values.append((column.name, value, change.overwrite))
    values.sort(key=itemgetter(0, 2))  # not by value, because None and text have no order
    text = msgspec.json.encode((owner, values, at_us, *([] if facets is None else [sorted(facets.items())])))
    return hashlib.blake2b(text, digest_size=_FINGERPRINT_BYTES).hexdigest()


def range_of(begin: str) -> dict[str, str]:
    """Build the SQL parameters with which the conditions of `in_range` select the keys that begin with `begin`."""
    return {"first": begin, "beyond": begin + _ABOVE_HEX}


def in_range(column: Term) -> tuple[Condition, Condition]:
    """Build SQL conditions for the rows whose key in this column is between the bounds that `range_of` returns."""
    return column.ge(param("first", TEXT)), column.lt(param("beyond", TEXT))


class RememberedPost(msgspec.Struct):
    """A post whose id is stored for a board or a family, with its outcome on each board that it was posted to.

    Every post with an id needs such a record. It is a struct because creating a named tuple takes three times as long.
    """

    key: int  # the key of the family, or of the board if the caller did not post to a family
    post_hash: str
    fingerprint: str
    parts: Sequence[PartOutcome]  # each outcome names its board

    @property
    def is_voided(self) -> bool:
        return any(part.status is PostStatus.VOIDED for part in self.parts)


PostKey = tuple[int, str]  # (key of the board or family for which the post's id is stored, result of `hash_post_id`)


class KnownPosts(NamedTuple):
    posts: dict[PostKey, RememberedPost]
    epochs: dict[int, int]  # the current epoch of each board, by leaf key


def find_known(asked: Iterable[PostKey], epochs: Mapping[int, int]) -> Program[KnownPosts]:
    """Find the posts in `asked` whose ids are stored and still valid, along with the current epochs of the boards.

    `epochs`: by leaf key, the epoch that the caller expects. If a board now has another epoch, look up a second time
    with the current epochs. Run this program in the partition that stores these boards and families.

    Raises:
        UnknownBoardError: a board was deleted.
    """
    stored = {(key, _stored_hash(post_hash, epochs.get(key, 1))): post_hash for key, post_hash in asked}
    known = KnownPosts({}, {})
    for key, text, fingerprint, outcome, epoch in (yield _FIND.bind(boards=list(epochs), asked=list(stored))):
        if text is None:
            known.epochs[key] = epoch
        else:
            post_hash = stored[key, text]
            known.posts[key, post_hash] = _decode(key, post_hash, fingerprint, outcome)
    if known.epochs == epochs:
        return known
    if len(known.epochs) < len(epochs):
        raise UnknownBoardError("the leaderboard was deleted meanwhile")
    return (yield from find_known(asked, known.epochs))


def list_keys(leaf: Leaf, begin: str, limit: int) -> Program[list[tuple[RememberedPost, int]]]:
    """List up to `limit` posts whose keys begin with `begin`, each with the time at which it was logged.

    If the leaf belongs to a family, return posts whose ids are stored for the family, otherwise those of the leaf.
    """
    key, epoch_text = leaf.family_key, ""
    if key is None:
        key, known = leaf.key, (yield from find_known((), {leaf.key: leaf.epoch}))
        epoch_text = _stored_hash("", known.epochs[key])
    found = yield _LIST.bind(leaf_key=key, **range_of(epoch_text + begin), limit=limit)
    return [(_decode(key, text.removeprefix(epoch_text), *content), at_us) for text, *content, at_us in found]


def remember_posts(posts: Iterable[RememberedPost], epochs: Mapping[int, int], times_us: Iterable[int]) -> Program[int]:
    """Store the ids of those posts whose ids are not stored yet. Return how many were stored.

    `epochs`: by leaf key, the current epoch of each board for which one of these ids is stored.
    `times_us`: for each post, the time at which it was logged.
    """
    rows = [
        (post.key, _stored_hash(post.post_hash, epochs.get(post.key, 1)), post.fingerprint, _encode_parts(post), at_us)
        for post, at_us in zip(posts, times_us, strict=False)
    ]
    [[stored]] = yield _REMEMBER.bind(rows=sorted(rows))
    return int(stored)


def replace_outcome(post: RememberedPost, epochs: Mapping[int, int], now_us: int) -> Program[None]:
    """Replace the stored outcome of a post that was held before, or that is now voided on some of its boards."""
    stored = _stored_hash(post.post_hash, epochs.get(post.key, 1))
    bound = {"leaf_key": post.key, "post_hash": stored, "outcome": _encode_parts(post), "remembered_at": now_us}
    yield _REPLACE.bind(**bound)


def prune_ids(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete about `rows_max` post ids, the oldest of those stored before `before_us`. Return how many were deleted."""
    horizon = yield _HORIZON.bind(before_us=before_us, rows_max=rows_max)
    # All ids of a transaction have the same time. So a call deletes either all ids of a transaction or none of them.
    limit_us = horizon[0][0] + 1 if horizon else before_us
    rows = yield _PRUNE.bind(before_us=limit_us)
    return int(rows[0][0])


def _encode_parts(post: RememberedPost) -> str:
    fields = [
        (part.leaf_key, part.updated_at_us, part.stats)  # `_decode` reads a missing status as APPLIED
        if part.status is PostStatus.APPLIED
        else (part.leaf_key, part.updated_at_us, part.stats, part.status)
        for part in post.parts
    ]
    return _encode(fields).decode()


def _decode(key: int, post_hash: str, fingerprint: str, outcome: str) -> RememberedPost:
    parts = [
        PartOutcome(PostStatus(status[0]) if status else PostStatus.APPLIED, updated_at_us, stats, leaf_key=leaf_key)
        for leaf_key, updated_at_us, stats, *status in msgspec.json.decode(outcome)
    ]
    return RememberedPost(key, post_hash, fingerprint, parts)


def _stored_hash(post_hash: str, epoch: int) -> str:
    return post_hash if epoch == 1 else f"{epoch}.{post_hash}"


_encode = msgspec.json.Encoder().encode
# Join by the leaf key and the hash of each wanted row. If the leaf key were a condition of its own, the query
# planner could choose to read all rows of the board, because its statistics may be older than a burst of posts.
_KNOWN = (
    select(*(col(name, "p") for name in ("leaf_key", "post_hash", "fingerprint", "outcome")), null(INTEGER))
    .from_(rows("v", param("asked"), leaf_key=INTEGER, post_hash=TEXT))
    .join(
        POST_IDS,
        all_of(col("leaf_key", "p").eq(col("leaf_key", "v")), col("post_hash", "p").eq(col("post_hash", "v"))),
        alias="p",
    )
)
# The statement that looks up ids also reads the epochs: a board may have been emptied since the caller read its epoch.
_EPOCHS = select(col("leaf_key"), *[null(TEXT)] * 3, col("epoch")).from_(GATES)
_EPOCHS = _EPOCHS.where(col("leaf_key").in_(param("boards")))
_FIND = union_all(_EPOCHS, _KNOWN).packed().prepared()
_LIST = (
    select(*map(col, ("post_hash", "fingerprint", "outcome", "remembered_at")))
    .from_(POST_IDS)
    .where(col("leaf_key").eq(param("leaf_key")), *in_range(col("post_hash")))
    .order_by(asc(col("post_hash")))
    .limit(param("limit"))
    .packed()
    .prepared()
)
_new_ids = insert(POST_IDS).rows(param("rows"), **TABLES[POST_IDS].kinds).on_conflict("leaf_key", "post_hash")
_REMEMBER = _new_ids.do_nothing().prepared()
_REPLACE = (
    update(POST_IDS)
    .set(outcome=param("outcome"), remembered_at=param("remembered_at"))
    .where(*(col(name).eq(param(name)) for name in ("leaf_key", "post_hash")))
    .prepared()
)
_TIMES = select(col("remembered_at")).from_(POST_IDS).where(col("remembered_at").lt(param("before_us")))
_HORIZON = _TIMES.order_by(asc(col("remembered_at"))).limit(1).offset(param("rows_max")).prepared()
_PRUNE = delete(POST_IDS).where(col("remembered_at").lt(param("before_us"))).prepared()
