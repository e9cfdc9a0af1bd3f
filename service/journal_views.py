"""The journal over HTTP: the durable log of accepted posts, whole or one owner's part of it.

The rule: a line says what was posted and what was stored afterwards, in the units of the wire; of who was erased it
keeps the number and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from storage.journal import JournalRow, journal
from storage.journal_rows import RowReader
from storage.merging import Merger
from storage.posted import NO_CHANGE, Happened, Posted
from storage.records import INT64_MAX, Board, Change
from storage.rejected_posts import error_of
from storage.store import Program

from .answers import Stats, StatusName
from .context import Context
from .journal_answers import JournalKind, JournalLine, OwnerPosts
from .post_bodies import NDJSON_TYPE
from .posts import stats_of
from .problems import Problem, post_problem_of
from .queries import JournalQuery, OwnerPostsQuery
from .routes import Call, Reply
from .values import format_us, number

_POSTS: dict[Happened, StatusName] = {
    Happened.APPLIED: "applied",
    Happened.UNCHANGED: "unchanged",
    Happened.UNSEEN: "applied",
    Happened.REJECTED: "rejected",
}
_KINDS: dict[Happened, JournalKind] = {
    Happened.APPLIED: "post",
    Happened.UNCHANGED: "post",
    Happened.UNSEEN: "post",
    Happened.REJECTED: "post",
    Happened.ERASED: "erase",
    Happened.HIDDEN: "hide",
    Happened.SHOWN: "show",
    Happened.RESET: "reset",
    Happened.DELETED: "delete",
}
_lines = msgspec.json.Encoder().encode_lines
_Found = tuple[list[JournalRow], dict[int, Board]]


async def read_journal(context: Context, call: Call) -> Reply:
    """`GET /v1/journal`."""
    query: JournalQuery = call.query
    log, limit = journal(context.store.dialect), query.limit or context.settings.page_entries_max

    def program() -> Program[tuple[int, _Found]]:
        begins_after = yield from log.begins_after()
        rows = yield from log.page(query.after, limit=limit)
        return begins_after, (rows, (yield from log.boards(row.board_key for row in rows)))

    begins_after, found = await context.store.read(program)
    if 0 < query.after < begins_after:
        detail = f"the journal begins after {begins_after}: what is past {query.after} is not all there"
        raise Problem("journal_pruned", detail, pointer="after")
    return Reply(_lines(lines_of(found)), media_type=NDJSON_TYPE)


async def owner_posts(context: Context, call: Call) -> OwnerPosts:
    """`GET /v1/owners/{owner}/posts`."""
    query: OwnerPostsQuery = call.query
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    log = journal(context.store.dialect)
    before = INT64_MAX if query.before is None else query.before

    blocks_max = context.settings.owner_posts_blocks_max

    def program() -> Program[tuple[_Found, int | None]]:
        rows, more = yield from log.of_owner(owner, before=before, limit=limit, blocks_max=blocks_max)
        return (rows, (yield from log.boards(row.board_key for row in rows))), more

    found, more = await context.store.read(program, heavy=True)
    return OwnerPosts(owner, [line for line in lines_of(found) if line.kind == "post"], more)


def lines_of(found: _Found) -> list[JournalLine]:
    """Rows as they travel."""
    rows, boards = found
    tellers = {key: _Teller(board) for key, board in boards.items()}
    return [_line(row, tellers.get(row.board_key)) for row in rows]


def _line(row: JournalRow, teller: _Teller | None) -> JournalLine:
    line = JournalLine(row.number, "erased", None if teller is None else teller.id, row.owner, format_us(row.at_us))
    if row.posted is None:
        return line
    happened = row.posted.happened
    line.kind = _KINDS[happened]
    if happened in _POSTS:
        line.status = _POSTS[happened]
        if row.posted.error is not None:
            line.error = post_problem_of(error_of(row.posted.error)).document()
        if teller is not None:
            teller.say(line, row, row.posted)
    return line


class _Teller:
    """Says what was posted to one board."""

    def __init__(self, board: Board) -> None:
        self.id = board.id
        self._board = board
        self._reader, self._merger = RowReader(board), Merger(board)

    def say(self, line: JournalLine, row: JournalRow, posted: Posted) -> None:
        """Fill the line."""
        line.stats = self._named(posted.changes, overwrite=False)
        if overwritten := self._named(posted.changes, overwrite=True):
            line.set = overwritten
        if posted.post_id is not None:
            line.post_id = posted.post_id
        if posted.at_us is not None:
            line.at = format_us(posted.at_us)
        if posted.happened not in NO_CHANGE:
            line.stored = stats_of(self._board, self._merger.stats(self._reader.cells_after(row, posted)))

    def _named(self, changes: Sequence[Change], *, overwrite: bool) -> Stats:
        named: Stats = {}
        for index, value in ((each.index, each.value) for each in changes if each.overwrite is overwrite):
            column = self._board.spec.columns[index]
            named[column.name] = number(value, column.scale) if isinstance(value, int) else value
        return named
