"""Keys whose lease is in another store: what they are told here, and what that store is asked on their behalf.

The rule: nothing is promised for another store. A key is told what that store's journal last said; what it asks for
goes into the journal here, which that store reads. Where several stores gave it one, the first of them counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from querybuilder import Dialect

from .lease_elsewhere import Elsewhere, leases_elsewhere
from .lease_records import GiveBack, Given, Happening, Kind, Request, Resource
from .lease_resources import Key
from .store import Program


@dataclass(slots=True)
class Roaming:
    """What one transaction finds and asks."""

    dialect: Dialect
    _asked: list[Elsewhere] = field(default_factory=list)
    _returned: list[Elsewhere] = field(default_factory=list)

    def running(self, keys: Iterable[Key], here: Mapping[Key, Resource], now_us: int) -> Program[dict[Key, Elsewhere]]:
        """The leases that run in other stores, of those keys that have none that runs here."""
        away = [key for key in keys if key not in here or here[key].is_free or here[key].expires_at_us <= now_us]
        if not away:
            return {}
        found = yield from leases_elsewhere(self.dialect).by_keys(sorted(away))
        running = {key: [one for one in leases if one.expires_at_us > now_us] for key, leases in found.items()}
        return {key: min(leases, key=_given_at) for key, leases in running.items() if leases}

    def answer(
        self, request: Request, lease: Elsewhere, expires_at_us: int, now_us: int
    ) -> tuple[Given, list[Happening]]:
        """What the key is told, and what the other store will read."""
        given = lease.given(now_us)
        if isinstance(request, GiveBack):
            self._returned.append(lease)
            return given, [_told(Kind.RETURNED, lease, lease.expires_at_us, now_us)]
        if expires_at_us <= max(lease.expires_at_us, lease.wanted_until_us):
            return given, []
        self._asked.append(lease._replace(wanted_until_us=expires_at_us))
        return given, [_told(Kind.WANTED, lease, expires_at_us, now_us)]

    def store(self) -> Program[None]:
        """Remember what was asked, so that it is asked once."""
        elsewhere = leases_elsewhere(self.dialect)
        yield from elsewhere.put(self._asked)
        for lease in self._returned:
            yield from elsewhere.forget(lease.pool_key, lease.key, lease.peer)


def _given_at(lease: Elsewhere) -> tuple[int, str]:
    return lease.acquired_at_us, lease.peer


def _told(kind: Kind, lease: Elsewhere, expires_at_us: int, now_us: int) -> Happening:
    row = Resource(lease.pool_key, lease.resource, lease.region, 0, lease.key, lease.version, expires_at_us, None)
    return Happening(kind, row, lease.key, now_us)
