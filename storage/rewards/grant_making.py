"""Stores the grants of closed boards in short steps, because on SQLite posts wait while a step is being stored."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from querybuilder import Lock, asc, col, delete, insert, min_, param, select, update
from storage.boards.boards import find_same_board
from storage.boards.family_ids import parse_board_id
from storage.leaves.catalog_rows import find_families_by_key
from storage.leaves.rankings import OpenBoard
from storage.leaves.totals import CHANGES, read_board_totals
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.records import Board, Rewards
from storage.schema.placement import TABLES
from storage.schema.tables import GRANT_REWARDS, GRANT_WALKS, GRANTS, MERGED_OWNERS
from storage.store import Program, in_partition

from .grant_walk import GrantWalk, NewGrant, WalkMark
from .league_walk import LeagueWalk


def read_rewards(boards: Iterable[Board]) -> Program[dict[int, Rewards]]:
    """Read the rewards that are currently stored for boards, by board key. Leave out boards without rewards."""
    boards = list(boards)
    keys = {board.family_key for board in boards if board.family_key is not None}
    families = (yield from find_families_by_key(keys)) if keys else {}
    found: dict[int, Rewards | None] = {}
    for board in boards:
        family, named = families.get(board.family_key or 0), parse_board_id(board.id)
        found[board.key] = board.spec.rewards
        if family is not None and named is not None:
            found[board.key] = dict(family.spec.rewards).get(named.period.kind)
    return {key: rewards for key, rewards in found.items() if rewards is not None}


def begin_grants(boards: Iterable[Board], *, now_us: int) -> Program[set[int]]:
    """Begin a walk for each board with rewards, in the transaction that shuts it. Return the keys of these boards.

    The rewards are stored with the walk, so that later changes to a family do not affect boards that have closed.
    """
    boards = list(boards)
    found = yield from read_rewards(boards)
    walks, names = [], []
    for board in boards:
        if (rewards := found.get(board.key)) is None:
            continue
        bare = replace(rewards, listed=tuple(replace(each, data="") for each in rewards.listed))
        walks.append((board.key, now_us, _encode(bare), _encode(WalkMark())))
        for number, each in enumerate(rewards.listed):
            names.append((board.key, number, board.id, each.name, each.data, now_us))
    if walks:
        yield _BEGIN.bind(rows=walks)
        yield _NAME.bind(rows=names)
    return set(found)


class GrantStep(NamedTuple):
    changes: int  # the board's count of changes in the snapshot
    before: WalkMark
    after: WalkMark
    grants: list[NewGrant]


def open_walk(board: Board, open_board: Callable[[Board], OpenBoard], rewards: Rewards) -> GrantWalk | LeagueWalk:
    if board.spec.league is not None:
        return LeagueWalk(board, rewards)
    return GrantWalk(board, open_board(board).rankings, rewards)


def read_steps(
    board: Board, open_board: Callable[[Board], OpenBoard], *, rows_max: int, step_rows: int
) -> Program[list[GrantStep] | None]:
    """Read the grants among about `rows_max` rows, in steps of about `step_rows` rows, or None if all are made.

    Raises:
        UnknownBoardError, BoardChangedError: the board was deleted, or has changed since the caller read it.
    """
    if not (rows := (yield _FIND.bind(key=board.key))):
        return None
    walk, mark = open_walk(board, open_board, _decode_rewards(rows[0][0])), _decode_mark(rows[0][1])
    totals = yield from in_partition(board.reading_partition, read_board_totals(board))
    steps: list[GrantStep] = []
    while len(steps) * step_rows < rows_max and mark.reward < len(walk.rewards):
        reading = walk.read_step(mark, step_rows, totals)
        grants, after = yield from in_partition(board.reading_partition, reading)
        steps.append(GrantStep(totals.get(CHANGES, 0), mark, after, grants))
        mark = after
    return steps


def store_step(known: Board, step: GrantStep, *, now_us: int) -> Program[bool]:
    """Store the grants of a step, the last of which ends the walk. Return False if the board or its walk has changed.

    Raises:
        UnknownBoardError, BoardChangedError: as for `read_steps`.
    """
    board = yield from find_same_board(known, lock=Lock.SHARE)
    rows = yield _HOLD.bind(key=board.key)
    totals = yield from in_partition(board.reading_partition, read_board_totals(board))
    if not rows or _decode_mark(rows[0][1]) != step.before or totals.get(CHANGES, 0) != step.changes:
        return False
    if step.grants:
        # An entry stored under the earlier id of a merged owner belongs to the owner it was merged into.
        merged = {row[0]: row[1] for row in (yield _MERGED.bind(owners=[each.owner for each in step.grants]))}
        yield _ADD.bind(
            rows=[
                (board.key, number, merged.get(each.owner, each.owner), each.reward, each.rank)
                for number, each in enumerate(step.grants, step.before.grants + 1)
            ]
        )
    if step.after.reward < len(_decode_rewards(rows[0][0]).listed):
        yield _GO_ON.bind(key=board.key, mark=_encode(step.after))
    else:
        yield _END.bind(key=board.key)
        made = BoardEvent(ChangeKind.GRANTED, board.id, board.key, board.home)
        yield from log_board_events([made], now_us=now_us)
    return True


def find_oldest_walk() -> Program[int | None]:
    """Find when the board that has waited longest for its grants closed, in microseconds. Return None if none waits."""
    [[closed_us]] = yield _OLDEST.bind()
    return None if closed_us is None else int(closed_us)


def has_walk(board_key: int) -> Program[bool]:
    return bool((yield _FIND.bind(key=board_key)))


def hold_walks() -> Program[None]:
    yield _HOLD_ALL.bind()


_encode_json = msgspec.json.Encoder().encode
_decode_rewards = msgspec.json.Decoder(Rewards).decode
_decode_mark = msgspec.json.Decoder(WalkMark).decode


def _encode(document: Rewards | WalkMark) -> str:
    return _encode_json(document).decode()


_of_board = col("leaf_key").eq(param("key"))
_walk = select(col("rewards"), col("mark")).from_(GRANT_WALKS).where(_of_board)
_FIND, _HOLD = _walk.prepared(), _walk.locked(Lock.UPDATE).prepared()
_all = select(col("leaf_key")).from_(GRANT_WALKS).order_by(asc(col("leaf_key")))
_HOLD_ALL = _all.locked(Lock.SHARE).prepared()
_OLDEST = select(min_(col("closed_at"))).from_(GRANT_WALKS).prepared()
_BEGIN = insert(GRANT_WALKS).rows(param("rows"), **TABLES[GRANT_WALKS].kinds).prepared()
_NAME = insert(GRANT_REWARDS).rows(param("rows"), **TABLES[GRANT_REWARDS].kinds).prepared()
_GO_ON = update(GRANT_WALKS).set(mark=param("mark")).where(_of_board).prepared()
_END = delete(GRANT_WALKS).where(_of_board).prepared()
_new = {name: kind for name, kind in TABLES[GRANTS].kinds.items() if name != "claimed_at"}
_ADD = insert(GRANTS).rows(param("rows"), **_new).prepared()
_merged = select(col("owner"), col("into_owner")).from_(MERGED_OWNERS)
_MERGED = _merged.where(col("owner").in_(param("owners"))).packed().prepared()
