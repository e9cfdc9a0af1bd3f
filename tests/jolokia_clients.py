"""Jolokia's own clients, installed once below `build/`: jolokia.js by npm and pyjolokia by pip, pinned with hashes.

The rule: a test that needs a client that can't be had fails; it is never left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import INSTALL_S, alone, program

CLIENTS = Path(__file__).parent / "clients"
_BUILD = Path(__file__).parents[1] / "build" / "clients"


def node() -> Path:
    """The interpreter of JavaScript."""
    return program("node", "nodejs")


def javascript_modules() -> Path:
    """The folder that npm's packages are in: jolokia.js, and what judges pages."""
    npm = program("npm", "npm")
    wanted = (CLIENTS / "package-lock.json").read_bytes()
    stamp = _BUILD / "npm" / ".installed"
    with alone():
        if not stamp.exists() or stamp.read_bytes() != wanted:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(CLIENTS / name, stamp.parent / name)
            _run([str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], stamp.parent, {})
            stamp.write_bytes(wanted)
    return stamp.parent / "node_modules"


def python_modules() -> Path:
    """The folder that pyjolokia is in. It came in 2014, as sources that only setuptools before 58 builds."""
    wanted = CLIENTS / "pyjolokia.txt"
    stamp = _BUILD / "pip" / ".installed"
    with alone():
        if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
            shutil.rmtree(stamp.parent, ignore_errors=True)
            build = str(CLIENTS / "pyjolokia_build.txt")
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
            _run(
                [*pip, "--require-hashes", "--target", str(stamp.parent), "-r", str(wanted)],
                CLIENTS,
                {"PIP_CONSTRAINT": build, "PIP_BUILD_CONSTRAINT": build},
            )
            stamp.write_bytes(wanted.read_bytes())
    return stamp.parent


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=INSTALL_S
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
