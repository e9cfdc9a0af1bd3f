"""Test that `rankcurve import` counts every line exactly once, whatever interrupts the import."""

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

from service.commands.imports import sending
from service.commands.imports.csv_import import read_rows
from tests.service.cli_fake_service import FakeBoard, FakeService, run


@pytest.fixture(autouse=True)
def b(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    monkeypatch.setattr(sending, "BATCH_POSTS", 4)
    return fake.add_board("b", {"name": "xp"}, {"name": "lap", "merge": "min", "best": "low", "scale": 3})


@pytest.fixture
def players(tmp_path: Path) -> Path:
    """Write a CSV file with 25 players on lines 2 to 26: p0 to p24 with the scores 0, 10 and so on to 240."""
    path = tmp_path / "players.csv"
    path.write_text("id,score\n" + "".join(f"p{i},{i * 10}\n" for i in range(25)))
    return path


def do_import(fake: FakeService, path: Path, *more: str, code: int | None = None) -> Result:
    arguments = ["b", str(path), "--owner-column", "id", "--column", "xp=score", *more]
    return run("import", *arguments, fake=fake, code=code)


def import_until_outage(fake: FakeService, path: Path, batches: int, *more: str) -> Result:
    fake.posts_before_outage = batches
    stopped = do_import(fake, path, *more, code=1)
    fake.posts_before_outage = None
    return stopped


def test_every_line_becomes_one_post_with_the_mapped_column(fake: FakeService, players: Path) -> None:
    result = do_import(fake, players, code=0)
    assert "25 lines: 25 applied, 0 unchanged, 0 duplicate, 0 rejected" in result.stdout
    assert fake.xp("b") == {f"p{i}": str(i * 10) for i in range(25)}
    assert list(players.parent.iterdir()) == [players]


def test_an_import_with_another_mapping_counts_the_same_file_again(fake: FakeService, players: Path) -> None:
    do_import(fake, players)
    assert "25 applied" in do_import(fake, players, "--column", "lap=score").stdout


NOISY = "id,lap,score\na,48.682000000000002,7\nb,60.25,7.0\nc,-0.00049999999999,7.4\nd,1.9995000000001,-0.2\n"


def test_only_the_option_round_rounds_noisy_scores_to_a_scale(fake: FakeService, b: FakeBoard, tmp_path: Path) -> None:
    path = tmp_path / "noisy.csv"
    path.write_text(NOISY)
    arguments = ("import", "b", str(path), "--owner-column", "id", "-c", "lap", "-c", "xp=score")
    run(*arguments, "--round", fake=fake, code=0)
    stats = {owner: (held["lap"], held["xp"]) for owner, held in b.stats.items()}
    assert stats == {"a": ("48.682", "7"), "b": ("60.25", "7.0"), "c": ("0.000", "7"), "d": ("2.000", "0")}
    b.post_ids.clear()
    run(*arguments, fake=fake)
    assert b.stats["a"]["lap"] == "48.682000000000002"


def test_rejected_lines_are_listed_with_their_numbers_and_the_others_count(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    content = b"id,score|good,1|word,abc|,5|short||empty,|\xff\xfe,7|big,9|last,-2.50".replace(b"|", b"\n")
    path.write_bytes(content)
    fake.rejected_owners = {"big"}
    result = do_import(fake, path, code=1)
    assert fake.xp("b") == {"good": "1", "last": "-2.50"}
    assert "8 lines: 2 applied, 0 unchanged, 0 duplicate, 6 rejected" in result.stdout
    owner = "an owner is 1 to 128 characters of UTF-8, and none of them is a control character"
    assert result.stderr.splitlines() == [
        "line 3: bad_value: 'abc' is not a decimal number",
        f"line 4: {owner}",
        "line 5: 1 cells, but 2 headings",
        "line 7: no value in any of the mapped columns",
        f"line 8: {owner}",
        "line 9: value_out_of_range: too large (/stats/xp)",
    ]


def test_a_record_of_several_lines_has_the_number_of_its_first_line(fake: FakeService, tmp_path: Path) -> None:
    fake.add_board("b", {"name": "xp"}, {"name": "tag", "type": "text"})
    path = tmp_path / "quoted.csv"
    path.write_bytes(b'id,score,tag\r\n"a ""b""",2,"two\r\nlines, and more"\r\nlast,bad,x\r\nodd,1,\xff\r\n')
    result = do_import(fake, path, "--column", "tag", code=1)
    assert fake.boards["b"].stats == {'a "b"': {"xp": "2", "tag": "two\r\nlines, and more"}}
    assert "line 4: bad_value" in result.stderr
    assert "line 5: tag: not UTF-8" in result.stderr


def test_a_cell_without_an_end_is_rejected_and_the_import_goes_on(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('id,score\na,"' + "1" * 200_000 + "\nb,2\n")
    result = do_import(fake, path, code=1)
    assert "line 2: not CSV: field larger than field limit" in result.stderr


def test_values_are_sent_as_they_are_and_the_service_says_which_are_no_numbers(
    fake: FakeService, tmp_path: Path
) -> None:
    path = tmp_path / "small.csv"
    path.write_text("id,score\nsmall,2E-9\nlarge,-1.5e+3\nplain,007\nhuge,1e99\nno,2E\n")
    refused = do_import(fake, path, code=1)
    assert fake.xp("b") == {"small": "2E-9", "large": "-1.5e+3", "plain": "007", "huge": "1e99"}
    assert "line 6: bad_value: '2E' is not a decimal number" in refused.stderr
    assert "1 rejected" in refused.stdout


def test_a_request_refused_as_a_whole_rejects_only_the_line_at_fault(fake: FakeService, players: Path) -> None:
    fake.refused_owners = {"p6", "p7"}
    result = do_import(fake, players, code=1)
    assert "line 8: bad_value: the owner is not acceptable" in result.stderr
    assert set(fake.xp("b")) == {f"p{i}" for i in range(25)} - {"p6", "p7"}


def test_an_import_retries_a_busy_service_at_the_requested_time(fake: FakeService, b: FakeBoard, players: Path) -> None:
    fake.failures = [(429, {"Retry-After": "0"}, "queue_full"), (503, {"Retry-After": "0"}, "store_busy")]
    do_import(fake, players, code=0)
    assert len(b.stats) == 25


# With `--round`, the second run may accept lines that the first one rejected for their digits, so ids stay the same.
@pytest.mark.parametrize("options", [[], ["--round"]])
def test_a_stopped_import_that_runs_again_counts_no_line_twice(
    fake: FakeService, players: Path, options: list[str]
) -> None:
    stopped = import_until_outage(fake, players, 3)
    assert "internal: as asked" in stopped.stderr
    finished = do_import(fake, players, *options, code=0)
    assert "25 lines: 13 applied, 0 unchanged, 12 duplicate" in finished.stdout
    assert list(players.parent.iterdir()) == [players]


def test_an_import_counts_all_lines_of_a_changed_file(fake: FakeService, players: Path) -> None:
    import_until_outage(fake, players, 3)
    players.write_text(players.read_text() + "new,7\n")
    assert "26 lines: 26 applied" in do_import(fake, players).stdout
    assert len(fake.xp("b")) == 26


def test_an_import_sends_its_lines_in_their_order(fake: FakeService, players: Path) -> None:
    do_import(fake, players, code=0)
    assert [post["owner"] for batch in fake.batches for post in batch] == [f"p{i}" for i in range(25)]


def test_an_import_without_a_service_fails_at_once_and_says_what_to_start(players: Path, unused_tcp_port: int) -> None:
    nowhere = FakeService(url=f"http://127.0.0.1:{unused_tcp_port}")
    result = do_import(nowhere, players)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "start it with `rankcurve serve`" in result.stderr


def test_an_import_that_is_refused_as_a_whole_says_what_to_do(fake: FakeService, b: FakeBoard, players: Path) -> None:
    fake.post_failure = (403, "forbidden")
    result = do_import(fake, players)
    assert (result.exit_code, b.stats, result.stderr.count("\n")) == (1, {}, 1)
    assert "a key with a higher role" in result.stderr
    del fake.boards["b"]
    result = do_import(fake, players)
    assert (result.exit_code, "unknown_board" in result.stderr) == (1, True)
    assert "rankcurve board create" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--owner-column", "id", "-c", "nope=score"], "the leaderboard has no column 'nope'; it has xp, lap"),
        (["--owner-column", "id", "-c", "xp=nope"], "has no heading 'nope'; it has id, score"),
        (["--owner-column", "who", "-c", "xp=score"], "has no heading 'who'"),
        (["--owner-column", "id", "-c", "xp=score", "-c", "xp=id"], "column xp is mapped twice"),
        (["--owner-column", "id"], "no heading is a column of the leaderboard (xp, lap)"),
    ],
)
def test_a_mapping_that_fits_neither_file_nor_board_is_explained(
    fake: FakeService, players: Path, arguments: list[str], message: str
) -> None:
    result = run("import", "b", str(players), *arguments, fake=fake, code=1)
    assert message in result.stderr
    assert not fake.batches


def test_an_import_without_a_mapping_takes_headings_of_columns(fake: FakeService, b: FakeBoard, tmp_path: Path) -> None:
    path = tmp_path / "same.csv"
    path.write_bytes(b"\xef\xbb\xbfid\txp\tother\tlap\na\t1\tx\t60.250\nb\t2\ty\t\n")
    run("import", "b", str(path), "--owner-column", "id", "--delimiter", "tab", fake=fake, code=0)
    assert b.stats == {"a": {"xp": "1", "lap": "60.250"}, "b": {"xp": "2"}}


def test_an_empty_file_is_refused_and_one_with_headings_only_imports_nothing(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    assert "is empty" in do_import(fake, path).stderr
    path.write_text("id,score\n")
    result = do_import(fake, path)
    assert (result.exit_code, result.stdout.startswith("0 lines")) == (0, True)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=12))
