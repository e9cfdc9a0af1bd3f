"""Run the examples against a real service, as their first lines say, and the first lines of the client's README."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from rankcurve import AsyncClient

from tests.service.real_service import ROOT, WAIT_S, Service, environment

EXAMPLES = ROOT / "examples"
FIRST_LINES_MAX = 6


async def run_python(*words: str, folder: Path) -> str:
    """Run a Python program in a folder, and return what it prints."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=folder, env=environment(), stdout=subprocess.PIPE
    )
    printed, _ = await asyncio.wait_for(program.communicate(), WAIT_S)
    assert program.returncode == 0
    return printed.decode()


async def test_the_match_server_posts_and_the_chat_command_answers(service: Service, tmp_path: Path) -> None:
    script = str(EXAMPLES / "match_server.py")
    assert "best lap: RankedEntry(rank=1" in await run_python(script, service.base, "300", folder=tmp_path)
    async with AsyncClient(service.base) as client:
        assert len([line async for line in client.journal()]) == 300 * 4
    chat = str(EXAMPLES / "chat_command.py")
    said = await run_python(chat, service.base, "arena", "rank of player-7", folder=tmp_path)
    assert re.fullmatch(r"player-7: #\d+ of 100 in xp, #\d+ of 100 in best_lap\n", said)
    said = await run_python(chat, service.base, "arena", "rank of nobody", folder=tmp_path)
    assert said == "nobody has not played yet\n"
    assert await run_python(chat, service.base, "arena", "hello", folder=tmp_path) == "I know: rank of NAME\n"


async def test_the_first_lines_of_python_post_and_rank(service: Service, tmp_path: Path) -> None:
    page = (ROOT / "clients/python/README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    lines = [line for line in code.splitlines() if line]
    assert len(lines) <= FIRST_LINES_MAX
    assert "http://127.0.0.1:8080" in code
    printed = await run_python("-c", code.replace("http://127.0.0.1:8080", service.base), folder=tmp_path)
    assert printed == "1\n"


def test_the_examples_are_as_short_as_promised() -> None:
    code = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.iterdir() if path.is_file()}
    sizes = {name: sum(bool(line.strip()) for line in text.splitlines()) for name, text in code.items()}
    assert sizes["match_server.py"] <= 30
    assert sizes["web_page.html"] <= 80
    assert sizes["league_page.html"] <= 90
    assert sizes["token_endpoint.py"] <= 26
    assert sizes["chat_command.py"] <= 20
