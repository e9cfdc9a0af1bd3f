"""The metrics that a process, or a node (all processes under one supervisor), shows to Prometheus.

    service, jobs, storage ──> Numbers: memory, or a file in the node's folder ──> Totals: sums over files ──> /metrics

`metric_families` is the table of all metrics. `numbers` implements `Meter`, the interface in storage by which all
parts of the service report their numbers. `process.Metrics` shows the numbers of a process or its node. It also
computes some at each scrape, and `store_figures` measures the store and its partitions. `node_metrics` knows the
processes that one supervisor runs, and adds up their numbers.

The most important rule: every label has a bounded set of values from the code or the settings. No label holds a board,
an owner, a key or anything else that a caller sends. A test counts that a node has at most 500 series. Begin with
`metric_families`.
"""
