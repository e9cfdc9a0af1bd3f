"""Test the demo. The same seed gives the same season, each season is posted only once, and the port is a free one."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import season_demo
from examples.season_demo import BOARD, SPEC, require_free_port, set_up
from tests.service.cli_fake_service import FakeService, running_fake


@pytest.fixture
def fake() -> Iterator[FakeService]:
    with running_fake() as service:
        yield service


@pytest.fixture
def alive() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in place of the service. The process runs until its standard input is closed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.communicate()


@pytest.fixture
def dead() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    process.wait()
    return process


def test_a_second_run_of_the_demo_keeps_the_existing_season(
    fake: FakeService, alive: subprocess.Popen[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(fake.url, 1200, alive, tmp_path / "log")
    assert fake.boards[BOARD].spec == SPEC
    assert len(fake.boards[BOARD].stats) == 1200
    assert "1,200 players: 1,200 applied" in capsys.readouterr().out
    fake.batches = []
    set_up(fake.url, 1200, alive, tmp_path / "log")
    assert not fake.batches
    printed = capsys.readouterr().out
    assert "already has 1,200 players" in printed
    assert all(f"curve of {column}:" in printed for column in ("xp", "best_lap", "kills", "wins"))


def test_an_interrupted_demo_continues_without_counting_a_post_twice(
    fake: FakeService, alive: subprocess.Popen[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(fake.url, 1000, alive, tmp_path / "log")
    set_up(fake.url, 2000, alive, tmp_path / "log")
    assert "2,000 players: 1,000 applied, 1,000 duplicate" in capsys.readouterr().out
    assert len(fake.boards[BOARD].stats) == 2000


def test_the_demo_reports_a_dead_service_with_its_last_line(
    dead: subprocess.Popen[bytes], unused_tcp_port: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("starting\nerror: another process owns this store\n\n")
    with pytest.raises(SystemExit, match="exited with code 3: error: another process owns this store"):
        set_up(f"http://127.0.0.1:{unused_tcp_port}", 10, dead, log)


@pytest.mark.parametrize(
    ("variable", "arguments", "port"), [("9321", [], 9321), ("9321", ["--port", "9322"], 9322), ("", [], 8080)]
)
def test_the_demo_serves_on_the_port_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, arguments: list[str], port: int
) -> None:
    asked: list[int] = []

    def refuse(port: int) -> None:
        asked.append(port)
        sys.exit("taken")

    monkeypatch.setenv("RANKCURVE_PORT", variable)
    monkeypatch.setattr(season_demo, "require_free_port", refuse)
    with pytest.raises(SystemExit, match="taken"):
        season_demo.main(["--once", *arguments])
    assert asked == [port]


def test_the_demo_reports_a_taken_port_before_it_starts_anything() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port} is taken"):
            require_free_port(port)
    require_free_port(port)
