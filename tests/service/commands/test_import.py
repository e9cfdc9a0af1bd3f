"""Test that `rankcurve import` counts every line exactly once, whatever interrupts the import."""

import csv
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

from service.commands.imports import csv_import
from service.commands.imports.import_lines import Field, Plan, SourcePosition, owner_fault, read_batches
from tests.service.cli_fake_service import FakeBoard, FakeService, run
from tests.service.real_service import WAIT_S, environment


@pytest.fixture(autouse=True)
def b(fake: FakeService) -> FakeBoard:
    return fake.add_board("b", {"name": "xp"}, {"name": "lap", "merge": "min", "best": "low", "scale": 3})


@pytest.fixture
def players(tmp_path: Path) -> Path:
    """Write a CSV file with 25 players on lines 2 to 26: p0 to p24 with the scores 0, 10 and so on to 240."""
    path = tmp_path / "players.csv"
    path.write_text("id,score\n" + "".join(f"p{i},{i * 10}\n" for i in range(25)))
    return path


def do_import(fake: FakeService, path: Path, *more: str, code: int | None = None) -> Result:
    arguments = ["b", str(path), "--owner-column", "id", "--column", "xp=score", "--batch", "4", *more]
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


def test_a_queued_import_counts_accepted_lines_and_lists_refused_ones(fake: FakeService, players: Path) -> None:
    fake.refused_owners = {"p5"}
    result = do_import(fake, players, "--queued", code=1)
    assert "25 lines: 24 accepted, 0 applied, 0 unchanged, 0 duplicate, 1 rejected" in result.stdout
    assert "line 7: bad_value" in result.stderr
    assert fake.xp("b") == {f"p{i}": str(i * 10) for i in range(25) if i != 5}
    assert {path for method, path in fake.requests if method == "POST"} == {"/v1/leaderboards/b/posts?mode=queued"}


def test_a_second_import_of_the_same_file_counts_no_line_again(fake: FakeService, players: Path) -> None:
    do_import(fake, players)
    result = do_import(fake, players, "--batch", "7", code=0)
    assert "25 lines: 0 applied, 0 unchanged, 25 duplicate, 0 rejected" in result.stdout


def test_an_import_with_another_label_or_mapping_counts_the_same_file_again(fake: FakeService, players: Path) -> None:
    do_import(fake, players)
    assert "25 applied" in do_import(fake, players, "--label", "again").stdout
    assert "25 applied" in do_import(fake, players, "--column", "lap=score").stdout


@pytest.fixture
def summed(fake: FakeService, tmp_path: Path) -> Path:
    """Write a CSV file, and add a board `s`. Its columns xp and wins merge by `sum`, and its column best does not."""
    fake.add_board("s", {"name": "xp", "merge": "sum"}, {"name": "wins", "merge": "sum"}, {"name": "best"})
    path = tmp_path / "summed.csv"
    path.write_text("id,score,won,top\n" + "".join(f"p{i},{i},{i % 2},{i * i}\n" for i in range(9)))
    return path


def import_sums(fake: FakeService, path: Path, *columns: str, more: tuple[str, ...] = ()) -> Result:
    mapping = [word for column in columns for word in ("-c", column)]
    return run("import", "s", str(path), "--owner-column", "id", *mapping, *more, fake=fake)


def test_an_import_warns_before_it_would_add_up_the_same_file_again(fake: FakeService, summed: Path) -> None:
    assert "warning" not in import_sums(fake, summed, "xp=score").stderr
    assert "warning" not in import_sums(fake, summed, "xp=score").stderr, "each line counts once"
    assert "warning" not in import_sums(fake, summed, "wins=won", "best=top").stderr
    again = import_sums(fake, summed, "xp=score", "wins=won")
    assert again.exit_code == 0
    [warning] = [line for line in again.stderr.splitlines() if line.startswith("warning")]
    assert "with wins=won, xp=score;" in warning
    assert "added to these columns again" in warning
    assert "warning" in import_sums(fake, summed, "xp=top").stderr
    assert "warning" not in import_sums(fake, summed, "xp=top", more=("--label", "on purpose")).stderr
    assert "warning" not in import_sums(fake, summed, "best=score").stderr


