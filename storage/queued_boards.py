"""Where queued posts go when their turn comes: to which of their boards they still can, and why not to the others.

The rule: a board that was deleted or emptied since a post was accepted does not get it. A post is all or nothing over
its boards. Whether a board is still open is found out where the post is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from querybuilder import Dialect

from .errors import PostError, PostRejected, UnknownBoard
from .families import families_by_key
from .leaderboards import boards_by_key
from .queued_posts import Block, QueuedPost, changes_to, post_of
from .records import Board, Change, Family, Post
from .store import Program


class Refusal(NamedTuple):
    """A post that a board will not get."""

    board_key: int
    there: bool  # the board is: somebody can ask it what became of the post
    queued: QueuedPost
    error: PostError
    changes: Sequence[Change]  # what the post said to the board


@dataclass(slots=True)
class Resolved:
    """Posts that can be applied, in their order, and what can't."""

    posts: list[Post] = field(default_factory=list)
    queued: list[QueuedPost] = field(default_factory=list)  # of each of the posts
    refusals: list[Refusal] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)  # of the boards that may be emptied, as they were found


def resolve(dialect: Dialect, blocks: Sequence[tuple[Block, int]]) -> Program[Resolved]:
    """The posts of blocks, of each the first so many."""
    keys = {key for block, _ in blocks for key, _ in block.boards}
    boards = yield from boards_by_key(dialect, sorted(keys))
    families: Mapping[int, Family] = {}
    if family_keys := {board.family_key for board in boards.values() if board.family_key is not None}:
        families = yield from families_by_key(dialect, sorted(family_keys))
    resolved = Resolved()
    for block, count in blocks:
        there = [_open(boards.get(key), epoch, families) for key, epoch in block.boards]
        for queued in block.posts[:count]:
            found = [(block.boards[place][0], there[place]) for place in queued.boards]
            _resolve_one(resolved, queued, found, boards, families)
    return resolved


_Found = Board | PostError


def _open(board: Board | None, epoch: int, families: Mapping[int, Family]) -> _Found:
    if board is None:
        return UnknownBoard("the leaderboard was deleted since the post was accepted")
    if board.family_key is None:
        if board.epoch != epoch:
            return UnknownBoard("the leaderboard was emptied since the post was accepted")
        return board
    if board.family_key not in families:
        return UnknownBoard("the family was deleted since the post was accepted")
    return board


def _resolve_one(
    resolved: Resolved,
    queued: QueuedPost,
    found: Sequence[tuple[int, _Found]],
    boards: Mapping[int, Board],
    families: Mapping[int, Family],
) -> None:
    errors = {key: each for key, each in found if not isinstance(each, Board)}
    if errors and queued.family_key is None:
        refused = PostRejected()
        errors = {key: errors.get(key, refused) for key, _ in found}
    for index, (key, _) in enumerate(found):
        if key in errors:
            refusal = Refusal(key, key in boards, queued, errors[key], changes_to(queued, index))
            resolved.refusals.append(refusal)
    left = [each for key, each in found if key not in errors and isinstance(each, Board)]
    if left:
        resolved.epochs |= {board.key: board.epoch for board in left if board.family_key is None}
        resolved.posts.append(post_of(queued, left, families))
        resolved.queued.append(queued)


def is_as_found(epochs: Mapping[int, int], found: Mapping[int, int]) -> bool:
    """Whether boards are in the epochs that posts were resolved for."""
    return all(found.get(key) == epoch for key, epoch in epochs.items())


def boards_of(posts: Iterable[Post]) -> list[Board]:
    """Every board that some post goes to, once; all posts were resolved together, so a board is one object."""
    return list({part.board.key: part.board for post in posts for part in post.parts}.values())
