"""Jobs for pools of leased resources: they free what has expired, and move free resources where they will be needed.

    LiberateJob: expired leases ──> free        BalanceJob: free resources ──> the region that will need them
    ExchangeJob: a page of another store's lease journal ──> applied here

- `liberate` frees resources whose leases expired, deletes the rows of dropped pools and prunes the journal of leases.
- `rebalance` moves free resources between the regions of a pool, as a pure plan computes.
- `peer_journals` reads the lease journals of other stores. Only `ExchangeJob` may end or extend a running lease.

Requests for leases have priority. Each step is one bounded transaction. The first two jobs pause after each step of
freeing or moving resources, for as long as the step took.

The room may import `storage` and the modules at the root of `jobs`. Begin with `liberate`.
"""
