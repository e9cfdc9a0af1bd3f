"""A real Prometheus for tests: it scrapes a service, and answers queries about it."""

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers import HOST, READY_S, Folder, ended, free_port, program

PACKAGE = "prometheus"
_CONFIG = """
global:
  scrape_interval: 250ms
  scrape_timeout: 250ms
  evaluation_interval: 250ms
rule_files: [{rules}]
scrape_configs:
  - job_name: rankcurve
    authorization:
      credentials: "{key}"
    static_configs:
      - targets: ["{target}"]
"""


def promtool(*words: str, standard_input: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(program("promtool", PACKAGE)), *words]
    return subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=READY_S)


class Prometheus:
    """A Prometheus that scrapes one target; inside its `with` block it is ready."""

    def __init__(self, target: str, *, rules: Path, key: str = "") -> None:
        self._program = program("prometheus", PACKAGE)
        self._folder = Folder("rankcurve-prometheus-", "pid", user=None, last_signal="KILL")
        self._port = free_port()
        config = self._folder.path / "prometheus.yml"
        config.write_text(_CONFIG.format(rules=json.dumps(str(rules)), target=target, key=key))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        folder = self._folder.path
        self._process = subprocess.Popen(
            [str(self._program), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address={HOST}:{self._port}", "--log.level=warn"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
            start_new_session=True, env={**os.environ, "GOMAXPROCS": "1"},
        )  # fmt: skip
        (folder / "pid").write_text(f"{self._process.pid}\n")
        self.wait(lambda: self.value("up") == 1.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._folder.remove()

    def wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_S
        while not condition():
            log = (self._folder.path / "log").read_text(errors="replace")[-2000:]
            assert not ended(self._process), f"Prometheus ended: {log}"
            assert time.monotonic() < until, f"the condition never held: {log}"

    def ask(self, path: str, **query: str) -> Any:
        """Send a GET to the API of Prometheus; return the data of the answer. Fail if Prometheus reports an error."""
        url = f"http://{HOST}:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
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
