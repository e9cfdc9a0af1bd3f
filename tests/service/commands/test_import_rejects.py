"""Test `rankcurve import --rejects`. It writes rejected lines to a file that a user can correct and import."""

import csv
import os
from pathlib import Path

import pytest
from typer.testing import Result

from tests.service.cli_fake_service import FakeBoard, FakeService, run


@pytest.fixture(autouse=True)
def b(fake: FakeService) -> FakeBoard:
    return fake.add_board("b", {"name": "xp"}, {"name": "tag", "merge": "last", "sorted": False, "type": "text"})


@pytest.fixture
def rejects(tmp_path: Path) -> Path:
    return tmp_path / "rejects.csv"


def do_import(fake: FakeService, path: Path, *more: str, code: int | None = None) -> Result:
    return run("import", "b", str(path), "--owner-column", "id", "--batch", "4", *more, fake=fake, code=code)


def bad_scores(folder: Path, lines: int) -> Path:
    """Write a CSV file with one owner in each line. Every third score is not a number."""
    path = folder / "players.csv"
    rows = "".join(f"p{i},{'bad' if i % 3 == 0 else i}\n" for i in range(lines))
    path.write_text("id,xp\n" + rows)
    return path


def reason_lines(rejects: Path) -> list[int]:
    """Return the line numbers from the file of reasons. The numbers refer to the imported file."""
    with Path(f"{rejects}.reasons").open(newline="") as stream:
        return [int(row["line"]) for row in csv.DictReader(stream)]


def test_a_corrected_file_of_rejects_counts_only_its_lines(fake: FakeService, tmp_path: Path, rejects: Path) -> None:
    path = bad_scores(tmp_path, 25)
    first = do_import(fake, path, "--rejects", str(rejects))
    assert "16 applied" in first.stdout
    assert f"correct {rejects}" in first.stderr
    rejects.write_text(rejects.read_text().replace("bad", "7"))
    second = do_import(fake, rejects)
    assert (second.exit_code, second.stdout.startswith("9 lines: 9 applied")) == (0, True)
    assert fake.xp("b") == {f"p{i}": "7" if i % 3 == 0 else str(i) for i in range(25)}


def test_a_rejected_record_is_written_byte_for_byte(fake: FakeService, tmp_path: Path, rejects: Path) -> None:
    path = tmp_path / "quoted.csv"
    heading = b'\xef\xbb\xbf"id";xp;"tag"\r\n'
    record = b'"a ""b""";bad;"two\r\nlines; and more"\r\n'
    path.write_bytes(heading + b"good;1;x\r\n" + record + b"last;bad;no end of line")
    do_import(fake, path, "--delimiter", ";", "--rejects", str(rejects), code=1)
    assert rejects.read_bytes() == heading + record + b"last;bad;no end of line\n"
    rejects.write_bytes(rejects.read_bytes().replace(b"bad", b"2"))
    do_import(fake, rejects, "--delimiter", ";", code=0)
    assert fake.boards["b"].stats['a "b"'] == {"xp": "2", "tag": "two\r\nlines; and more"}


def test_an_import_that_runs_again_lists_every_rejected_line_once(
    fake: FakeService, tmp_path: Path, rejects: Path
) -> None:
    path = bad_scores(tmp_path, 25)
    fake.posts_before_outage = 3
    do_import(fake, path, "--rejects", str(rejects), "--concurrency", "1", code=1)
    fake.posts_before_outage = None
    do_import(fake, path, "--rejects", str(rejects), code=1)
    assert rejects.read_text() == "id,xp\n" + "".join(f"p{i},bad\n" for i in range(0, 25, 3))
    assert reason_lines(rejects) == [i + 2 for i in range(0, 25, 3)]


@pytest.mark.parametrize("name", ["itself", "link", "hard", "reasons"])
def test_rejects_never_overwrite_the_file_to_import(fake: FakeService, tmp_path: Path, name: str) -> None:
    path = bad_scores(tmp_path, 25)
    if name == "reasons":  # the imported file has the name of the second file that the option writes
        path = path.rename(tmp_path / "x.csv.reasons")
    other = path.with_suffix("") if name == "reasons" else path.with_name(name) if name != "itself" else path
    if name == "link":
        other.symlink_to(path)
    elif name == "hard":
        os.link(path, other)
    content = path.read_bytes()
    result = do_import(fake, path, "--rejects", str(other))
    assert (result.exit_code, "is both the file to import and" in result.stderr) == (1, True)
    assert path.read_bytes() == content
    assert not fake.batches


def test_an_unwritable_file_of_rejects_is_reported_before_any_request(fake: FakeService, tmp_path: Path) -> None:
    result = do_import(fake, bad_scores(tmp_path, 4), "--rejects", str(tmp_path / "none" / "rejects.csv"), code=1)
    assert "No such file or directory" in result.stderr
    assert not fake.batches
