"""The metrics that operators watch exist under their names, and no caller can add a label."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.metrics.process import Metrics, ServingCurve


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample by its name and labels."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_posts_are_counted_by_outcome_and_start_at_zero() -> None:
    metrics = Metrics()
    metrics.posts_settled("applied", 3)
    found = samples(metrics)
    assert found["rankcurve_posts_total", (("outcome", "applied"),)] == 3
    assert found["rankcurve_posts_total", (("outcome", "rejected"),)] == 0


def test_the_metrics_show_the_figures_of_the_writer() -> None:
    metrics = Metrics()
    metrics.group_written(posts=7, rows=5, seconds=0.003)
    metrics.race_lost()
    metrics.queue_depth(12)
    metrics.writes_in_flight(2, limit=3)
    metrics.posts_refused("overloaded", 40)
    found = samples(metrics)
    assert found["rankcurve_write_seconds_count", ()] == 1
    assert found["rankcurve_write_batch_posts_sum", ()] == 7
    assert found["rankcurve_write_rows_total", ()] == 5
    assert found["rankcurve_write_conflicts_total", ()] == 1
    assert found["rankcurve_write_queue_posts", ()] == 12
    assert found["rankcurve_writes_in_flight", ()] == 2
    assert found["rankcurve_writes_in_flight_limit", ()] == 3
    assert found["rankcurve_write_refused_posts_total", (("reason", "overloaded"),)] == 40
    assert found["rankcurve_write_refused_posts_total", (("reason", "expired"),)] == 0


def test_reads_are_counted_by_route_and_method() -> None:
    metrics = Metrics()
    metrics.count_ranks_read("positions", "curve", 2)
    metrics.count_ranks_read("positions", "curve")
    assert samples(metrics)["rankcurve_reads_total", (("method", "curve"), ("route", "positions"))] == 3


def test_requests_are_counted_by_route_and_status_with_their_times() -> None:
    metrics = Metrics()
    answered = metrics.make_request_timer("page")
    answered(200, 0.0002)
    answered(200, 0.003)
    answered(404, 9.0)
    found = samples(metrics)
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "2xx"))] == 2
    assert found["rankcurve_requests_total", (("route", "page"), ("status", "4xx"))] == 1
    assert found["rankcurve_request_seconds_count", (("route", "page"),)] == 3
    assert found["rankcurve_request_seconds_bucket", (("le", "0.001"), ("route", "page"))] == 1
    assert found["rankcurve_request_seconds_bucket", (("le", "2.5"), ("route", "page"))] == 2


def test_the_metrics_show_curves_of_all_boards_without_naming_a_board() -> None:
    metrics = Metrics()
    metrics.watch_curves(
        lambda: [ServingCurve(90_000_000, 1000, live=True), ServingCurve(40_000_000, 2)], now_s=lambda: 100.0
    )
    found = samples(metrics)
    assert found["rankcurve_curve_age_seconds_max", ()] == 60
    assert found["rankcurve_curve_age_seconds_bucket", (("le", "10.0"),)] == 1
    assert found["rankcurve_curve_knots_count", ()] == 2
    assert found["rankcurve_curve_knots_sum", ()] == 1002
    assert (found["rankcurve_curves_live", ()], found["rankcurve_live_lag_seconds_max", ()]) == (1, 10)


def test_refreshes_failures_and_lost_log_lines_are_counted() -> None:
    metrics = Metrics()
    metrics.refreshed(0.05)
    metrics.refresh_failed()
    metrics.curve_corrupt()
    metrics.folds.folded(changes=7, void=2, seconds=0.1)
    metrics.folds.log_age(12)
    metrics.log_lines_dropped(1)
    found = samples(metrics)
    assert found["rankcurve_refresh_seconds_count", ()] == 1
    assert found["rankcurve_fold_seconds_count", ()] == 1
    assert found["rankcurve_change_log_age_seconds", ()] == 12
    assert (found["rankcurve_changes_folded_total", ()], found["rankcurve_live_counts_void_total", ()]) == (7, 2)
    assert found["rankcurve_refresh_failures_total", ()] == 1
    assert found["rankcurve_curves_corrupt_total", ()] == 1
    assert found["rankcurve_log_lines_dropped_total", ()] == 1


def test_two_metrics_objects_in_one_process_share_no_figures() -> None:
    first, second = Metrics(), Metrics()
    first.race_lost()
    assert samples(second)["rankcurve_write_conflicts_total", ()] == 0
