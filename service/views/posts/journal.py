"""Handlers of the journal, the durable log of accepted posts, which read all of it or only one owner's posts.

A line shows what was posted and what was stored afterwards, with values in the form in which callers post them. A line
about an erased owner keeps its sequence number, but has no owner, no post and no value.

Each partition numbers its own changes. In a store with several partitions, a position in the journal therefore consists
of a number for each partition, and callers get it as a cursor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import UNSET

from service.context import Context
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import ProblemError, post_problem_of
from service.contract.queries import JournalQuery, OwnerPostsQuery
from service.contract.responses.journal import JournalKind, JournalLine, OwnerPosts, Place
from service.contract.routes import Call, Reply
from service.contract.values import format_us
from service.streams.long_answers import encode_in_turns
from storage.boards import journal
from storage.boards.journal import JournalPage, Numbers, is_told, padded
from storage.errors import BadCursorError
from storage.histories import merged_owners
from storage.log.bundles import MERGES, NO_CHANGE, ChangeKind, ChangeRecord
from storage.log.merging import Merger
from storage.log.partition_journal import JournalRow, RowReader, leaf_key_of
from storage.queue.outcomes import decode_error
from storage.records import Leaf, PostStatus
from storage.schema.creation import count_partitions
from storage.store import Program

from .posts import format_stats, name_changes

PARTITIONS_AWAY = "Partitions-Away"  # the header that lists the partitions that an answer leaves out
_NOT_APPLIED = {ChangeKind.UNCHANGED: PostStatus.UNCHANGED, ChangeKind.REJECTED: PostStatus.REJECTED}
_KINDS: dict[ChangeKind, JournalKind] = {  # a change of any other kind is a post
    ChangeKind.VOIDED: "void",
    **dict.fromkeys((*MERGES, ChangeKind.LEFT), "merge"),
    ChangeKind.ERASED: "erase",
    ChangeKind.HIDDEN: "hide",
    ChangeKind.SHOWN: "show",
    ChangeKind.RESET: "reset",
    ChangeKind.MOVED: "move",
    ChangeKind.DELETED: "delete",
}
_Leaves = dict[int, Leaf]


async def read_journal(context: Context, call: Call) -> Reply:
    query: JournalQuery = call.query
    limit = query.limit or context.settings.page_entries_max
    after = context.cursors.decode_numbers(query.after) if query.after else ()

    def program(away: Collection[int]) -> Program[tuple[JournalPage, _Leaves]]:
        partitions = yield from _list_partitions(after, away)
        page = yield from journal.read_page(after, limit=limit, partitions=partitions)
        changes = ((partition, leaf_key_of(bundle)) for partition, bundle in page.bundles)
        return page, (yield from journal.find_changed_leaves(changes, partitions))

    async with context.long_answers.hold_turn():
        (page, leaves), away = await context.read_living(program, heavy=True)
        if after and (lost := page.find_lost(after)) is not None:
            detail = f"the journal begins after {lost[1]}: some of what follows {lost[0]} is no longer there"
            raise ProblemError("journal_pruned", detail, pointer="after")
        rows = ((context.cursors.encode_numbers(numbers), row) for numbers, row in page.list_changes())
        headers = {PARTITIONS_AWAY: ", ".join(map(str, away))} if away else None
        return Reply(await encode_in_turns(make_lines(rows, leaves)), headers=headers, media_type=NDJSON_TYPE)


async def get_owner_posts(context: Context, call: Call) -> OwnerPosts:
    query: OwnerPostsQuery = call.query
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    before = None if query.before is None else context.cursors.decode_numbers(query.before, "posts")
    lines, more, away = await read_owner_lines(context, owner, before, limit)
    posts = [line for line in lines if line.kind in ("post", "void")]
    encode = context.cursors.encode_numbers
    return OwnerPosts(owner, posts, None if more is None else encode(more, "posts"), [*away] or UNSET)


async def read_owner_lines(
    context: Context, owner: str, before: Numbers | None, limit: int
) -> tuple[Iterator[JournalLine], Numbers | None, Collection[int]]:
    """Read journal lines about an owner, newest first.

    Return the lines, the place where the next ones begin (None: there are no more), and the partitions that do not
    answer.
    """
    blocks_max = context.settings.owner_posts_blocks_max

    def program(away: Collection[int]) -> Program[tuple[list[tuple[Numbers, JournalRow]], _Leaves, Numbers | None]]:
        partitions = yield from _list_partitions(before or (), away)
        names = yield from merged_owners.list_names(owner)
        rows, more = yield from journal.read_posts_of_owner(
            names, before=before, limit=limit, blocks_max=blocks_max, partitions=partitions
        )
        changes = ((partition, row.leaf_key) for partition, row in rows)
        leaves = yield from journal.find_changed_leaves(changes, partitions)
        places = 1 + max(partitions, default=0)
        return [(padded((0,) * partition + (row.number,), places), row) for partition, row in rows], leaves, more

    (found, leaves, more), away = await context.read_living(program, heavy=True)
    encode = context.cursors.encode_numbers
    return make_lines(((encode(numbers), row) for numbers, row in found), leaves), more, away


def _list_partitions(place: Numbers, away: Collection[int]) -> Program[list[int]]:
    """List the partitions except those `away`. Raise `BadCursorError` if `place` has more numbers than partitions."""
    partitions = yield from count_partitions()
    if len(place) > partitions:
        raise BadCursorError("the cursor belongs to a store with more partitions")
    return [partition for partition in range(partitions) if partition not in away]


def make_lines(rows: Iterable[tuple[Place, JournalRow]], leaves: _Leaves) -> Iterator[JournalLine]:
    writers: dict[int, _LineWriter] = {}
    for place, row in rows:
        writer, leaf = writers.get(row.leaf_key), leaves.get(row.leaf_key)
        if writer is None and leaf is not None:
            writer = writers[row.leaf_key] = _LineWriter(leaf)
        if is_told(leaf, row.record):
            yield _line(place, row, writer)


def _line(place: Place, row: JournalRow, writer: _LineWriter | None) -> JournalLine:
    line = JournalLine(
        place, "erased", None if writer is None else writer.id, row.owner, format_us(max(row.at_us, row.logged_us))
    )
    if row.record is None:
        return line
    kind = row.record.kind
    line.kind = _KINDS.get(kind, "post")
    if kind not in _KINDS:
        line.status = _NOT_APPLIED.get(kind, PostStatus.APPLIED)
        if row.record.error is not None:
            line.error = post_problem_of(decode_error(row.record.error)).to_document()
        if writer is not None:
            writer.write_post(line, row, row.record)
    elif kind is ChangeKind.LEFT:
        line.into = row.record.owner or UNSET
    elif kind in (ChangeKind.VOIDED, *MERGES) and writer is not None:
        writer.write_values(line, row, row.record)
    return line


class _LineWriter:
    """Fills in the journal lines for posts to one leaf: what was posted, and which values were stored."""

    def __init__(self, leaf: Leaf) -> None:
        self.id = leaf.id
        self._spec = leaf.spec
        self._reader, self._merger = RowReader(leaf), Merger(leaf.spec)

    def write_post(self, line: JournalLine, row: JournalRow, posted: ChangeRecord) -> None:
        line.stats = name_changes(self._spec, posted.changes, overwrite=False)
        if overwritten := name_changes(self._spec, posted.changes, overwrite=True):
            line.set = overwritten
        if posted.post_id is not None:
            line.post_id = posted.post_id
        if posted.at_us is not None:
            line.at = format_us(posted.at_us)
        if posted.kind not in NO_CHANGE:
            line.stored = format_stats(self._spec, self._merger.decode_stats(self._reader.cells_after(row, posted)))

    def write_values(self, line: JournalLine, row: JournalRow, record: ChangeRecord) -> None:
        line.post_id = record.post_id or UNSET
        if record.version is not None:
            line.stored = format_stats(self._spec, self._merger.decode_stats(self._reader.cells_after(row, record)))
