"""Test that the deployment files pass their tools' checks, and that the operating guide agrees with the code.

The tests do not repeat the contents of the files. They check rules for the contents.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from config import Settings, load
from service.cli import app
from service.processes.supervisor import stop_s_max
from service.telemetry.metrics.process import Metrics
from tests.servers import program

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
GUIDE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
EXPOSURE_TENTHS_MAX = 15  # systemd's exposure score in tenths, 0 to 100; a unit without hardening has 92 to 96
OTHERS_SETTINGS = {
    "archive_command", "archive_mode", "max_connections", "max_locks_per_transaction", "pg_basebackup", "pg_dump",
    "pg_restore", "pg_stat_activity", "pg_upgrade", "synchronous_commit",
}  # fmt: skip


def sections(text: str, start: str, heading: str) -> dict[str, str]:
    chapter = re.split(r"^## ", text.partition(f"\n## {start}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    parts = re.split(rf"^{heading} (.+)$", chapter, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Write the systemd units as an operator installs them. An existing program replaces `rankcurve`."""
    for path in (*UNITS, *DEPLOY.glob("*.timer")):
        text = path.read_text(encoding="utf-8").replace("/opt/rankcurve/bin/rankcurve", str(shutil.which("true")))
        (tmp_path / path.name).write_text(text)
    return tmp_path


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(program("systemd-analyze", "systemd")), *map(str, words)]
    quiet = {**os.environ, "SYSTEMD_PAGER": "", "SYSTEMD_LOG_LEVEL": "info"}
    return subprocess.run(command, capture_output=True, text=True, env=quiet, timeout=60)


def test_systemd_accepts_every_unit_without_a_complaint(units: Path) -> None:
    for path in sorted(units.iterdir()):
        verified = analyze("verify", path)
        assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", ""), path.name


