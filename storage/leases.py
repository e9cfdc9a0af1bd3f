"""Leases: time-limited exclusive rights, one row each, taken and kept by conditional writes.

    free ── claim: version + 1 ──> held ── renew ──> held …      a row says who holds it, and until when
      ^                              |
      └── release, or expired and the margin over

The rule: two holdings of one resource never overlap by the store's clock, and the later one has the greater version.
That number fences: a holder that has slept past its time finds another one at `check` or `release`, in the transaction
that its right was for, and nothing of it is kept. Clocks of holders are never asked.

The time is read before the write that it is bound to, so it is a little old: a lease ends a little early for its holder
and is free a little late for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from querybuilder import Dialect, clock_us, col, excluded, insert, param, plus, select, update

from .errors import LeaseLost, LeaseTaken
from .migrate import LEASES
from .store import Program

GIVEN_BACK = 0  # as expires_at

StoreClock = Callable[[], Program[int]]  # a program that answers microseconds since 1970


@dataclass(frozen=True, slots=True)
class Lease:
    """One holding."""

    pool: str  # what kind of thing is leased
    resource: str  # which one
    holder: str
    version: int  # the fencing number
    expires_at_us: int  # by the store's clock


def store_clock(dialect: Dialect) -> StoreClock:
    """The clock that every process of a store sees alike."""
    query = select(clock_us()).build(dialect)

    def now_us() -> Program[int]:
        rows = yield query
        return int(rows[0][0])

    return now_us


class Leases:
    """Programs over the leases of a store."""

    def __init__(self, dialect: Dialect, clock: StoreClock, *, margin_us: int) -> None:
        """`margin_us`: how long an expired lease stays untouched, for a store whose clock may be set, or fail over."""
        self.clock = self._clock = clock
        self._margin_us = margin_us
        one = (col("pool").eq(param("pool")), col("resource").eq(param("resource")))
        held = (*one, col("version").eq(param("version")), col("expires_at").ne(GIVEN_BACK))
        self._find = select(col("holder"), col("version"), col("expires_at")).from_(LEASES).where(*one).compile(dialect)
        self._claim = (
            insert(LEASES)
            .values(
                pool=param("pool"),
                resource=param("resource"),
                holder=param("holder"),
                version=1,
                expires_at=param("expires_at"),
            )
            .on_conflict("pool", "resource")
            .do_update(
                holder=excluded("holder"),
                version=plus(col("version", LEASES), 1),
                expires_at=excluded("expires_at"),
                where=col("expires_at", LEASES).le(param("expired_before")),
            )
            .returning(col("version"))
            .compile(dialect)
        )
        self._expire_at = update(LEASES).set(expires_at=param("expires_at")).where(*held).compile(dialect)

    def find(self, pool: str, resource: str) -> Program[Lease | None]:
        """The last holding, over or not; None before the first."""
        rows = yield self._find.bind(pool=pool, resource=resource)
        if not rows:
            return None
        holder, version, expires_at = rows[0]
        return Lease(pool, resource, holder, version, expires_at)

    def claim(self, pool: str, resource: str, *, holder: str, lease_us: int) -> Program[Lease]:
        """Take a free resource for so long.

        Raises:
            LeaseTaken: it is held, by this holder or another one.
        """
        now_us = yield from self._clock()
        expires_at_us = now_us + lease_us
        rows = yield self._claim.bind(
            pool=pool,
            resource=resource,
            holder=holder,
            expires_at=expires_at_us,
            expired_before=now_us - self._margin_us,
        )
        if rows:
            return Lease(pool, resource, holder, int(rows[0][0]), expires_at_us)
        found = yield from self.find(pool, resource)
        free_in_us = 0 if found is None else max(0, found.expires_at_us + self._margin_us - now_us)
        by = "nobody" if found is None else found.holder
        raise LeaseTaken(f"{pool} {resource} is held by {by}", free_in_us=free_in_us)

    def renew(self, lease: Lease, *, lease_us: int) -> Program[Lease]:
        """Keep a lease for so long from now; one that has expired too, as long as nobody else took it.

        Raises:
            LeaseLost: somebody did, or it was given back.
        """
        now_us = yield from self._clock()
        return (yield from self._let_expire(lease, now_us + lease_us))

    def release(self, lease: Lease, *, rests_until_us: int = GIVEN_BACK) -> Program[None]:
        """Give a lease back, at once or at a time by the store's clock; until then nobody has it.

        Raises:
            LeaseLost: it is somebody else's by now. Within a transaction that is what fences its writes off.
        """
        # The margin comes on top of what is written, and is no part of the rest.
        yield from self._let_expire(lease, max(GIVEN_BACK, rests_until_us - self._margin_us))

    def _let_expire(self, lease: Lease, expires_at_us: int) -> Program[Lease]:
        rows = yield self._expire_at.bind(
            pool=lease.pool, resource=lease.resource, version=lease.version, expires_at=expires_at_us
        )
        if not rows[0][0]:
            raise LeaseLost(f"{lease.pool} {lease.resource} is no longer held under number {lease.version}")
        return replace(lease, expires_at_us=expires_at_us)
