"""Takes a board through the stages of closing: shuts it, freezes it with its final curves, and lets it be archived.

The docstring of `storage.archive` draws these stages. The catalog's column `due_at` only says when the closing job
checks a board next, and a check at the wrong time does no harm.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from querybuilder import Lock, asc, col, param, select, update
from storage.boards.boards import find_same_board, make_boards
from storage.boards.family_ids import parse_board_id
from storage.leaves.catalog_rows import COLUMNS, decode_row, find_families_by_key, read_rows, store_columns
from storage.leaves.gates import close_family_gate, close_gates
from storage.leaves.totals import find_totals_of
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.periods import advance_period
from storage.records import Board, Family, Leaf
from storage.rewards.grant_making import begin_grants
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program


class ClosingStage(IntEnum):
    OPEN = 0  # the next step shuts the board
    SHUT = 1  # the next step settles a league or makes grants, or else fits the board's final curves
    FROZEN = 2  # the next step archives the board, unless its rows are kept for ever
    ARCHIVED = 3


def list_due_boards(stage: ClosingStage, *, now_us: int, limit: int) -> Program[list[tuple[int, Board]]]:
    """List up to `limit` boards in a stage whose `due_at` has come, as pairs (`due_at`, board), earliest first."""
    rows = yield _DUE.bind(stage=int(stage), now_us=now_us, limit=limit)
    boards = yield from make_boards([decode_row(row[1:]) for row in rows])
    return [(row[0], board) for row, board in zip(rows, boards, strict=True)]


_DUE = (
    select(col("due_at"), *COLUMNS)
    .from_(BOARDS)
    .where(col("due_at").not_null())
    .where(col("stage").eq(param("stage")), col("due_at").le(param("now_us")))
    .order_by(asc(col("due_at")))
    .limit(param("limit"))
    .prepared()
)


def shut_boards(boards: Sequence[Board], *, now_us: int) -> Program[list[Board]]:
    """Shut those of the given boards whose closing time has come, so that they accept no more posts, and return them.

    A board with so few entries that every rank is counted needs no final curve, so it is frozen immediately, unless it
    has rewards or cohorts.
    """
    # Boards without a family come first, because posts lock the gates of boards before the gates of families.
    closed = yield from _shut_standalone([board for board in boards if board.family_key is None], now_us)
    closed += yield from _shut_of_families([board for board in boards if board.family_key is not None], now_us)
    totals = yield from find_totals_of(closed)
    unready = yield from begin_grants(closed, now_us=now_us)
    unready |= {board.key for board in closed if board.spec.league is not None or list_columns_to_fit(board, totals)}
    frozen = yield from _freeze([board for board in closed if board.key not in unready])
    events = [(ChangeKind.CLOSED, board) for board in closed] + [(ChangeKind.FROZEN, board) for board in frozen]
    yield from _log_events(events, now_us)
    return closed


def _log_events(events: Iterable[tuple[ChangeKind, Board]], now_us: int) -> Program[None]:
    logged = [BoardEvent(kind, board.id, board.key, board.home) for kind, board in events]
    yield from log_board_events(logged, now_us=now_us)


def _shut_standalone(boards: Sequence[Board], now_us: int) -> Program[list[Board]]:
    closed = []
    for key in sorted(board.key for board in boards):
        # Shutting locks the board's row. A split of the board waits for this lock, so the segments stay the same.
        for board in (yield from _shut([key], now_us)):
            closed.append((yield from _shut_leaves(board, now_us)))
    return closed


def _shut_of_families(boards: Sequence[Board], now_us: int) -> Program[list[Board]]:
    closed: list[Board] = []
    for family_key, home in sorted({(board.family_key or 0, board.home) for board in boards}):
        yield (
            update(FAMILIES)
            .set(closed_through=now_us)
            .where(col("family_key").eq(param("key")), col("closed_through").lt(now_us))
            .bind(key=family_key)
        )
        # Every transaction that posts to the family locks the family's gate, so this waits for these transactions to
        # end. Transactions that begin later therefore see all posts that the closed boards took.
        yield from close_family_gate(family_key, home, now_us=now_us)
        closed += yield from _shut([board.key for board in boards if board.family_key == family_key], now_us)
    return closed


def _shut(keys: Sequence[int], now_us: int) -> Program[list[Board]]:
    # Check the closing time again: the end of a season may have been moved since the board was read.
    open_ones = col("stage").eq(int(ClosingStage.OPEN)), col("closes_at").le(param("now_us"))
    closing = update(BOARDS).set(closed_at=param("now_us"), stage=int(ClosingStage.SHUT), due_at=0)
    closing = closing.where(col("board_key").in_(param("keys")), *open_ones)
    shut = yield from read_rows(closing.returning(*COLUMNS).bind(keys=list(keys), now_us=now_us))
    return (yield from make_boards(shut))


def _shut_leaves(board: Board, now_us: int) -> Program[Board]:
    """Shut the leaves of a board whose own row is shut: segments in the catalog, then the gates, which posts lock."""
    for key in sorted(leaf.key for leaf in board.leaves if board.is_spread):
        yield from store_columns(key, closed_at=now_us)
    yield from close_gates(board.leaves, now_us=now_us)
    gate = board.gate._replace(closed_us=now_us)
    return replace(board, leaves=tuple(replace(leaf, gate=gate) for leaf in board.leaves))


def list_columns_to_fit(board: Board, totals: dict[int, dict[int, int]]) -> list[tuple[Leaf, int]]:
    """List the ranked columns that need a curve, those with over `exact_top` entries, as pairs (leaf, column index)."""
    exact_top = board.spec.predictor.exact_top
    columns = [(leaf, index) for leaf in board.leaves for index in leaf.sorted_indexes]
    return [(leaf, index) for leaf, index in columns if totals[leaf.key].get(index, 0) > exact_top]


def freeze_board(board: Board, *, now_us: int) -> Program[None]:
    """Mark a shut board as frozen after its final curves were stored, and set `due_at` to its archiving time."""
    frozen = yield from _freeze([board])
    settled = [each for each in frozen if each.spec.league is not None]
    events = [(ChangeKind.SETTLED, each) for each in settled] + [(ChangeKind.FROZEN, each) for each in frozen]
    yield from _log_events(events, now_us)


def _freeze(boards: Iterable[Board]) -> Program[list[Board]]:
    families: dict[int, Family] = {}
    frozen = []
    for board in boards:
        due_us = yield from _archive_us(board, families)
        [[changed]] = yield (
            update(BOARDS)
            .set(stage=int(ClosingStage.FROZEN), due_at=param("due_at"))
            .where(col("board_key").eq(param("key")), col("stage").eq(int(ClosingStage.SHUT)))
            .bind(key=board.key, due_at=due_us)
        )
        if changed:
            frozen.append(board)
    return frozen


def check_archive_time(board: Board, *, now_us: int) -> Program[bool]:
    """Return whether a frozen board is to be archived now. If not, set when the closing job checks it next."""
    due_us = yield from _archive_us(board, {})
    if due_us is not None and due_us <= now_us:
        return True
    yield from set_due_time(board, at_us=due_us)
    return False


def set_due_time(board: Board, *, at_us: int | None) -> Program[None]:
    """Set when the closing job checks a board next. With None, no check is due until another program sets a time.

    Until it is shut, a board past its end already rejects posts, because they compare its end with the clock.
    """
    yield (
        update(BOARDS)
        .set(due_at=param("at_us"))
        .where(col("board_key").eq(param("key")), col("stage").lt(int(ClosingStage.ARCHIVED)))
        .bind(key=board.key, at_us=at_us)
    )


def _archive_us(board: Board, families: dict[int, Family]) -> Program[int | None]:
    """Find when a closed board is to be archived, or return None if never. `families` caches families by key.

    The time depends on the family's row, or on the board's own row if it has no family. This program locks that row, so
    that a transaction that changes the row has to wait. That transaction then sets `due_at`, so the job checks again.
    """
    if board.family_key is None:
        season = (yield from find_same_board(board, lock=Lock.UPDATE)).spec.season
        if season is None or season.keep_seconds is None or season.closes_us is None:
            return None
        return season.closes_us + season.keep_seconds * 1_000_000
    if board.family_key not in families:
        families |= yield from find_families_by_key([board.family_key], held=True)
    family, named = families.get(board.family_key), parse_board_id(board.id)
    if family is None or named is None:
        return None
    # A family keeps the rows of a board until enough later periods have closed.
    count = dict(family.spec.keep).get(named.period.kind)
    last = None if count is None else advance_period(named.period, count)
    ends_us = None if last is None else family.spec.ends_us(last)
    return None if ends_us is None else ends_us + family.spec.grace_us
