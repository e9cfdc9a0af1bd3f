"""Reports of the service about itself for its operators: logs, traces and metrics.

    requests, jobs, storage ──> logs      ──> log_scrubbing ──> bounded queue ──> a thread ──> standard error
                            ──> tracing   ──> a collector of OpenTelemetry (optional)
                            ──> metrics/  ──> Prometheus, and the managed objects of `service.monitoring`

The room may import `contract`, and of storage the meter that it implements and record types. It never decides how a
request is answered. Its most important rule: no log line holds an API key, a request body or an owner's name, and no
label of a metric comes from a caller. A request never waits for a disk because of logging, or for a network because of
tracing.

A reader begins with `logs`, then `metrics/families.py`, the table of all metrics.
"""
