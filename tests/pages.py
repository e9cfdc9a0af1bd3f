"""Run what pages show in a shell, as somebody does who has the command on the path."""

import os
import subprocess
import sys
from pathlib import Path

from tests.servers import free_port

STEP_S_MAX = 60


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
