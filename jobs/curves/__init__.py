"""Jobs that keep curves close to the rows they describe.

    Schedule: due columns ──────────────┐
    RefreshQueue: operators' requests ──┴──> RefreshJob: claim ──> Fitting ──> store, release and serve the curve
                                                                                       │
    change log ──> FoldJob ──> live counts of the stored curve, until drift or age makes it due again
    other processes' curves and counts ──> WatchJob ──> the curve book of this process

- `refresh`, `schedule`, `refit_rule` and `fitting`: which column gets a new curve, when, and how it is made.
- `refresh_requests`: refreshes that operators request, in this process and from front ends without jobs.
- `fold` and `live_counts`: count logged changes into the curves that are in use.
- `audit` compares curves with random rows; `watch` loads the curves that other processes stored.

The rule: two refreshes of one column never overlap, in this process or in another one. Each begins with a lease on the
column and is stored on the condition that the lease is still held.

The room may import `storage`, `predictor` and the modules at the root of `jobs`, but not its neighbours `queue`,
`leases` and `boards`. Begin with `refresh`.
"""
