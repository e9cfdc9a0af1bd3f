"""Jobs for pools of leased resources.

    LiberateJob: expired leases ──> free        BalanceJob: free resources ──> the region that will need them
    ExchangeJob: a page of another store's journal ──> applied here

- `liberate` frees resources whose leases expired, deletes the rows of dropped pools and prunes the journal of leases.
- `rebalance` moves free resources between the regions of a pool; `rebalance_plan` computes the moves.
- `peers` reads the lease journals of other stores.

Requests for leases have priority. Each step is one bounded transaction, and the job pauses for as long as the step
took. A job never changes a running lease.

The room may import `storage` and the modules at the root of `jobs`. Begin with `liberate`.
"""
