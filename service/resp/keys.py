"""Resolves a key to a board and a column, and creates the board of an unknown key.

A sorted set's key is a board's id, `board/column`, or the id of one period's board of a family. A hash's key is
`board:column`, where the column holds text, because client libraries keep member names in `{board}:member_data`.
"""

from collections.abc import Collection
from typing import NamedTuple

from service.context import Context
from service.contract.api_keys import Identity
from service.contract.problems import ProblemError, clip_text
from service.contract.values import parse_board_id, parse_owner
from storage.boards.acts import Act, record_act
from storage.boards.board_creation import create_board
from storage.errors import UnknownBoardError
from storage.records import Board, BoardSpec, ColumnKind, ColumnSpec
from storage.store import Program

from .wire import BoardRefusal, Refusal

PLACES_MAX = 1_000


class Place(NamedTuple):
    """A column of a board: a sorted set if it is ranked, a hash if it holds text."""

    board: Board
    column_index: int

    @property
    def column(self) -> ColumnSpec:
        return self.board.spec.columns[self.column_index]


class Keys:
    def __init__(self, context: Context, new_board: BoardSpec | None) -> None:
        """`new_board`: the columns and rules for new boards of unknown keys; None: posts to unknown keys fail."""
        self._context, self._new_board = context, new_board
        self._places: dict[tuple[bytes, bool], Place] = {}  # recently used keys, so that they need not be parsed again

    def find_known(self, key: bytes, *, text: bool = False) -> Place | None:
        """Resolve a key by this process's copy of the catalog. Return None if the copy does not have the board."""
        place, catalog = self._places.get((key, text)), self._context.catalog
        if place is not None and catalog.find_known(place.board.id) is place.board:
            return place
        board_id, column = split_key(key, text=text)
        board = catalog.find_known(board_id)
        if board is None:
            return None
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        place = self._places[key, text] = _find_place(board, column, text=text)
        return place

    async def find(self, key: bytes, *, text: bool = False) -> Place:
        """Resolve a key, asking the store if need be. Raise `UnknownBoardError` if there is no such board."""
        if (place := self.find_known(key, text=text)) is not None:
            return place
        board_id, column = split_key(key, text=text)
        [board_id] = await self._context.catalog.resolve_aliases([board_id], self._context.now_us())
        return _find_place(await self._context.catalog.find_board(board_id), column, text=text)

    async def make(self, key: bytes, caller: Identity, *, text: bool = False) -> None:
        """Create the board that a key names, unless it exists."""
        board_id, context = split_key(key, text=text)[0], self._context
        try:
            await context.catalog.reread_board(board_id)
            return
        except UnknownBoardError:
            if self._new_board is None:
                raise Refusal(f"ERR no leaderboard {board_id!r}, and the setting resp_board makes none") from None
        spec = self._new_board

        def program(away: Collection[int]) -> Program[Board]:
            now_us = context.now_us()
            board = yield from create_board(
                board_id=board_id,
                spec=spec,
                now_us=now_us,
                boards_max=context.settings.catalog_boards_max,
                own_tables_max=context.own_tables_max,
                away=away,
                spare=context.store.dialect.spares_tables,
            )
            if board.spec is spec:
                yield from record_act(Act(now_us, "board.created", caller.stored_key, board=board_id))
            return board

        board, _ = await context.try_living(lambda away: context.store.write(lambda: program(away)))
        context.catalog.keep_board(board)

    def find_new_column(self) -> ColumnSpec:
        """Return the ranked column of new boards. Refuse the command if new boards have none or several."""
        ranked = [] if self._new_board is None else [column for column in self._new_board.columns if column.sorted]
        if len(ranked) != 1:
            raise Refusal("ERR the setting resp_board has no leaderboard with one ranked column")
        return ranked[0]

    def is_like_new(self, board: Board) -> bool:
        return self._new_board is not None and board.spec.columns == self._new_board.columns

    async def confirm(self, key: bytes, *, text: bool = False) -> None:
        """Read a key's board from the store, because this process's copy may be outdated."""
        await self._context.catalog.confirm([split_key(key, text=text)[0]])


def split_key(key: bytes, *, text: bool) -> tuple[str, str | None]:
    """Split a key into the board's id and the column's name, which may be None for a sorted set."""
    name = decode_text(key)
    if text:
        board_id, sign, column = name.rpartition(":")
        if not sign:
            raise Refusal(f"ERR {clip_text(name)!r} is no hash here: one is named after a board and a column of text")
    else:
        board_id, sign, column = name.partition("/")
    try:
        return parse_board_id(board_id), column if sign else None
    except ProblemError as problem:
        raise Refusal(f"ERR {problem.detail}") from None


def _find_place(board: Board, column: str | None, *, text: bool) -> Place:
    if text:
        index = board.column_index.get(column or "")
        if index is None or board.spec.columns[index].kind is not ColumnKind.TEXT:
            raise BoardRefusal(f"ERR the leaderboard {board.id!r} has no column {column!r} of text, so it is no hash")
        return Place(board, index)
    if column is not None:
        index = board.column_index.get(column)
    else:
        index = board.sorted_indexes[0] if len(board.sorted_indexes) == 1 else None
    if index is None or not board.spec.columns[index].sorted:
        raise BoardRefusal(f"ERR name a ranked column of the leaderboard {board.id!r}: {board.id}/COLUMN")
    return Place(board, index)


def decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal("ERR keys and members are texts in UTF-8 here") from None


def parse_member(raw: bytes) -> str:
    """Return the owner that a member names. Refuse a member that the store would have to change, to bring it to NFC."""
    text = decode_text(raw)
    try:
        owner = parse_owner(text)
    except ProblemError as problem:
        raise Refusal(f"ERR {problem.detail}") from None
    if owner != text:
        raise Refusal("ERR a member is a text in the form NFC of Unicode here")
    return owner
