"""Test that the verdict on a node agrees with the alert rules for Prometheus, and that it shows what the node sees."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from service.monitoring.managed import verdict
from service.monitoring.managed.verdict import RULES, UNSEEN, Rule, find_alerts
from tests.service.real_service import ROOT, Caller, Service

ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}


@dataclass
class Recorded:
    """Stands in for `Figures`: every figure has the same number. It records the metrics that were read."""

    number: float
    read: set[str] = field(default_factory=set)

    def highest(self, sample: str) -> float:
        self.read.add(sample)
        return self.number

    total = view = highest

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
    assert {rule.alert for rule in RULES} | UNSEEN == ALERTS.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_a_rule_has_the_severity_the_threshold_and_the_metrics_of_its_alert(rule: Rule) -> None:
    alert = ALERTS[rule.alert]
    assert alert["labels"]["severity"] == rule.severity
    limits = [float(text) for text in re.findall(r"[<>=]+ ([\d.e]+)", alert["expr"])]
    assert rule.threshold in limits
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


async def read_object(caller: Caller, name: str) -> Any:
    return (await caller.get(f"/jolokia/read/rankcurve:type={name}"))["value"]


async def test_a_paused_job_is_an_alert_until_it_is_resumed(service: Service) -> None:
    await service.restart(managed_operations=("Job.pause", "Job.resume"))
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
