"""Fits, stores, shares and audits the curves in the store, and keeps them up to date.

A curve maps the values of one ranked column to ranks, so that a rank can be read without counting.

    sampling or scanning ──> stored_curves.store_curve ──> the table of curves ──poll──> CurveBook ──> ranks
    change log ──> folding ──> live_counts ──> the table of live counts ──────poll───────┘
    refresh_requests: an operator asks for a new curve through any process, a job process makes it
    auditing: counts random entries and compares them with a curve

Only the table of curves says which curves exist. Memcached (`shared_curves`) holds copies of their contents, so that
processes rarely read the table; these copies may vanish at any time. For each column, a process serves the newest
intact curve of the board's current epoch and partition, if there is one.

Live counts are the changes since a curve's fit. Folding counts them from the log, up to a position called the mark.
Curves, live counts and the mark are in their board's partition, and neither versions nor marks of two partitions can be
compared. Refresh requests are in the control partition.

`jobs/curves` decides when a curve is fitted. The mathematics is in `predictor`. This package reads rows through
`storage.leaves` and changes through `storage.log`. It must not import `archive`, nor the packages above it (`reads`,
`posting`, `queue`). No other package may use pymemcache.

Read `stored_curves` and `curve_book` first, then `sampling` and `live_counts`.
"""
