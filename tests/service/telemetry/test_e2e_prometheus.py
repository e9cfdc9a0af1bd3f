"""Let a real Prometheus scrape a real node.

Test metric names, series, alert rules, and every panel of the dashboard.
"""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from tests.memcached import OpenMemcached
from tests.servers import READY_S, LocalServer, ended, program
from tests.service.real_service import Caller, Spawn

PACKAGE = "prometheus"
_CONFIG = """
global:
  scrape_interval: 250ms
  scrape_timeout: 250ms
  evaluation_interval: 250ms
rule_files: [{rules}]
scrape_configs:
  - job_name: rankcurve
    static_configs:
      - targets: ["{target}"]
"""


def promtool(*words: str, standard_input: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(program("promtool", PACKAGE)), *words]
    return subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=READY_S)


class Prometheus(LocalServer):
    """A Prometheus that scrapes one target; inside its `with` block it is ready."""

    name = "prometheus"
    package = PACKAGE

    def __init__(self, target: str, *, rules: Path) -> None:
        super().__init__()
        self._config = self._folder.path / "prometheus.yml"
        self._config.write_text(_CONFIG.format(rules=json.dumps(str(rules)), target=target))

    def arguments(self) -> list[str]:
        data = f"--storage.tsdb.path={self._folder.path / 'data'}"
        return [f"--config.file={self._config}", data, f"--web.listen-address={self.address}", "--log.level=warn"]

    def start(self) -> None:
        super().start()
        self.wait(lambda: self.value("up") == 1.0)

    def wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_S
        while not condition():
            assert not ended(self._process), f"Prometheus ended: {self.log[-2000:]}"
            assert time.monotonic() < until, f"the condition never held: {self.log[-2000:]}"

    def ask(self, path: str, **query: str) -> Any:
        """Send a GET to the API of Prometheus; return the data of the answer. Fail if Prometheus reports an error."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=READY_S) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression. Raises urllib's HTTPError if the expression is not valid."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        """Return the value of the first series of an expression, or None."""
        try:
            found = self.query(expression)
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None


DOCS = Path(__file__).parents[3] / "docs"
ALERTS = DOCS / "alerts.yml"
NAME = re.compile(r"\b(?:rankcurve|process)_[a-z_]+")
ROOM = "rankcurve_store_disk_free_bytes"  # only a service on a SQLite store exposes this metric
XP = {"name": "xp", "merge": "sum"}


def expressions() -> list[str]:
    """Return every expression of the Grafana dashboard, with the variables replaced by values."""
    panels = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in found]


async def scrape_metrics(url: str) -> str:
    async with ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return await answer.text()


async def use_service(url: str) -> None:
    async with Caller(url) as caller:
        await caller.board("b", XP)
        for number in range(20):
            await caller.post_xp("b", **{f"p{number}": number})
        await caller.refresh("b", "xp")
        await caller.must("POST", "/v1/leaderboards/b/rankings/xp/audit")
        await caller.get("/v1/leaderboards/b/entries/p1/positions")
        await caller.get("/v1/leaderboards/b/rankings/xp")


async def test_every_rule_and_panel_has_data_once_prometheus_has_scraped_a_node(
    store_url: str, cache: OpenMemcached, spawn: Spawn
) -> None:
    node = spawn("--store", store_url, "--workers", "2", "--set", f"memcached_servers={cache.address}").ready()
    await use_service(node.url)
    checked = promtool("check", "metrics", standard_input=await scrape_metrics(node.url))
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    with Prometheus(f"127.0.0.1:{node.port}", rules=ALERTS) as prometheus:
        prometheus.wait(lambda: (prometheus.value('sum(rankcurve_posts_total{outcome="applied"})') or 0) >= 20)
        before = prometheus.value("sum(rankcurve_requests_total)") or 0
        # Let a counter grow between two scrapes, so that Prometheus can compute rates.
        async with Caller(node.url) as caller:
            await caller.post_xp("b", p1=1)
        prometheus.wait(lambda: (prometheus.value("sum(rankcurve_requests_total)") or 0) > before)
        groups = prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == len(re.findall("- alert:", ALERTS.read_text(encoding="utf-8")))
        prometheus.wait(lambda: are_rules_evaluated(prometheus))
        names = {name for rule in rules for name in NAME.findall(rule["query"])}
        panels = expressions()
        names |= {name for expression in panels for name in NAME.findall(expression)}
        # No process of this node has ended, and the store of the node is not a SQLite file.
        absent = {"rankcurve_process_ends_total", ROOM}
        assert {name for name in names - absent if not prometheus.query(f"count({name})")} == set()
        firing = [(rule["name"], found) for rule in rules if (found := prometheus.query(rule["query"]))]
        assert firing == []
        assert [each for each in panels if ROOM not in each and not prometheus.query(each)] == []


def are_rules_evaluated(prometheus: Prometheus) -> bool:
    """Return whether Prometheus has evaluated every rule. Fail if a rule has an error."""
    rules: list[dict[str, Any]] = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert not any(rule["health"] == "err" for rule in rules), rules
    return all(rule["health"] == "ok" for rule in rules)


def test_each_alert_fires_on_its_condition() -> None:
    assert promtool("check", "rules", str(ALERTS)).returncode == 0
    names = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
    tested = Path(__file__).with_name("alerts_test.yml")
    assert re.findall(r"^    name: (\w+)", tested.read_text(encoding="utf-8"), re.MULTILINE) == names
    fired = promtool("test", "rules", str(tested))
    assert fired.returncode == 0, fired.stdout + fired.stderr
