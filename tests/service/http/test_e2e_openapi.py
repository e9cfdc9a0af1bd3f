"""Schemathesis compares a running service with its OpenAPI document: the service does what the document promises.

All checks are on. `schemathesis.toml` and `openapi_rules` hold the few exceptions, each with its reason.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.service.openapi_checks import DOCUMENT
from tests.service.openapi_store import fill
from tests.service.real_service import ROOT, Caller, Process, Spawn, environment, make_key

CONFIG = ROOT / "tests/service/schemathesis.toml"
RUN_S_MAX = 600  # the longest time for a run, which usually takes about 15 s of one core
# Schemathesis reads the bounds from the document, and sends requests at each bound and beyond it. Small bounds keep
# these requests short.
BOUNDS = ("--set", "posts_per_request_max=20", "--set", "lookup_owners_max=50", "--set", "query_values_max=50")


def schemathesis(service: Process, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", *options]
    return subprocess.run(
        [*command, f"{service.url}/openapi.json"],
        cwd=service.folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=RUN_S_MAX,
    )  # fmt: skip


def check_clean(done: subprocess.CompletedProcess[str]) -> None:
    """Fail unless every operation of the document was tested and did what the document says."""
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    operations = sum(len(methods) for methods in DOCUMENT["paths"].values())
    # Schemathesis tests every operation except the one that returns the document.
    assert f"Tested: {operations - 1}" in done.stdout


async def test_a_service_with_keys_does_what_its_document_says(spawn: Spawn, tmp_path: Path) -> None:
    key = make_key(tmp_path, "ops")
    service = spawn(*BOUNDS).ready()
    async with Caller(service.url, key) as caller:
        await fill(caller)
    check_clean(schemathesis(service, "--header", f"Authorization: Bearer {key}"))


async def test_a_service_without_keys_does_what_its_document_says(spawn: Spawn) -> None:
    service = spawn(*BOUNDS).ready()
    async with Caller(service.url) as caller:
        await fill(caller)
    # Without keys, every caller has the role ops, as the contract says, so the check `ignored_auth` makes no sense.
    # Requests at the bounds of parameters and sequences of requests take most of the time of a run. Only the run with a
    # key sends them.
    check_clean(schemathesis(service, "--exclude-checks", "ignored_auth", "--phases", "fuzzing"))


def test_the_document_describes_the_refusal_of_every_rule() -> None:
    from tests.service.openapi_rules import RULES  # imported here, because schemathesis takes a second to load

    operations = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    for rule in RULES:
        for code in rule.code.split("|"):
            concerned = [each for each in operations if re.fullmatch(rule.operations, each["operationId"])]
            described = [f"`{code}`" in str(each["responses"]) for each in concerned]
            assert any(described), rule
