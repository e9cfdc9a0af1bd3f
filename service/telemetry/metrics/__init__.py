"""The metrics that a process, or a node (all processes under one supervisor), shows to Prometheus.

    service, jobs, storage ──> Numbers: memory, or a file in the node's folder ──> Totals: sums over files ──> /metrics

`metric_families` is the table of all metrics. `numbers` implements `Meter`, the interface in storage by which all parts
of the service report their numbers. `process.Metrics` shows the numbers of a process or its node. It also computes some
at each scrape, and `store_figures` measures the store and its partitions. `node_metrics` knows the processes that one
supervisor runs, and adds up their numbers.

Every label has a bounded set of values, which come from the code or the settings. If a label held a board, an owner or
anything else that a caller sends, callers could fill the memory of the node and of Prometheus. A test checks that a
node has at most 500 series. Begin with `metric_families`.
"""
