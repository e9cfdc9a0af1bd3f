"""Managed objects: what operators read and do by name, over the same numbers that Prometheus scrapes.

    metrics ──> History (snapshots, rates) ──> groups: a metric's place in the tree ──┐
    catalog, curves ──> Board, Predictor ─────────────────────────────────────────────┼──> Tree ──> Jolokia
    jobs, caches ──> operations, told to every process of the node by Channel ────────┘

The rule: nothing is counted here. A metric that is declared anywhere appears in the tree by itself.
"""
