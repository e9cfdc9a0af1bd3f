"""The metrics of a process, in Prometheus' names and units.

    observers ──> Metrics ──> Numbers: memory, or files in the node's folder ──> Totals: sums over files ──> /metrics

`families` is the table of all metrics. `process.Metrics` observes all parts of the service: each of its methods changes
a few numbers. The observers of jobs and storage document when each method is called. `views` are the metrics that are
computed at each scrape.

`numbers` counts without locks, and only on the event loop. `totals` adds up the numbers of the processes that one
supervisor runs, and `node` knows these processes.

The room imports observers and record types of storage and jobs. Its most important rule: every label has a bounded set
of values from the code or the settings, and never a board, an owner, a key or anything else that a caller sends. A node
has at most 500 series, which a test counts. A reader begins with `families`.
"""
