"""Computes the metrics of curves and of memcached at each scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily

from storage.curves.stored_curves import ServedCurve


def curve_metrics(curves: Iterable[ServedCurve], now_s: float) -> Iterator[Metric]:
    """Yield metrics of all curves from which this process reads ranks, such as their ages. No label names a board."""
    served = list(curves)
    ages_s = [max(0.0, now_s - each.curve.as_of_us / 1e6) for each in served]
    knots = [float(len(each.fit.knots)) for each in served]
    yield SummaryMetricFamily("rankcurve_curve_knots", "Knots of the serving curves", len(knots), sum(knots))
    yield GaugeMetricFamily(
        "rankcurve_curve_age_seconds_max", "Age of the oldest serving curve", value=max(ages_s, default=0.0)
    )
    live_s = [age_s for age_s, each in zip(ages_s, served, strict=True) if each.live_version > 0]
    yield GaugeMetricFamily(
        "rankcurve_curves_live", "Serving curves that are live: their counts follow the posts", value=len(live_s)
    )
    yield GaugeMetricFamily(
        "rankcurve_live_lag_seconds_max",
        "Longest time that a live curve is behind the posts",
        value=max(live_s, default=0.0),
    )


def memcached_metrics(left_alone: int) -> Iterator[Metric]:
    """Yield how many servers this process currently skips because they failed (open circuit breaker)."""
    text = "memcached servers that are not asked for a while, after failures"
    yield GaugeMetricFamily("rankcurve_memcached_servers_left_alone", text, value=left_alone)
