"""Test `rankcurve curve` on a real service: summary and document."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import Result

from tests.service.cli_fake_service import run_at
from tests.service.climbed_board import EXACT_TOP, climbed_board
from tests.service.offline_ranks import rank_of
from tests.service.real_service import Process

OWNERS = 60
PNG_START = b"\x89PNG\r\n\x1a\n"
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Start a service with two boards. Both have the columns xp and lap.

    Board `b` has entries, and board `empty` has none.
    """
    folder = tmp_path_factory.mktemp("serving")
    with Process(folder) as process:
        for board in ("b", "empty"):
            run_at(process.url, "board", "create", board, "-c", "xp:last:high", "-c", "lap:min:low:scale=2")
        lines = [f"p{i},{i * i},{100 + i % 7}.5" for i in range(OWNERS)]
        (folder / "b.csv").write_text("\n".join(("id,xp,lap", *lines)) + "\n")
        columns = ("--column", "xp=xp", "--column", "lap=lap")
        run_at(process.url, "import", "b", str(folder / "b.csv"), "--owner-column", "id", *columns)
        for board in ("b", "empty"):
            run_at(process.url, "refresh", board)
        yield process


def test_the_summary_shows_the_method_of_the_curve_and_the_values_of_the_best(run: Run) -> None:
    rows = [line.split() for line in run("curve", "b", "-c", "xp").stdout.splitlines()]
    assert rows[1][:4] == ["xp", "skip", str(OWNERS), str(OWNERS)]
    top = {" ".join(row[:-2]): row[-2:] for row in rows[4:]}
    assert top["top 1"] == [str((OWNERS - 1) ** 2), "exact"]
    assert top["top 10"] == [str((OWNERS - 10) ** 2), "exact"]
    assert "top 100" not in top
    assert top["top 1.0 %"][0] == str((OWNERS - 1) ** 2)


def test_the_shown_error_stays_small_after_owners_climb_past_the_top(serving: Process, run: Run) -> None:
    state = asyncio.run(climbed_board(serving.url, "climbed"))
    assert state["certificate"] > 1, "otherwise this test proves nothing"
    assert state["bound"] < 0.1, "otherwise this test proves nothing"
    shown = run("curve", "climbed", "-c", "xp").stdout
    assert f"{100 * float(state['bound']):.3g} % past rank {EXACT_TOP}" in shown
    assert "off by at most" in shown
    assert f"{100 * float(state['certificate']):.3g} %" not in shown
    document = json.loads(run("curve", "climbed", "-c", "xp", "--json").stdout)
    assert document["certificate"] == state["certificate"]


def test_an_audit_shows_no_error_of_ranks_that_are_counted_after_owners_climb_past_the_top(
    serving: Process, run: Run
) -> None:
    state = asyncio.run(climbed_board(serving.url, "audited"))
    assert state["certificate"] > 1, "otherwise this test proves nothing"
    heading, row = run("audit", "audited", "-c", "xp").stdout.splitlines()[:2]
    assert "off by at most" in heading
    assert f"{100 * float(state['bound']):.3g} %" in row
    document = json.loads(run("audit", "audited", "-c", "xp", "--json").stdout)
    assert document["worst_error"] <= document["bound"] == float(state["bound"])


def test_a_board_whose_ranks_are_all_counted_has_no_error(run: Run) -> None:
    assert "nothing, every rank is counted" in run("curve", "b", "-c", "xp").stdout


def test_a_client_can_rank_offline_with_the_json_of_the_command(run: Run) -> None:
    document = json.loads(run("curve", "b", "-c", "lap", "--json").stdout)
    assert document["best"] == "low"
    assert rank_of(document, "100.50") == (1, 1, 1)
    assert rank_of(document, 103) == (28, 28, 28)


def test_the_curve_of_an_unknown_board_is_reported_in_one_line(run: Run) -> None:
    assert run("curve", "none", "-c", "xp", code=1).stderr.startswith("error: unknown_board")
