"""Builds the parts that grant leases: work leases of jobs, leases on resources, and the parts for the jobs of pools.

The clock of the store times all leases.
"""

from __future__ import annotations

import random

from config import Settings
from config.peers import parse_peers
from jobs.leases.peers import ReadPeer
from jobs.wiring import PeerParts, PoolParts
from service.telemetry.metrics.leases import LeaseMetrics
from storage.leases.claims import store_clock
from storage.leases.lease_transaction import LeaseTransactions
from storage.leases.peers.exchange import LeaseExchange
from storage.leases.work_leases import WorkLeases
from storage.store import Store


def lease_margin_us(settings: Settings) -> int:
    """Return the margin in microseconds: after a lease ends, no other key gets its resource for this time."""
    return round(settings.lease_margin_s * 1e6)


def make_leases(settings: Settings, store: Store) -> WorkLeases:
    return WorkLeases(store_clock, margin_us=lease_margin_us(settings))


def make_lease_groups(settings: Settings, store: Store) -> LeaseTransactions:
    return LeaseTransactions(
        store.dialect,
        None,
        margin_us=lease_margin_us(settings),
        attempts_max=settings.write_attempts_max,
        rng=random.Random(),
        peers=bool(settings.lease_peers),
    )


def make_pool_parts(settings: Settings, store: Store, metrics: LeaseMetrics, read_peer: ReadPeer | None) -> PoolParts:
    """Return the parts for the jobs of pools. Without `read_peer`, the jobs read no journals of other stores."""
    peers = None
    if read_peer is not None:
        exchange = LeaseExchange(
            store_clock,
            store_name=settings.lease_store_name,
            release_duplicates=settings.lease_duplicates == "release",
            attempts_max=settings.write_attempts_max,
            rng=random.Random(),
        )
        names = tuple(parse_peers(settings.lease_peers))
        peers = PeerParts(names, exchange, read_peer, metrics)
    return PoolParts(metrics, peers)
