"""Test that the verdict on a node agrees with the alert rules for Prometheus, and that it shows what the node sees."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from service.http.endpoint import count_answer
from service.monitoring.managed import verdict
from service.monitoring.managed.history import MetricHistory
from service.monitoring.managed.verdict import RULES, Figures, Rule, find_alerts
from service.telemetry.metrics.process import Metrics
from tests.service.real_service import ROOT, Caller, Service

ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}

# Other numbers of an alert: the lag in the measure of the first, and a forecast that a node does not make.
OTHER_LIMITS = {"RankcurveCurvesOld": [60], "RankcurveDiskFull": [0]}


@dataclass
class Recorded:
    """Stands in for `Figures`: every figure has the same number. It records the metrics that were read."""

    number: float
    read: set[str] = field(default_factory=set)

    def highest(self, sample: str) -> float:
        self.read.add(sample)
        return self.number

    total = highest

    def lowest(self, gauge: str, absent: float) -> float:
        return self.highest(gauge)

    def highest_growth(self, sample: str, window_s: float) -> float:
        return self.highest(sample)

    def growth(self, sample: str, window_s: float, **wanted: str) -> float:
        self.read.add(sample)
        return self.number if wanted else self.number / 2  # more than the whole, so that every share is high

    def slowest(self, sample: str, share: float, window_s: float) -> float:
        return self.highest(f"{sample}_bucket")

    def is_partition_away(self) -> bool:
        return self.highest("rankcurve_partition_reachable") > 0

    def longest_rest_s(self) -> float:
        return self.highest("rankcurve_job_last_round_timestamp_seconds")


def test_every_alert_that_a_node_can_see_is_part_of_its_verdict() -> None:
    # A node that does not answer cannot judge itself.
    assert {rule.alert for rule in RULES} | {"RankcurveDown"} == ALERTS.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_a_rule_has_the_severity_the_threshold_and_the_metrics_of_its_alert(rule: Rule) -> None:
    alert = ALERTS[rule.alert]
    assert alert["labels"]["severity"] == rule.severity
    limits = [float(text) for text in re.findall(r"[<>=]+ ([\d.e]+)", alert["expr"])]
    assert [rule.threshold, *OTHER_LIMITS.get(rule.alert, [])] == limits
    recorded = Recorded(1e12)
    rule.measure(recorded)  # type: ignore[arg-type]
    assert recorded.read == set(re.findall(r"rankcurve_\w+", alert["expr"]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_a_rule_holds_past_its_threshold_only(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "RULES", (rule,))
    good, bad = (1e12, 1.0) if rule.below else (0.0, 1e12)
    assert find_alerts(Recorded(good)) == []  # type: ignore[arg-type]
    [found] = find_alerts(Recorded(bad))  # type: ignore[arg-type]
    assert (found["Alert"], found["Severity"]) == (rule.alert, rule.severity)


NODE = SimpleNamespace(rates_tick_s=5)


def judge(metrics: Metrics, then: Callable[[], None] = lambda: None) -> list[str]:
    """Return the alerts that hold a minute after the first snapshot. `then` happens in between."""
    clock = [0.0]
    history = MetricHistory(metrics, NODE, monotonic=lambda: clock[0])  # type: ignore[arg-type]
    history.note_snapshot()
    clock[0] = 60.0
    then()
    return [alert["Alert"] for alert in find_alerts(Figures(history.read_moment()))]


@pytest.mark.parametrize(("failures", "alerts"), [((1, 1, 1, 1), []), ((4, 0, 0, 0), ["RankcurveJobFails"])])
def test_failures_of_several_jobs_are_not_added_up(failures: tuple[int, ...], alerts: list[str]) -> None:
    metrics = Metrics()

    def fail() -> None:
        for job, times in zip(("audit", "close", "fold", "prune"), failures, strict=True):
            for _ in range(times):
                metrics.meter.add("rankcurve_job_failures", 1, job)

    assert judge(metrics, fail) == alerts


@pytest.mark.parametrize(("route", "alerts"), [("posting", []), ("post", ["RankcurveSlow"])])
def test_slow_batches_are_no_alert_and_slow_posts_are(route: str, alerts: list[str]) -> None:
    metrics = Metrics()
    assert judge(metrics, lambda: count_answer(metrics.meter, route, 200, 2.0)) == alerts


async def read_object(caller: Caller, name: str) -> Any:
    return (await caller.get(f"/jolokia/read/rankcurve:type={name}"))["value"]


async def test_a_paused_job_is_an_alert_until_it_is_resumed(service: Service) -> None:
    assert (await read_object(service, "Verdict"))["Alerts"] == []
    await service.get("/jolokia/exec/rankcurve:type=Job,name=audit/pause")
    [alert] = (await read_object(service, "Verdict"))["Alerts"]
    assert (alert["Alert"], alert["Severity"]) == ("RankcurveJobPaused", "ticket")
    await service.get("/jolokia/exec/rankcurve:type=Job,name=audit/resume")
    assert (await read_object(service, "Verdict"))["Alerts"] == []


async def test_the_figures_of_the_last_minutes_are_there_for_who_asks_later(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "max"})
    before = (await read_object(service, "Recent"))["Posts"][-1][1]
    await service.post("b", *({"owner": f"p{number}", "stats": {"xp": 1}} for number in range(7)))
    recent = await read_object(service, "Recent")
    assert recent["Posts"][-1] == [0, before + 7]
    ages = [age for age, _ in recent["Requests"]]
    assert ages == sorted(ages, reverse=True)
    assert recent["Requests"][-1][1] > recent["Failures"][-1][1] == 0
