"""Packs posts into the compact form in which they leave this process, for the ingest queue or the owner process.

A leaf with its specification is many times larger than a post. So a packed post refers to each of its leaves by an
index into a list that many posts share.
"""

from collections.abc import Sequence

import msgspec

from storage.records import BoardPost, ColumnChange, Leaf, Post, PostAct, PostScope, PostTerms


class PackedPost(msgspec.Struct, array_like=True, gc=False):
    owner: str
    boards: list[int]  # 0-based indexes in the list of leaves
    changes: list[Sequence[ColumnChange]]  # one sequence for each of the post's leaves, or a single one for all of them
    at_us: int | None  # the time of the post; None: the time of its arrival (posts in the queue have a time)
    fingerprint: str
    post_hash: str | None = None
    post_id: str | None = None
    family_key: int | None = None
    act: PostAct | None = None
    division: int | None = None
    asks_hold: bool = False
    terms: PostTerms | None = None

    def changes_to(self, index: int) -> Sequence[ColumnChange]:
        """Select the changes that the post makes to one of its leaves, given by its 0-based index in `boards`."""
        return self.changes[index if len(self.changes) > 1 else 0]


def pack_posts(posts: Sequence[Post], leaves: dict[int, tuple[int, Leaf]], arrived_us: int | None) -> list[PackedPost]:
    """Pack posts, and add their leaves to `leaves`, which maps a leaf's key to its index and the leaf.

    A post without a time gets the time `arrived_us`.
    """
    packed: list[PackedPost] = []
    for post in posts:
        reached = []
        for part in post.parts:
            key = part.leaf.key
            known = leaves.get(key)
            if known is None:
                known = leaves[key] = len(leaves), part.leaf
            elif len(known[1].spec.columns) < len(part.leaf.spec.columns):  # a column has been added to the leaf
                leaves[key] = known[0], part.leaf
            reached.append(known[0])
        changes = [part.changes for part in post.parts]
        if len(changes) > 1 and changes.count(changes[0]) == len(changes):
            changes = changes[:1]
        at_us = arrived_us if post.at_us is None else post.at_us
        family_key = None if post.scope is None else post.scope.key
        packed.append(
            PackedPost(post.owner, reached, changes, at_us, post.fingerprint, post.post_hash, post.post_id, family_key)
        )
        if post.act is not None:
            packed[-1].act = post.act
        if post.division is not None:
            packed[-1].division = post.division
        if post.asks_hold:
            packed[-1].asks_hold = True
        if post.terms is not None:
            packed[-1].terms = post.terms
    return packed


def unpack_post(packed: PackedPost, leaves: Sequence[Leaf]) -> Post:
    """Restore a post from its packed form, but only with its changes to `leaves`."""
    changes = packed.changes * len(leaves) if len(packed.changes) == 1 else packed.changes
    parts = [BoardPost(leaf, theirs) for leaf, theirs in zip(leaves, changes, strict=True)]
    scope = None
    if packed.family_key is not None:  # only a front process packs a post without leaves, and its store has 1 partition
        scope = PostScope(packed.family_key, leaves[0].partition if leaves else 0)
    post = Post(packed.owner, parts, packed.post_hash, packed.at_us, packed.fingerprint, scope, packed.post_id)
    post.act, post.division, post.asks_hold = packed.act, packed.division, packed.asks_hold
    post.terms = packed.terms
    return post
