"""Run the examples against a real service, as their first lines say, and the first lines of the client's README."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rankcurve import AsyncClient

from tests.browser import open_page
from tests.clients.typescript_builds import build_typescript, serving_site
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


async def test_the_web_page_shows_ranks_and_follows_the_game(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, chromium_address: str
) -> None:
    dist = build_typescript(tmp_path_factory.mktemp("typescript"))
    open_to_pages = {"anonymous_role": "reader", "anonymous_reads_per_s": 0, "cors_origins": ("*",)}
    async with Service(tmp_path, **open_to_pages).running() as service:
        await service.board("arena", {"name": "xp", "merge": "sum"})
        await service.post_xp("arena", **{f"p{index}": 100 - index for index in range(20)})
        await service.create_first_key()
        folders = {"/clients/typescript/dist": dist, "/examples": EXAMPLES}
        async with serving_site(folders) as site, open_page(chromium_address) as page:
            await page.goto(f"{site}/examples/web_page.html?service={service.base}&me=p15&friends=p1,p2")
            await page.wait_for_text("p15 is #16 of 20", within="#rank")
            await page.wait_for("document.querySelectorAll('#top tr').length === 10")
            assert await page.texts("#top td:nth-child(2)") == [f"p{index}" for index in range(10)]
            await page.wait_for("document.querySelectorAll('#around tr').length === 7")
            await page.wait_for("document.querySelectorAll('#friends tr').length === 3")
            assert await page.texts("#friends td:nth-child(2)") == ["p1", "p2", "p15"]
            await service.post_xp("arena", p15=1000)
            await page.wait_for_text("p15 is #1 of 20", within="#rank")
            await page.wait_for("document.querySelector('#top td:nth-child(2)').textContent === 'p15'")
            await page.wait_for("document.querySelector('#friends td:nth-child(2)').textContent === 'p15'")
            assert page.errors == []


def test_the_examples_are_as_short_as_promised() -> None:
    code = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.iterdir() if path.is_file()}
    sizes = {name: sum(bool(line.strip()) for line in text.splitlines()) for name, text in code.items()}
    assert sizes["match_server.py"] <= 30
    assert sizes["web_page.html"] <= 60
    assert sizes["chat_command.py"] <= 20
