"""The metrics that a process, or a node (all processes under one supervisor), shows to Prometheus.

    service, jobs, storage ──> Numbers: memory, or a file in the node's folder ──> Totals: sums over files ──> /metrics

`families` is the table of all metrics. `numbers` has the meter, to which all parts of the service report the metrics by
name. `process.Metrics` shows the numbers of a process or its node. `views` computes metrics at each scrape, and
`store_figures` measures the store and its partitions. `totals` adds up the numbers of the processes that one supervisor
runs, and `node` knows these processes.

This package implements the meter of storage. Its most important rule: every label has a bounded set of values from the
code or the settings, and never a board, an owner, a key or anything else that a caller sends. A node has at most 500
series, which a test counts. Begin with `families`.
"""
