"""Keeps an audit trail of operators' acts: when, with which API key, and for which reason. Games never read it.

The same transaction makes a change and stores the act, so that no change lacks its act, whichever process is killed.

The act that hid or shadowed an owner stays marked for as long as the owner is hidden. The marked acts double as the
list of hidden owners, so they are never pruned. Repeating such a request changes nothing and stores no act.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from querybuilder import INTEGER, TEXT, asc, col, delete, desc, insert, null, param, select, update
from storage.schema.placement import TABLES
from storage.schema.tables import ACTS
from storage.store import Program

ActName = Literal[
    "board.created", "board.changed", "board.closed", "board.reset", "board.rebuilt", "board.deleted",
    "family.created", "family.changed", "family.reset", "family.deleted",
    "entry.set", "entry.erased", "entries.erased", "post.voided", "post.accepted", "post.refused",
    "owner.hidden", "owner.shadowed", "owner.shown", "owner.erased", "owner.merged",
    "key.created", "key.revoked", "tokens.voided", "job.paused", "job.resumed", "job.run",
    "webhook.created", "webhook.changed", "webhook.resumed", "webhook.deleted",
    "pool.created", "pool.deleted", "resources.added", "resources.removed",
]  # fmt: skip


HIDING = ("owner.hidden", "owner.shadowed")


class Act(NamedTuple):
    """Something an operator did. `detail` is a JSON object with whatever the other fields do not cover."""

    at_us: int
    act: ActName
    key: str | None = None
    owner: str | None = None
    board: str | None = None
    reason: str | None = None
    detail: str | None = None


class StoredAct(NamedTuple):
    id: str
    act: Act


_NAMES = ("at", "act", "key", "owner", "board", "reason", "detail")  # in the order of the fields of `Act`
_LISTED = select(col("id"), *map(col, _NAMES)).from_(ACTS)
_OF_OWNER = col("owner").eq(param("owner"))
_INSERT = insert(ACTS).rows(param("rows"), **TABLES[ACTS].kinds).prepared()
_HIDING = _LISTED.where(_OF_OWNER, col("hidden").not_null()).prepared()
_SHOW = update(ACTS).set(hidden=null(INTEGER)).where(_OF_OWNER, col("hidden").not_null()).prepared()
_hidden = _LISTED.where(col("hidden").not_null(), col("owner").gt(param("after"))).order_by(asc(col("owner")))
_HIDDEN = _hidden.limit(param("limit")).prepared()
_NAMED = select(col("id"), col("reason")).from_(ACTS).where(_OF_OWNER).limit(param("limit")).prepared()
_nameless = update(ACTS).set(owner=null(TEXT), detail=null(TEXT), reason=col("reason", "v"))
_nameless = _nameless.from_rows("v", param("rows"), id=TEXT, reason=TEXT)
_FORGET = _nameless.where(col("id", ACTS).eq(col("id", "v"))).prepared()
_old = select(col("id")).from_(ACTS).where(col("hidden").is_null(), col("at").lt(param("before_us")))
_PRUNE = delete(ACTS).where(col("id").in_(_old.order_by(asc(col("at"))).limit(param("limit")))).prepared()


def store_acts(acts: Iterable[Act], *, hidden: int | None = None) -> Program[None]:
    yield _INSERT.bind(rows=[(f"{act.at_us:016x}{secrets.token_hex(8)}", *act, hidden) for act in acts])


def record_act(act: Act) -> Program[None]:
    """Store an act in the same transaction as its effect, and after it. An erased owner is not named."""
    if act.act in HIDING:
        hiding = [Act(*row[1:]).act for row in (yield _HIDING.bind(owner=act.owner))]
        if act.act not in hiding:
            yield _SHOW.bind(owner=act.owner)
            yield from store_acts([act], hidden=1)
        return
    if act.act in ("owner.shown", "owner.erased"):
        yield _SHOW.bind(owner=act.owner)
    yield from store_acts([act._replace(owner=None) if act.act == "owner.erased" else act])


def move_hidden(owner: str, into: str) -> Program[None]:
    """List `into` as hidden in place of `owner`, a hidden owner who is being merged into it, if `owner` was listed."""
    hiding = [Act(*row[1:]) for row in (yield _HIDING.bind(owner=owner))]
    if hiding:
        told = [Act(*row[1:]).act for row in (yield _HIDING.bind(owner=into))]
        if not told or (hiding[0].act == "owner.hidden" and "owner.hidden" not in told):
            yield _SHOW.bind(owner=into)
            yield from store_acts([hiding[0]._replace(owner=into)], hidden=1)
    yield _SHOW.bind(owner=owner)


def list_acts(*, before: str, limit: int, **wanted: str | None) -> Program[list[StoredAct]]:
    """List the newest acts whose ids are less than `before`, or simply the newest ones if `before` is empty.

    `wanted` filters by the fields `owner`, `board` and `key`; a value of None matches everything.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    listed = _LISTED.where(*(col(name).eq(param(name)) for name in given))
    if before:
        listed, given["before"] = listed.where(col("id").lt(param("before"))), before
    rows = yield listed.order_by(desc(col("id"))).limit(limit).bind(**given)
    return [StoredAct(row[0], Act(*row[1:])) for row in rows]


def list_hidden(*, after: str, limit: int) -> Program[list[Act]]:
    """List the acts that hid the currently hidden owners, ordered by owner and starting after the owner `after`."""
    return [Act(*row[1:]) for row in (yield _HIDDEN.bind(after=after, limit=limit))]


def forget_owner(owner: str, *, rows_max: int, names: Sequence[str] = ()) -> Program[int]:
    """Remove an erased owner's name from at most `rows_max` acts, and return from how many it was removed.

    A reason that contains the owner or one of `names`, the person's other names, is deleted as a whole.
    """
    rows = [
        (act_id, None if reason is None or any(name in reason for name in (owner, *names)) else reason)
        for act_id, reason in (yield _NAMED.bind(owner=owner, limit=rows_max))
    ]
    if rows:
        yield _FORGET.bind(rows=rows)
    return len(rows)


def prune_acts(*, before_us: int, rows_max: int) -> Program[int]:
    """Delete at most `rows_max` acts older than `before_us`, except those that hide an owner, and return how many."""
    [[deleted]] = yield _PRUNE.bind(before_us=before_us, limit=rows_max)
    return int(deleted)
