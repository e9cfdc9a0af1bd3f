"""Count the racing example in the README, Redis and Nakama, and run the first two against real servers."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from tests.installed_clients import node
from tests.servers import RedisServer
from tests.service.real_service import ROOT, WAIT_S, Service, environment

PAGE = (ROOT / "docs" / "racing.md").read_text(encoding="utf-8")
NAMES = ("rankcurve", "Redis", "Nakama")


def programs(name: str) -> list[str]:
    """Return the programs under a heading of the page."""
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```(?:python|js)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def count(name: str) -> tuple[int, int]:
    """Return the number of lines and of their characters, without blank lines, comments and indentation."""
    lines = [line.strip() for program in programs(name) for line in program.splitlines()]
    counted = [line for line in lines if line and not line.startswith(("#", "//"))]
    return len(counted), sum(map(len, counted))


def replace_all(code: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        code = code.replace(old, new)
    return code


def run(code: str, *command: str) -> str:
    done = subprocess.run(
        command or (sys.executable, "-c", code), env=environment(), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_has_the_shortest_program_and_the_page_has_its_counts() -> None:
    counts = {name: count(name) for name in NAMES}
    lines, characters = counts["rankcurve"]
    assert all(lines <= other[0] and characters <= other[1] for other in counts.values())
    told = re.findall(r"^\| \[(\w+)[^|]*\| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    assert {name: (int(lines), int(characters.replace(",", ""))) for name, lines, characters in told} == counts
    assert programs("rankcurve")[0] in (ROOT / "README.md").read_text(encoding="utf-8")


async def test_the_programs_print_the_same_laps_and_ranks(service: Service) -> None:
    [ours], [theirs] = programs("rankcurve"), programs("Redis")
    with RedisServer() as redis:
        ours = ours.replace("http://127.0.0.1:8080", service.base)
        theirs = theirs.replace("6379", str(redis.port))
        for driver, lap in (("zoe", 58.25), ("bob", 60), ("ada", 58.25)):
            words = {'"ada"': f'"{driver}"', "58.25": str(lap), "58_250": f"{lap * 1000:.0f}"}
            printed = [await asyncio.to_thread(run, replace_all(code, words)) for code in (ours, theirs)]
    assert re.findall(r"owner='(\w+)', value=Decimal\('([\d.]+)'\)", printed[0]) == 2 * [
        ("zoe", "58.250"), ("ada", "58.250"), ("bob", "60.000")
    ]  # fmt: skip
    assert "] 2 [" in printed[0], "Zoe has driven the same lap before"
    assert sorted(re.findall(r"\('(\w+)', ([\d.]+)\)", printed[1])) == sorted(
        2 * [("zoe", "58.25"), ("ada", "58.25"), ("bob", "60.0")]
    )


def test_the_programs_of_nakama_are_valid_javascript(tmp_path: Path) -> None:
    for number, code in enumerate(programs("Nakama")):
        path = tmp_path / f"{number}.mjs"
        path.write_text(code, encoding="utf-8")
        run("", str(node()), "--check", str(path))
