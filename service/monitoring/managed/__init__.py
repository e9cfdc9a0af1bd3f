"""Managed objects: what operators read and do by name, over the same numbers that Prometheus scrapes.

    metrics ──> History (snapshots, rates) ──> Grouping: a metric's object and attribute ──┐
    catalog, curves ──> BoardObjects ──────────────────────────────────────────────────────┼──> Tree ──> Jolokia
    jobs, caches ──> operations, run in every process of the node through Channel ─────────┘

The rule: nothing is counted here. A metric that is declared anywhere appears in the tree by itself.

An object has a name as in JMX, attributes that are read at a `Moment`, and operations. Reads come from a `Look`: the
tree as it is while one request is answered. An operation runs in every process of the node, because each process has
its own jobs and caches. Operators allow operations by the setting `managed_operations`.

Begin with `objects` and `tree`; `wiring` puts the parts together.
"""
