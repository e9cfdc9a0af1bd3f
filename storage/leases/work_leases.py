"""Leases on the store's own work: which process may refresh a curve, prune, or apply a shard's posts, and until when.

A holder renews or releases its lease in the same transaction that stores the result of its work. If a holder was paused
for longer than its lease, another process may have taken over. In that case `renew` or `release` raises
`LeaseLostError`, which rolls the whole transaction back.

Every lease is a row with a version. Conditional writes claim it for a holder and renew the claim:

    free ── claim: version + 1 ──> held ── renewed: later expiry ──> held …
      ^                              |
      └──────────────────────────────┘ released, or expired longer ago than the margin (for a clock that jumps)

A row records who holds the lease and until when. Each write checks the row's version or expiry, and writes nothing if
another process has changed the row first. By the store's clock, which is the only one used, a row therefore never has
two holders at a time. The later holder has the greater version, and the resource that the lease protects refuses
smaller versions. `pools` contains the corresponding writes for resources in pools.

The store's time is read before the write that uses it, so a new lease ends slightly early for its holder, and an
expired lease becomes free slightly late for the next holder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from querybuilder import Lock, asc, clock_us, col, excluded, insert, param, plus, select, update
from storage.errors import LeaseLostError, LeaseTakenError
from storage.schema.tables import WORK_LEASES
from storage.store import Program

GIVEN_BACK = 0  # the `expires_at` of a row that nobody holds
_CLOCK = select(clock_us()).prepared()

StoreClock = Callable[[], Program[int]]  # a program that returns microseconds since 1970


def store_clock() -> Program[int]:
    """Read the clock of the database, which all processes of a store share."""
    rows = yield _CLOCK.bind()
    return int(rows[0][0])


@dataclass(frozen=True, slots=True)
class WorkLease:
    kind: str  # the kind of work
    resource: str  # the name of this work within its kind
    holder: str
    version: int  # the fencing number
    expires_at_us: int  # by the store's clock


class WorkLeases:
    def __init__(self, clock: StoreClock, *, margin_us: int) -> None:
        """Compile the statements. Nobody can take an expired lease until `margin_us` after its expiry.

        The margin protects a store whose clock may jump, because somebody sets it or another server takes over.
        """
        self.clock, self._margin_us = clock, margin_us
        leases = select(*map(col, ("resource", "holder", "version", "expires_at"))).from_(WORK_LEASES)
        of_kind, is_held = col("kind").eq(param("kind")), col("expires_at").ne(GIVEN_BACK)
        one = (of_kind, col("resource").eq(param("resource")))
        several = (of_kind, col("resource").in_(param("resources")))
        self._find = leases.where(*one).prepared()
        self._of_kind = leases.where(of_kind).packed().prepared()
        held = leases.where(*several, is_held).packed()
        self._hold = held.locked(Lock.NO_KEY_UPDATE, asc(col("resource"))).prepared()
        expiring = update(WORK_LEASES).set(expires_at=param("expires_at"))
        self._extend = expiring.where(*several).prepared()
        self._end_all = expiring.where(is_held).prepared()
        self._expire_at = expiring.where(*one, col("version").eq(param("version")), is_held).prepared()
        claimed = {name: param(name) for name in ("kind", "resource", "holder", "expires_at")}
        claim = insert(WORK_LEASES).values(**claimed, version=1).on_conflict("kind", "resource")
        self._claim = (
            claim.do_update(
                holder=excluded("holder"),
                version=plus(col("version", WORK_LEASES), 1),
                expires_at=excluded("expires_at"),
                where=col("expires_at", WORK_LEASES).le(param("expired_before")),
            )
            .returning(col("version"))
            .prepared()
        )

    def find_lease(self, kind: str, resource: str) -> Program[WorkLease | None]:
        """Find the last lease on a resource, even if it expired or was released, or return None if there was none."""
        rows = yield self._find.bind(kind=kind, resource=resource)
        return WorkLease(kind, *rows[0]) if rows else None

    def find_held(self, kind: str) -> Program[dict[str, WorkLease]]:
        """Find the leases on one kind of work that nobody can take yet, even released ones, keyed by resource."""
        now_us = yield from self.clock()
        rows = yield self._of_kind.bind(kind=kind)
        expired_before_us = now_us - self._margin_us
        return {row[0]: WorkLease(kind, *row) for row in rows if row[-1] > expired_before_us}

    def renew_leases(self, leases: Sequence[WorkLease], *, lease_us: int) -> Program[list[WorkLease]]:
        """Renew leases of one kind for `lease_us` from now, even expired ones, and return the renewed leases.

        Leases that were released or taken by another holder are left out. The rows stay locked until the transaction
        ends.
        """
        if not leases:
            return []
        kind, names = leases[0].kind, [lease.resource for lease in leases]
        rows = yield self._hold.bind(kind=kind, resources=names)
        versions = {resource: version for resource, _, version, _ in rows}
        kept = {lease.resource: lease for lease in leases if versions.get(lease.resource) == lease.version}
        if not kept:
            return []
        expires_at_us = (yield from self.clock()) + lease_us  # read the clock last: locking may have taken long
        yield self._extend.bind(kind=kind, resources=[*kept], expires_at=expires_at_us)
        return [replace(lease, expires_at_us=expires_at_us) for lease in kept.values()]

    def claim(self, kind: str, resource: str, *, holder: str, lease_us: int) -> Program[WorkLease]:
        """Take a free resource for `lease_us` from now.

        Raises:
            LeaseTakenError: the resource is held, by this holder or another one.
        """
        now_us = yield from self.clock()
        expires_at_us = now_us + lease_us
        bound = {"kind": kind, "resource": resource, "holder": holder}
        rows = yield self._claim.bind(**bound, expires_at=expires_at_us, expired_before=now_us - self._margin_us)
        if rows:
            return WorkLease(kind, resource, holder, rows[0][0], expires_at_us)
        found = yield from self.find_lease(kind, resource)
        free_in_us = 0 if found is None else max(0, found.expires_at_us + self._margin_us - now_us)
        by = "nobody" if found is None else found.holder
        raise LeaseTakenError(f"{kind} {resource} is held by {by}", free_in_us=free_in_us)

    def renew(self, lease: WorkLease, *, lease_us: int) -> Program[WorkLease]:
        """Renew a lease for `lease_us` from now. An expired lease can be renewed, unless another holder has taken it.

        Raises:
            LeaseLostError: another holder took the lease, or it was released.
        """
        now_us = yield from self.clock()
        return (yield from self._let_expire(lease, now_us + lease_us))

    def release(self, lease: WorkLease, *, rests_until_us: int = GIVEN_BACK) -> Program[None]:
        """Release a lease. With `rests_until_us`, nobody can take it before that time by the store's clock.

        Raises:
            LeaseLostError: the lease was taken or released. If the error ends a transaction, its writes are undone.
        """
        # A claim waits until the margin after the stored expiry is over, so the margin is subtracted here.
        yield from self._let_expire(lease, max(GIVEN_BACK, rests_until_us - self._margin_us))

    def end_all(self) -> Program[None]:
        """End every lease, as the owner of a store that only one process at a time may open does when it starts.

        No earlier holder can still be alive then, but if the clock was ahead when a holder died, its lease may be far
        from its end.
        """
        yield self._end_all.bind(expires_at=GIVEN_BACK)

    def _let_expire(self, lease: WorkLease, expires_at_us: int) -> Program[WorkLease]:
        changed = yield self._expire_at.bind(
            expires_at=expires_at_us, version=lease.version, kind=lease.kind, resource=lease.resource
        )
        if not changed[0][0]:
            raise LeaseLostError(f"{lease.kind} {lease.resource} is no longer held under number {lease.version}")
        return replace(lease, expires_at_us=expires_at_us)
