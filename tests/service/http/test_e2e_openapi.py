"""Let Schemathesis compare a running service with its OpenAPI document.

All checks of Schemathesis are on. `schemathesis.toml` and `openapi_rules` name the few exceptions with their reasons.
"""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from tests.service.cli_fake_service import make_key
from tests.service.openapi_checks import DOCUMENT
from tests.service.openapi_store import fill
from tests.service.real_service import ROOT, Caller, Process, Spawn, environment

CONFIG = ROOT / "tests/service/schemathesis.toml"
RUN_S_MAX = 600  # a run usually takes about 15 s on one core
# Schemathesis reads these limits from the document, and sends requests at each limit and beyond it. Small limits keep
# the requests short.
BOUNDS = ("--set", "posts_per_request_max=20", "--set", "lookup_owners_max=50", "--set", "query_values_max=50")
TOKENS = ("--set", f"player_token_keys={'s' * 32}")


def schemathesis(service: Process, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", *options]
    return subprocess.run(
        [*command, f"{service.url}/openapi.json"],
        cwd=service.folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=RUN_S_MAX,
    )  # fmt: skip


def check_clean(done: subprocess.CompletedProcess[str]) -> None:
    """Fail unless Schemathesis tested every operation of the document and found no difference."""
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    operations = sum(len(methods) for methods in DOCUMENT["paths"].values())
    # Schemathesis tests every operation except the one that returns the document.
    assert f"Tested: {operations - 1}" in done.stdout


async def test_a_service_with_keys_does_what_its_document_says(spawn: Spawn, tmp_path: Path) -> None:
    key = await asyncio.to_thread(make_key, tmp_path, "ops")
    service = spawn(*BOUNDS, *TOKENS).ready()
    async with Caller(service.url, key) as caller:
        await fill(caller)
    check_clean(schemathesis(service, "--header", f"Authorization: Bearer {key}"))


async def test_a_service_without_keys_does_what_its_document_says(spawn: Spawn) -> None:
    service = spawn(*BOUNDS, *TOKENS).ready()
    async with Caller(service.url) as caller:
        await fill(caller)
    # Without keys, every caller has the role ops, so the check `ignored_auth` does not apply. More requests, those at
    # the limits of parameters and sequences take most of the time, so only the run with a key sends them.
    check_clean(schemathesis(service, "--exclude-checks", "ignored_auth", "--phases", "fuzzing", "--max-examples", "1"))


def test_the_document_describes_the_refusal_of_every_rule() -> None:
    from tests.service.openapi_rules import RULES  # imported here, because schemathesis takes a second to load

    operations = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    for rule in RULES:
        for code in rule.code.split("|"):
            concerned = [each for each in operations if re.fullmatch(rule.operations, each["operationId"])]
            described = [f"`{code}`" in str(each["responses"]) for each in concerned]
            assert any(described), rule