def test_every_record_of_a_file_is_read_with_the_number_of_its_line(
    tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    path, lines = tmp_path / "any.csv", []
    with path.open("w", encoding="utf-8", newline="") as stream:
        for row in rows:
            lines.append(path.read_text(encoding="utf-8").count("\n") + 1)
            csv.writer(stream, lineterminator="\n").writerow(row)
            stream.flush()
    assert list(read_rows(path, ",")) == [(line, list(row)) for line, row in zip(lines, rows, strict=True)]


def test_a_computed_column_is_left_out_and_never_imported(fake: FakeService, tmp_path: Path) -> None:
    ratio = {"name": "ratio", "merge": "quotient", "of": "xp", "per": "lap"}
    board = fake.add_board("c", {"name": "xp"}, {"name": "lap"}, ratio)
    file = tmp_path / "exported.csv"
    file.write_text("owner,xp,lap,ratio\nada,6,3,2\n", encoding="utf-8")
    run("import", "c", str(file), "--owner-column", "owner", fake=fake, code=0)
    assert board.stats == {"ada": {"xp": "6", "lap": "3"}}
    result = run("import", "c", str(file), "--owner-column", "owner", "-c", "ratio", fake=fake, code=1)
    assert "the leaderboard computes column 'ratio'; it has xp, lap" in result.stderr
