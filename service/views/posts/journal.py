"""Handlers of the journal, the durable log of accepted posts. They read the whole journal, or the posts of one owner.

A line shows what was posted and what was stored afterwards, in the form in which callers post values. A line of an
erased owner keeps its sequence number, but has no owner, no post and no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from service.context import Context
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import ProblemError, post_problem_of
from service.contract.queries import JournalQuery, OwnerPostsQuery
from service.contract.responses.boards import Stats, StatusName
from service.contract.responses.journal import JournalKind, JournalLine, OwnerPosts
from service.contract.routes import Call, Reply
from service.contract.values import format_us, to_wire_number
from service.streams.journal_lane import encode_in_turns
from storage.log.journal import JournalRow, RowReader, board_key_of, changes_past, journal
from storage.log.log_record import NO_CHANGE, ChangeKind, ChangeRecord
from storage.log.merging import Merger
from storage.queue.outcomes import decode_error
from storage.records import INT64_MAX, Board, ColumnChange
from storage.store import Program, Row

from .posts import format_stats

_POSTS: dict[ChangeKind, StatusName] = {
    ChangeKind.APPLIED: "applied",
    ChangeKind.UNCHANGED: "unchanged",
    ChangeKind.UNSEEN: "applied",
    ChangeKind.REJECTED: "rejected",
}
_KINDS: dict[ChangeKind, JournalKind] = {
    ChangeKind.ERASED: "erase",
    ChangeKind.HIDDEN: "hide",
    ChangeKind.SHOWN: "show",
    ChangeKind.RESET: "reset",
    ChangeKind.DELETED: "delete",
}
_Boards = dict[int, Board]


async def read_journal(context: Context, call: Call) -> Reply:
    query: JournalQuery = call.query
    limit = query.limit or context.settings.page_entries_max

    def program() -> Program[tuple[int, list[Row], _Boards]]:
        begins_after = yield from journal.find_begin()
        bundles = yield from journal.read_bundles(query.after, limit=limit)
        return begins_after, bundles, (yield from journal.find_boards(map(board_key_of, bundles)))

    async with context.journal_lane.hold_lane():
        begins_after, bundles, boards = await context.store.read(program, heavy=True)
        if 0 < query.after < begins_after:
            detail = f"the journal begins after {begins_after}: some of what follows {query.after} is no longer there"
            raise ProblemError("journal_pruned", detail, pointer="after")
        rows = islice(changes_past(bundles, query.after), limit)
        return Reply(await encode_in_turns(make_lines(rows, boards)), media_type=NDJSON_TYPE)


async def get_owner_posts(context: Context, call: Call) -> OwnerPosts:
    query: OwnerPostsQuery = call.query
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    before = INT64_MAX if query.before is None else query.before
    blocks_max = context.settings.owner_posts_blocks_max

    def program() -> Program[tuple[list[JournalRow], _Boards, int | None]]:
        rows, more = yield from journal.read_changes_of_owner(owner, before=before, limit=limit, blocks_max=blocks_max)
        return rows, (yield from journal.find_boards(row.board_key for row in rows)), more

    rows, boards, more = await context.store.read(program, heavy=True)
    return OwnerPosts(owner, [line for line in make_lines(rows, boards) if line.kind == "post"], more)


def make_lines(rows: Iterable[JournalRow], boards: _Boards) -> Iterator[JournalLine]:
    writers: dict[int, _LineWriter] = {}
    for row in rows:
        writer, board = writers.get(row.board_key), boards.get(row.board_key)
        if writer is None and board is not None:
            writer = writers[row.board_key] = _LineWriter(board)
        yield _line(row, writer)


def _line(row: JournalRow, writer: _LineWriter | None) -> JournalLine:
    line = JournalLine(row.number, "erased", None if writer is None else writer.id, row.owner, format_us(row.at_us))
    if row.record is None:
        return line
    kind = row.record.kind
    line.kind = _KINDS.get(kind, "post")
    if kind in _POSTS:
        line.status = _POSTS[kind]
        if row.record.error is not None:
            line.error = post_problem_of(decode_error(row.record.error)).to_document()
        if writer is not None:
            writer.write_post(line, row, row.record)
    return line


class _LineWriter:
    """Fills the journal lines of posts to one board."""

    def __init__(self, board: Board) -> None:
        self.id = board.id
        self._board = board
        self._reader, self._merger = RowReader(board), Merger(board.spec)

    def write_post(self, line: JournalLine, row: JournalRow, posted: ChangeRecord) -> None:
        line.stats = self._named(posted.changes, overwrite=False)
        if overwritten := self._named(posted.changes, overwrite=True):
            line.set = overwritten
        if posted.post_id is not None:
            line.post_id = posted.post_id
        if posted.at_us is not None:
            line.at = format_us(posted.at_us)
        if posted.kind not in NO_CHANGE:
            line.stored = format_stats(self._board, self._merger.decode_stats(self._reader.cells_after(row, posted)))

    def _named(self, changes: Sequence[ColumnChange], *, overwrite: bool) -> Stats:
        named: Stats = {}
        for index, value in ((each.index, each.value) for each in changes if each.overwrite is overwrite):
            column = self._board.spec.columns[index]
            named[column.name] = to_wire_number(value, column.scale) if isinstance(value, int) else value
        return named
