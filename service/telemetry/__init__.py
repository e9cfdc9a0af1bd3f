"""Logs, traces and metrics, by which the service reports to its operators about itself.

    requests, jobs, storage ──> logs      ──> bounded queue ──> a thread ──> standard error
                            ──> tracing   ──> an OpenTelemetry collector (optional)
                            ──> metrics/  ──> Prometheus, and the managed objects of `service.monitoring`

This package may import `contract`, jobs and storage. It implements `Meter`, the interface in storage through which
storage and jobs report their numbers. It never decides how a request is answered. No log line holds an API key, a
request body or an owner's name, and no label of a metric comes from a caller, because both leave the service for
systems with other readers. A request never waits for a disk because of logging, or for a network because of tracing.
Begin with `logs`, then read `metrics/metric_families.py`, the table of all metrics.
"""
