"""Jobs that keep curves close to the rows they describe.

    Schedule: due columns ──────────────┐
    Refresher: operators' requests ─────┴──> RefreshJob: claim ──> Fitting ──> store the curve, release the lease
                                                                                       │
    change log ──> FoldJob ──> live counts of the stored curve, until drift or age makes the column due
    other processes' curves and counts ──> `jobs.wiring` ──> the curves in the memory of this process

- `refresh`, `schedule` and `fitting` decide which column gets a new curve and when, and fit that curve.
  A `Refresher` passes an operator's request to a job process, and waits until the new curve is in use.
- `fold` adds a partition's logged changes to the live counts of the curves in use.
- `audit` compares the ranks that curves give for random entries with counted ranks.

Two refreshes of one column never overlap, even in two processes, because a refresh runs under a lease on the column.
Otherwise a newer curve could describe an older snapshot. The room may import `storage`, `predictor` and the modules at
the root of `jobs`, but not its neighbours `queue`, `leases` and `boards`. Begin with `refresh`.
"""
