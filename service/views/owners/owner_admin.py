"""Handlers with which operators erase an owner, hide the owner, or show the owner again. See `storage.owners`."""

import secrets

from service.context import Context
from service.contract.responses.boards import OwnerEntries
from service.contract.routes import Call
from storage.errors import UnknownOwnerError
from storage.owners import OwnerChanges

TOKEN_BYTES = 8


async def erase_entry(context: Context, call: Call) -> None:
    board = await context.catalog.find_board(call.path["board"])
    if not await _changes(context, call).erase_entry(board):
        raise UnknownOwnerError(f"{call.path['owner']!r} has no entry in {board.id!r}")


async def erase_owner(context: Context, call: Call) -> OwnerEntries:
    return OwnerEntries(await _changes(context, call).erase())


async def hide_owner(context: Context, call: Call) -> OwnerEntries:
    return OwnerEntries(await _changes(context, call).set_hidden(hide=True))


async def show_owner(context: Context, call: Call) -> OwnerEntries:
    return OwnerEntries(await _changes(context, call).set_hidden(hide=False))


def _changes(context: Context, call: Call) -> OwnerChanges:
    return OwnerChanges(
        owner=call.path["owner"],
        store=context.store,
        catalog=context.catalog,
        open_boards=context.boards,
        now_us=context.now_us,
        boards_max=context.settings.catalog_boards_max,
        rows_max=context.settings.prune_rows_max,
        token=secrets.token_hex(TOKEN_BYTES),
    )
