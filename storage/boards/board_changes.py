"""Changes boards: adds columns, and replaces tiers, limits, curve settings, times, rules and rewards.

A change that would alter the meaning of stored values is refused, because nobody could tell old values from new ones.
"""

from dataclasses import replace

from querybuilder import Lock, rename_table
from storage.errors import SpecConflictError
from storage.leaves.catalog_rows import encode_spec, replace_times, store_columns, times_of
from storage.leaves.entrants import forget_entrants
from storage.leaves.row_tables import add_columns, layout_of
from storage.leaves.totals import store_gates
from storage.records import Board, BoardSpec, ColumnSpec, Leaf, Season
from storage.schema.sequences import count_fact
from storage.store import Program, in_partition

from .boards import lock_standalone_board
from .shared_tables import widen_table


def change_board(*, board_id: str, wanted: BoardSpec, now_us: int = 0) -> Program[Board]:
    """Add the new columns of `wanted` to a board, and adopt its tiers, limits, season, rules and so on.

    Everything else in `wanted` must be the same as in the stored spec.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecConflictError: the change would reinterpret or drop stored values; or `_check_times` does not allow the
            new season; or `wanted` has new columns or different rewards, but the board is closed.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE)
    added = find_added_columns(board.spec, wanted)
    _check_times(board, wanted.season, now_us=now_us)
    if wanted.rewards != board.spec.rewards and board.gate.is_shut(now_us):
        raise SpecConflictError("the leaderboard is closed, and its rewards are being granted", pointer="/rewards")
    spec = change_spec(board.spec, wanted, added)
    if spec == board.spec:
        return board
    if added and board.gate.closed_us is not None:
        raise SpecConflictError("the leaderboard is closed, so no column can be added", pointer="/columns")
    gate = replace_times(board.gate, spec.season)
    if board.is_spread:
        yield from _store_spec(board.key, spec, board, is_segment=False)
    if spec.entry is None and board.spec.entry is not None:
        yield from forget_entrants([(board.home, board.key)])
    whole = None if spec.entry is None or not board.is_spread else (board.home, board.key)
    leaves = []
    for leaf in board.leaves:
        changed = replace(leaf, spec=replace(spec, segments=leaf.spec.segments), gate=gate, whole=whole)
        layout = layout_of(changed)
        new = layout.columns[len(board.spec.columns) :]
        widened = add_columns(layout, new) if leaf.table_key is None else widen_table(leaf.table_key, new)
        yield from in_partition(leaf.partition, widened)
        yield from _store_spec(leaf.key, changed.spec, board, is_segment=leaf.key != board.key)
        if board.spec.season is None and spec.season is not None and leaf.table_key is None:
            changed = yield from _rename_own_table(changed)
        leaves.append(changed)
    yield from store_gates(leaves)
    if board.leaves[0].demands != leaves[0].demands:  # posts of processes that do not know this would be wrong
        for partition in sorted({leaf.partition for leaf in leaves}):
            yield from in_partition(partition, count_fact(now_us))
    return replace(board, spec=spec, leaves=tuple(leaves))


def _rename_own_table(leaf: Leaf) -> Program[Leaf]:
    renamed = replace(leaf, place=leaf.place._replace(rows_key=leaf.rows_key + 1))
    yield rename_table(layout_of(leaf).table, layout_of(renamed).table).bind().at(leaf.partition)
    yield from store_columns(leaf.key, rows_key=renamed.rows_key)
    return renamed


def _store_spec(key: int, spec: BoardSpec, board: Board, *, is_segment: bool) -> Program[None]:
    values: dict[str, int | str | None] = {"spec": encode_spec(spec)}
    if board.gate.archived_us is None:
        values |= times_of(spec.season)
        if not is_segment:  # the closing job checks the board at its closing time, or now if it is closed
            values["due_at"] = values["closes_at"] if board.gate.closed_us is None else 0
    yield from store_columns(key, **values)


def _check_times(board: Board, wanted: Season | None, *, now_us: int) -> None:
    """Raise `SpecConflictError` if the season of a board outside a family may not be replaced by `wanted`.

    A time may change only if every earlier decision to accept or refuse a post remains correct. Therefore the opening
    time of an opened board cannot change, a closed board stays closed, and a new end must be in the future.
    """
    stored = board.spec.season
    if wanted == stored:
        return
    if wanted is None:
        raise SpecConflictError("a leaderboard's times can't be removed", pointer="/closes_at")
    if stored is None:
        stored = Season(None, None, wanted.grace_seconds, None)
    if wanted.opens_us != stored.opens_us:
        for opens_us in (stored.opens_us, wanted.opens_us):
            if opens_us is None or opens_us <= now_us:
                detail = "opens_at can change only before the leaderboard opens, and only to a later time than now"
                raise SpecConflictError(detail, pointer="/opens_at")
    if (wanted.ends_us, wanted.grace_seconds) == (stored.ends_us, stored.grace_seconds):
        return
    if board.gate.closed_us is not None or _is_over(stored.closes_us, now_us):
        raise SpecConflictError("the leaderboard is closed", pointer="/closes_at")
    if wanted.ends_us != stored.ends_us and _is_over(wanted.ends_us, now_us):
        raise SpecConflictError(
            "the new end has passed: posts after it may already have been counted", pointer="/closes_at"
        )
    if _is_over(wanted.closes_us, now_us):
        detail = "the new time of grace has passed: posts after it may already have been counted"
        raise SpecConflictError(detail, pointer="/grace_seconds")


def _is_over(time_us: int | None, now_us: int) -> bool:
    return time_us is not None and time_us < now_us


def find_added_columns(stored: BoardSpec, wanted: BoardSpec) -> tuple[ColumnSpec, ...]:
    """Find the columns that `wanted` adds. Raise `SpecConflictError` if stored values would change or be lost."""
    if wanted.segments != stored.segments:
        detail = f"segments is {stored.segments}; `rankcurve board split` changes it"
        raise SpecConflictError(detail, pointer="/segments")
    if wanted.table is not stored.table:
        raise SpecConflictError(f"table is {stored.table.value!r} and can't be changed", pointer="/table")
    if (wanted.ties, wanted.tie_columns) != (stored.ties, stored.tie_columns):
        raise SpecConflictError("ties can't be changed: they are part of every stored value", pointer="/ties")
    by_name = {column.name: (index, column) for index, column in enumerate(wanted.columns)}
    for column in stored.columns:
        if column.name not in by_name:
            raise SpecConflictError(f"column {column.name!r} exists and can't be removed", pointer="/columns")
        index, found = by_name[column.name]
        if replace(found, tiers=column.tiers, keeps_time=column.keeps_time, limits=column.limits) != column:
            raise SpecConflictError(
                f"column {column.name!r} exists with other attributes, and its stored values can't be reinterpreted",
                pointer=f"/columns/{index}",
            )
    names = {column.name for column in stored.columns}
    return tuple(column for column in wanted.columns if column.name not in names)


def change_spec(stored: BoardSpec, wanted: BoardSpec, added: tuple[ColumnSpec, ...]) -> BoardSpec:
    """Add the columns that `find_added_columns` returned to the stored spec, and adopt the settings that may change.

    Those settings are tiers, limits, curve settings, season, rules and rewards. If any of them changes, `changes`
    grows, which tells other processes that their copies are outdated.
    """
    new = {column.name: column for column in wanted.columns}
    columns = tuple(
        replace(column, tiers=new[column.name].tiers, limits=new[column.name].limits) for column in stored.columns
    )
    predictor, season, entry, league = wanted.predictor, wanted.season, wanted.entry, wanted.league
    changed = replace(stored, columns=columns, predictor=predictor, season=season, entry=entry, rewards=wanted.rewards)
    changed = replace(changed, league=league)
    changes = stored.settings_version + int(changed != stored)
    return replace(changed, columns=columns + added, settings_version=changes)
