"""Jobs for pools of leased resources, which free what has expired and move free resources to where they are needed.

    LiberateJob: expired leases ──> free        BalanceJob: free resources ──> the region that will need them
    ExchangeJob: a page of another store's lease journal ──> applied here

- `liberate` frees resources whose leases have expired, deletes the rows of dropped pools and prunes the lease journal.
- `rebalance` moves free resources between a pool's regions, following a plan that a pure function computes.
- `peer_journals` reads the lease journals of other stores. Only `ExchangeJob` may end or extend a running lease.

Lease requests have priority, so each step is one bounded transaction, and the first two jobs pause after each step of
freeing or moving resources, for as long as the step took.

The room may import `storage` and the modules at the root of `jobs`. Begin with `liberate`.
"""
