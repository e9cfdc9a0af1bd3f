"""What the service tells its operators about itself: logs, traces, metrics, and a line on a terminal.

    requests, jobs, storage ──> logs      ──> log_scrubbing ──> bounded queue ──> a thread ──> standard error
                            ──> tracing   ──> a collector of OpenTelemetry (optional)
                            ──> metrics/  ──> Prometheus, and the managed objects of `service.monitoring`

The room may import `contract` and the observer protocols and record types of jobs and storage. It never decides what a
request is answered. Its most important rule: no log line holds a key, a body or an owner, and no label of a metric
comes from a caller. Logging never makes a request wait for a disk, and tracing never for a network.

A reader begins with `logs`, then `metrics/process.py`, which holds all metrics of one process.
"""
