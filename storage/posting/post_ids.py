"""Remember post ids with their outcomes, in the transaction that applies the posts. A retry then gets the outcome.

Ids are stored as keyed hashes of 128 bits, so rows stay short and hold no data of callers in plain text. An id is valid
in one epoch of its board. Emptying a board begins a new epoch, which makes the board's ids void without writing to
their rows. Void ids are pruned by age like all others.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Select,
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
)
from storage.errors import PostIdConflictError, UnknownBoardError
from storage.records import PartOutcome, Post, PostStatus, StatValue
from storage.schema.tables import BOARDS, POST_IDS
from storage.store import Program


@dataclass(frozen=True, slots=True)
class RememberedPost:
    fingerprint: str
    status: PostStatus
    updated_at_us: int
    stats: list[StatValue | None]


@dataclass(frozen=True, slots=True)
class RememberedFamilyPost:
    """A post id that a family has seen, with the outcomes on all boards that the post reached."""

    fingerprint: str
    parts: list[PartOutcome]  # each outcome names its board


class PostIds:
    """Programs over the remembered post ids of a store."""

    def __init__(self, salt: str) -> None:
        self._salt = bytes.fromhex(salt)
        # The statement also reads the board's epoch: the board may have been emptied since the caller last saw it.
        self._find = (
            union_all(
                select(null(TEXT), null(TEXT), null(TEXT), col("epoch"))
                .from_(BOARDS)
                .where(col("board_key").eq(param("board_key"))),
                _known(),
            )
            .packed()
            .prepared()
        )
        self._find_in_family = _known().packed().prepared()
        self._remember = (
            insert(POST_IDS)
            .rows(
                param("rows"), board_key=INTEGER, post_hash=TEXT, fingerprint=TEXT, outcome=TEXT, remembered_at=INTEGER
            )
            .prepared()
        )
        old = select(col("remembered_at")).from_(POST_IDS).where(col("remembered_at").lt(param("before_us")))
        self._horizon = old.order_by(asc(col("remembered_at"))).limit(1).offset(param("rows_max")).prepared()
        self._prune = delete(POST_IDS).where(col("remembered_at").lt(param("before_us"))).prepared()

    def hash_post_id(self, post_id: str) -> str:
        return hashlib.blake2b(post_id.encode(), digest_size=16, key=self._salt).hexdigest()

    def find_known(
        self, board_key: int, epoch: int, hashes: Collection[str]
    ) -> Program[tuple[int, dict[str, RememberedPost]]]:
        """Return the board's epoch, and by hash the posts with these hashes that the board has seen in this epoch.

        `epoch`: the epoch that the caller expects. If it is still the board's epoch, the look-up takes one round trip.

        Raises:
            UnknownBoardError: the board was deleted.
        """
        by_stored = {_stored(post_hash, epoch): post_hash for post_hash in hashes}
        found = yield self._find.bind(board_key=board_key, asked=[(board_key, stored) for stored in by_stored])
        live = next((row[3] for row in found if row[0] is None), None)
        if live is None:
            raise UnknownBoardError("the leaderboard was deleted meanwhile")
        if live != epoch:
            return (yield from self.find_known(board_key, live, hashes))
        known = {}
        for stored, fingerprint, outcome, _ in found:
            if stored is not None:
                status, updated_at_us, stats = msgspec.json.decode(outcome)
                known[by_stored[stored]] = RememberedPost(fingerprint, PostStatus(status), updated_at_us, stats)
        return live, known

    def find_in_family(self, family_key: int, hashes: Collection[str]) -> Program[dict[str, RememberedFamilyPost]]:
        found = yield self._find_in_family.bind(asked=[(family_key, post_hash) for post_hash in hashes])
        return {
            post_hash: RememberedFamilyPost(fingerprint, _decode_parts(outcome))
            for post_hash, fingerprint, outcome, _ in found
        }

    def remember_posts_in_family(
        self, rows: Iterable[tuple[int, str, str, Sequence[PartOutcome]]], now_us: int
    ) -> Program[None]:
        """Store post ids of families, given as rows (family key, hash, fingerprint, outcomes)."""
        yield self._remember.bind(
            rows=[
                (
                    family_key,
                    post_hash,
                    fingerprint,
                    msgspec.json.encode([_part_fields(part) for part in parts]).decode(),
                    now_us,
                )
                for family_key, post_hash, fingerprint, parts in rows
            ]
        )

    def remember_posts(self, rows: Iterable[tuple[int, int, str, str, PartOutcome]], now_us: int) -> Program[None]:
        """Store post ids of boards, given as rows (board key, epoch, hash, fingerprint, outcome)."""
        yield self._remember.bind(
            rows=[
                (
                    board_key,
                    _stored(post_hash, epoch),
                    fingerprint,
                    msgspec.json.encode((outcome.status, outcome.updated_at_us, outcome.stats)).decode(),
                    now_us,
                )
                for board_key, epoch, post_hash, fingerprint, outcome in rows
            ]
        )

    def prune_ids(self, *, before_us: int, rows_max: int) -> Program[int]:
        """Delete at most about `rows_max` ids older than `before_us`; return how many were deleted."""
        horizon = yield self._horizon.bind(before_us=before_us, rows_max=rows_max)
        # All ids of a transaction have the same time. One call deletes either all ids with a time or none of them.
        limit_us = horizon[0][0] + 1 if horizon else before_us
        rows = yield self._prune.bind(before_us=limit_us)
        return int(rows[0][0])


def find_repeats(post_ids: PostIds, posts: Sequence[Post]) -> Program[list[bool | PostIdConflictError]]:
    """Return for each post whether it was applied before, on any of its boards or in its family.

    If a different post with the same id was applied, return a `PostIdConflictError` instead.

    Raises:
        UnknownBoardError: a board was deleted.
    """
    asked = [(post, _remembering(post)) for post in posts if post.post_hash is not None]
    boards = {part.board.key: part.board for post, _ in asked if post.family is None for part in post.parts}
    hashes: dict[int, set[str]] = defaultdict(set)
    for post, keys in asked:
        for key in keys:
            hashes[key].add(post.post_hash or "")
    fingerprints: dict[int, dict[str, str]] = {}
    for key, theirs in hashes.items():
        known: Mapping[str, RememberedPost | RememberedFamilyPost]
        if (board := boards.get(key)) is None:
            known = yield from post_ids.find_in_family(key, theirs)
        else:
            _, known = yield from post_ids.find_known(key, board.epoch, theirs)
        fingerprints[key] = {post_hash: each.fingerprint for post_hash, each in known.items()}
    return [_repeats(post, fingerprints) for post in posts]


def _remembering(post: Post) -> list[int]:
    """Return the keys under which a post's id is stored: the key of its family, or else those of its boards."""
    return [part.board.key for part in post.parts] if post.family is None else [post.family.key]


