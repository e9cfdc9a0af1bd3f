"""Run what pages show, as somebody does who has the command on the path."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app as cli_app
from tests.servers import free_port

STEP_S_MAX = 300  # some programs of pages send ten thousands of posts
# A line that needs no shell: it has no pipe, no redirection and no pattern, and a variable at most.
PLAIN = re.compile(r"rankcurve [^|<>;&`()\\*?~{}]+")


def shell_environment() -> dict[str, str]:
    """Return the environment of a shell that has the command on the path, and a free port for a service."""
    bin_folder = Path(sys.executable).parent
    assert (bin_folder / "rankcurve").exists(), "make install"
    port = str(free_port())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKCURVE_")}
    return kept | {
        "PATH": f"{bin_folder}:{kept['PATH']}",
        "RANKCURVE_PORT": port,
        "RANKCURVE_URL": f"http://127.0.0.1:{port}",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }


def run_shell(text: str, folder: Path, environment: dict[str, str]) -> str:
    """Run lines of a shell that must succeed, in a folder. Return what they print."""
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=STEP_S_MAX)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_block(text: str, folder: Path, environment: dict[str, str]) -> str:
    """Do as `run_shell`, but run plain lines of `rankcurve` in this process: a start takes a second of a processor."""
    lines = text.replace("\\\n", " ").strip().splitlines()
    if not all(map(PLAIN.fullmatch, lines)):
        return run_shell(text, folder, environment)
    return "".join(_run_plain(line, folder, environment) for line in lines)


def _run_plain(line: str, folder: Path, environment: dict[str, str]) -> str:
    words = shlex.split(re.sub(r"\$(\w+)", lambda name: environment[name[1]], line), comments=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(cli_app, words[1:], env={**environment, "RANKCURVE_TEST_STORE": None})
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.stdout
