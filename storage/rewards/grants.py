"""Reads, claims, moves and deletes grants. Run these programs in the control partition.

A grant's id joins the key of its board and its number among that board's grants, such as `17-3`. A game may use the id
as the key of a payout, so it never changes, and is never reused for another grant in the store.
"""

import re
from typing import NamedTuple

from querybuilder import DESC, Condition, asc, col, delete, desc, min_, param, seek, select, update
from storage.errors import UnknownGrantError
from storage.events.event_log import append_events
from storage.schema.tables import GRANT_REWARDS, GRANTS
from storage.store import Program

from .grant_making import hold_walks

CLAIMED = "grant.claimed"  # the type of the event
GRANT_PATTERN = "^[0-9]{1,18}-[0-9]{1,18}$"


GrantKey = tuple[int, int]  # the key of the board, and the number among its grants: 1, 2, 3 … by reward, then by rank


class Grant(NamedTuple):
    board_key: int
    number: int
    owner: str
    rank: int  # in the ranking of the reward, when the board had closed
    claimed_us: int | None
    board_id: str
    reward: str  # the name of the reward
    data: str  # of the reward, a JSON object

    @property
    def id(self) -> str:
        return f"{self.board_key}-{self.number}"


def parse_key(grant_id: str) -> GrantKey:
    """Parse a grant's id. Raises UnknownGrantError if no grant can have this id."""
    if re.fullmatch(GRANT_PATTERN[1:-1], grant_id) is None:
        raise UnknownGrantError
    board_key, _, number = grant_id.partition("-")
    return int(board_key), int(number)


def list_of_board(board_key: int, *, after: int, limit: int) -> Program[list[Grant]]:
    return [Grant(*row) for row in (yield _OF_BOARD.bind(key=board_key, after=after, limit=limit))]


def list_of_owner(owner: str, *, before: GrantKey, limit: int, claimed: bool | None = None) -> Program[list[Grant]]:
    """List an owner's grants before a key, newest board first. `claimed`: only claimed or only unclaimed grants."""
    key, number = before
    rows = yield _OF_OWNER[claimed].bind(owner=owner, key=key, number=number, limit=limit)
    return [Grant(*row) for row in rows]


def claim_grant(key: GrantKey, *, now_us: int) -> Program[tuple[Grant, bool]]:
    """Claim a grant. Return it, and whether this transaction claimed it, which only the first one does.

    Raises:
        UnknownGrantError: there is no such grant.
    """
    bound = {"key": key[0], "number": key[1]}
    [[changed]] = yield _CLAIM.bind(**bound, now_us=now_us)
    rows = yield _FIND.bind(**bound)
    if not rows:
        raise UnknownGrantError
    grant = Grant(*rows[0])
    if changed:
        yield from append_events([(now_us, CLAIMED, grant.board_id, *key)])
    return grant, bool(changed)


def forget_owner(owner: str) -> Program[None]:
    yield from hold_walks()
    yield _FORGET.bind(owner=owner)


def move_grants(owner: str, into: str) -> Program[None]:
    """Transfer the grants of an owner who is merged to `into`. Walk steps after this transaction do the same."""
    yield from hold_walks()
    yield _MOVE.bind(owner=owner, into=into)


def prune_grants(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete about `rows_max` grants of the oldest board that closed before `before_us`. Return 0 if there is none."""
    rows = yield _OLDEST.bind(before_us=before_us)
    if not rows:
        return 0
    key = rows[0][0]
    [[first]] = yield _FIRST.bind(key=key)
    if first is None:
        yield _FORGET_REWARDS.bind(key=key)
        return 1
    [[deleted]] = yield _PRUNE.bind(key=key, past=first + rows_max)
    return int(deleted)


_board_key, _number = col("board_key", "g"), col("number", "g")
_named = tuple(col(name, "g") for name in ("board_key", "number", "owner", "rank", "claimed_at"))
_described = tuple(col(name, "r") for name in ("board_id", "name", "data"))
_joined = _board_key.eq(col("board_key", "r")), col("reward", "g").eq(col("reward", "r"))
_grants = select(*_named, *_described).from_(GRANTS, "g").join(GRANT_REWARDS, _joined[0], alias="r").where(_joined[1])
_of_board = _grants.where(_board_key.eq(param("key")), _number.gt(param("after")))
_OF_BOARD = _of_board.order_by(asc(_number)).limit(param("limit")).packed().prepared()
_older = seek((_board_key, DESC, param("key")), (_number, DESC, param("number")))
_of_owner = _grants.where(col("owner", "g").eq(param("owner")), _older)
_of_owner = _of_owner.order_by(desc(_board_key), desc(_number)).limit(param("limit"))
_claimed_at = col("claimed_at", "g")
_states: dict[bool | None, tuple[Condition, ...]] = {
    None: (), False: (_claimed_at.is_null(),), True: (_claimed_at.not_null(),),
}  # fmt: skip
_OF_OWNER = {state: _of_owner.where(*conditions).packed().prepared() for state, conditions in _states.items()}
_FIND = _grants.where(_board_key.eq(param("key")), _number.eq(param("number"))).prepared()
_one = col("board_key").eq(param("key")), col("number").eq(param("number"))
_CLAIM = update(GRANTS).set(claimed_at=param("now_us")).where(*_one, col("claimed_at").is_null()).prepared()
_theirs = col("owner").eq(param("owner"))
_FORGET = delete(GRANTS).where(_theirs).prepared()
_MOVE = update(GRANTS).set(owner=param("into")).where(_theirs).prepared()
_old = select(col("board_key")).from_(GRANT_REWARDS).where(col("made_at").lt(param("before_us")))
_OLDEST = _old.order_by(asc(col("made_at"))).limit(1).prepared()
_FIRST = select(min_(col("number"))).from_(GRANTS).where(col("board_key").eq(param("key"))).prepared()
_PRUNE = delete(GRANTS).where(col("board_key").eq(param("key")), col("number").lt(param("past"))).prepared()
_FORGET_REWARDS = delete(GRANT_REWARDS).where(col("board_key").eq(param("key"))).prepared()