def _repeats(post: Post, fingerprints: Mapping[int, Mapping[str, str]]) -> bool | PostIdConflictError:
    if post.post_hash is None:
        return False
    found = [fingerprints[key].get(post.post_hash) for key in _remembering(post)]
    if post.fingerprint in found:
        return True
    return PostIdConflictError(pointer="/post_id") if any(found) else False


def _part_fields(part: PartOutcome) -> tuple[object, ...]:
    fields = (part.board_key, part.updated_at_us, part.stats)
    return (*fields, part.status) if part.status is PostStatus.UNCHANGED else fields  # APPLIED is the default


def _decode_parts(outcome: str) -> list[PartOutcome]:
    return [
        PartOutcome(PostStatus(status[0]) if status else PostStatus.APPLIED, updated_at_us, stats, board_key=board_key)
        for board_key, updated_at_us, stats, *status in msgspec.json.decode(outcome)
    ]


def _known() -> Select:
    # Join by the board key and the hash of each wanted row. If the board key were a condition of its own, the planner
    # could choose to read all rows of the board, because its statistics may be older than a burst of posts.
    same = (col("board_key", "p").eq(col("board_key", "v")), col("post_hash", "p").eq(col("post_hash", "v")))
    return (
        select(col("post_hash", "p"), col("fingerprint", "p"), col("outcome", "p"), null(INTEGER))
        .from_(rows("v", param("asked"), board_key=INTEGER, post_hash=TEXT))
        .join(POST_IDS, all_of(*same), alias="p")
    )


def _stored(post_hash: str, epoch: int) -> str:
    return post_hash if epoch == 1 else f"{post_hash}.{epoch}"
