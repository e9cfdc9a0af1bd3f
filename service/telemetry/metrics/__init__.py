"""The metrics of a process, in Prometheus' names and units: one module for each part of the service.

    one process:  Metrics ──> LocalCells and the library's values ──> /metrics
    a node:       each process ──> files in the node's folder ──> NodeMember of any process ──> /metrics of the node

`process.Metrics` holds all metrics and registers those of the other modules. A module such as `queue` or `leases`
implements the observer protocols of one part. The docstring of its class names the protocols, and a protocol says when
each method is called.

`loop` and `cells` count without locks, and only on the event loop. `node` and `node_values` add up the metrics of the
processes that one supervisor runs.

The room imports observer protocols and record types of storage and jobs. Its most important rule: every label has a
bounded set of values from the code or the settings, and never a board, an owner, a key or anything else that a caller
sends. A node has at most 500 series, which a test counts. A reader begins with `process`.
"""
