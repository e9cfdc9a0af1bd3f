"""Test that `rankcurve import` counts every line exactly once, whatever interrupts the import."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

from service.commands.imports.csv_import import Field, Lines, RecordReader, read_batches
from service.commands.imports.import_records import owner_fault
from tests.service.cli_fake_service import FakeBoard, FakeService, run


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


NOISY = "id,lap,score\na,48.682000000000002,7\nb,60.25,7.0\nc,-0.00049999999999,7.4\nd,1.9995000000001,-0.2\n"


def test_only_the_option_round_rounds_noisy_scores_to_a_scale(fake: FakeService, b: FakeBoard, tmp_path: Path) -> None:
    path = tmp_path / "noisy.csv"
    path.write_text(NOISY)
    arguments = ("import", "b", str(path), "--owner-column", "id", "-c", "lap", "-c", "xp=score")
    result = run(*arguments, "--round", fake=fake, code=0)
    stats = {owner: (held["lap"], held["xp"]) for owner, held in b.stats.items()}
    assert stats == {"a": ("48.682", "7"), "b": ("60.25", "7.0"), "c": ("0.000", "7"), "d": ("2.000", "0")}
    assert result.stdout.splitlines()[-1].endswith("; values rounded: 5")
    assert "rounded" not in run(*arguments, "--label", "as they are", fake=fake).stdout
    assert b.stats["a"]["lap"] == "48.682000000000002"


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
    result = do_import(fake, players, "--batch", "25", code=1)
    assert "line 8: bad_value: the owner is not acceptable" in result.stderr
    assert set(fake.xp("b")) == {f"p{i}" for i in range(25)} - {"p6", "p7"}


def test_an_import_retries_a_busy_service_at_the_requested_time(fake: FakeService, b: FakeBoard, players: Path) -> None:
    fake.failures = [(429, {"Retry-After": "0"}, "queue_full"), (503, {"Retry-After": "0"}, "store_busy")]
    do_import(fake, players, "--concurrency", "1", code=0)
    assert len(b.stats) == 25


# With `--round`, the second run may accept lines that the first one rejected for their digits, so ids stay the same.
@pytest.mark.parametrize("options", [[], ["--round"]])
def test_a_stopped_import_that_runs_again_counts_no_line_twice(
    fake: FakeService, players: Path, options: list[str]
) -> None:
    stopped = import_until_outage(fake, players, 3, "--concurrency", "1")
    assert "internal: as asked" in stopped.stderr
    assert "run the same command again: no line counts twice" in stopped.stderr
    finished = do_import(fake, players, *options, code=0)
    assert "25 lines: 13 applied, 0 unchanged, 12 duplicate" in finished.stdout
    assert list(players.parent.iterdir()) == [players]


def test_an_import_counts_all_lines_of_a_changed_file(fake: FakeService, players: Path) -> None:
    import_until_outage(fake, players, 3)
    players.write_text(players.read_text() + "new,7\n")
    assert "26 lines: 26 applied" in do_import(fake, players).stdout
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
    assert "run again with a larger --rejected-max" in result.stderr
    fake.rejected_owners = set()
    assert "25 lines: 25 applied" in do_import(fake, players, "--rejected-max", "5").stdout


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
async def test_the_records_of_all_batches_are_the_bytes_of_the_file(
    tmp_path: Path, rows: list[tuple[str, str]], batch_posts: int
) -> None:
    path = tmp_path / "any.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([("id", "tag"), *rows])
    with path.open("rb") as content:
        lines = Lines(content)
        records = csv.reader(lines)
        headings = next(records)
        heading = lines.take_record()
        reader = RecordReader(headings, "id", [Field("tag", "tag", text=True, scale=None)], "x")
        batches = [batch async for batch in read_batches(lines, records, reader, batch_posts)]
    assert [len(batch.records) for batch in batches[:-1]] == [batch_posts] * (len(batches) - 1)
    read = [record for batch in batches for record in batch.records]
    assert b"".join([heading, *(record.raw for record in read)]) == path.read_bytes()
    assert [path.read_bytes().splitlines(keepends=True)[record.line - 1][:1] for record in read] == [
        record.raw[:1] for record in read
    ]
    for record, (owner, tag) in zip(read, rows, strict=True):
        if not isinstance(record.outcome, str):
            assert record.outcome[0] == {"owner": owner, "stats": {"tag": tag}, "post_id": f"import:x:{record.line}"}


@pytest.mark.parametrize(
    ("owner", "fault"),
    [("é-1", None), ("", "1 to 128"), ("x" * 129, "1 to 128"), ("a\tb", "control"), ("\udcff", "UTF-8")],
)
def test_an_invalid_owner_is_found_before_it_is_sent(owner: str, fault: str | None) -> None:
    found = owner_fault(owner)
    assert (found is None) if fault is None else (found is not None and fault in found)
