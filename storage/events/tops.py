"""Finds the leaderboards, among those a webhook asks for, whose first rows have changed, for the event `top.changed`.

    counts of changes in a log ──> boards with changes ──> their first owners ── other ones than before? ──> event

Only the change counts are read from a log, so that even a busy log costs little. The first owners are kept as a digest
of their names, so that no name remains after an erasure. The digest is written together with the event, so each change
of the first owners causes one event, even if a process dies and the next one looks again. Several changes between two
looks also cause just one event.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from querybuilder import col, delete, param, select
from storage.leaves.rankings import Ranking
from storage.log.change_log import change_log
from storage.records import Board
from storage.schema.placement import prepare_put, prepare_put_rows
from storage.schema.tables import BOARD_TOPS, FOLLOWERS
from storage.store import Program, in_partition

from .event_log import Event, append_events
from .webhooks import Webhook

TOP_CHANGED = "top.changed"  # the type of the event
TOP_ROWS = 10
RECENT_US = 60_000_000  # so what happens right after a webhook was made counts, before a process knows of it
FOLLOWER = "tops"


class Changes(NamedTuple):
    """The leaves that have changed, according to a log, since the stored mark. `until` is the next mark."""

    mark: int | None
    until: int
    leaf_keys: list[int]


def is_watched(board: Board, webhooks: Iterable[Webhook]) -> bool:
    event = Event(0, 0, TOP_CHANGED, board.id)
    return any(TOP_CHANGED in each.events and each.wants(event) for each in webhooks)


def find_changes(now_us: int) -> Program[Changes]:
    """Find which of a partition's leaves have changed since the mark or, without a mark, in the last `RECENT_US`."""
    rows = yield _FIND_MARK.bind(name=FOLLOWER)
    mark = int(rows[0][0]) if rows else None
    [since] = [mark] if mark is not None else (yield from change_log.find_positions([now_us - RECENT_US]))
    counts, until = yield from change_log.count_changes_after(since)
    return Changes(mark, until, [*counts])


def read_top(rankings: Mapping[int, Ranking]) -> Program[str]:
    """Read a digest of the first owners in each of a board's rankings. It is empty if there are none."""
    found = []
    for ranking in rankings.values():
        found.append([entry.owner for entry in (yield from ranking.read_first_rows(TOP_ROWS))])
    return hashlib.sha256(msgspec.json.encode(found)).hexdigest() if any(found) else ""


def store_tops(tops: Sequence[tuple[Board, str]], *, now_us: int) -> Program[None]:
    """Store digests, and add an event for each board whose digest has changed. Run this in the control partition."""
    stored = {row[0]: row[1] for row in (yield _FIND_TOPS.bind(keys=[board.key for board, _ in tops]))}
    changed = [(board, digest) for board, digest in tops if stored.get(board.key, "") != digest]
    if changed:
        yield _PUT_TOPS.bind(rows=[(board.key, digest) for board, digest in changed])
        yield from append_events([(now_us, TOP_CHANGED, board.id, None, None) for board, _ in changed])


def store_mark(until: int) -> Program[None]:
    yield _PUT_MARK.bind(name=FOLLOWER, handled=until)


def forget_tops(partitions: int) -> Program[None]:
    """Forget all digests and marks, because no webhook asks for them."""
    for partition in range(partitions):
        yield from in_partition(partition, _forget_mark())
    yield _FORGET_TOPS.bind()


def _forget_mark() -> Program[None]:
    yield _FORGET_MARK.bind(name=FOLLOWER)


_named = col("name").eq(param("name"))
_FIND_MARK = select(col("handled")).from_(FOLLOWERS).where(_named).prepared()
_FORGET_MARK = delete(FOLLOWERS).where(_named).prepared()
_PUT_MARK = prepare_put(FOLLOWERS)
_tops = select(col("leaf_key"), col("digest")).from_(BOARD_TOPS)
_FIND_TOPS = _tops.where(col("leaf_key").in_(param("keys"))).packed().prepared()
_PUT_TOPS = prepare_put_rows(BOARD_TOPS)
_FORGET_TOPS = delete(BOARD_TOPS).where(col("leaf_key").not_null()).prepared()
