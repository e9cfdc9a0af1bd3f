"""Remembers that an owner is to be erased, hidden, shadowed or shown in partitions that did not answer.

    request ──> all partitions answer ──> changed everywhere
            └─> some are away ──> changed in the others, postponed for these ── they answer again ──> a job finishes it

A later request for the same owner replaces what was postponed, so that the operator's last request wins.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from querybuilder import Lock, asc, col, delete, insert, param, select
from storage.schema.placement import TABLES
from storage.schema.tables import OWNER_CHANGES
from storage.store import Program

OwnerChange = Literal["erase", "hide", "shadow", "show"]
LISTED_MAX = 100  # how many postponed changes a job finishes in one round


class PostponedChange(NamedTuple):
    owner: str
    partition: int
    change: OwnerChange
    token: str  # of the request that asked for the change; after an erasure it replaces the owner's name


def replace_postponed(changes: Iterable[PostponedChange], owner: str) -> Program[None]:
    """Store these postponed changes to an owner, in place of all earlier ones for this owner."""
    yield _FORGET.bind(owner=owner)
    rows = [tuple(each) for each in changes]
    if rows:
        yield _POSTPONE.bind(rows=rows)


def list_postponed(partition: int) -> Program[list[PostponedChange]]:
    return [PostponedChange(*row) for row in (yield _LIST.bind(partition=partition))]


def hold_postponed(change: PostponedChange) -> Program[bool]:
    """Lock a postponed change so that no request replaces it, and return whether it is still postponed."""
    return bool((yield _HOLD.bind(**change._asdict())))


def is_postponed(owner: str) -> Program[bool]:
    return bool((yield _OF_OWNER.bind(owner=owner)))


def finish_postponed(change: PostponedChange) -> Program[None]:
    yield _FINISH.bind(**change._asdict())


_NAMES = PostponedChange._fields
_one = [col(name).eq(param(name)) for name in _NAMES]
_all = select(*map(col, _NAMES)).from_(OWNER_CHANGES)
_OF_OWNER = _all.where(col("owner").eq(param("owner"))).limit(1).prepared()
_FORGET = delete(OWNER_CHANGES).where(col("owner").eq(param("owner"))).prepared()
_POSTPONE = insert(OWNER_CHANGES).rows(param("rows"), **TABLES[OWNER_CHANGES].kinds).prepared()
_LIST = _all.where(col("partition").eq(param("partition"))).order_by(asc(col("owner"))).limit(LISTED_MAX).prepared()
_HOLD = _all.where(*_one).locked(Lock.UPDATE).prepared()
_FINISH = delete(OWNER_CHANGES).where(*_one).prepared()
