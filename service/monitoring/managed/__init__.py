"""Managed objects, which operators read and operate by name. They show the same numbers as the Prometheus metrics.

    metrics ──> metric_mapping: a metric's object, attribute ──────┐
    metrics ──> MetricHistory (snapshots) ──> percentiles, verdict ┼──> objects by name ──> Jolokia
    jobs ──> operations, in every process by NodeChannel ──────────┘

The package counts nothing itself. Every new metric of the service becomes an attribute without a change here.

An object has a name as in JMX, attributes and operations. All objects are rebuilt for each request. The verdict lists
the current alerts. An operation runs in every process of the node, because each process has its own jobs. Begin with
`objects`; `node_objects` puts the parts together.
"""