def test_an_import_at_a_terminal_asks_before_it_adds_up_a_file_again(
    fake: FakeService, summed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_sums(fake, summed, "xp=score")
    monkeypatch.setattr(csv_import, "is_interactive", lambda: True)
    sent = len(fake.batches)
    arguments = ("import", "s", str(summed), "--owner-column", "id", "-c", "xp=score", "-c", "wins=won")
    run(*arguments, fake=fake, stdin="n\n", code=1)
    assert len(fake.batches) == sent
    run(*arguments, fake=fake, stdin="y\n", code=0)
    assert len(fake.batches) == sent + 1


def test_one_ctrl_c_ends_the_question_and_the_import(fake: FakeService, summed: Path) -> None:
    import_sums(fake, summed, "xp=score")
    sent = len(fake.batches)
    arguments = ("import", "s", str(summed), "--owner-column", "id", "-c", "xp=score", "-c", "wins=won")
    command = [sys.executable, "-m", "service.cli", *arguments, "--url", fake.url]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, env=environment()) as asking:
        try:
            assert asking.stderr is not None
            said = b""
            while b"once more?" not in said and (more := os.read(asking.stderr.fileno(), 4096)):
                said += more
            asking.send_signal(signal.SIGINT)
            assert asking.wait(WAIT_S) == 1, said
        finally:
            asking.kill()
            os.close(ours)
            os.close(theirs)
    assert len(fake.batches) == sent


def test_an_import_without_effect_causes_no_warning_later(fake: FakeService, summed: Path) -> None:
    fake.rejected_owners = {f"p{i}" for i in range(9)}
    import_sums(fake, summed, "xp=score")
    fake.rejected_owners = set()
    assert "warning" not in import_sums(fake, summed, "xp=score", "wins=won").stderr, "all its lines were rejected"
    fake.boards["s"].stats.clear()
    assert "warning" not in import_sums(fake, summed, "xp=top").stderr, "the board was emptied"


def test_a_stopped_import_with_another_mapping_causes_a_warning_later(fake: FakeService, summed: Path) -> None:
    fake.posts_before_outage = 1
    import_sums(fake, summed, "xp=score", more=("--batch", "4", "--concurrency", "1"))
    fake.posts_before_outage = None
    assert "warning" in import_sums(fake, summed, "xp=score", "wins=won").stderr


NOISY = "id,lap,score\na,48.682000000000002,7\nb,60.25,7.0\nc,-0.00049999999999,7.4\nd,1.9995000000001,-0.2\n"


def test_only_the_option_round_rounds_noisy_scores_to_a_scale(fake: FakeService, b: FakeBoard, tmp_path: Path) -> None:
    path = tmp_path / "noisy.csv"
    path.write_text(NOISY)
    arguments = ("import", "b", str(path), "--owner-column", "id", "-c", "lap", "-c", "xp=score")
    result = run(*arguments, "--round", fake=fake, code=0)
    stats = {owner: (held["lap"], held["xp"]) for owner, held in b.stats.items()}
    assert stats == {"a": ("48.682", "7"), "b": ("60.25", "7.0"), "c": ("0.000", "7"), "d": ("2.000", "0")}
    assert result.stdout.splitlines()[-1].endswith("; values rounded: 5")
    assert "rounded" not in run(*arguments, "--restart", "--label", "as they are", fake=fake).stdout
    assert b.stats["a"]["lap"] == "48.682000000000002"


# With `--round`, an import starts anew, because lines before the mark may have been rejected for their digits.
@pytest.mark.parametrize("option", ["--round", "--restart"])
def test_an_import_that_starts_anew_counts_no_line_twice(fake: FakeService, players: Path, option: str) -> None:
    import_until_outage(fake, players, 3, "--concurrency", "1")
    again = do_import(fake, players, option, code=0)
    assert "continuing after" not in again.stderr
    assert "25 lines: 13 applied, 0 unchanged, 12 duplicate" in again.stdout


