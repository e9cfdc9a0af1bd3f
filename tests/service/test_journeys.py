"""Test that two requests pass through the modules that docs/architecture.md names, and through no others.

The requests are a post and a request for positions. For each of them, the document describes a journey and prints in
bold the modules that decide something. All others must be helpers. `tests/service/ways.py` traces both.
"""

import re

from tests.service.ways import ROOT, Calls, Ways

POST_MODULES_MAX = 10
POSITIONS_MODULES_MAX = 8
# Modules and rooms on the way of a request that decide nothing about it: they convert, remember, carry or measure.
HELPERS = (
    # values and their forms
    "service/contract/requests.py",
    "service/contract/strict_json.py",
    "service/contract/values.py",
    "storage/log/bundles.py",
    "storage/log/cells.py",
    # SQL, whose rows the caller judges
    "storage/leaves/entries.py",
    "storage/leaves/gates.py",
    "storage/log/change_log.py",
    "storage/posting/group_facts.py",
    "storage/posting/post_ids.py",
    # the memory of the process, and the arithmetic of curves
    "predictor/live.py",
    "predictor/locate.py",
    "service/ranks/rank_context.py",
    "storage/boards/catalog.py",
    "storage/curves/curve_book.py",
    "storage/reads/open_boards.py",
    # between the socket and the endpoint
    "service/app.py",
    "service/http/fast_json.py",
    "service/http/malformed.py",
    "service/http/route_table.py",
    # between a program and the database
    "storage/coalesce.py",
    "storage/engines/brief_reads.py",
    "storage/engines/sqlite.py",
    "storage/engines/sqlite_checkpoints.py",
    "storage/posting/transaction.py",
    # measurement
    "service/telemetry",
    "service/wiring.py",
    "storage/meter.py",
)
# These helpers run functions of named modules that were passed to them, so they may call named modules.
CARRIERS = {
    "service/app.py",
    "storage/coalesce.py",
    "storage/engines/brief_reads.py",
    "storage/engines/sqlite.py",
    "storage/posting/transaction.py",
}
# These helpers read editions, and let `totals` compare them with the copies.
READERS = {"storage/leaves/entries.py", "storage/leaves/exact_ranks.py"}


def section(title: str) -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.search(rf"^##+ {title}[^\n]*\n(.+?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/architecture.md has no section {title!r}"
    return found[1]


def named_modules(journey: str) -> list[str]:
    return re.findall(r"\*\*`([\w/]+\.py)`\*\*", section(journey))


def is_helper(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}/") for each in HELPERS)


def test_both_journeys_pass_the_modules_that_the_page_names(ways: Ways) -> None:
    of_post, of_positions = ways["way: post"], ways["way: positions"]
    check_journey("One post", of_post, POST_MODULES_MAX)
    check_journey("One `positions` request", of_positions, POSITIONS_MODULES_MAX)
    passed = {call.module for call in of_post | of_positions}
    unused = [each for each in HELPERS if not any(f"{module}/".startswith(f"{each}/") for module in passed)]
    assert unused == [], "listed as helpers, but on neither path"


def check_journey(journey: str, calls: Calls, modules_max: int) -> None:
    """Compare the calls of one journey with the document. Fail if a helper calls a named module."""
    # The package querybuilder is left out, because most modules of storage use it.
    between = {(call.caller, call.module) for call in calls if not call.module.startswith("querybuilder/")}
    named, passed = named_modules(journey), {called for _, called in between if called}
    assert len(named) <= modules_max
    assert sorted(set(named)) == sorted(named), "a module is named twice"
    assert [module for module in named if module not in passed] == [], f"{journey}: named, but not on the path"
    others = sorted(module for module in passed - set(named) if not is_helper(module))
    assert others == [], f"{journey}: on the path, but neither named nor a helper"
    assert not any(map(is_helper, named)), "both named and a helper"
    upwards = [(caller, called) for caller, called in between if is_helper(caller) and called in named]
    assert [call for call in upwards if call[0] not in CARRIERS | READERS] == [], (
        f"{journey}: a helper calls a named module"
    )
