"""Leases: time-limited exclusive rights, on resources that applications share and on the store's own work.

Two kinds of leases share one mechanism, the conditional writes that `work_leases` explains:

- `work_leases` covers the store's own work, such as refreshing a curve or applying a shard's posts. `jobs.ownership`
  uses it.
- All other modules cover the leases that keys hold on the resources in pools. A key is a name that an API client
  chooses.

The life of a resource of a pool:

    added ──> free ── a key acquires it: version + 1 ──> leased ── extended ──> leased …
               ^                                           |
               ├── released by its key ────────────────────┤
               └── liberated: expired, margin has passed ──┘      the key may still get the same resource back

The margin (`lease_margin_s`) is a wait after the expiry, in case the store's clock jumps. A request takes this path:

    batcher ──> one read for many keys ──> the lease lasts long enough: answered
                        └── anything else ──> lease_transaction ──> rows, journal and counts in one commit
                                                    └── a new resource: the longest free one, else an expired lease

A transaction writes a row only if the row has not changed since the transaction read it. Otherwise nothing is written,
and the request is decided again. Only the store's clock decides whether a lease has expired, never a holder's clock.

Of `storage`, this package may import only `schema` and the modules at the root. Begin with `lease_records`,
then read `work_leases`, then `lease_transaction`. `peers` handles leases in other stores.
"""
