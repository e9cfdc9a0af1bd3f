"""The handler that erases many entries of one leaderboard, in bounded steps, each of which is a request."""

import secrets
from functools import partial

from msgspec import UNSET, UnsetType

from service.context import Context
from service.contract.problems import ProblemError, check_count
from service.contract.queries import check_rank
from service.contract.requests import EraseEntries
from service.contract.responses.boards import ErasedEntries
from service.contract.routes import Call
from service.contract.values import parse_owner
from service.ranks.locator import Locator
from service.ranks.pages import LAST_OWNER
from service.views.owners.owners import TOKEN_BYTES, find_ranked_column
from storage.entry_erasures import EntryErasure, ErasedRows
from storage.errors import ArchivedError
from storage.leaves.totals import read_board_totals
from storage.log.cells import CellOf
from storage.store import Program

from .rankings import parse_wanted_value


async def erase_entries(context: Context, call: Call) -> ErasedEntries:
    body: EraseEntries = call.body
    given = [each for each in (body.owners, body.from_rank, body.worse_than) if each is not UNSET]
    if len(given) != 1 or (body.owners is not UNSET and body.column is not UNSET):
        raise ProblemError("bad_request", "give owners, or from_rank or worse_than with a column")
    call.detail = {
        name: len(each) if isinstance(each, list) else each
        for name in ("owners", "column", "from_rank", "worse_than")
        if (each := getattr(body, name)) is not UNSET
    }
    board = await context.catalog.find_board(call.path["board"])
    if board.gate.archived_us is not None:
        raise ArchivedError("the leaderboard was archived: erase its owners one by one")
    erasure = EntryErasure(
        board=board,
        store=context.store,
        open_boards=context.boards,
        now_us=context.now_us,
        make_token=partial(secrets.token_hex, TOKEN_BYTES),
        changes_max=context.settings.prune_rows_max,
    )
    if not isinstance(body.owners, UnsetType):
        check_count(len(body.owners), context.settings.lookup_owners_max, "too_many_owners", "/owners", "owners")
        owners = [parse_owner(owner, pointer=f"/owners/{i}") for i, owner in enumerate(body.owners)]
        return ErasedEntries(*await erasure.erase_owners(owners))
    index = find_ranked_column(board, None if isinstance(body.column, UnsetType) else body.column)
    locator, place = context.ranks.find_locator(board), None
    if not isinstance(body.worse_than, UnsetType):
        place = parse_wanted_value(locator, index, body.worse_than, "/worse_than").cell, LAST_OWNER
    elif body.from_rank is not UNSET:
        check_rank(body.from_rank, "/from_rank")
        if body.from_rank > 1 and (place := await _find_row(context, locator, index, body.from_rank - 1)) is None:
            return ErasedEntries(*ErasedRows(0, False))
    return ErasedEntries(*await erasure.erase_rows(index, place))


async def _find_row(context: Context, locator: Locator, index: int, number: int) -> CellOf | None:
    """Find the cell and owner of the row with this 1-based number, or None if the ranking has fewer rows."""
    start = locator.find_count_start(index)

    def program() -> Program[CellOf | None]:
        yield from read_board_totals(locator.board)  # raises an error if this process's copy of the board is outdated
        return (yield from locator.entries.rankings[index].find_row(start, number))

    far = start is None and number > context.settings.light_read_rows_max
    return await context.store.at(locator.board.reading_partition).read(program, heavy=far)