def test_rejected_lines_are_listed_with_their_numbers_and_the_others_count(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    content = b"id,score|good,1|word,abc|,5|short||empty,|\xff\xfe,7|big,9|last,-2.50".replace(b"|", b"\n")
    path.write_bytes(content)
    lines = content.splitlines()
    fake.rejected_owners = {"big"}
    rejects = tmp_path / "rejects.csv"
    result = do_import(fake, path, "--rejects", str(rejects), code=1)
    assert fake.xp("b") == {"good": "1", "last": "-2.50"}
    assert "8 lines: 2 applied, 0 unchanged, 0 duplicate, 6 rejected" in result.stdout
    assert "line 9: value_out_of_range: too large (/stats/xp)" in result.stderr
    assert rejects.read_bytes().split(b"\n") == [lines[i] for i in (0, 2, 3, 4, 6, 7, 8)] + [b""]
    with Path(f"{rejects}.reasons").open(newline="") as stream:
        reasons = list(csv.DictReader(stream))
    assert [row["line"] for row in reasons] == ["3", "4", "5", "7", "8", "9"]
    assert [row["rejects_line"] for row in reasons] == ["2", "3", "4", "5", "6", "7"]
    assert reasons[-1]["reason"] == "value_out_of_range: too large (/stats/xp)"


def test_a_value_with_an_exponent_is_imported_with_its_digits(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("id,score\nsmall,2E-9\nlarge,-1.5e+3\nplain,007\nhuge,1e99\nno,2E\n")
    refused = do_import(fake, path, code=1)
    assert fake.xp("b") == {"small": "0.000000002", "large": "-1500", "plain": "007"}
    assert "is not a decimal number" in refused.stderr
    assert "2 rejected" in refused.stdout


def test_a_request_refused_as_a_whole_rejects_only_the_line_at_fault(fake: FakeService, players: Path) -> None:
    fake.refused_owners = {"p6", "p7"}
    result = do_import(fake, players, "--batch", "25", code=1)
    assert "line 8: bad_value: the owner is not acceptable" in result.stderr
    assert set(fake.xp("b")) == {f"p{i}" for i in range(25)} - {"p6", "p7"}


def test_an_import_retries_a_busy_service_at_the_requested_time(fake: FakeService, b: FakeBoard, players: Path) -> None:
    fake.failures = [(429, {"Retry-After": "0"}, "queue_full"), (503, {"Retry-After": "0"}, "store_busy")]
    do_import(fake, players, "--concurrency", "1", code=0)
    assert len(b.stats) == 25


def test_a_stopped_import_continues_after_the_last_line_with_a_known_outcome(fake: FakeService, players: Path) -> None:
    stopped = import_until_outage(fake, players, 3, "--concurrency", "1")
    assert "internal: as asked" in stopped.stderr
    assert "run the same command again" in stopped.stderr
    assert (players.parent / "players.csv.b.resume").exists()
    fake.batches = []
    finished = do_import(fake, players, code=0)
    assert "continuing after line 13 (12 lines done before)" in finished.stderr
    assert "25 lines: 25 applied, 0 unchanged, 0 duplicate" in finished.stdout
    assert sum(len(batch) for batch in fake.batches) == 13
    assert not (players.parent / "players.csv.b.resume").exists()


def test_an_import_reads_a_changed_file_from_the_top(fake: FakeService, players: Path) -> None:
    import_until_outage(fake, players, 3)
    players.write_text(players.read_text() + "new,7\n")
    result = do_import(fake, players)
    assert "continuing after" not in result.stderr
    assert "26 lines" in result.stdout
    assert len(fake.xp("b")) == 26


@pytest.mark.parametrize(("column", "spec"), [({"merge": "last"}, {}), ({}, {"ties": "earliest"})])
def test_an_import_sends_one_batch_at_a_time_if_their_order_matters(
    fake: FakeService, players: Path, column: dict[str, str], spec: dict[str, str]
) -> None:
    fake.add_board("b", {"name": "xp"} | column, **spec)
    do_import(fake, players, "--concurrency", "8", code=0)
    assert fake.in_flight_max == 1
    assert [post["owner"] for batch in fake.batches for post in batch] == [f"p{i}" for i in range(25)]


def test_an_import_stops_after_too_many_rejected_lines(fake: FakeService, players: Path) -> None:
    fake.rejected_owners = {f"p{i}" for i in range(25)}
    result = do_import(fake, players, "--rejected-max", "5", "--concurrency", "1", code=1)
    assert "is the mapping right?" in result.stderr
    assert len(fake.batches) == 2
    again = do_import(fake, players, "--rejected-max", "5", "--concurrency", "1")
    assert (again.exit_code, len(fake.batches)) == (1, 2), "no batch is sent that would stop the import again"
    assert "With a larger --rejected-max it continues" in again.stderr
    fake.rejected_owners = set()
    finished = do_import(fake, players, "--rejected-max", "8")
    assert "continuing after line 9" in finished.stderr
    assert "25 lines: 17 applied, 0 unchanged, 0 duplicate, 8 rejected" in finished.stdout


def test_the_help_explains_edited_files_mappings_and_the_limit_of_rejected_lines() -> None:
    text = re.sub(r"[\s│]+", " ", run("import", "--help").stdout)
    assert "An edited file is another file" in text
    assert "COLUMN=HEADING" in text
    assert "posts the values under score as xp" in text.replace("`", "")
    assert "to continue, run again with a larger number" in text


def test_an_import_without_a_service_fails_at_once_and_says_what_to_start(players: Path, unused_tcp_port: int) -> None:
    nowhere = FakeService(url=f"http://127.0.0.1:{unused_tcp_port}")
    result = do_import(nowhere, players)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "start it with `rankcurve serve`" in result.stderr
    waited = do_import(nowhere, players, "--wait", "--retries", "1")
    assert waited.stderr.splitlines()[0].startswith("waiting for the service: no answer from")


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
        (["--owner-column", "id", "-c", "nope=score"], "b has no column 'nope'; it has xp, lap"),
        (["--owner-column", "id", "-c", "xp=nope"], "has no heading 'nope'; it has id, score"),
        (["--owner-column", "who", "-c", "xp=score"], "has no heading 'who'"),
        (["--owner-column", "id", "-c", "xp=score", "-c", "xp=id"], "column xp is mapped twice"),
        (["--owner-column", "id"], "no heading is a column of b (xp, lap)"),
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


def test_an_import_continues_without_a_resume_file_if_it_cannot_write_one(fake: FakeService, players: Path) -> None:
    result = do_import(fake, players, "--resume-file", str(players / "below-a-file"), code=0)
    assert result.stderr.count("note: cannot write") == 1
    assert len(fake.xp("b")) == 25


def test_an_empty_file_is_refused_and_one_with_headings_only_imports_nothing(fake: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    assert "is empty" in do_import(fake, path).stderr
    path.write_text("id,score\n")
    result = do_import(fake, path)
    assert (result.exit_code, result.stdout.startswith("0 lines")) == (0, True)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=12), batch_posts=st.integers(1, 5))
def test_reading_from_any_mark_gives_the_same_batches_as_reading_the_whole_file(
    tmp_path: Path, rows: list[tuple[str, str]], batch_posts: int
) -> None:
    path = tmp_path / "any.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([("id", "tag"), *rows])
    plan = Plan("id", (Field("tag", "tag", text=True),), ",", "x")
    whole = list(read_batches(path, plan, SourcePosition(), batch_posts_max=batch_posts))
    assert sum(len(batch.posts) + len(batch.rejected) for batch in whole) == len(rows)
    for index, batch in enumerate(whole[:-1]):
        rest = list(read_batches(path, plan, batch.end, batch_posts_max=batch_posts))
        assert [b.posts for b in rest] == [b.posts for b in whole[index + 1 :]]
        assert [b.rejected for b in rest] == [b.rejected for b in whole[index + 1 :]]


@pytest.mark.parametrize(
    ("owner", "fault"),
    [("é-1", None), ("", "1 to 128"), ("x" * 129, "1 to 128"), ("a\tb", "control"), ("\udcff", "UTF-8")],
)
def test_an_invalid_owner_is_found_before_it_is_sent(owner: str, fault: str | None) -> None:
    found = owner_fault(owner)
    assert (found is None) if fault is None else (found is not None and fault in found)
