"""Where leases are wired: named ones, pools, and what their jobs work with.

The rule: as in `wiring`, which uses it: chance enters here, clocks are the store's.
"""

from __future__ import annotations

import random

from config import Settings
from config.peers import parse_peers
from jobs.balancing import BalanceLimits
from jobs.exchange import ExchangeLimits, ReadPeer
from jobs.liberate import LiberateLimits
from jobs.wiring import PeerParts, PoolParts
from storage.claims import store_clock
from storage.lease_exchange import LeaseExchange
from storage.lease_group import LeaseGroups
from storage.leases import Leases
from storage.store import Store

from ..limits import limits_of
from ..metrics.leases import LeaseMetrics


def margin_us_of(settings: Settings) -> int:
    """How long a lease that is over is nobody else's yet."""
    return round(settings.lease_margin_s * 1e6)


def leases_of(settings: Settings, store: Store) -> Leases:
    """The leases of a store, by its own clock."""
    return Leases(store.dialect, store_clock(store.dialect), margin_us=margin_us_of(settings))


def lease_groups_of(settings: Settings, store: Store) -> LeaseGroups:
    """The leases on resources, by the store's clock too."""
    return LeaseGroups(
        store.dialect,
        None,
        margin_us=margin_us_of(settings),
        attempts_max=settings.write_attempts_max,
        rng=random.Random(),
        peers=bool(settings.lease_peers),
    )


def pool_parts(settings: Settings, store: Store, metrics: LeaseMetrics, read_peer: ReadPeer | None) -> PoolParts:
    """What the jobs of pools work with; without `read_peer` keys lease in this store only."""
    peers = None
    if read_peer is not None:
        exchange = LeaseExchange(
            store.dialect,
            store_clock(store.dialect),
            store_name=settings.lease_store_name,
            release_duplicates=settings.lease_duplicates == "release",
            attempts_max=settings.write_attempts_max,
            rng=random.Random(),
        )
        names = tuple(parse_peers(settings.lease_peers))
        peers = PeerParts(names, exchange, read_peer, limits_of(ExchangeLimits, settings), metrics)
    return PoolParts(
        liberate=limits_of(LiberateLimits, settings),
        balance=limits_of(BalanceLimits, settings),
        clock=store_clock(store.dialect),
        observer=metrics,
        margin_us=margin_us_of(settings),
        expired_counted_max=settings.lease_expired_counted_max,
        peers=peers,
    )
