"""Stores held posts, which look suspicious and count for nobody until an operator accepts them.

    post beyond a limit, or with "hold" ──> held ──> accepted: applied, with the time that the post had
                                                 ──> refused: its id is voided

A held post is durable: the transaction that decides to hold it also stores it, with its id and the outcome `held`. A
post to a family has one row for each of its boards. A verdict covers all of them, and removes the rows in the
transaction that applies or voids the post, so only the first of two verdicts has an effect.

(To *hold* something else, such as a row or a lease, is to lock it.)
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from querybuilder import ASC, all_of, any_of, asc, col, count, delete, param, seek, select
from storage.records import BoardPost, ColumnChange, Leaf, Post
from storage.schema.placement import TABLES, prepare_put_rows
from storage.schema.tables import GAINS, HELD_POSTS
from storage.store import Program

HELD_POSTS_MAX = 1_000  # the most held posts of a leaf; beyond that, a post over a limit is refused
COUNTED_MAX = 10_000  # the metric of held posts counts no more of a partition


class HeldPost(NamedTuple):
    leaf_key: int
    owner: str
    post_hash: str
    family_key: int | None  # the family to which it was posted; None: it was posted to the board alone
    held_us: int
    at_us: int  # the time of the post
    post_id: str
    fingerprint: str
    changes: str
    reason: str  # why it is held

    @property
    def decoded_changes(self) -> list[ColumnChange]:
        return decode_changes(self.changes)


def hold_post(post: Post, part: BoardPost, reason: str, now_us: int) -> HeldPost:
    """Build the row that stores a post to be held. The post must have an id."""
    at_us = now_us if post.at_us is None else post.at_us
    changes = _encode(part.changes).decode()
    identity = part.leaf.key, post.owner, post.post_hash or "", None if post.scope is None else post.scope.key
    return HeldPost(*identity, now_us, at_us, post.post_id or "", post.fingerprint, changes, reason)


def store_held(posts: Iterable[HeldPost]) -> Program[None]:
    yield _STORE.bind(rows=sorted(posts))


def count_held(leaf_keys: Collection[int]) -> Program[dict[int, int]]:
    """Count the held posts of each of these leaves. Leave out leaves without any."""
    found: dict[int, int] = {}
    for key in leaf_keys:
        [[found[key]]] = yield _COUNT.bind(key=key)
    return found


def find_held(leaf: Leaf, owner: str, post_hash: str) -> Program[list[HeldPost]]:
    """Find all parts of a held post, one of which changes this leaf. Return nothing if the post is not held."""
    bound = {"owner": owner, "post_hash": post_hash}
    rows = yield _PART.bind(key=leaf.key, **bound)
    if rows and leaf.family_key is not None:
        rows = yield _PARTS.bind(family=leaf.family_key, **bound)
    return [HeldPost(*row) for row in rows]


def list_held(leaf_key: int, after: tuple[int, str], limit: int) -> Program[list[HeldPost]]:
    """List up to `limit` held posts of a leaf that come after this pair, ordered by time and hash."""
    return [HeldPost(*row) for row in (yield _LIST.bind(key=leaf_key, since=after[0], past=after[1], limit=limit))]


def count_all_held() -> Program[int]:
    """Count the held posts of this partition, up to `COUNTED_MAX`."""
    [[posts]] = yield _COUNT_ALL.bind()
    return int(posts)


def remove_held(owner: str, post_hash: str, key: int) -> Program[int]:
    """Remove the parts of a post whose id is stored under `key`, of a leaf or a family. Return how many."""
    [[removed]] = yield _REMOVE.bind(owner=owner, post_hash=post_hash, key=key)
    return int(removed)


def remove_held_posts(owners: Iterable[str], leaf_keys: Collection[int] | None = None) -> Program[int]:
    """Remove the held posts and the gains of owners from all leaves of this partition, or only from `leaf_keys`.

    Return how many rows were removed.
    """
    where, removed = [_among] if leaf_keys is None else [_among, col("leaf_key").in_(param("keys"))], 0
    bound = {"owners": [*owners], **({} if leaf_keys is None else {"keys": [*leaf_keys]})}
    for table in (HELD_POSTS, GAINS):
        [[rows]] = yield delete(table).where(*where).bind(**bound)
        removed += rows
    return removed


def prune_held(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete about `rows_max` held posts, the oldest of those held before `before_us`. Return how many were deleted."""
    horizon = yield _HORIZON.bind(before_us=before_us, rows_max=rows_max)
    rows = yield _PRUNE.bind(before_us=horizon[0][0] + 1 if horizon else before_us)
    return int(rows[0][0])


_encode = msgspec.json.Encoder().encode
decode_changes = msgspec.json.Decoder(list[ColumnChange]).decode
_rows = select(*map(col, TABLES[HELD_POSTS].kinds)).from_(HELD_POSTS)
_key, _owner, _among = (
    col("leaf_key").eq(param("key")),
    col("owner").eq(param("owner")),
    col("owner").in_(param("owners")),
)
_one = _owner, col("post_hash").eq(param("post_hash"))
_family = col("family_key")
_STORE = prepare_put_rows(HELD_POSTS)
_COUNT = (
    select(count()).from_(select(col("leaf_key")).from_(HELD_POSTS).where(_key).limit(HELD_POSTS_MAX), "held")
).prepared()
_PART = _rows.where(_key, *_one).prepared()
_PARTS = _rows.where(*_one, _family.eq(param("family"))).order_by(asc(col("leaf_key"))).prepared()
_after = seek((col("held_at"), ASC, param("since")), (col("post_hash"), ASC, param("past")))
_LIST = _rows.where(_key, _after).order_by(asc(col("held_at")), asc(col("post_hash"))).limit(param("limit")).prepared()
_of_key = any_of(_family.eq(param("key")), all_of(_family.is_null(), _key))
_REMOVE = delete(HELD_POSTS).where(*_one, _of_key).prepared()
_old = col("held_at").lt(param("before_us"))
_times = select(col("held_at")).from_(HELD_POSTS).where(_old).order_by(asc(col("held_at")))
_HORIZON = _times.limit(1).offset(param("rows_max")).prepared()
_PRUNE = delete(HELD_POSTS).where(_old).prepared()
_COUNT_ALL = select(count()).from_(select(col("leaf_key")).from_(HELD_POSTS).limit(COUNTED_MAX), "held").prepared()
