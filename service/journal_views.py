"""The journal over HTTP: the durable log of accepted posts, whole or one owner's part of it.

The rule: a line says what was posted and what was stored afterwards, in the units of the wire; of who was erased it
keeps the number and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from storage.journal import JournalRow, board_key_of, changes_past, journal
from storage.journal_rows import RowReader
from storage.merging import Merger
from storage.posted import NO_CHANGE, Happened, Posted
from storage.records import INT64_MAX, Board, Change
from storage.rejected_posts import error_of
from storage.store import Program, Row

from .answers import Stats, StatusName
from .context import Context
from .journal_answers import JournalKind, JournalLine, OwnerPosts
from .journal_lane import encode_in_turns
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
_Boards = dict[int, Board]


async def read_journal(context: Context, call: Call) -> Reply:
    """`GET /v1/journal`."""
    query: JournalQuery = call.query
    log, limit = journal(context.store.dialect), query.limit or context.settings.page_entries_max

    def program() -> Program[tuple[int, list[Row], _Boards]]:
        begins_after = yield from log.begins_after()
        bundles = yield from log.bundles(query.after, limit=limit)
        return begins_after, bundles, (yield from log.boards(map(board_key_of, bundles)))

    async with context.journal_lane.taken():
        begins_after, bundles, boards = await context.store.read(program, heavy=True)
        if 0 < query.after < begins_after:
            detail = f"the journal begins after {begins_after}: what is past {query.after} is not all there"
            raise Problem("journal_pruned", detail, pointer="after")
        rows = islice(changes_past(bundles, query.after), limit)
        return Reply(await encode_in_turns(lines_of(rows, boards)), media_type=NDJSON_TYPE)


async def owner_posts(context: Context, call: Call) -> OwnerPosts:
    """`GET /v1/owners/{owner}/posts`."""
    query: OwnerPostsQuery = call.query
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    log = journal(context.store.dialect)
    before = INT64_MAX if query.before is None else query.before

    blocks_max = context.settings.owner_posts_blocks_max

    def program() -> Program[tuple[list[JournalRow], _Boards, int | None]]:
        rows, more = yield from log.of_owner(owner, before=before, limit=limit, blocks_max=blocks_max)
        return rows, (yield from log.boards(row.board_key for row in rows)), more

    rows, boards, more = await context.store.read(program, heavy=True)
    return OwnerPosts(owner, [line for line in lines_of(rows, boards) if line.kind == "post"], more)


def lines_of(rows: Iterable[JournalRow], boards: _Boards) -> Iterator[JournalLine]:
    """Rows as they travel."""
    tellers: dict[int, _Teller] = {}
    for row in rows:
        teller, board = tellers.get(row.board_key), boards.get(row.board_key)
        if teller is None and board is not None:
            teller = tellers[row.board_key] = _Teller(board)
        yield _line(row, teller)


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
