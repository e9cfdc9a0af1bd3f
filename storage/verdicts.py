"""Carries out verdicts on held posts: finds what to apply if a post is accepted, and voids its id if it is refused.

Both happen in the transaction that removes the held post, so only the first of two verdicts has an effect.
"""

from collections.abc import Sequence

import msgspec

from storage.leaves.catalog_rows import find_rows_by_key
from storage.limits.held_posts import HeldPost, find_held, remove_held
from storage.records import BoardPost, Leaf, Post, PostScope, PostStatus
from storage.store import Program, in_partition

from .posting.post_ids import find_known, replace_outcome


def find_accepted(leaf: Leaf, owner: str, post_hash: str) -> Program[Post | None]:
    """Build the post to apply for an accepted held post, or None if it is not held. Apply it with the writer."""
    held = yield from in_partition(leaf.partition, find_held(leaf, owner, post_hash))
    if not held:
        return None
    leaves, scope = {leaf.key: leaf}, None
    if held[0].family_key is not None:
        rows = yield from find_rows_by_key([each.leaf_key for each in held])
        leaves |= {key: row.leaf for key, row in rows.items()}
        scope = PostScope(held[0].family_key, leaf.partition)
    parts = [BoardPost(leaves[each.leaf_key], each.decoded_changes) for each in held if each.leaf_key in leaves]
    first = held[0]
    post = Post(first.owner, parts, first.post_hash, first.at_us, first.fingerprint, scope, first.post_id)
    post.is_accepted = True
    return post


def refuse_post(leaf: Leaf, owner: str, post_hash: str, *, now_us: int) -> Program[None]:
    """Void a held post's id on all of its boards. Do nothing if the post is not, or no longer, held."""
    held = yield from in_partition(leaf.partition, find_held(leaf, owner, post_hash))
    if held:
        yield from in_partition(leaf.partition, _refuse(leaf, held, now_us))


def _refuse(leaf: Leaf, held: Sequence[HeldPost], now_us: int) -> Program[None]:
    first = held[0]
    key, epochs = (leaf.key, {leaf.key: leaf.epoch}) if first.family_key is None else (first.family_key, {})
    if not (yield from remove_held(first.owner, first.post_hash, key)):
        return
    known = yield from find_known([(key, first.post_hash)], epochs)
    for post in known.posts.values():
        post.parts = [msgspec.structs.replace(part, status=PostStatus.VOIDED) for part in post.parts]
        yield from replace_outcome(post, known.epochs, now_us)
