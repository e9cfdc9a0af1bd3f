"""Test that `rankcurve serve` prints its URL only if its output is a terminal."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.telemetry.terminal import show_urls, url_of
from tests.service.real_service import WAIT_S, Spawn, environment


def read_until(terminal: int, pattern: bytes) -> bytes:
    """Read from a terminal until the text matches `pattern`. Return the text. Fail if the process ends first."""
    shown = b""
    while not re.search(pattern, shown):
        readable, _, _ = select.select([terminal], [], [], WAIT_S)
        assert readable, f"nothing came after {shown!r}"
        shown += os.read(terminal, 4_096)
    return shown


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_service_on_a_terminal_prints_its_url(tmp_path: Path, stream: str) -> None:
    terminal, inner = os.openpty()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/a.db"]
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command += ["--set", "log_level=error"]
    process = subprocess.Popen(command, env=environment(), cwd=tmp_path, **{**nowhere, stream: inner})  # type: ignore[call-overload]  # mypy does not see which streams these are
    os.close(inner)
    try:
        shown = read_until(terminal, rb"\(Ctrl-C ends it\)\r\n")
        assert re.fullmatch(rb"rankcurve serves http://127\.0\.0\.1:[1-9][0-9]* \(Ctrl-C ends it\)\r\n", shown)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        os.close(terminal)


def test_a_service_without_a_terminal_prints_no_url(spawn: Spawn) -> None:
    process = spawn().ready()
    assert process.end() == 0
    assert not [line for line in process.lines if "Ctrl-C" in line["event"]]


def test_every_address_prints_as_a_url(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [url_of("127.0.0.1:80"), url_of("::1:8080")] == ["http://127.0.0.1:80", "http://[::1]:8080"]
    show_urls(["127.0.0.1:80"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_urls(["127.0.0.1:80", "::1:80"])
    assert capsys.readouterr().out == "rankcurve serves http://127.0.0.1:80, http://[::1]:80 (Ctrl-C ends it)\n"
