"""How many may do something at once: a semaphore is a pool of leases, as many as its size, and each holder has one.

The rule: the size is one number in the store, and holders follow it: whoever finds at its next turn that its permit is
past the size gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder import Dialect, col, excluded, insert, param, select

from .errors import LeaseLost, LeaseTaken
from .ingest_schema import SEMAPHORES
from .leases import Lease, Leases
from .store import Program


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a semaphore is, and what that was worked out from."""

    size: int
    capacity: int  # what the store takes a second; 0: not measured
    speed: int  # what one holder does; 0: not measured
    sized_at_us: int


class Semaphore:
    """The programs of one semaphore."""

    def __init__(self, dialect: Dialect, leases: Leases, name: str, *, size: int) -> None:
        """`size`: as long as none is stored."""
        self._leases, self._name, self._size = leases, name, size
        self._pool = f"semaphore {name}"
        named = col("name").eq(param("name"))
        columns = [col("size"), col("capacity"), col("speed"), col("sized_at")]
        self._find = select(*columns).from_(SEMAPHORES).where(named).compile(dialect)
        self._store = (
            insert(SEMAPHORES)
            .values(
                name=param("name"),
                size=param("size"),
                capacity=param("capacity"),
                speed=param("speed"),
                sized_at=param("sized_at"),
            )
            .on_conflict("name")
            .do_update(
                **{name: excluded(name) for name in ("size", "capacity", "speed", "sized_at")},
                where=col("sized_at", SEMAPHORES).eq(param("found_at")),
            )
            .compile(dialect)
        )

    def sizing(self) -> Program[Sizing]:
        """The size that counts now."""
        rows = yield self._find.bind(name=self._name)
        return Sizing(*rows[0]) if rows else Sizing(self._size, 0, 0, 0)

    def resize(self, sizing: Sizing, *, found: Sizing) -> Program[bool]:
        """Change the size, unless it is no longer as it was found; whether it was. Holders follow at their next turns.

        Whoever measures may do so: who is second finds that it was done.
        """
        rows = yield self._store.bind(
            name=self._name,
            size=sizing.size,
            capacity=sizing.capacity,
            speed=sizing.speed,
            sized_at=sizing.sized_at_us,
            found_at=found.sized_at_us,
        )
        return bool(rows[0][0])

    def holders(self) -> Program[int]:
        """How many hold a permit now."""
        held, _ = yield from self._leases.held_in(self._pool)
        return len(held)

    def keep(self, permit: Lease | None, *, holder: str, lease_us: int) -> Program[tuple[Lease | None, int]]:
        """The permit for so long from now, or another one, or None where all are held; and how many hold one."""
        sizing = yield from self.sizing()
        held, _ = yield from self._leases.held_in(self._pool)
        if permit is not None:
            permit = yield from self._kept(permit, sizing.size, lease_us)
        others = set(held) - ({permit.resource} if permit is not None else set())
        free = [str(number) for number in range(1, sizing.size + 1) if str(number) not in held]
        while permit is None and free:
            resource = free.pop(0)
            try:
                permit = yield from self._leases.claim(self._pool, resource, holder=holder, lease_us=lease_us)
            except LeaseTaken:
                others.add(resource)
        return permit, len(others) + (permit is not None)

    def _kept(self, permit: Lease, size: int, lease_us: int) -> Program[Lease | None]:
        try:
            if int(permit.resource) <= size:
                return (yield from self._leases.renew(permit, lease_us=lease_us))
            yield from self._leases.release(permit)
        except LeaseLost:
            pass
        return None

    def give_back(self, permit: Lease) -> Program[None]:
        """Let another have it at once."""
        try:
            yield from self._leases.release(permit)
        except LeaseLost:
            return
