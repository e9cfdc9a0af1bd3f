"""Declares the tables for pools and for the leases on their resources."""

from querybuilder import INTEGER, TEXT, Query, col, create_index, create_table

LEASE_POOLS = "lease_pools"
LEASE_RESOURCES = "lease_resources"
LEASE_COUNTS = "lease_counts"
LEASE_JOURNAL = "lease_journal"
LEASE_LOADS = "lease_loads"
LEASE_ELSEWHERE = "lease_elsewhere"
LEASE_PEERS = "lease_peers"

# A transaction that read a pool before the pool was deleted may still lease one of the pool's resources, which makes
# the resource's version greater by one. The constant is the largest expected number of such transactions.
VERSIONS_IN_FLIGHT = 1_000


_free, _leased = col("free_since").not_null(), col("free_since").is_null()
_longest_free = map(col, ("pool_key", "region", "free_since", "resource"))
_soonest_over = map(col, ("pool_key", "region", "expires_at", "resource"))
_by_holder, _held = map(col, ("pool_key", "holder")), col("holder").not_null()
RESOURCE_TABLES: tuple[Query, ...] = (
    create_table(LEASE_RESOURCES)
    .with_columns(pool_key=INTEGER, resource=TEXT, region=TEXT)
    .column("holder", TEXT, null=True)  # the key that leases the resource, or leased it last and may get it again
    .column("version", INTEGER)  # the fencing number: grows with every new lease, and with every move to another region
    .column("expires_at", INTEGER)  # when the lease ends, by the store's clock; 0: the resource is free
    .column("free_since", INTEGER, null=True)  # null: the resource is leased; the lease may have expired
    .column("acquired_at", INTEGER)  # when the holder acquired the resource; 0: the resource is free
    .primary_key("pool_key", "resource")
    .clustered(),
    create_index("lease_resources_holder", LEASE_RESOURCES, *_by_holder, where=_held, unique=True),
    create_index("lease_resources_free", LEASE_RESOURCES, *_longest_free, where=_free),
    create_index("lease_resources_leased", LEASE_RESOURCES, *_soonest_over, where=_leased),
)
LEASE_TABLES: tuple[Query, ...] = (
    create_table(LEASE_POOLS)
    .column("pool_key", INTEGER)  # from a sequence that only pools use
    .with_columns(client_id=TEXT, pool_id=TEXT, created_at=INTEGER)
    .column("deleted_at", INTEGER, null=True)  # a deleted pool keeps its row, to which the lease journal refers
    .column("swept", INTEGER)  # 1: the pool is deleted, and all its resources have been deleted too
    .column("floor", INTEGER)  # greater than the version of every removed resource
    .primary_key("pool_key"),
    create_index(
        "lease_pools_id",
        LEASE_POOLS,
        col("client_id"),
        col("pool_id"),
        where=col("deleted_at").is_null(),
        unique=True,
    ),
    *RESOURCE_TABLES,
    create_table(LEASE_COUNTS)
    .with_columns(pool_key=INTEGER, region=TEXT)
    .column("share", INTEGER)  # a region has several rows, whose sums are its counts, see `leases.lease_journal`
    .with_columns(total=INTEGER, held=INTEGER)
    .column("acquired", INTEGER)  # leases acquired since the pool was created
    .column("refused", INTEGER)  # requests refused since the pool was created
    .primary_key("pool_key", "region", "share")
    .clustered(),
    create_table(LEASE_LOADS)
    .with_columns(pool_key=INTEGER, region=TEXT)
    .column("load", TEXT)  # measurements that the rebalancing job stores for its next round
    .primary_key("pool_key", "region")
    .clustered(),
    create_table(LEASE_JOURNAL)
    .column("number", INTEGER)  # from a sequence; grows without gaps, in the order of the commits
    .with_columns(pool_key=INTEGER, kind=TEXT, resource=TEXT)
    .column("holder", TEXT, null=True)
    .with_columns(region=TEXT, version=INTEGER, at=INTEGER, expires_at=INTEGER)
    .primary_key("number"),
    create_table(LEASE_ELSEWHERE)  # leases in peers (other stores), as the peers' journals report them
    .with_columns(pool_key=INTEGER, holder=TEXT, peer=TEXT, resource=TEXT, region=TEXT, version=INTEGER)
    .with_columns(expires_at=INTEGER, acquired_at=INTEGER)
    .column("wanted_until", INTEGER)  # the expiry that this store requested from the peer; 0: none
    .primary_key("pool_key", "holder", "peer")
    .clustered(),
    create_index("lease_elsewhere_expires_at", LEASE_ELSEWHERE, col("expires_at")),
    create_table(LEASE_PEERS)
    .column("peer", TEXT)
    .column("position", INTEGER)  # the number of the last event that was read from the peer's journal
    .primary_key("peer")
    .clustered(),
)
