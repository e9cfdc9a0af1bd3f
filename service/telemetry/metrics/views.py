"""Metrics of curves and of memcached, which are computed at each scrape."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily


class ServingCurve(NamedTuple):
    """The facts about a serving curve that the metrics show."""

    as_of_us: int
    knots: int
    live: bool = False


def curve_metrics(curves: Iterable[ServingCurve], now_s: float) -> Iterator[Metric]:
    """Yield the ages and knots of the serving curves, without a label for the board."""
    figures = list(curves)
    ages_s = [max(0.0, now_s - figure.as_of_us / 1e6) for figure in figures]
    knots = [float(figure.knots) for figure in figures]
    yield SummaryMetricFamily("rankcurve_curve_knots", "Knots of the serving curves", len(knots), sum(knots))
    yield GaugeMetricFamily(
        "rankcurve_curve_age_seconds_max", "Age of the oldest serving curve", value=max(ages_s, default=0.0)
    )
    live_s = [age_s for age_s, figure in zip(ages_s, figures, strict=True) if figure.live]
    yield GaugeMetricFamily(
        "rankcurve_curves_live", "Serving curves that are live: their counts follow the posts", value=len(live_s)
    )
    yield GaugeMetricFamily(
        "rankcurve_live_lag_seconds_max",
        "Longest time that a live curve is behind the posts",
        value=max(live_s, default=0.0),
    )


def memcached_metrics(left_alone: int) -> Iterator[Metric]:
    """Yield how many servers this process currently skips after failures (open circuit breaker)."""
    text = "memcached servers that are not asked for a while, after failures"
    yield GaugeMetricFamily("rankcurve_memcached_servers_left_alone", text, value=left_alone)
