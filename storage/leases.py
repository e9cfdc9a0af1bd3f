"""Leases on named resources: what of the store's work is whose, until when.

The rule: a holder that has slept past its time finds another one at `renew` or `release`, in the transaction that its
right was for, and nothing of it is kept. How a lease is claimed stands in `claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from querybuilder import TEXT, Dialect, Lock, asc, col, param, select, update

from .claims import GIVEN_BACK, Claims, StoreClock
from .errors import LeaseLost, LeaseTaken
from .migrate import LEASES
from .store import Program


@dataclass(frozen=True, slots=True)
class Lease:
    """One holding."""

    pool: str  # what kind of thing is leased
    resource: str  # which one
    holder: str
    version: int  # the fencing number
    expires_at_us: int  # by the store's clock


class Leases:
    """Programs over the leases of a store."""

    def __init__(self, dialect: Dialect, clock: StoreClock, *, margin_us: int) -> None:
        """`margin_us`: how long an expired lease stays untouched, for a store whose clock may be set, or fail over."""
        self.clock = self._clock = clock
        self._margin_us = margin_us
        self._claims = Claims(dialect, LEASES, {"pool": TEXT, "resource": TEXT})
        documents = select(col("resource"), col("holder"), col("version"), col("expires_at")).from_(LEASES)
        of_pool = documents.where(col("pool").eq(param("pool")))
        self._of_pool = of_pool.packed().compile(dialect)
        named = (col("pool").eq(param("pool")), col("resource").in_(param("resources")))
        versions = select(col("resource"), col("version")).from_(LEASES)
        held = versions.where(*named, col("expires_at").ne(GIVEN_BACK)).packed()
        self._hold = held.locked(Lock.NO_KEY_UPDATE, asc(col("resource"))).compile(dialect)
        self._extend = update(LEASES).set(expires_at=param("expires_at")).where(*named).compile(dialect)

    def find(self, pool: str, resource: str) -> Program[Lease | None]:
        """The last holding, over or not; None before the first."""
        rows = yield self._claims.find(pool=pool, resource=resource)
        if not rows:
            return None
        holder, version, expires_at = rows[0]
        return Lease(pool, resource, holder, version, expires_at)

    def held_in(self, pool: str) -> Program[tuple[dict[str, Lease], int]]:
        """The holdings of a pool that nobody else may take yet, by resource, and the time that this was so."""
        now_us = yield from self._clock()
        rows = yield self._of_pool.bind(pool=pool)
        found = [Lease(pool, *row) for row in rows]
        return {lease.resource: lease for lease in found if lease.expires_at_us > now_us - self._margin_us}, now_us

    def keep_all(self, leases: Sequence[Lease], *, lease_us: int) -> Program[list[Lease]]:
        """Keep leases, all of one pool, for so long from now, expired ones too; those that nobody else took.

        Nobody takes them before this transaction ends, however long that is.
        """
        if not leases:
            return []
        pool, names = leases[0].pool, [lease.resource for lease in leases]
        rows = yield self._hold.bind(pool=pool, resources=names)
        versions = {row[0]: row[1] for row in rows}
        kept = [lease for lease in leases if versions.get(lease.resource) == lease.version]
        if not kept:
            return []
        expires_at_us = (yield from self._clock()) + lease_us  # after the locks, which may have been waited for
        yield self._extend.bind(pool=pool, resources=[lease.resource for lease in kept], expires_at=expires_at_us)
        return [replace(lease, expires_at_us=expires_at_us) for lease in kept]

    def claim(self, pool: str, resource: str, *, holder: str, lease_us: int) -> Program[Lease]:
        """Take a free resource for so long.

        Raises:
            LeaseTaken: it is held, by this holder or another one.
        """
        now_us = yield from self._clock()
        expires_at_us = now_us + lease_us
        rows = yield self._claims.claim(
            pool=pool,
            resource=resource,
            holder=holder,
            expires_at_us=expires_at_us,
            expired_before_us=now_us - self._margin_us,
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
        rows = yield self._claims.expire_at(
            expires_at_us, version=lease.version, pool=lease.pool, resource=lease.resource
        )
        if not rows[0][0]:
            raise LeaseLost(f"{lease.pool} {lease.resource} is no longer held under number {lease.version}")
        return replace(lease, expires_at_us=expires_at_us)
