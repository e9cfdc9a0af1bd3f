"""Managed objects: named objects that operators read and operate. Their numbers are those that Prometheus scrapes.

    metrics ──> MetricMapping: a metric's object, attribute ──────────────────────────┐
    metrics ──> MetricHistory (snapshots) ──> percentiles, the verdict ───────────────┤
    catalog, curves ──> BoardObjects ─────────────────────────────────────────────────┼──> ObjectTree ──> Jolokia
    jobs, caches ──> operations, run in every process of the node through NodeChannel ┘

The room counts nothing itself. A new metric, wherever it is declared, appears in the tree without a change here.

An object has a name as in JMX, attributes that are read at a `MetricsMoment`, and operations. Reads come from a
`TreeSnapshot`: the tree as it is while one request is answered. An operation runs in every process of the node, because
each process has its own jobs and caches. Operators allow operations by the setting `managed_operations`.

Begin with `objects` and `tree`; `wiring` puts the parts together.
"""
