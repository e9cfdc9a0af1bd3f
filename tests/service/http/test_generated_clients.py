"""Test that others can generate clients from the OpenAPI document, without a warning, and that the clients compile."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed_clients import javascript_modules, node, python_generator_modules
from tests.service.openapi_checks import DOCUMENT

TIMEOUT_S = 120
OPERATIONS = sorted(each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values())
# A generator for requests and answers in one piece reads NDJSON and streams as bytes.
PYTHON_OPTIONS = {
    "content_type_overrides": {"application/x-ndjson": "application/octet-stream", "text/event-stream": "text/plain"}
}


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    return path


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_typescript_types_are_generated_without_a_warning_and_compile(document: Path, tmp_path: Path) -> None:
    modules, types = javascript_modules(), tmp_path / "api.ts"
    printed = run(node(), modules / "openapi-typescript/bin/cli.js", document, "--output", types, cwd=tmp_path)
    assert "warn" not in printed.lower()
    run(node(), modules / "typescript/bin/tsc", "--strict", "--noEmit", "--target", "es2022", types, cwd=tmp_path)
    text = types.read_text(encoding="utf-8")
    assert [each for each in OPERATIONS if f"    {each}: {{" not in text] == []


def test_a_python_client_is_generated_without_a_warning_and_compiles(document: Path, tmp_path: Path) -> None:
    options, client = tmp_path / "options.json", tmp_path / "client"
    options.write_text(json.dumps(PYTHON_OPTIONS), encoding="utf-8")
    modules = python_generator_modules()
    run(
        sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--config", options,
        "--output-path", client, "--fail-on-warning", "--meta", "none", cwd=tmp_path,
        PYTHONPATH=str(modules), PATH=f"{modules / 'bin'}:{os.environ['PATH']}",
    )  # fmt: skip
    sources = list(client.rglob("*.py"))
    for path in sources:
        compile(path.read_text(encoding="utf-8"), path, "exec")
    generated = {path.stem.replace("_", "") for path in sources}
    assert [each for each in OPERATIONS if each.replace("_", "") not in generated] == []
    run(sys.executable, "-c", "import client", cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{modules}")