def test_every_unit_is_hardened(units: Path) -> None:
    for path in sorted(units.glob("*.service")):
        rated = analyze("security", "--offline=true", f"--threshold={EXPOSURE_TENTHS_MAX}", "--no-pager", path)
        assert rated.returncode == 0, rated.stdout
        text = path.read_text()
        for line in ("User=rankcurve", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="):
            assert f"\n{line}\n" in text, f"{path.name}: {line}"


def test_the_nightly_backup_recovers_from_failures_and_keeps_the_last_backups(tmp_path: Path) -> None:
    unit = (DEPLOY / "rankcurve-backup.service").read_text(encoding="utf-8")
    names = [f"rankcurve-2026-11-{day:02}T033000.db" for day in range(1, 21)]
    for name in (*names, "now.db", f"{names[-1]}.partial", f"{names[-1]}.partial-journal"):
        (tmp_path / name).touch()

    def back_up(command: str) -> None:
        (tmp_path / "command").write_text(f"#!/bin/sh\n{command}")
        (tmp_path / "command").chmod(0o755)
        for line in re.findall(r"^ExecStart(?:Pre|Post)?=(.+)$", unit, re.MULTILINE):
            line = line.replace("%%", "%").replace("/var/backups/rankcurve", str(tmp_path))
            words = shlex.split(line.replace("/opt/rankcurve/bin/rankcurve", str(tmp_path / "command")))
            if subprocess.run(words, check=False).returncode:
                return

    for _ in range(3):
        back_up('touch "$4.partial"; exit 1')
    back_up('touch "$4"')
    found = {path.name for path in tmp_path.iterdir()} - {"command"}
    [new] = found - {*names, "now.db"}
    assert found == {*names[-13:], "now.db", new}
    assert re.fullmatch(r"rankcurve-20[\dT-]+\.db", new)


def test_systemd_and_compose_wait_as_long_as_the_service_may_take_to_stop() -> None:
    longest_s = stop_s_max(load({}, {}))
    for name in ("rankcurve.service", "rankcurve-jobs.service"):
        [stop_s] = re.findall(r"^TimeoutStopSec=(\d+)$", (DEPLOY / name).read_text(), re.MULTILINE)
        assert int(stop_s) >= longest_s + 10
    graces = re.findall(r"stop_grace_period: (\d+)s", (DEPLOY / "compose.yml").read_text())
    assert all(int(grace_s) >= longest_s + 10 for grace_s in graces)
    assert len(graces) >= 2


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.toml")), ids=lambda path: path.name)
def test_every_setting_of_the_example_files_exists(path: Path) -> None:
    settings = load({}, {}, path)
    assert settings.store != Settings().store
    if settings.host != "127.0.0.1":
        assert "keys create" in path.read_text()


def compose(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(program("docker-compose", "docker-compose")), "-f", str(DEPLOY / "compose.yml"), "config"]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_the_compose_file_hardens_every_process_and_opens_only_the_port_of_the_api() -> None:
    done = compose({**os.environ, "POSTGRES_PASSWORD": "secret"})
    assert done.returncode == 0, done.stderr
    # Its versions print ports, numbers and lists in different forms.
    services = yaml.load(done.stdout, yaml.BaseLoader)["services"]
    assert services.keys() == {"api", "jobs", "postgres", "memcached"}
    for name in ("api", "jobs"):
        service = services[name]
        assert (service["read_only"], service["cap_drop"], service["user"]) == ("true", ["ALL"], "10001:10001"), name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
        assert service["restart"] == "unless-stopped"
        settings = load({}, service["environment"])
        assert settings.jobs == "none"
        assert settings.memcached_servers
        assert "secret" in settings.store
        port = settings.jobs_port if name == "jobs" else settings.port
        assert f"127.0.0.1:{port}/readyz" in " ".join(service["healthcheck"]["test"])
    assert re.search("127.0.0.1.+8080.+8080", str(services["api"]["ports"]))
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
    assert "pg_isready" in " ".join(services["postgres"]["healthcheck"]["test"])


def test_the_compose_file_refuses_to_start_without_a_password() -> None:
    done = compose({name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"})
    assert done.returncode != 0
    assert "POSTGRES_PASSWORD" in done.stderr


def _locked(path: Path) -> dict[str, set[str]]:
    """Return the hashes in a lock file, by package and version."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pinned = [line for line in lines if re.match(r"[a-z0-9]", line)]
    return {line.split()[0]: set(re.findall(r"sha256:\w+", line)) for line in pinned}


def test_the_image_installs_the_tested_packages_without_development_tools() -> None:
    image, whole = _locked(DEPLOY / "requirements.lock"), _locked(ROOT / "requirements.lock")
    assert [package for package, hashes in image.items() if not hashes or whole.get(package) != hashes] == []
    names = {package.partition("==")[0] for package in image}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {re.split(r"[><=;\[ ]", one)[0] for one in project["project"]["dependencies"]}
    assert wanted - names == {"rankcurve-client"}, "which this tree builds"
    tools = {re.split(r"[><=;\[ ]", one)[0] for one in project["dependency-groups"]["dev"]}
    assert tools & names == {"hatchling"}


def test_unit_and_image_create_no_store_and_the_guide_says_which_command_does() -> None:
    unit = (DEPLOY / "rankcurve.service").read_text(encoding="utf-8")
    assert "\nEnvironment=RANKCURVE_CREATE_STORE=false\n" in unit
    image = (DEPLOY / "Containerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    assert re.search(r"^ENV .*\bRANKCURVE_CREATE_STORE=false\b", image, re.MULTILINE)
    assert not load({}, {"RANKCURVE_CREATE_STORE": "false"}).create_store
    first_keys = re.findall(r"^.*keys create operator.*$", GUIDE, re.MULTILINE)
    assert len(first_keys) == 2
    assert all("RANKCURVE_CREATE_STORE=true" in line for line in first_keys if line.startswith("docker"))


def test_the_image_copies_existing_files_and_runs_as_an_ordinary_user() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert "--require-hashes" in text
    copied = [word for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert set(PACKAGES) <= set(copied)
    kept = re.findall(r"^!/(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(kept) == sorted(copied)
    last = text.rpartition("\nFROM ")[2]
    user, entry = re.search(r"^USER (\w+)$", last, re.MULTILINE), last.index("ENTRYPOINT")
    assert user is not None
    assert user[1] not in ("root", "0")
    assert user.start() < entry
    [check] = re.findall(r"HEALTHCHECK .*\\\n\s+CMD (\[.+\])", last)
    compile(json.loads(check)[-1], "healthcheck", "exec")


def _commands(text: str) -> list[list[str]]:
    """Return the arguments of every `rankcurve` command in a text. Leave out commands without arguments."""
    shown = re.findall(r"`((?:\S* )*rankcurve [^`\n]+)`", text)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown += [line for block in blocks for line in block.splitlines()]
    shown += re.findall(r"ExecStart=(.+)", text)
    found = []
    for line in shown:
        for tail in re.findall(r"rankcurve ((?!rankcurve)[a-z][a-z-]+ [^`]+)", line):
            words = shlex.split(re.split(r" && | \| ", tail)[0].rstrip("'"), comments=True)
            if "…" not in tail and words[0] in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
                found.append(words)
    return found


@pytest.mark.parametrize(
    "path", [ROOT / "docs" / "operating.md", *UNITS, DEPLOY / "compose.yml"], ids=lambda path: path.name
)
def test_rankcurve_accepts_every_command_that_a_page_shows(path: Path) -> None:
    commands = _commands(path.read_text(encoding="utf-8"))
    assert commands or path.name == "compose.yml"
    for words in commands:
        command, name = typer.main.get_command(app), "rankcurve"
        rest = list(words)
        while hasattr(command, "commands"):
            name = rest.pop(0)
            assert name in command.commands, words
            command = command.commands[name]
        command.make_context(name, rest)


def test_every_setting_event_and_metric_that_the_guide_names_exists() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    words, shown = set(re.findall(r"\w+", sources)), Metrics().text().decode()
    named = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", GUIDE)) - OTHERS_SETTINGS
    unknown = [name for name in sorted(named) if name not in words and f"# TYPE {name} " not in shown]
    assert unknown == []
    assert set(re.findall(r"\bRANKCURVE_([A-Z_]+)=", GUIDE)) <= {name.upper() for name in Settings.model_fields}


def test_every_alert_has_a_section_and_every_section_has_an_alert() -> None:
    rules = (ROOT / "docs" / "alerts.yml").read_text(encoding="utf-8")
    alerts = dict(re.findall(r"- alert: (\w+).*?severity: (\w+)", rules, re.DOTALL))
    told = sections(GUIDE, "Alerts", "###")
    assert list(told) == list(alerts)
    for name, text in told.items():
        assert text.strip().startswith(f"`{alerts[name]}`."), name
        words = [word.capitalize() for word in re.findall(r"\*\*(\w+):?\*\*", text)]
        assert words == ["Means", "Look", "Do", "Noise"], name
