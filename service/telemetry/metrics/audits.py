"""Metrics of audits: the measured error of curves, the error that their certificates state, and counters for alerts.

`rankcurve_audit_brackets_broken_total` and `rankcurve_audit_certificates_broken_total` must stay 0. If one of them
grows, a curve or a count is wrong.
"""

from __future__ import annotations

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from storage.curves.auditing import Audit, AuditOutcome

_ERROR_BUCKETS = (0, 0.001, 0.005, 0.01, 0.05)
_FAILED = "failed"


class AuditMetrics:
    """Counts what the audits of one process found; an `AuditObserver`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._audits = Counter("rankcurve_audits", "Audits of curves", ["outcome"], registry=registry)
        for outcome in (*get_args(AuditOutcome), _FAILED):
            self._audits.labels(outcome)  # this shows the counter as 0 before the first audit
        self._errors = Histogram(
            "rankcurve_audit_error_ratio",
            "Error of audited ranks, relative to the true rank at the curve's time",
            buckets=_ERROR_BUCKETS,
            registry=registry,
        )
        self._certificates = Summary(
            "rankcurve_audit_certificate_ratio",
            "Largest error that the curve of each audited rank certifies, where it has a certificate",
            registry=registry,
        )
        self._brackets_broken = Counter(
            "rankcurve_audit_brackets_broken", "Audited ranks outside their bracket; must stay 0", registry=registry
        )
        self._certificates_broken = Counter(
            "rankcurve_audit_certificates_broken",
            "Audited ranks with a larger error than their certificate allows; must stay 0",
            registry=registry,
        )

    def audited(self, found: Audit) -> None:
        self._audits.labels(found.outcome).inc()
        for each in found.compared:
            self._errors.observe(each.error)
            if found.curve.certificate is not None:
                self._certificates.observe(found.curve.certificate)
        self._brackets_broken.inc(len(found.broken))
        self._certificates_broken.inc(len(found.beyond_certificate))

    def audit_failed(self) -> None:
        self._audits.labels(_FAILED).inc()
